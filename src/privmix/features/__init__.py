"""Public, per-record feature extractors."""

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.features.base import Extractor, extractor_names, get_extractor, parse_features
    from privmix.features.cache import kept_features, write_features
    from privmix.features.efficientnet import EfficientNet
    from privmix.features.identity import Identity, Pixels
    from privmix.features.module import ModuleEncoder
    from privmix.features.patches import Patches
    from privmix.features.scattering import Scattering
    from privmix.features.spec import from_spec, wanted_model
    from privmix.features.tabular import Tabular
    from privmix.features.text import MiniLm, TextEncoder
    from privmix.features.vision import VisionEncoder
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "EfficientNet",
    "Extractor",
    "Identity",
    "MiniLm",
    "ModuleEncoder",
    "Patches",
    "Pixels",
    "Scattering",
    "Tabular",
    "TextEncoder",
    "VisionEncoder",
    "extractor_names",
    "from_spec",
    "get_extractor",
    "kept_features",
    "parse_features",
    "wanted_model",
    "write_features",
]
