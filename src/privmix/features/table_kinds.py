"""Kinds of columns that a table's specification can declare: a cell as numbers, and what is unusual about it."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from privmix.errors import WITHHELD, InvalidInput, check_number

INDICATOR: Final = "indicator"
"""The value of ``"missing"`` that gives missing values a separate feature."""

_NO_NUMBER: Final = "not a number"
_COMMA: Final = "not a number: it has a decimal comma"
_GROUPS: Final = "not a number: it has thousands separators"
_SIGN: Final = "not a number: it has a currency or percent sign"
_NO_DATE: Final = "not a date of the declared format"
_NO_TRUTH: Final = "neither true nor false"
_NO_RANK: Final = "not an ordered category"
REFUSED: Final = frozenset({_NO_NUMBER, _COMMA, _GROUPS, _SIGN, _NO_DATE, _NO_TRUTH, _NO_RANK})
"""Reasons to refuse a record; for all other results of :meth:`ColumnKind.unusual` there is a replacement."""

_OWN_PLACE: Final = "missing: has a separate feature"


class ColumnKind(ABC):
    """The declared content of one column.

    Formal guarantees:
        - Per cell: what a cell becomes depends on that cell and on the declaration alone.
        - Norm: what one cell becomes has norm at most 1.
    """

    # `key` is the field of a specification that declares the kind, `fields` are the others that it allows.

    key: ClassVar[str]
    fields: ClassVar[tuple[str, ...]] = ()

    @classmethod
    @abstractmethod
    def read(cls, entry: Mapping[str, Any], field: str) -> Self:
        """Return the kind of a column's entry, whose fields are those of the kind; messages name it ``field``."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many features one cell becomes."""

    @abstractmethod
    def names(self, column: str) -> list[str]:
        """Names of the features of such a column."""

    @abstractmethod
    def encode(self, cells: list[Any], name: str) -> NDArray[np.float64]:
        """(b,) cells -> (b, width)."""

    @abstractmethod
    def unusual(self, cells: list[Any]) -> Iterator[tuple[int, str]]:
        """(row, why) of cells that are refused, cut, missing or unknown; no value."""


def token_of(value: Any) -> str:
    """Return a category as text: a reader of tables may have made the category 3 a float."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def is_blank(cell: Any) -> bool:
    """Whether nothing is there: files without types leave a cell empty where others have none."""
    return cell is None or (isinstance(cell, str) and not cell.strip())


def number_in(cell: Any) -> float:
    """Return the finite number that a cell is or spells; NaN otherwise."""
    try:
        number = float(cell)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    return number if math.isfinite(number) else math.nan


MARKS: Final = {",": ".", ".": ",", " ": ".", "'": "."}
"""Marks between thousands that a column can declare, each with the decimal mark of its texts."""

SIGNS: Final = "$€£¥₹%"
# No text of a number: what becomes of one whose groups are no thousands.
_ODD_GROUPS: Final = "\0"


def ungrouped(cell: Any, mark: str | None) -> Any:
    """Return a number's text without its thousands mark, with a decimal point; other cells as they are."""
    if mark is None or not isinstance(cell, str):
        return cell
    text, point = cell.strip().replace("\xa0", " ").replace("\u202f", " "), MARKS[mark]
    parts = rf"[+-]?\d{{1,3}}({re.escape(mark)}\d{{3}})+({re.escape(point)}\d*)?"
    if mark in text and not re.fullmatch(parts, text, re.ASCII):
        return _ODD_GROUPS
    return text.replace(mark, "").replace(point, ".")


def like_thousands(text: str) -> bool | None:
    """Whether the decimal mark of a text may part thousands: three digits behind it; None where there is none."""
    found = re.fullmatch(r"\s*[+-]?(\d+)[.,](\d+)\s*", text, re.ASCII)
    return None if found is None else bool(len(found[2]) == 3 and re.fullmatch("[1-9][0-9]{0,2}", found[1]))


