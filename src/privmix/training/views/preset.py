"""What a preset of views is: a name for views that belong together, as the option ``views`` takes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final

from privmix._registry import Registry

if TYPE_CHECKING:
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
