"""Rendered digits."""

from __future__ import annotations

from typing import ClassVar

from privmix.procedural.base import GENERATORS
from privmix.procedural.glyphs import Glyphs


@GENERATORS.register
class Digits(Glyphs):
    """The ten digits in the fonts that matplotlib brings, bent as :class:`~privmix.procedural.glyphs.Glyphs` says.

    Example:
        >>> Digits((28, 28)).draw(4, seed=3).y.shape
        (4,)
    """

    name: ClassVar[str] = "digits"
    words: ClassVar[str] = "digits rendered from fonts"
    classes: ClassVar[tuple[str, ...]] = tuple("0123456789")
    characters: ClassVar[tuple[str, ...]] = tuple("0123456789")