@dataclass(frozen=True)
class Missing:
    """Cells that mean a missing value, and the value ``instead`` (None: refused; ``own``: its own feature)."""

    # `texts` are such cells, in addition to empty ones; `numbers` are those of them that are numbers in any notation.

    instead: Any = None
    own: bool = False
    texts: frozenset[str] = frozenset()
    numbers: frozenset[float] = frozenset()

    @classmethod
    def read(cls, entry: Mapping[str, Any], field: str, value: Any) -> Missing:
        """Read ``missing`` and ``missing_tokens`` of an entry; ``value`` makes a value of the first one."""
        said, tokens = entry.get("missing"), entry.get("missing_tokens")
        if tokens is not None and said is None:
            raise InvalidInput(field, "missing_tokens alone", f'"missing" with a replacement value, or "{INDICATOR}"')
        texts = _tokens(field, "missing_tokens", tokens or ())
        numbers = frozenset(number for text in texts if not math.isnan(number := number_in(text)))
        own = said == INDICATOR
        return cls(None if said is None or own else value(said), own, frozenset(texts), numbers)

    @property
    def declared(self) -> bool:
        """Whether missing values are taken in some way."""
        return self.own or self.instead is not None

    def holds(self, cell: Any) -> bool:
        """Whether a cell is missing by declaration."""
        if not self.declared:
            return False
        if is_blank(cell):
            return True
        return bool(self.texts) and (token_of(cell).strip() in self.texts or number_in(cell) in self.numbers)

    def names(self, column: str) -> list[str]:
        """Name of the feature of missing values, if there is one."""
        return [f"{column} missing"] if self.own else []

    def why(self, shown: str) -> str:
        """Message about a missing value; ``shown``: the replacement as written."""
        return _OWN_PLACE if self.own else f"missing: read as {shown}"


class _Single(ColumnKind):
    """A kind whose cells are single values: each is one, or missing, or refused."""

    missing: Missing
    refusal: ClassVar[str]
    wanted: ClassVar[str]

    @abstractmethod
    def value(self, cell: Any) -> Any:
        """Return the value of a cell that is not missing; None where it is none."""

    @abstractmethod
    def shown(self, value: Any) -> str:
        """How a declared value is written in messages."""

    def gone(self, cell: Any) -> bool:
        return self.missing.holds(cell)

    def cut(self, value: Any) -> str | None:
        """Message where the value is taken for another; else None."""
        return None

    def why_refused(self, cell: Any) -> str:
        """Message about a cell that is no value and not missing; one of :data:`REFUSED`."""
        return self.refusal

    def values(self, cells: list[Any], name: str) -> list[Any]:
        """Values; None where one is missing and has a feature of its own."""
        found = []
        for cell in cells:
            value = self.missing.instead if (gone := self.gone(cell)) else self.value(cell)
            if value is None and not (self.missing.own and gone):
                allowed = f"{self.wanted} in every record (or declare missing values)"
                raise InvalidInput(f"column {name}", WITHHELD, allowed)
            found.append(value)
        return found

    def unusual(self, cells: list[Any]) -> Iterator[tuple[int, str]]:
        for row, cell in enumerate(cells):
            if self.gone(cell):
                yield row, self.missing.why(self.shown(self.missing.instead))
                continue
            value = self.value(cell)
            why = self.why_refused(cell) if value is None else self.cut(value)
            if why is not None:
                yield row, why

    def joined(self, values: list[Any], found: NDArray[np.float64]) -> NDArray[np.float64]:
        """(b, w) features of the values, and the feature of missing ones, where there is one: then all others are 0."""
        if not self.missing.own:
            return found
        gone = np.array([value is None for value in values], dtype=np.float64).reshape(-1, 1)
        return np.concatenate([found * (1 - gone), gone], axis=1)


class _OfNumbers(_Single):
    thousands: str | None
    refusal, wanted = _NO_NUMBER, "a number"

    def values(self, cells: list[Any], name: str) -> list[Any]:
        # All at once where each cell is a finite number that means itself: one by one takes three times as long.
        if not self.missing.numbers and set(map(type, cells)) <= {float, int}:
            with suppress(OverflowError):
                numbers = np.array(cells, np.float64)
                if np.isfinite(numbers).all():
                    return list(numbers.tolist())
        return super().values(cells, name)

    def gone(self, cell: Any) -> bool:
        return self.missing.holds(ungrouped(cell, self.thousands))

    def value(self, cell: Any) -> float | None:
        number = number_in(ungrouped(cell, self.thousands))
        return None if math.isnan(number) else number

    def shown(self, value: Any) -> str:
        return f"{value:g}" if value is not None else ""

    def why_refused(self, cell: Any) -> str:
        if not isinstance(cell, str):
            return self.refusal
        if any(not math.isnan(number_in(ungrouped(cell, mark))) for mark in MARKS if mark != "." or mark in cell):
            return _GROUPS
        if "," in cell and not math.isnan(number_in(cell.replace(",", "."))):
            return _COMMA
        bare = cell.strip().strip(SIGNS)
        signed = bare != cell.strip() and (self.value(bare) is not None or self.why_refused(bare) != self.refusal)
        return _SIGN if signed else self.refusal


