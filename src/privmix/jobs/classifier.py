"""A scikit-learn estimator that learns from a release: settings may be searched over on records of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from privmix.errors import InvalidInput
from privmix.jobs.fitting import fitted
from privmix.jobs.models import Model
from privmix.jobs.options import AUTO, FitOptions
from privmix.jobs.release_folder import Release
from privmix.learning.base import ReleaseLearner
from privmix.publication.dataset import ReleasedDataset


class ReleaseClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no type hints
    """The model that :func:`privmix.fit` makes of a release, as a scikit-learn classifier of raw inputs.

    ``fit(X, y)`` fits to the release and ignores ``X`` and ``y``. ``cross_val_score`` then shows how well the release
    serves on records of your own, and ``GridSearchCV`` which settings do best on them. Repeated fits spend no privacy
    of the release's records. No guarantee covers your own records, if they are private.

    Args:
        release: a release, or its folder; may be left out, and given to ``fit``.
        learner, regularisation, model, epochs, seed: as of :func:`privmix.fit`.
        features_model: for an extractor whose model no package brings.

    Attributes:
        model_: the :class:`privmix.Model`.
        classes_: (K,) class names, sorted, or indices where they were declared by their number alone.

    Example:
        >>> import numpy as np
        >>> import privmix as pm
        >>> y = np.arange(400) % 2
        >>> asked = {"features": "identity", "design": "moments", "epsilon": 8, "delta": 1e-4}
        >>> release = pm.release((np.eye(2)[y], y), classes=["cat", "dog"], **asked)
        >>> ReleaseClassifier(release).fit().predict([[0.0, 1.0]]).tolist()
        ['dog']
    """

    model_: Model
    classes_: NDArray[Any]
    # Declared places of the sorted classes.
    _order: NDArray[np.intp]

    def __init__(
        self,
        release: Release | ReleasedDataset | str | Path | None = None,
        *,
        learner: str | ReleaseLearner = AUTO,
        regularisation: float | str = AUTO,
        model: str = "linear",
        epochs: int = 200,
        seed: int = 0,
        features_model: str | Path | None = None,
    ) -> None:
        self.release = release
        self.learner = learner
        self.regularisation = regularisation
        self.model = model
        self.epochs = epochs
        self.seed = seed
        self.features_model = features_model

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Fit to the release.

        Args:
            X: a release, or its folder, instead of the constructor's; anything else is ignored.
            y: ignored.

        Raises:
            InvalidInput, StorageError: as :func:`privmix.fit`; or there is no release.
        """
        release = X if isinstance(X, Release | ReleasedDataset | str | Path) else self.release
        if release is None:
            raise InvalidInput("release", None, "a release, or its folder")
        # A learner that was given is fitted as a copy: scikit-learn's estimators leave their arguments as they are.
        # `safe=False`: a learner may also be a name, which `clone` otherwise refuses.
        asked = {**self.get_params(deep=False), "learner": clone(self.learner, safe=False)}
        del asked["release"]
        self.model_ = fitted(release, FitOptions(**asked))
        named = self.model_.named(np.arange(len(self.model_.classes)))
        # scikit-learn's scorers take columns of probabilities to be in the order of sorted labels.
        self._order = np.argsort(named)
        self.classes_ = named[self._order]
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """(n,) classes of n raw inputs; as :meth:`privmix.Model.predict`."""
        check_is_fitted(self, "model_")
        return self.model_.predict(X)

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """(n, K) probabilities of ``classes_``, in this order; errors as :meth:`privmix.Model.predict_proba`."""
        check_is_fitted(self, "model_")
        return self.model_.predict_proba(X)[:, self._order]
