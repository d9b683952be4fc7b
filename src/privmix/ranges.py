"""Ranges in types of fields, ``Annotated[int, Whole(1)]``, and names for common ones; use by :mod:`privmix.fields`."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Protocol

from privmix.errors import InvalidInput, check_choice, check_integer, check_number

# Control and format characters (zero-width and bidirectional ones among them), surrogates, private use, unassigned,
# line and paragraph separators: two texts may look equal and differ by one of these.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Fillers, joiners and blanks of other categories that show nothing either.
_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
# These two change how their neighbours look in emoji, Persian and Indic scripts, and in Latin nothing.
_JOINERS: Final = frozenset("\u200c\u200d")
# Variation selectors: colour of an emoji, form of an ideograph.
_SELECTORS: Final = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")


def is_printable(text: str) -> bool:
    """Whether a text is one line in which every character shows."""
    # A joiner is allowed in emoji, between Arabic letters and after an Indic virama, where spelling needs it. Names
    # that must differ are compared by looks.
    return all(mark.isprintable() or _shows(text, place) for place, mark in enumerate(text)) and _BLANK.isdisjoint(text)


def _shows(text: str, place: int) -> bool:
    if text[place] not in _JOINERS:
        return unicodedata.category(text[place]) not in _UNSEEN
    before, after = _SELECTORS.sub("", text[:place])[-1:], text[place + 1 : place + 2]
    if not before or not after:
        return False
    emoji = unicodedata.category(after) == "So" and unicodedata.category(before) in ("So", "Sk")
    arabic = unicodedata.bidirectional(before) == unicodedata.bidirectional(after) == "AL"
    return emoji or arabic or unicodedata.combining(before) == 9


def looks(text: str) -> str:
    """Return a printable text without marks that hardly change its look: two names must differ in more."""
    return "".join(mark for mark in _SELECTORS.sub("", text) if mark not in _JOINERS)


def printable(text: str, instead: str = "?") -> str:
    """Return a text from a stranger as one line, each character that does not show replaced."""
    if is_printable(text):
        return text
    return "".join(mark if mark.isprintable() and mark not in _BLANK else instead for mark in text)


class Range(Protocol):
    """Range of a field's values; it stands in the field's type: ``Annotated[int, Whole(1)]``."""

    def check(self, name: str, value: Any) -> None:
        """Raise :class:`InvalidInput` about the field ``name`` unless ``value`` is right."""
        ...


@dataclass(frozen=True)
class Number:
    """A finite number in an interval."""

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False

    def check(self, name: str, value: Any) -> None:
        check_number(name, value, low=self.low, high=self.high, low_open=self.low_open, high_open=self.high_open)


@dataclass(frozen=True)
class Whole:
    """An integer from ``low`` to ``high``; ``plain``: an int itself, since no bool or NumPy number survives JSON."""

    low: int
    high: int | None = None
    plain: bool = False

    def check(self, name: str, value: Any) -> None:
        check_integer(name, value, low=self.low, high=self.high)
        if self.plain and type(value) is not int:
            raise InvalidInput(name, value, "an integer")


class Choice:
    """One of some words, or of those that a function returns when needed, such as a registry's."""

    def __init__(self, *words: str, of: Callable[[], Sequence[str]] | None = None) -> None:
        self._words, self._of = words, of

    def check(self, name: str, value: Any) -> None:
        check_choice(name, value, self._words if self._of is None else self._of())


@dataclass(frozen=True)
class Text:
    """A text that a regular expression matches as a whole; ``words``: what it allows."""

    pattern: str
    words: str

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, str) or re.fullmatch(self.pattern, value, re.DOTALL) is None:
            raise InvalidInput(name, value, self.words)


@dataclass(frozen=True)
class Line:
    """A line of printable characters; ``trimmed``: without spaces around it."""

    most: int
    trimmed: bool = True

    def check(self, name: str, value: Any) -> None:
        fits = isinstance(value, str) and bool(value.strip()) and len(value) <= self.most and is_printable(value)
        if not fits or (self.trimmed and value != value.strip()):
            raise InvalidInput(name, value, f"a line of 1 to {self.most} printable characters")


class By:
    """A check by a function of field name and value, which raises; ``wrong``: refused values, for tests."""

    wrong: tuple[Any, ...]

    def __init__(self, function: Callable[[str, Any], object], *wrong: Any) -> None:
        self._function, self.wrong = function, wrong

    def check(self, name: str, value: Any) -> None:
        try:
            self._function(name, value)
        except (TypeError, AttributeError):
            # It was made for values of the field's own type.
            raise InvalidInput(name, type(value).__name__, "a value of another type") from None


class Flag:
    """Yes or no: True or False itself, no number for it."""

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, bool):
            raise InvalidInput(name, value, "True or False")


@dataclass(frozen=True)
class Coded:
    """A codec for values that are not plain: ``write`` to a JSON value, ``read`` from one of any origin, or raise."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


Positive = Annotated[float, Number(0, low_open=True)]
"""A number above 0."""
Amount = Annotated[float, Number(0)]
"""A number of at least 0."""
Share = Annotated[float, Number(0, 1, low_open=True, high_open=True)]
"""A number between 0 and 1, both excluded."""
Fraction = Annotated[float, Number(0, 1, high_open=True)]
"""A number from 0 to below 1."""
Rate = Annotated[float, Number(0, 1, low_open=True)]
"""A number above 0 and at most 1."""
Proportion = Annotated[float, Number(0, 1)]
"""A number from 0 to 1, both allowed."""
Count = Annotated[int, Whole(1)]
"""An integer of at least 1."""
PlainCount = Annotated[int, Whole(1, plain=True)]
"""The same, of a plan."""
Size = Annotated[int, Whole(0)]
"""An integer of at least 0."""
Seed = Annotated[int, Whole(0, 2**31 - 1)]
"""A seed of public draws."""
Words = Annotated[str, Text(".*", "a text")]
"""Any text."""
Digest = Annotated[str, Text("[0-9a-f]{64}", "64 hexadecimal digits")]
"""A SHA-256."""
Switch = Annotated[bool, Flag()]
"""Yes or no."""