@dataclass(frozen=True)
class Numeric(_OfNumbers):
    """A number between public bounds, scaled to [0, 1]."""

    low: float
    high: float
    log: bool
    missing: Missing
    integer: bool = False
    thousands: str | None = None

    key: ClassVar[str] = "range"
    fields: ClassVar[tuple[str, ...]] = ("log", "integer", "thousands", "missing", "missing_tokens")

    @classmethod
    def read(cls, entry: Mapping[str, Any], field: str) -> Self:
        bounds, log = entry["range"], entry.get("log", False)
        if not isinstance(bounds, list | tuple) or len(bounds) != 2 or not isinstance(log, bool):
            raise InvalidInput(field, [bounds, log], "range: [low, high]; log: true or false")
        low = check_number(field, bounds[0])
        high = check_number(field, bounds[1], low=low, low_open=True)
        check_number(field, high - low)
        missing = Missing.read(entry, field, lambda said: check_number(field, said))
        return cls(low, high, log, missing, _whole(entry, field, (low, high)), _mark(entry, field))

    @property
    def width(self) -> int:
        return 1 + self.missing.own

    def names(self, column: str) -> list[str]:
        return [column, *self.missing.names(column)]

    def cut(self, value: float) -> str | None:
        if value < self.low:
            return f"below the range: read as {self.low:g}"
        return f"above the range: read as {self.high:g}" if value > self.high else None

    def encode(self, cells: list[Any], name: str) -> NDArray[np.float64]:
        values = self.values(cells, name)
        numbers = np.array([self.low if value is None else value for value in values], np.float64).reshape(-1, 1)
        above = np.clip(numbers, self.low, self.high) - self.low
        length = self.high - self.low
        return self.joined(values, np.log1p(above) / math.log1p(length) if self.log else above / length)


@dataclass(frozen=True)
class Bins(_OfNumbers):
    """Which of some public intervals a number lies in, one-hot: a linear classifier then need not be linear in it."""

    edges: tuple[float, ...]
    missing: Missing
    integer: bool = False
    thousands: str | None = None

    key: ClassVar[str] = "bins"
    fields: ClassVar[tuple[str, ...]] = ("range", "integer", "thousands", "missing", "missing_tokens")

    @classmethod
    def read(cls, entry: Mapping[str, Any], field: str) -> Self:
        edges = entry["bins"]
        if not isinstance(edges, list | tuple) or not edges:
            raise InvalidInput(field, edges, "bins: a list of numbers, rising")
        numbers = tuple(check_number(field, edge) for edge in edges)
        if any(after <= before for before, after in pairwise(numbers)):
            raise InvalidInput(field, list(edges), "bins: a list of numbers, rising")
        ends = entry.get("range", (numbers[0], numbers[-1]))
        if not isinstance(ends, list | tuple) or len(ends) != 2:
            raise InvalidInput(field, ends, "range with bins: [low, high], around the edges")
        low, high = check_number(field, ends[0], high=numbers[0]), check_number(field, ends[1], low=numbers[-1])
        check_number(field, high - low)
        missing = Missing.read(entry, field, lambda said: check_number(field, said))
        return cls(numbers, missing, _whole(entry, field, (low, *numbers, high)), _mark(entry, field))

    @property
    def width(self) -> int:
        return len(self.edges) + 1 + self.missing.own

    def names(self, column: str) -> list[str]:
        edges = [token_of(edge) for edge in self.edges]
        between = [f"{low} <= {column} < {high}" for low, high in pairwise(edges)]
        return [f"{column} < {edges[0]}", *between, f"{column} >= {edges[-1]}", *self.missing.names(column)]

    def encode(self, cells: list[Any], name: str) -> NDArray[np.float64]:
        """Encode cells by their interval; an edge belongs to the interval above it."""
        values = self.values(cells, name)
        numbers = [0.0 if value is None else value for value in values]
        onehot = np.zeros((len(values), len(self.edges) + 1))
        onehot[np.arange(len(values)), np.searchsorted(self.edges, numbers, side="right")] = 1
        return self.joined(values, onehot)


