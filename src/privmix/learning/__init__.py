"""Learners on a release: scikit-learn estimators that see released rows only, so learning costs no privacy."""

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.learning.base import LEARNERS, ReleaseFacts, ReleaseLearner
    from privmix.learning.data_model import DataModel
    from privmix.learning.discriminant import DiscriminantClassifier
    from privmix.learning.kl import GeneralizedKLClassifier
    from privmix.learning.model_io import describe_model, is_fitted_model, load_model, save_model
    from privmix.learning.ridge import NoiseAwareRidgeClassifier
    from privmix.progress import Progress
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "LEARNERS",
    "DataModel",
    "DiscriminantClassifier",
    "GeneralizedKLClassifier",
    "NoiseAwareRidgeClassifier",
    "Progress",
    "ReleaseFacts",
    "ReleaseLearner",
    "describe_model",
    "is_fitted_model",
    "load_model",
    "save_model",
]
