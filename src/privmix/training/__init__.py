"""DP-SGD: per-example clipped gradients, mixup and augmentation, weight multiplicity, and public data."""

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.training.certificate import read_certificate
    from privmix.training.classifier import DPClassifier
    from privmix.training.config import OptimiserConfig, TrainingConfig
    from privmix.training.examples import PublicData
    from privmix.training.facts import ModelFacts
    from privmix.training.gradients.config import ExecutionConfig
    from privmix.training.plan import TrainingPlan, plan_training
    from privmix.training.public import ExtendedConfig, WarmUpConfig
    from privmix.training.public.base import settings_of
    from privmix.training.records import TrainingRecords
    from privmix.training.run import TrainingRun
    from privmix.training.trained import TrainedModel, load_trained
    from privmix.training.trainer import Trainer
    from privmix.training.verify import plan_of, verify_trained
    from privmix.training.views.augment import parse_augmentations
    from privmix.training.views.config import MIXINGS, ViewConfig
    from privmix.training.watching import MLflow, TensorBoard, Watch, Watched
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "MIXINGS",
    "DPClassifier",
    "ExecutionConfig",
    "ExtendedConfig",
    "MLflow",
    "ModelFacts",
    "OptimiserConfig",
    "PublicData",
    "TensorBoard",
    "TrainedModel",
    "Trainer",
    "TrainingConfig",
    "TrainingPlan",
    "TrainingRecords",
    "TrainingRun",
    "ViewConfig",
    "WarmUpConfig",
    "Watch",
    "Watched",
    "load_trained",
    "parse_augmentations",
    "plan_of",
    "plan_training",
    "read_certificate",
    "settings_of",
    "verify_trained",
]
