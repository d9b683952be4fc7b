"""Base of every learner: it sees a release once, then classifies raw extractor output."""

from __future__ import annotations

import inspect
import math
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from privmix._registry import Registry
from privmix.errors import InvalidInput, NotPrivateWarning
from privmix.learning.calibration import temperature_of
from privmix.learning.class_statistics import ClassPrior, class_statistics
from privmix.learning.data_model import DataModel, Measures
from privmix.learning.forecast import LinearRule
from privmix.learning.rows import as_release, slices
from privmix.plans.plan import Plan
from privmix.progress import Progress, silent
from privmix.publication.dataset import HasDataset, RecordTransform, ReleasedDataset

NOT_PRIVATE: Final = "fitted to records themselves: this model is NOT private, and for their owner alone"

# Records classified at once.
PREDICTION_BATCH = 4096


@dataclass(frozen=True)
class ReleaseFacts:
    """The public facts of a release with which a model classifies raw inputs; k means ``classes[k]``."""

    classes: tuple[str, ...]
    transform: RecordTransform
    extractor: Mapping[str, Any] = field(repr=False)
    input_shape: tuple[int, ...]
    release_id: str
    dim: int

    @classmethod
    def of(cls, release: ReleasedDataset) -> Self:
        return cls(
            classes=tuple(release.classes),
            transform=release.transform,
            extractor=dict(release.extractor),
            input_shape=tuple(release.input_shape),
            release_id=release.release_id,
            dim=release.dim,
        )


