"""What every learner shares: it sees a release once, then classifies raw extractor output."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from privmix._registry import Registry
from privmix.errors import InvalidInput, NotPrivateWarning
from privmix.learning.calibration import temperature_of
from privmix.learning.class_prior import ClassPrior
from privmix.learning.class_statistics import class_statistics
from privmix.learning.data_model import DataModel
from privmix.learning.forecast import LinearRule
from privmix.learning.rows import as_release, slices
from privmix.plans import Plan
from privmix.progress import Progress, silent
from privmix.publication.dataset import HasDataset, RecordTransform, ReleasedDataset

NOT_PRIVATE: Final = "fitted to records themselves: this model is NOT private, and for their owner alone"

# Records classified at once.
_PREDICTION_BATCH = 4096


@dataclass(frozen=True)
class ReleaseFacts:
    """The public facts of a release that a model carries to classify raw inputs on its own.

    Attributes:
        classes: K class names; a prediction k means ``classes[k]``.
        transform: applied to extractor output before the model sees it.
        extractor: description of the feature extractor, enough to rebuild it.
        input_shape: shape of one raw input of that extractor.
        release_id: the release that the model was fitted on.
        dim: d, the number of features.
        extractor_arrays: what the extractor carries, by name; mostly nothing.
    """

    classes: tuple[str, ...]
    transform: RecordTransform
    extractor: Mapping[str, Any] = field(repr=False)
    input_shape: tuple[int, ...]
    release_id: str
    dim: int
    extractor_arrays: Mapping[str, NDArray[np.float32]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, release: ReleasedDataset) -> Self:
        """The facts of ``release``."""
        return cls(
            classes=tuple(release.classes),
            transform=release.transform,
            extractor=dict(release.extractor),
            input_shape=tuple(release.input_shape),
            release_id=release.release_id,
            dim=release.dim,
            extractor_arrays=dict(release.extractor_arrays),
        )


class ReleaseLearner(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no type hints
    """Base of the scikit-learn estimators that learn from a release.

    Learning is post-processing: a learner reads a :class:`ReleasedDataset`, so fitting as often as you like costs no
    privacy. (``fit(X, y)`` takes records themselves, without privacy, and says so.) Every learner applies the release's
    ``transform`` to the features it is asked to classify; give it the extractor's raw output.

    Attributes:
        facts_: :class:`ReleaseFacts` of the release, set by ``fit``.
        rows_: how many rows the release has, set by ``fit`` and not kept on disk.
        classes_: (K,) int64, the class indices 0 .. K-1 that ``predict`` returns; of records, their labels.
        n_features_in_: d.
        private_: whether it was fitted to a release, and not to records.
        temperature_: what scores are multiplied by before the softmax makes probabilities of them; see
            :func:`privmix.learning.calibration.temperature_of`; 1 where an extractor changed the rows after the noise.
        told_: what ``fit`` was told of the classes beside the release, and what came of it, in JSON values; None for
            nothing.
    """

    name: ClassVar[str]
    # Whether it can be told where class means are expected.
    takes_prior: ClassVar[bool] = False
    # Whether it learns from rows, or from what is released beside them alone.
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
    # Held until somebody asks for the temperature, which takes a while on large releases.
    _fitted_to: ReleasedDataset | None = None

    @property
    def summary(self) -> str:
        """What fitting chose or found, in a few words for people."""
        return "its own settings"

    def fit(
        self,
        release: ReleasedDataset | HasDataset | Any,
        y: Any = None,
        *,
        progress: Progress | None = None,
        prior: ClassPrior | None = None,
    ) -> Self:
        """Fit to a release; or, as scikit-learn's estimators, to records themselves, which is NOT PRIVATE.

        With ``y`` the learner is given clean records in place of a release, by
        :func:`privmix.learning.rows.as_release`: what ``Pipeline``, ``cross_val_score`` and
        ``GridSearchCV`` do, and what the learner reaches without privacy. Such a model can't be saved. To search over
        settings of a learner on a release, see :class:`privmix.ReleaseClassifier`.

        Args:
            release: the released rows and their public facts, or what has these as ``dataset``; with ``y``, (n, d)
                records.
            y: (n,) their labels; None with a release.
            progress: called after each step with (stage, steps done, steps in all).
            prior: public points beside which class means are expected, for learners that can use them.

        Returns:
            the estimator itself.

        Raises:
            InvalidInput: a parameter of the estimator is out of range, a released number is not finite, the learner
                takes no prior or one of other classes or features, or learns from its own design's releases alone.
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
        if prior is not None:
            if not self.takes_prior:
                raise InvalidInput("class_descriptions", f"learner {self.name}", "learner discriminant for these")
            prior.check_fits(release.num_classes, release.dim)
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
        """Records as the learner takes them, and the classes that they are of."""
        if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] > 1:
            raise InvalidInput("y", np.shape(y), "labels (n,); rows of a release are learnt from as fit(release)")
        x, y = validate_data(self, x, y, dtype=np.float32)
        check_classification_targets(y)
        names, labels = np.unique(y, return_inverse=True)
        if len(names) < 2:
            raise InvalidInput("y", f"{len(names)} class", "records of two classes or more")
        warnings.warn(NOT_PRIVATE, NotPrivateWarning, stacklevel=3)
        if not self.takes_records:
            raise InvalidInput("y", "records", f"a release: learner {self.name} learns from its own design's alone")
        return as_release(x, labels, tuple(map(str, names)), rows=self.reads_rows and not self.reads_moments), names

    @property
    def temperature_(self) -> float:
        """See above; found when it is first asked for."""
        if self._temperature is None:
            known = self._fitted_to
            if known is None or math.isnan(known.noise_std_x):
                # What an extractor made of a release's noise nobody knows.
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
        # What is pickled takes no release along.
        if hasattr(self, "facts_"):
            _ = self.temperature_
        return dict(super().__getstate__())

    def decision_function(self, features: NDArray[Any]) -> NDArray[np.float32]:
        """(n, K) scores of (n, d) raw extractor outputs; the largest of a row names its class.

        Raises:
            InvalidInput: ``features`` is not (n, d) or holds a number that is not finite.
            NotFittedError: called before ``fit``.
        """
        scores = self._all_scores(features)
        # As scikit-learn has it. Of a release there is a column for each class, however many there are.
        return scores if self.private_ or scores.shape[1] > 2 else scores[:, 1] - scores[:, 0]

    def _all_scores(self, features: Any) -> NDArray[np.float32]:
        if not hasattr(self, "facts_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit(release) first")
        if not self.private_:
            features = validate_data(self, features, dtype=np.float32, reset=False)
        features = np.asarray(features)
        if features.ndim != 2 or features.shape[1] != self.facts_.dim:
            raise InvalidInput("features", features.shape, f"an array of shape (n, {self.facts_.dim})")
        scores = np.empty((len(features), len(self.facts_.classes)), dtype=np.float32)
        for part in slices(len(features), _PREDICTION_BATCH):
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
        """(n, K) class probabilities of (n, d) raw extractor outputs; errors as :meth:`decision_function`.

        They are calibrated by the release alone: its noise is known, and how sure a classifier of it may be follows.
        """
        return np.asarray(softmax(np.float32(self.temperature_) * self._all_scores(features), axis=1))

    def _set_facts(self, facts: ReleaseFacts) -> None:
        self.facts_ = facts
        self.classes_ = np.arange(len(facts.classes), dtype=np.int64)
        self.n_features_in_ = facts.dim

    @classmethod
    def forecast(cls, plan: Plan, model: DataModel, seed: int) -> LinearRule | None:
        """What the learner would make of a release by ``plan`` if the records were as ``model`` says.

        A planner asks every learner about every plan, and takes the best: a learner that offers this is tried, with no
        change elsewhere. It reads no record. How large the noise is, the plan's design says:
        ``made_by(plan).forecast(plan, model.assumed)``.

        Args:
            plan: with the noise that is to be added.
            model: the assumed records, along k axes; ``model.accuracy`` judges the rule.
            seed: of noise and of the records that are a sample of the model. The same seed must draw the same noise, up
                to its size, whatever the plan: what tells plans apart is then not chance.

        Returns:
            the rule along the model's axes; None where the learner can't learn from such a release or can't tell.
        """
        return None

    @classmethod
    def errors_left(cls, plan: Plan, model: DataModel) -> float:
        """How many of the errors of :meth:`forecast`'s rule are left by what the learner does beyond that rule.

        Args:
            plan, model: as of :meth:`forecast`, which had an answer.

        Returns:
            a share, 1 where the rule is all that the learner makes of a release; more where the rest misleads it.
        """
        return 1.0

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
        """The learnt numbers by name: all that :meth:`_restore` needs beside parameters and facts."""

    @abstractmethod
    def _restore(self, arrays: Mapping[str, NDArray[np.float32]], facts: ReleaseFacts) -> None:
        """Take back what :meth:`_arrays` gave; raise InvalidInput when a name or a shape does not fit."""


LEARNERS: Final[Registry[type[ReleaseLearner]]] = Registry(
    "learner", "privmix.learning,privmix.designs", "privmix.learners", by="LEARNERS.register"
)
"""Learners by name, those of other packages too: what ``fit`` takes, and what models are loaded as."""


class LinearLearner(ReleaseLearner):
    """Base of learners whose scores are linear in the records.

    Attributes:
        coef_: (d, K) float32.
        intercept_: (K,) float32.
    """

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


def check_arrays(
    arrays: Mapping[str, NDArray[np.float32]], shapes: Mapping[str, tuple[int, ...]], what: str = "model arrays"
) -> None:
    """Raise InvalidInput unless ``arrays`` has exactly these names and shapes, in float32, all finite.

    Example:
        >>> check_arrays({"a": np.zeros(2, np.float32)}, {"a": (2,)})
    """
    found = {name: tuple(array.shape) for name, array in arrays.items()}
    if found != dict(shapes):
        wrong = sorted(set(found.items()) ^ set(shapes.items()))
        raise InvalidInput(what, wrong[0], f"exactly {dict(shapes)}")
    for name, array in arrays.items():
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise InvalidInput(f"{what}: {name}", str(array.dtype), "finite float32 numbers")
