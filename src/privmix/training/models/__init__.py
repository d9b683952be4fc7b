"""Models for DP-SGD: none mixes the records of a batch, all are rebuilt from a JSON spec."""

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.training.models.base import Classifier
    from privmix.training.models.hf import PretrainedClassifier
    from privmix.training.models.own import OwnNetwork
    from privmix.training.models.registry import build_model, model_from_spec
    from privmix.training.models.small import LinearHead, ReluCNN, ResNet9, TanhCNN
    from privmix.training.models.wide_resnet import StandardisedConv2d, WideResNet
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "Classifier",
    "LinearHead",
    "OwnNetwork",
    "PretrainedClassifier",
    "ReluCNN",
    "ResNet9",
    "StandardisedConv2d",
    "TanhCNN",
    "WideResNet",
    "build_model",
    "model_from_spec",
]
