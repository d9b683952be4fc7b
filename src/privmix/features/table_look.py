"""What the records of a column look like: a draft of its specification, for owners who accept that they were looked at.

Nothing here is private in the sense of a guarantee: a draft says what is in the records. A specification that is made
of it says so, see :data:`privmix.features.tabular.DRAFTED`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from datetime import date
from typing import Any, Final

from privmix.features.table_kinds import INDICATOR, Dates, is_blank, number_in, token_of

RAREST: Final = 10
"""Values of fewer records than this are not listed as categories: who has a rare one is easily known."""

_MOST_CATEGORIES: Final = 60
_MOST_VALUES: Final = 2000
# A longer text, or one of several lines, is no category.
_LONGEST: Final = 60
# What forms and programs write where nothing is known.
_ABSENT: Final = frozenset({"na", "n/a", "n.a.", "nan", "null", "?"})
_SENTINELS: Final = frozenset({-9.0, -99.0, -999.0, -9999.0})
_TRUTH: Final = ({"true", "false"}, {"yes", "no"}, {"1", "0"})
_FORMATS: Final = ("", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%d-%b-%Y")
# A column of which nearly all values differ, in so many records at least, tells who it is.
_FEWEST, _NEARLY_ALL = 20, 0.95


class Look:
    """What is seen of one column, cell by cell.

    Args:
        tokens: cells that mean a missing value, by the owner's word; numbers with a decimal point.
        point: makes a text that may be a number one with a decimal point; others stay as they are. A column that turns
            out to hold texts keeps the cells that it has.

    Example:
        >>> look = Look()
        >>> look.add(["17", "88", "NA"])
        >>> look.draft()
        {'range': [10, 90], 'missing': 'indicator', 'missing_tokens': ['NA']}
    """

    def __init__(self, tokens: Collection[str] = (), point: Callable[[str], str] = str) -> None:
        self._point = point
        self._declared, self._blank, self._count = frozenset(tokens), False, 0
        self._numbers_declared = {number_in(token) for token in tokens}
        self._tokens: dict[str, None] = {}
        self._values: Counter[str] = Counter()
        self._unique_of = 0
        self._numbers = self._integers = True
        self._low, self._high = math.inf, -math.inf
        self._sentinels: set[float] = set()
        self._dates = {text: _reader(text) for text in _FORMATS}
        self._first, self._last = date.max, date.min
        self._days: dict[str, tuple[date, date]] = dict.fromkeys(_FORMATS, (date.max, date.min))

    def add(self, cells: Iterable[Any]) -> None:
        """Look at more cells: texts, numbers or None."""
        for cell in cells:
            if is_blank(cell):
                self._blank = True
                continue
            text = token_of(cell).strip()
            if text in self._declared or text.casefold() in _ABSENT:
                self._tokens[text] = None
            elif self._numbers_declared and self._number(cell) in self._numbers_declared:
                self._tokens[token_of(self._number(cell))] = None
            else:
                self._see(token_of(cell), cell)

    def _number(self, cell: Any) -> float:
        return number_in(self._point(cell) if isinstance(cell, str) else cell)

    def _see(self, text: str, cell: Any) -> None:
        self._count += 1
        if len(self._values) < _MOST_VALUES:
            # How many differ is judged by the first ones.
            self._unique_of = self._count
        if len(self._values) < _MOST_VALUES or text in self._values:
            self._values[text] += 1
        if self._numbers:
            number = self._number(cell)
            if number in _SENTINELS:
                self._sentinels.add(number)
            elif math.isnan(number):
                self._numbers = False
            else:
                self._integers = self._integers and number.is_integer()
                self._low, self._high = min(self._low, number), max(self._high, number)
        for format_, reader in list(self._dates.items()):
            day = reader.value(text)
            if day is None:
                del self._dates[format_]
            else:
                first, last = self._days[format_]
                self._days[format_] = min(first, day), max(last, day)

    def draft(self) -> dict[str, Any]:
        """An entry of a specification; a placeholder where looking does not settle it."""
        distinct = len(self._values)
        if not self._count:
            return {"ignore": True}
        if {value.strip().casefold() for value in self._values} in _TRUTH:
            return {"boolean": True, **self._missing()}
        if self._numbers and self._low <= self._high:
            if self._integers and distinct == self._unique_of >= _FEWEST:
                return {"ignore": True}
            return self._range()
        if self._dates:
            return self._days_between()
        if distinct >= _NEARLY_ALL * max(self._unique_of, 1) and self._count >= _FEWEST:
            return {"ignore": True}
        common = sorted(value for value, count in self._values.items() if count >= RAREST)
        prose = any(len(value) > _LONGEST or not value.isprintable() for value in self._values)
        if not common or len(common) > _MOST_CATEGORIES or prose:
            return {"ignore": True}
        missing = {"missing_tokens": list(self._tokens)} if self._tokens or self._blank else {}
        return {"categories": common, **missing, **({"other": True} if len(common) < distinct else {})}

    def _missing(self, numbers: Iterable[float] = ()) -> dict[str, Any]:
        tokens: list[Any] = [*self._tokens, *(int(number) for number in sorted(numbers))]
        if not (tokens or self._blank):
            return {}
        return {"missing": INDICATOR, **({"missing_tokens": tokens} if tokens else {})}

    def _range(self) -> dict[str, Any]:
        low, high, absent = self._low, self._high, self._sentinels
        if low < 0 and absent:
            low, high, absent = min(low, *absent), max(high, *absent), set()
        return {"range": list(rounded(low, high)), **self._missing(absent)}

    def _days_between(self) -> dict[str, Any]:
        if {"%d/%m/%Y", "%m/%d/%Y"} <= set(self._dates):
            return {"declare": 'a date: {"date": [first, last], "format": "%d/%m/%Y"} or "%m/%d/%Y"'}
        format_ = next(iter(self._dates))
        first, last = self._days[format_]
        bounds = [f"{first.year:04}-01-01", f"{last.year:04}-12-31"]
        return {"date": bounds, **({"format": format_} if format_ else {}), **self._missing()}


def rounded(low: float, high: float) -> tuple[float, float]:
    """Round numbers below and above: to one digit of the distance between them.

    Example:
        >>> rounded(17, 88), rounded(0.31, 0.37), rounded(5, 5)
        ((10, 90), (0.31, 0.37), (4, 6))
    """
    if low == high:
        return _plain(math.floor(low) - 1), _plain(math.ceil(high) + 1)
    # Not finer than what numbers of this size can tell apart.
    finest = max(math.log10(max(-low, high, 1e-290)) - 14, -300)
    digits = math.floor(max(math.log10(high - low), finest))
    step = 10.0**digits
    below = round(math.floor(low / step) * step, max(0, -digits))
    above = round(math.ceil(high / step) * step, max(0, -digits))
    # A quotient that is rounded, to 0 at the smallest numbers, can end inside.
    return _plain(below if below <= low else below - step), _plain(above if above >= high else above + step)


def _plain(number: float) -> float:
    return int(number) if float(number).is_integer() else number


def _reader(text: str) -> Dates:
    entry = {"date": ["1000-01-01", "9999-12-31"], **({"format": text} if text else {})}
    return Dates.read(entry, "date")
