"""scikit-learn's interface without importing scikit-learn, which takes longer than most predictions."""

from __future__ import annotations

import inspect
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput


class Estimator:
    """Settings are the arguments of ``__init__``; pipelines, searches and ``clone`` of scikit-learn take it."""

    _estimator_type = "classifier"

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

    def predict(self, features: NDArray[Any]) -> NDArray[Any]:
        raise NotImplementedError

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
