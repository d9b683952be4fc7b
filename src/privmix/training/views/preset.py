"""What a preset of views is: a name for views that belong together, as the option ``views`` takes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final

from privmix._registry import Registry
from privmix.training.views.pipeline import ViewConfig


class Preset(ABC):
    """Views by a name, which ``PRESETS.register`` makes known.

    Attributes:
        name: as the option ``views`` says it.
        words: what help adds in brackets; empty for nothing.
    """

    name: ClassVar[str]
    words: ClassVar[str] = ""

    @classmethod
    @abstractmethod
    def views(cls) -> ViewConfig:
        """The views."""


PRESETS: Final[Registry[type[Preset]]] = Registry("views", "privmix.training.views", "privmix.views")


def views_named(name: str) -> ViewConfig:
    """A preset by its name, such as self-aug or dp-mix-self (:mod:`privmix.training.views.presets`).

    Raises:
        InvalidInput: there is no such preset.

    Example:
        >>> views_named("dp-mix-self") == ViewConfig.dp_mix_self()
        True
    """
    return PRESETS[name].views()
