"""A scikit-learn face: ``DPClassifier(...).fit(X, y)``."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from inspect import signature
from types import FrameType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from privmix.bars import Asked, callback, shows_bars
from privmix.data.memory import as_array
from privmix.errors import WITHHELD, InvalidInput, NotPrivateWarning
from privmix.mechanisms.streams import SecretStreams
from privmix.options import refuse_unknown
from privmix.rounding import exact
from privmix.training.config import OptimiserConfig, TrainingConfig
from privmix.training.dp_sgd import TrainingRecords
from privmix.training.examples import ModelFacts, PublicData
from privmix.training.trained import TrainedModel
from privmix.training.trainer import Trainer
from privmix.training.views.config import ViewConfig

# Specs of the two public extractors that arrays may be taken for: images in [0, 1], and vectors as they are.
_PIXELS: dict[str, Any] = {"name": "pixels", "version": 1, "options": {}}
_VECTORS: dict[str, Any] = {"name": "identity", "version": 1, "options": {}}


class DPClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no type hints
    """A classifier trained with DP-SGD.

    Formal guarantees:
        * The fitted weights are (``epsilon_``, ``delta``)-DP by PLD, for adding or removing one record.
        * Nothing is learnt from ``X`` or ``y`` in any other way: classes are declared, features are not standardised.

    Args:
        epsilon: target.
        delta: target; well below 1/n.
        classes: all labels that may occur, in order; never inferred from ``y``.
        model: ``linear``, ``cnn``, ``resnet-9``, ``wrn-16-4``, ... (see ``privmix train --help``).
        input_shape: of one image, (H, W) or (H, W, C), for image models; ``X`` then holds values in [0, 1].
        epochs: expected passes; None for the model's default, as in all of the following.
        batch_size: expected batch.
        clip_norm: bound on a record's gradient.
        feature_norm: linear model: length to which features are scaled.
        optimiser: settings of the update.
        views: views of a record, such as ``ViewConfig.dp_mix_self()``.
        settings: further fields of :class:`TrainingConfig`.

    Attributes:
        model_: the :class:`TrainedModel`, with its certificate.
        classes_: (K,) labels, sorted.
        epsilon_: what was spent, at most ``epsilon``.
        n_features_in_: d.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(2000, 5))
        >>> y = np.where(X[:, 0] > 0, "yes", "no")
        >>> classifier = DPClassifier(epsilon=4.0, delta=1e-5, classes=["no", "yes"]).fit(X, y)
        >>> classifier.score(X, y) > 0.8, classifier.epsilon_ <= 4.0
        (True, True)
    """

    model_: TrainedModel
    classes_: NDArray[Any]
    epsilon_: float
    n_features_in_: int
    # How many copies scikit-learn's `clone` made of it and of its copies, and which one this is.
    _copies: list[int] | None = None
    _number: int = 0
    # Declared places of the sorted classes.
    _order: NDArray[np.intp]

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        classes: Sequence[Any] | None = None,
        model: str = "linear",
        input_shape: tuple[int, ...] | None = None,
        epochs: float | None = None,
        batch_size: int | None = None,
        clip_norm: float | None = None,
        feature_norm: float | None = None,
        optimiser: OptimiserConfig | None = None,
        views: ViewConfig | None = None,
        settings: Mapping[str, Any] | None = None,
        **unknown: Any,
    ) -> None:
        refuse_unknown("DPClassifier()", unknown, signature(DPClassifier).parameters)
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.model = model
        self.input_shape = input_shape
        self.epochs = epochs
        self.batch_size = batch_size
        self.clip_norm = clip_norm
        self.feature_norm = feature_norm
        self.optimiser = optimiser
        self.views = views
        self.settings = settings

    @shows_bars
    def fit(
        self,
        X: Any,
        y: Any,
        *,
        public: PublicData | None = None,
        synthetic: PublicData | None = None,
        pool: PublicData | None = None,
        streams: SecretStreams | None = None,
        progress: Asked = None,
        **unknown: Any,
    ) -> Self:
        """Train on private records.

        Args:
            X: (n, d) features, or (n, H, W[, C]) images; n is taken as public.
            y: (n,) labels, each one of ``classes``.
            public: real public records, for the scenarios that use them.
            synthetic: synthetic public records.
            pool: public examples to mix with.
            streams: randomness; None takes fresh secret streams. A seed is for tests and removes the privacy.
            progress: called with (stage, steps done, steps in all), or True for bars; see :func:`privmix.train`.

        Raises:
            InvalidInput: classes are not declared, a label is none of them, shapes do not fit, or the target cannot be
                met.
        """
        refuse_unknown("DPClassifier.fit()", unknown, signature(DPClassifier.fit).parameters)
        names = _checked(self.classes)
        settings = dict(self.settings or {})
        if taken := sorted(set(self.get_params()) & set(settings)):
            allowed = f"other fields of TrainingConfig: {taken[0]} is an argument, DPClassifier({taken[0]}=...)"
            raise InvalidInput("settings", taken, allowed)
        x = _numbers(X)
        if x.ndim < 2 or 0 in x.shape:
            raise InvalidInput("X", x.shape, "(n, d) features, or images (n, *input_shape)")
        self._warn_of_copies()
        _warn_of_pipelines()
        shape = (int(np.prod(x.shape[1:])),) if self.input_shape is None else tuple(self.input_shape)
        facts = ModelFacts(
            tuple(map(str, names)), _VECTORS if self.input_shape is None else _PIXELS, shape, int(np.prod(shape))
        )
        records = TrainingRecords.of(x.reshape(len(x), -1), _encoded(y, names), classes=len(names))
        config = TrainingConfig.for_model(
            self.model,
            records=len(x),
            epsilon=self.epsilon,
            delta=self.delta,
            epochs=self.epochs,
            batch_size=self.batch_size,
            clip_norm=self.clip_norm,
            feature_norm=self.feature_norm,
            optimiser=self.optimiser,
            views=self.views,
            **settings,
        )
        job = Trainer(config, facts, len(x), public=public, synthetic=synthetic, pool=pool)
        self.model_ = job.run(records, streams=streams, progress=callback(progress))
        # scikit-learn's scorers take columns of probabilities to be in the order of sorted labels.
        self._order = np.argsort(np.asarray(names))
        self.classes_ = np.asarray(names)[self._order]
        self.epsilon_ = float(self.model_.certificate["guarantee"]["epsilon"])
        self.n_features_in_ = facts.dim
        return self

    def __sklearn_clone__(self) -> Self:
        copied: Self = super().__sklearn_clone__()
        # Shared by all copies; each keeps its own number, in any process that fits it.
        copied._copies = self._copies = self._copies or [0]
        self._copies[0] += 1
        copied._number = self._copies[0]
        return copied

    def _warn_of_copies(self) -> None:
        """Warn that fits add up where scikit-learn makes many: in a search, a cross-validation, an ensemble."""
        if self._number > 1:
            words = (
                f"one of several copies of a {type(self).__name__} is fitted, as searches and cross-validation do: "
                f"each fit spends its own epsilon, here {exact(self.epsilon)}, and fits to the same records add up; "
                "epsilon_ is that of one fit. Choose settings by public data, or count every fit"
            )
            warnings.warn(words, NotPrivateWarning, stacklevel=4)

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """(n, K) probabilities, columns in the order of ``classes_``; those of a linear head are calibrated."""
        if not hasattr(self, "model_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit(X, y) first")
        x = _numbers(X)
        x = x.reshape(len(x), -1) if x.ndim > 1 else x
        if x.ndim < 2:
            raise InvalidInput("X", x.shape, f"(n, {self.n_features_in_}); Reshape your data to that")
        if x.shape[1] != self.n_features_in_:
            name, d = type(self).__name__, self.n_features_in_
            allowed = f"X has {x.shape[1]} features, but {name} is expecting {d} features as input"
            raise InvalidInput("X", x.shape, allowed)
        return self.model_.calibrated_proba(x)[:, self._order]

    def predict(self, X: Any) -> NDArray[Any]:
        """(n,) labels."""
        places = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[places])


# scikit-learn takes signatures for lists of parameters: ``unknown`` is none.
for _one in (DPClassifier, DPClassifier.fit):
    _all = signature(_one).parameters.values()
    _known = [parameter for parameter in _all if parameter.kind is not parameter.VAR_KEYWORD]
    _one.__signature__ = signature(_one).replace(parameters=_known)  # type: ignore[union-attr]


def _warn_of_pipelines() -> None:
    """Warn about steps of a scikit-learn pipeline that saw the private records before the classifier does."""
    frame: FrameType | None = sys._getframe(1)
    fitted: list[str] = []
    while frame is not None and not fitted:
        pipeline = frame.f_locals.get("self") if frame.f_code.co_name in ("fit", "_fit", "fit_predict") else None
        if isinstance(pipeline, Pipeline):
            steps = [step for _, step in pipeline.steps[:-1] if step not in (None, "passthrough")]
            fitted = [type(step).__name__ for step in steps if get_tags(step).requires_fit]
        frame = frame.f_back
    if fitted:
        words = (
            f"{', '.join(fitted)} before a DPClassifier in a Pipeline learns from the private records without any "
            "guarantee (a StandardScaler holds their exact means). The fitted pipeline holds the learned values, and "
            "epsilon_ does not cover them. Scale by public constants instead, such as a FunctionTransformer"
        )
        warnings.warn(words, NotPrivateWarning, stacklevel=5)


def _numbers(X: Any) -> NDArray[Any]:
    if issparse(X):
        raise InvalidInput("X", "sparse data", "a dense array")
    x = as_array(X)
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise InvalidInput("X", WITHHELD, "finite numbers, neither NaN nor inf")
    return x


def _checked(classes: Sequence[Any] | None) -> list[Any]:
    names = [] if classes is None else list(classes)
    if len(names) < 2 or len(set(names)) != len(names):
        # A value that is no class list may be y, given by mistake: it is not quoted.
        shown = None if classes is None else "fewer, or one twice"
        raise InvalidInput("classes", shown, "at least two different labels; they are never inferred from y")
    return names


def _encoded(y: Any, names: list[Any]) -> NDArray[np.int64]:
    places = {name: place for place, name in enumerate(names)}
    try:
        return np.array([places[label] for label in as_array(y).reshape(-1).tolist()], dtype=np.int64)
    except (KeyError, TypeError):
        raise InvalidInput("y", WITHHELD, "labels of the declared classes") from None