@dataclass(frozen=True)
class Categories(ColumnKind):
    """One-hot values of a public list; then a place for missing values, and one for ``unlisted`` ones, if declared."""

    # Blanks around a text do not count, unless two listed values differ by them.

    values: tuple[str, ...]
    tokens: tuple[str, ...] | None
    other: bool
    unlisted: str | int | float

    key: ClassVar[str] = "categories"
    fields: ClassVar[tuple[str, ...]] = ("missing_token", "missing_tokens", "other")

    @classmethod
    def read(cls, entry: Mapping[str, Any], field: str) -> Self:
        values, token, other = entry["categories"], entry.get("missing_token"), entry.get("other", False)
        if (
            not isinstance(values, list | tuple)
            or not values
            or not all(isinstance(v, str | int | float) and not _endless(v) for v in values)
        ):
            raise InvalidInput(field, values, "categories: a list of texts or numbers")
        texts = tuple(token_of(value) for value in values)
        if len(set(texts)) != len(texts) or token in texts or not isinstance(token, str | None):
            raise InvalidInput(
                field, values, "categories without repetition, and a missing_token that is not a category"
            )
        if not isinstance(other, bool | str | int | float) or _endless(other) or is_blank(other):
            raise InvalidInput(field, other, "other: true, false, or the text for unlisted values in sampled rows")
        tokens: tuple[str, ...] | None = None if token is None else (token,)
        if entry.get("missing_tokens") is not None:
            several = _tokens(field, "missing_tokens", entry["missing_tokens"])
            if token is not None or set(several) & set(texts):
                allowed = "missing_tokens that are not categories, and no missing_token in addition"
                raise InvalidInput(field, several, allowed)
            tokens = tuple(several)
        taken = {text.strip() for text in (*texts, *(tokens or ()))}
        unlisted: str | int | float = "other" if isinstance(other, bool) else other
        while token_of(unlisted).strip() in taken:
            if not isinstance(other, bool):
                raise InvalidInput(field, other, "other: a text that is neither a category nor a missing token")
            unlisted = f"{unlisted} value"
        return cls(texts, tokens, other is not False, unlisted)

    @property
    def width(self) -> int:
        return len(self.values) + (self.tokens is not None) + self.other

    def names(self, column: str) -> list[str]:
        missing = [] if self.tokens is None else [f"{column} missing"]
        return [*(f"{column}={value}" for value in self.values), *missing, *([f"{column} other"] * self.other)]

    def _place(self, cell: Any, places: Mapping[str, int]) -> int | None:
        """Return the place of a cell's feature, None where it has none."""
        token = "" if cell is None else token_of(cell)
        # Files without types leave a cell empty where others have none.
        if cell is None or (is_blank(cell) and token not in places):
            return len(self.values) if self.tokens is not None else places.get("")
        return places.get(token, places.get(token.strip(), self.width - 1 if self.other else None))

    def _places(self) -> dict[str, int]:
        places = {value: place for place, value in enumerate(self.values)}
        places |= dict.fromkeys(self.tokens or (), len(self.values))
        return {token.strip(): place for token, place in reversed(places.items()) if token.strip()} | places

    def unusual(self, cells: list[Any]) -> Iterator[tuple[int, str]]:
        places, folded = self._places(), {value.strip().casefold() for value in self.values}
        instead = "read as other" if self.other else "read as no category"
        for row, cell in enumerate(cells):
            place, token = self._place(cell, places), "" if cell is None else token_of(cell)
            if place is not None and place < len(self.values):
                continue
            if self.tokens is not None and place == len(self.values):
                yield row, _OWN_PLACE
            elif is_blank(cell):
                yield row, "missing: read as no category"
            elif token.strip().casefold() in folded:
                yield row, f"unknown category, a known one except for case: {instead}"
            else:
                yield row, f"unknown category: {instead}"

    def encode(self, cells: list[Any], name: str) -> NDArray[np.float64]:
        """All zeros where the value is unknown and there is no place for others."""
        places = self._places()
        onehot = np.zeros((len(cells), self.width))
        for row, cell in enumerate(cells):
            place = self._place(cell, places)
            if place is not None:
                onehot[row, place] = 1
        return onehot


