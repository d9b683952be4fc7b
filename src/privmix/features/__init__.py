"""Public, per-record feature extractors."""

from privmix.features.base import Extractor, extractor_names, from_spec, get_extractor
from privmix.features.identity import Identity, Pixels
from privmix.features.scattering import Scattering

__all__ = ["Extractor", "Identity", "Pixels", "Scattering", "extractor_names", "from_spec", "get_extractor"]