class ReleaseLearner:
    """Base of the scikit-learn estimators that learn from a release, at no privacy cost: learning is post-processing.

    Settings are the arguments of ``__init__``; pipelines, searches and ``clone`` of scikit-learn take it. A learner
    applies the release's ``transform`` to the features that it classifies: give it the extractor's output.

    Attributes:
        facts_: :class:`ReleaseFacts` of the release, set by ``fit``.
        rows_: number of released rows, set by ``fit`` and not saved.
        classes_: (K,) int64, class indices 0 .. K-1; fitted to records, their labels.
        n_features_in_: d.
        private_: whether it was fitted to a release, and not to records.
        temperature_: factor on scores before the softmax (:func:`privmix.learning.calibration.temperature_of`).
        told_: JSON values of the class prior that ``fit`` used and its weight, or None.
    """

    _estimator_type = "classifier"
    name: ClassVar[str]
    # Whether it takes a prior on class means.
    takes_prior: ClassVar[bool] = False
    # Whether it learns from rows, or only from the other released arrays.
    reads_rows: ClassVar[bool] = True
    # Whether second moments alone would do, where it reads rows too.
    reads_moments: ClassVar[bool] = False
    # Whether it goes over rows in epochs: settings ``augment`` and ``standardise``, and ``validation`` in ``fit``.
    in_epochs: ClassVar[bool] = False
    # Whether clean records can stand in for a release.
    takes_records: ClassVar[bool] = True
    facts_: ReleaseFacts
    rows_: int
    classes_: NDArray[Any]
    n_features_in_: int
    private_: bool = True
    told_: dict[str, Any] | None = None
    _prior: ClassPrior | None = None
    _temperature: float | None = None
    # Held until a caller reads the temperature, which takes a while on large releases.
    _fitted_to: ReleasedDataset | None = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name; ``deep`` changes nothing."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise InvalidInput(name, value, "one of " + ", ".join(known))
            setattr(self, name, value)
        return self

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on (n, d) features with (n,) labels."""
        return float(np.average(self.predict(X) == np.asarray(y), weights=sample_weight))

    def __repr__(self) -> str:
        usual = inspect.signature(type(self)).parameters
        changed = [f"{name}={value!r}" for name, value in self.get_params().items() if value is not usual[name].default]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator, ClassifierMixin

        class Tagged(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no type hints
            """Has the tags of a classifier."""

        return Tagged().__sklearn_tags__()

    @property
    def summary(self) -> str:
        """The choices and results of fitting, in a few words for people."""
        return "its own settings"

    def fit(
        self,
        release: ReleasedDataset | HasDataset | Any,
        y: Any = None,
        *,
        progress: Progress | None = None,
        prior: ClassPrior | None = None,
    ) -> Self:
        """Fit to a release, or with ``y`` to clean records, which is NOT PRIVATE.

        With ``y``, ``Pipeline``, ``cross_val_score`` and ``GridSearchCV`` work as usual; such a model cannot be saved.
        To search over settings on a release, see :class:`privmix.ReleaseClassifier`.

        Args:
            release: the released rows and their public facts, or an object with these as ``dataset``; with ``y``, (n,
                d) records.
            y: (n,) labels; None with a release.
            progress: called after each step with (stage, steps done, steps in all).
            prior: public points near which class means are expected, for learners that use them.

        Returns:
            the estimator itself.

        Raises:
            InvalidInput: a parameter is out of range, or a released number is not finite. Also if the learner takes no
                prior or one of other classes or features, or learns from its own design's releases alone.
        """
        self._check_params()
        names = None
        if y is None:
            if not isinstance(release, ReleasedDataset) and not hasattr(release, "dataset"):
                allowed = "a release; fit(X, y) of records requires y to be passed, but the target y is None"
                raise InvalidInput("release", type(release).__name__, allowed)
            release = release if isinstance(release, ReleasedDataset) else release.dataset
        else:
            release, names = self._of_records(release, y)
        if release.num_classes == 1:
            allowed = "a release with a label: sample rows of this one, of which any column can be a target"
            raise InvalidInput("release", "records without a label", allowed)
        if prior is not None:
            if not self.takes_prior:
                raise InvalidInput("class_descriptions", f"learner {self.name}", "learner discriminant for these")
            if prior.means.shape != (shape := (release.num_classes, release.dim)):
                raise InvalidInput("points of a class prior", prior.means.shape, f"an array of shape {shape}")
        if not (np.isfinite(release.x).all() and np.isfinite(release.y).all()):
            raise InvalidInput("released rows", "NaN or infinity", "finite numbers")
        self._temperature = None
        self._prior, self.told_ = prior, None if prior is None else dict(prior.source)
        self._fit(release, progress or silent)
        self._prior = None
        self._set_facts(ReleaseFacts.of(release))
        self.private_ = names is None
        if names is not None:
            self.classes_ = names
        self.rows_ = release.rows
        self._fitted_to = release if self._temperature is None else None
        if not self.private_:
            # scikit-learn's estimators do not change when they predict.
            _ = self.temperature_
        return self

    def _of_records(self, x: Any, y: Any) -> tuple[ReleasedDataset, NDArray[Any]]:
        if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] > 1:
            raise InvalidInput("y", np.shape(y), "labels (n,); for a release call fit(release)")
        # scikit-learn takes a second to import: few callers fit records.
        from sklearn.utils.multiclass import check_classification_targets
        from sklearn.utils.validation import validate_data

        x, y = validate_data(self, x, y, dtype=np.float32)
        check_classification_targets(y)
        names, labels = np.unique(y, return_inverse=True)
        if len(names) < 2:
            raise InvalidInput("y", f"{len(names)} class", "records of two classes or more")
        warnings.warn(NOT_PRIVATE, NotPrivateWarning, stacklevel=3)
        if not self.takes_records:
            raise InvalidInput("y", "records", f"a release: learner {self.name} cannot be fitted to records")
        return as_release(x, labels, tuple(map(str, names)), rows=self.reads_rows and not self.reads_moments), names

    @property
    def temperature_(self) -> float:
        """See above; found when it is first asked for."""
        if self._temperature is None:
            known = self._fitted_to
            if known is None or math.isnan(known.noise_std_x):
                # The effect of an extractor on a release's noise is unknown.
                self._temperature = 1.0
            else:
                bound = known.transform.final_clip_norm
                self._temperature = temperature_of(self._scores, class_statistics(known), bound)
            self._fitted_to = None
        return self._temperature

    @temperature_.setter
    def temperature_(self, value: float) -> None:
        self._temperature = value

    def __getstate__(self) -> dict[str, Any]:
        # A pickled learner takes no release along.
        if hasattr(self, "facts_"):
            _ = self.temperature_
        return dict(self.__dict__)

    def decision_function(self, features: NDArray[Any]) -> NDArray[np.float32]:
        """Return (n, K) scores of (n, d) raw extractor outputs; the largest of a row names its class."""
        scores = self._all_scores(features)
        # As scikit-learn has it. Models of a release have a column for each class, for any number of classes.
        return scores if self.private_ or scores.shape[1] > 2 else scores[:, 1] - scores[:, 0]

    def _all_scores(self, features: Any) -> NDArray[np.float32]:
        if not hasattr(self, "facts_"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit(release) first")
        if not self.private_:
            from sklearn.utils.validation import validate_data

            features = validate_data(self, features, dtype=np.float32, reset=False)
        features = np.asarray(features)
        if features.ndim != 2 or features.shape[1] != self.facts_.dim:
            raise InvalidInput("features", features.shape, f"an array of shape (n, {self.facts_.dim})")
        scores = np.empty((len(features), len(self.facts_.classes)), dtype=np.float32)
        for part in slices(len(features), PREDICTION_BATCH):
            scores[part] = self._scores(self.facts_.transform.rows(features[part]))
        return scores

    def of_transformed(self, records: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, K) scores of (n, d) records that were transformed as the release's are."""
        return self._scores(records)

    def predict(self, features: NDArray[Any]) -> NDArray[Any]:
        """(n,) classes of (n, d) raw extractor outputs, of ``classes_``; errors as :meth:`decision_function`."""
        scores = self._all_scores(features)
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    def predict_proba(self, features: NDArray[Any]) -> NDArray[np.float32]:
        """Return (n, K) class probabilities of (n, d) raw extractor outputs, calibrated by the release alone."""
        return np.asarray(softmax(np.float32(self.temperature_) * self._all_scores(features), axis=1))

    def _set_facts(self, facts: ReleaseFacts) -> None:
        self.facts_ = facts
        self.classes_ = np.arange(len(facts.classes), dtype=np.int64)
        self.n_features_in_ = facts.dim

    @classmethod
    def forecast(cls, plan: Plan, model: DataModel, seed: int) -> LinearRule | None:
        """Forecast the learner's rule for a release by ``plan``, along the k axes of ``model``; None: it cannot."""
        # The planner calls this for every learner and plan and takes the best. It reads no record. The same seed must
        # draw the same noise, up to its size, for every plan, so that differences between plans are not chance.
        return None

    @classmethod
    def improved(cls, found: Measures, plan: Plan, model: DataModel) -> Measures:
        """Return what the learner's further steps make of the measures of :meth:`forecast`."""
        return found

    @abstractmethod
    def _check_params(self) -> None:
        """Raise InvalidInput when a constructor parameter is out of range."""

    @abstractmethod
    def _fit(self, release: ReleasedDataset, progress: Progress) -> None:
        """Learn from ``release``, whose numbers are finite."""

    @abstractmethod
    def _scores(self, records: NDArray[np.float32]) -> NDArray[np.float32]:
        """(b, K) scores of (b, d) transformed records."""

    @abstractmethod
    def _arrays(self) -> dict[str, NDArray[np.float32]]:
        """Return the learnt numbers by name: all that :meth:`_restore` needs in addition to parameters and facts."""

    @abstractmethod
    def _restore(self, arrays: Mapping[str, NDArray[np.float32]], facts: ReleaseFacts) -> None:
        """Take back what :meth:`_arrays` gave; raise InvalidInput when a name or a shape does not fit."""