_TRUE: Final = ("true", "yes", "1")
_FALSE: Final = ("false", "no", "0")


@dataclass(frozen=True)
class Truth(_Single):
    """Yes or no, as 1 or 0; case and blanks around a text do not count."""

    true: frozenset[str]
    false: frozenset[str]
    missing: Missing

    key: ClassVar[str] = "boolean"
    fields: ClassVar[tuple[str, ...]] = ("missing", "missing_tokens")
    refusal: ClassVar[str] = _NO_TRUTH
    wanted: ClassVar[str] = "one of the texts for true and false"

    @classmethod
    def read(cls, entry: Mapping[str, Any], field: str) -> Self:
        said = {"true": _TRUE, "false": _FALSE} if entry["boolean"] is True else entry["boolean"]
        if not isinstance(said, Mapping) or set(said) != {"true", "false"}:
            raise InvalidInput(field, said, 'boolean: true, or {"true": [...], "false": [...]} with the texts of each')
        true, false = ({_folded(text) for text in _tokens(field, word, said[word])} for word in ("true", "false"))
        if not true or not false or true & false:
            raise InvalidInput(field, dict(said), "different texts for true and false")
        missing = Missing.read(entry, field, lambda said: check_number(field, said, low=0, high=1))
        return cls(frozenset(true), frozenset(false), missing)

    @property
    def width(self) -> int:
        return 1 + self.missing.own

    def names(self, column: str) -> list[str]:
        return [column, *self.missing.names(column)]

    def value(self, cell: Any) -> float | None:
        text = _folded(token_of(cell))
        return 1.0 if text in self.true else 0.0 if text in self.false else None

    def shown(self, value: Any) -> str:
        return "" if value is None else f"{value:g}"

    def encode(self, cells: list[Any], name: str) -> NDArray[np.float64]:
        values = self.values(cells, name)
        return self.joined(values, np.array([value or 0.0 for value in values], np.float64).reshape(-1, 1))


@dataclass(frozen=True)
class Ranks(_Single):
    """One of ordered categories, as a number: 0 for the first, 1 for the last, evenly spaced between."""

    ranks: tuple[str, ...]
    missing: Missing

    key: ClassVar[str] = "ordinal"
    fields: ClassVar[tuple[str, ...]] = ("missing", "missing_tokens")
    refusal: ClassVar[str] = _NO_RANK
    wanted: ClassVar[str] = "one of the ordered categories"

    @classmethod
    def read(cls, entry: Mapping[str, Any], field: str) -> Self:
        values = [text.strip() for text in _tokens(field, "ordinal", entry["ordinal"])]
        if len(values) < 2 or len(set(values)) < len(values) or not all(values) or INDICATOR in values:
            allowed = f'ordinal: at least two different texts or numbers in order, without "{INDICATOR}"'
            raise InvalidInput(field, values, allowed)

        def place(said: Any) -> int:
            if token_of(said).strip() not in values:
                raise InvalidInput(field, said, f'missing: one of the ordered categories, or "{INDICATOR}"')
            return values.index(token_of(said).strip())

        return cls(tuple(values), Missing.read(entry, field, place))

    @property
    def width(self) -> int:
        return 1 + self.missing.own

    def names(self, column: str) -> list[str]:
        return [column, *self.missing.names(column)]

    def value(self, cell: Any) -> int | None:
        text = token_of(cell).strip()
        return self.ranks.index(text) if text in self.ranks else None

    def shown(self, value: Any) -> str:
        return "" if value is None else self.ranks[value]

    def encode(self, cells: list[Any], name: str) -> NDArray[np.float64]:
        values = self.values(cells, name)
        places = np.array([value or 0 for value in values], np.float64).reshape(-1, 1)
        return self.joined(values, places / (len(self.ranks) - 1))


