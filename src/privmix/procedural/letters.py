"""Rendered letters."""

from __future__ import annotations

from string import ascii_uppercase
from typing import ClassVar

from privmix.procedural.base import GENERATORS
from privmix.procedural.glyphs import Glyphs


@GENERATORS.register
class Letters(Glyphs):
    """The 26 letters, capital and small, in the fonts that matplotlib brings, bent as
    :class:`~privmix.procedural.glyphs.Glyphs` says.

    Example:
        >>> Letters((28, 28)).draw(4).x.shape
        (4, 28, 28)
    """

    name: ClassVar[str] = "letters"
    words: ClassVar[str] = "letters rendered from fonts"
    classes: ClassVar[tuple[str, ...]] = tuple(ascii_uppercase)
    characters: ClassVar[tuple[str, ...]] = tuple(letter + letter.lower() for letter in ascii_uppercase)