LEARNERS: Final[Registry[type[ReleaseLearner]]] = Registry(
    "learner", "privmix.learning,privmix.designs", "privmix.learners", by="LEARNERS.register"
)
"""Learners by name, those of other packages too: what ``fit`` takes, and what models are loaded as."""


class LinearLearner(ReleaseLearner):
    """Base of learners with linear scores: ``coef_`` (d, K) and ``intercept_`` (K,), float32."""

    coef_: NDArray[np.float32]
    intercept_: NDArray[np.float32]

    def _scores(self, records: NDArray[np.float32]) -> NDArray[np.float32]:
        return records @ self.coef_ + self.intercept_

    def _arrays(self) -> dict[str, NDArray[np.float32]]:
        return {"coef": self.coef_, "intercept": self.intercept_}

    def _restore(self, arrays: Mapping[str, NDArray[np.float32]], facts: ReleaseFacts) -> None:
        classes = len(facts.classes)
        check_arrays(arrays, {"coef": (facts.dim, classes), "intercept": (classes,)})
        self.coef_, self.intercept_ = arrays["coef"], arrays["intercept"]


def check_arrays(arrays: Mapping[str, NDArray[np.float32]], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise InvalidInput unless ``arrays`` has exactly these names and shapes, in float32, all finite."""
    found = {name: tuple(array.shape) for name, array in arrays.items()}
    if found != dict(shapes):
        wrong = sorted(set(found.items()) ^ set(shapes.items()))
        raise InvalidInput("model arrays", wrong[0], f"exactly {dict(shapes)}")
    for name, array in arrays.items():
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise InvalidInput(f"model arrays: {name}", str(array.dtype), "finite float32 numbers")