_ISO: Final = re.compile(r"(?P<Y>\d{4})-(?P<m>\d{2})-(?P<d>\d{2})(?:[T ][0-9:.,+Z -]*)?", re.ASCII)
_MONTHS: Final = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
# Directives of strptime that mean the same everywhere; names are English.
_DIRECTIVES: Final = {
    "Y": r"(?P<Y>\d{4})",
    "m": r"(?P<m>\d{1,2})",
    "d": r"(?P<d>\d{1,2})",
    "y": r"(?P<y>\d{2})",
    "b": r"(?P<b>[A-Za-z]{3})",
    "B": r"(?P<B>[A-Za-z]{3,9})",
    "H": r"\d{1,2}",
    "M": r"\d{1,2}",
    "S": r"\d{1,2}",
    "I": r"\d{1,2}",
    "p": r"[AaPp]\.?[Mm]\.?",
    "%": "%",
}
_TIGHT: Final = {word: rule.replace(r"\d{1,2}", r"\d{2}") for word, rule in _DIRECTIVES.items()}
_LONGEST_FORMAT: Final = 40
PARTS: Final = ("days", "year", "month", "weekday")
_WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MOST_YEARS: Final = 100


@dataclass(frozen=True)
class Dates(_Single):
    """A day between public bounds: its place between them in [0, 1], or its year, month and weekday, one-hot."""

    low: date
    high: date
    pattern: re.Pattern[str]
    parts: tuple[str, ...]
    missing: Missing

    key: ClassVar[str] = "date"
    fields: ClassVar[tuple[str, ...]] = ("format", "parts", "missing", "missing_tokens")
    refusal: ClassVar[str] = _NO_DATE
    wanted: ClassVar[str] = "a date of the declared format"

    @classmethod
    def read(cls, entry: Mapping[str, Any], field: str) -> Self:
        bounds = entry["date"]
        if not isinstance(bounds, list | tuple) or len(bounds) != 2:
            raise InvalidInput(field, bounds, 'date: [first, last], as ["2015-01-01", "2025-12-31"]')
        low, high = (_iso(field, bound) for bound in bounds)
        if not low < high:
            raise InvalidInput(field, list(bounds), "date: the first day, and a later one")
        parts = entry.get("parts", ["days"])
        if not isinstance(parts, list | tuple) or not parts or any(parts.count(part) > 1 for part in parts):
            raise InvalidInput(field, parts, f"parts: a list of some of {', '.join(PARTS)}")
        if unknown := [part for part in parts if part not in PARTS]:
            raise InvalidInput(field, unknown, f"parts: a list of some of {', '.join(PARTS)}")
        if "year" in parts and high.year - low.year >= _MOST_YEARS:
            raise InvalidInput(field, list(bounds), f"year as a part only for ranges of at most {_MOST_YEARS} years")
        pattern = _ISO if entry.get("format") is None else _date_pattern(entry["format"], field)
        if "y" in pattern.groupindex and high.year - low.year >= _MOST_YEARS:
            raise InvalidInput(field, list(bounds), f"a range of at most {_MOST_YEARS} years if format has %y")
        found = Missing.read(entry, field, lambda said: _iso(field, said))
        return cls(low, high, pattern, tuple(parts), found)

    def _one_hot(self, part: str) -> list[tuple[str, int]]:
        """Names of a part's values, each with the value."""
        if part == "year":
            return [(str(year), year) for year in range(self.low.year, self.high.year + 1)]
        if part == "month":
            return [(str(month), month) for month in range(1, 13)]
        return [(name, day) for day, name in enumerate(_WEEKDAYS)]

    @property
    def width(self) -> int:
        wide = sum(1 if part == "days" else len(self._one_hot(part)) for part in self.parts)
        return wide + self.missing.own

    def names(self, column: str) -> list[str]:
        found = []
        for part in self.parts:
            one_hot = [] if part == "days" else [f"{column} {part}={name}" for name, _ in self._one_hot(part)]
            found += one_hot or [column]
        return [*found, *self.missing.names(column)]

    def value(self, cell: Any) -> date | None:
        found = self.pattern.fullmatch(token_of(cell).strip())
        if found is None:
            return None
        said = found.groupdict()
        month, year = int(said.get("m") or 1), int(said.get("Y") or said["y"])
        if name := (said.get("b") or said.get("B") or "").lower():
            names = [known if said.get("B") else known[:3] for known in _MONTHS]
            month = names.index(name) + 1 if name in names else 0
        if said.get("y"):
            # The hundred years around the middle of the declared ones.
            first = (self.low.year + self.high.year) // 2 - (_MOST_YEARS - 1) // 2
            year = first + (year - first) % _MOST_YEARS
        try:
            return date(year, month, int(said.get("d") or "1"))
        except ValueError:
            return None

    def shown(self, value: Any) -> str:
        return "" if value is None else str(value)

    def cut(self, value: date) -> str | None:
        if value < self.low:
            return f"before the first day: read as {self.low}"
        return f"after the last day: read as {self.high}" if value > self.high else None

    def encode(self, cells: list[Any], name: str) -> NDArray[np.float64]:
        values = self.values(cells, name)
        days = [self.low if value is None else min(max(value, self.low), self.high) for value in values]
        found = []
        for part in self.parts:
            if part == "days":
                length = (self.high - self.low).days
                found.append(np.array([(day - self.low).days / length for day in days], np.float64).reshape(-1, 1))
                continue
            first = self._one_hot(part)[0][1]
            of = [day.weekday() if part == "weekday" else getattr(day, part) for day in days]
            found.append(np.eye(len(self._one_hot(part)))[np.array(of, dtype=np.int64) - first])
        # Each part has norm at most 1.
        return self.joined(values, np.concatenate(found, axis=1) / math.sqrt(len(self.parts)))


