"""Public data that privmix makes itself: rendered characters and random processes, of no person's records."""

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.procedural.base import GENERATORS, GeneratedImages, ImageGenerator, get_generator
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = ["GENERATORS", "GeneratedImages", "ImageGenerator", "get_generator"]