KINDS: Final[Mapping[str, type[ColumnKind]]] = {
    kind.key: kind for kind in (Numeric, Bins, Categories, Ranks, Truth, Dates)
}


def _tokens(field: str, word: str, given: Any) -> list[str]:
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise InvalidInput(field, given, f"{word}: a list of texts or numbers")
    if not all(isinstance(one, str | int | float) and not isinstance(one, bool) and not _endless(one) for one in given):
        raise InvalidInput(field, list(given), f"{word}: a list of texts or numbers")
    return [token_of(one) for one in given]


def _whole(entry: Mapping[str, Any], field: str, bounds: Iterable[float]) -> bool:
    """Return whether ``integer`` declares whole numbers; then bounds are whole, too."""
    integer = entry.get("integer", False)
    exact = (float(bound).is_integer() and abs(bound) <= 2**53 for bound in bounds)
    if not isinstance(integer, bool) or (integer and not all(exact)):
        allowed = "integer: true or false; true where all bounds are whole numbers of at most 2^53"
        raise InvalidInput(field, integer, allowed)
    return integer


def _mark(entry: Mapping[str, Any], field: str) -> str | None:
    """Return the declared mark between thousands."""
    if (mark := entry.get("thousands")) is not None and mark not in tuple(MARKS):
        raise InvalidInput(field, mark, "thousands: one of " + " ".join(f'"{known}"' for known in MARKS))
    return mark


def _endless(value: Any) -> bool:
    """Whether this is infinite or NaN, which JSON lacks."""
    return isinstance(value, float) and not math.isfinite(value)


def _folded(text: str) -> str:
    return text.strip().casefold()


def _iso(field: str, given: Any) -> date:
    """Return a day that a specification names, as 2015-01-31."""
    found = _ISO.fullmatch(given) if isinstance(given, str) and len(given) == len("2015-01-31") else None
    try:
        return date(*map(int, found.group("Y", "m", "d"))) if found else date(0, 0, 0)
    except ValueError:
        raise InvalidInput(field, given, "a day as 2015-01-31") from None


def _date_pattern(text: Any, field: str) -> re.Pattern[str]:
    """Return a pattern for year, month and day in texts of a format such as ``%d.%m.%Y``; it matches in linear time."""
    allowed = (
        "format: %Y or %y, and %m, %b or %B, %d, %H, %I, %M, %S, %p, each at most once, with separators, as %d.%m.%Y"
    )
    if not isinstance(text, str) or len(text) > _LONGEST_FORMAT:
        raise InvalidInput(field, text, allowed)
    found, seen, rest = [], [], text
    while rest:
        literal, percent, rest = rest.partition("%")
        found.append(re.escape(literal))
        if percent:
            word, rest = rest[:1], rest[1:]
            if word not in _DIRECTIVES or word in seen:
                raise InvalidInput(field, text, allowed)
            # A boundary between digits and digits needs a fixed number of them.
            close = rest.startswith("%") or (bool(found) and len(found) > 1 and not literal)
            found.append((_TIGHT if close else _DIRECTIVES)[word])
            seen += [word] if word != "%" else []
    years, months = ({"Y", "y"} & set(seen), {"m", "b", "B"} & set(seen))
    if len(years) != 1 or len(months) > 1 or ("d" in seen and not months):
        raise InvalidInput(field, text, allowed)
    return re.compile("".join(found), re.ASCII)
