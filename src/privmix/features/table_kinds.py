"""Kinds of columns that a table's specification can declare: a cell as numbers, and what is unusual about it."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput, check_number
from privmix.features.table_cells import (
    INDICATOR,
    MARKS,
    NO_RANK,
    NO_TRUTH,
    OWN_PLACE,
    ColumnKind,
    Missing,
    NumberKind,
    SingleKind,
    folded,
    is_blank,
    is_endless,
    token_of,
    tokens_in,
)
from privmix.features.table_dates import Dates


@dataclass(frozen=True)
class Numeric(NumberKind):
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
        # Encoding divides by the length of the range, so equal bounds are refused.
        high = check_number(field, bounds[1], low=low, low_open=True)
        check_number(field, high - low)
        missing = Missing.read(entry, field, lambda said: check_number(field, said))
        return cls(low, high, log, missing, _whole(entry, field, (low, high)), _mark(entry, field))

    @property
    def is_number(self) -> bool:
        return True

    def cut(self, value: float) -> str | None:
        if value < self.low:
            return f"below the range: read as {self.low:g}"
        return f"above the range: read as {self.high:g}" if value > self.high else None

    def encode(self, cells: list[Any], name: str) -> NDArray[np.float64]:
        values = self.values(cells, name)
        numbers = np.array([self.low if value is None else value for value in values], np.float64).reshape(-1, 1)
        # Values outside are cut, because the norm bound of a record needs features in [0, 1].
        above = np.clip(numbers, self.low, self.high) - self.low
        length = self.high - self.low
        return self.joined(values, np.log1p(above) / math.log1p(length) if self.log else above / length)


@dataclass(frozen=True)
class Bins(NumberKind):
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
            or not all(isinstance(v, str | int | float) and not is_endless(v) for v in values)
        ):
            raise InvalidInput(field, values, "categories: a list of texts or numbers")
        texts = tuple(token_of(value) for value in values)
        if len(set(texts)) != len(texts) or token in texts or not isinstance(token, str | None):
            raise InvalidInput(
                field, values, "categories without repetition, and a missing_token that is not a category"
            )
        if not isinstance(other, bool | str | int | float) or is_endless(other) or is_blank(other):
            raise InvalidInput(field, other, "other: true, false, or the text for unlisted values in sampled rows")
        tokens: tuple[str, ...] | None = None if token is None else (token,)
        if entry.get("missing_tokens") is not None:
            several = tokens_in(field, "missing_tokens", entry["missing_tokens"])
            if token is not None or set(several) & set(texts):
                allowed = "missing_tokens that are not categories, and no missing_token in addition"
                raise InvalidInput(field, several, allowed)
            tokens = tuple(several)
        taken = {text.strip() for text in (*texts, *(tokens or ()))}
        unlisted: str | int | float = "other" if isinstance(other, bool) else other
        # Sampled rows show unlisted values by this text, which must not read as a listed value.
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
        token = "" if cell is None else token_of(cell)
        # Files without types leave a cell empty where others have none.
        if cell is None or (is_blank(cell) and token not in places):
            return len(self.values) if self.tokens is not None else places.get("")
        return places.get(token, places.get(token.strip(), self.width - 1 if self.other else None))

    def _places(self) -> dict[str, int]:
        places = {value: place for place, value in enumerate(self.values)}
        places |= dict.fromkeys(self.tokens or (), len(self.values))
        # Exact texts take precedence; among texts that differ by blanks only, the first listed one does.
        return {token.strip(): place for token, place in reversed(places.items()) if token.strip()} | places

    def unusual(self, cells: list[Any]) -> Iterator[tuple[int, str]]:
        places, folded = self._places(), {value.strip().casefold() for value in self.values}
        instead = "read as other" if self.other else "read as no category"
        for row, cell in enumerate(cells):
            place, token = self._place(cell, places), "" if cell is None else token_of(cell)
            if place is not None and place < len(self.values):
                continue
            if self.tokens is not None and place == len(self.values):
                yield row, OWN_PLACE
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
class Truth(SingleKind):
    """Yes or no, as 1 or 0; case and blanks around a text do not count."""

    true: frozenset[str]
    false: frozenset[str]
    missing: Missing

    key: ClassVar[str] = "boolean"
    fields: ClassVar[tuple[str, ...]] = ("missing", "missing_tokens")
    refusal: ClassVar[str] = NO_TRUTH
    wanted: ClassVar[str] = "one of the texts for true and false"

    @classmethod
    def read(cls, entry: Mapping[str, Any], field: str) -> Self:
        said = {"true": _TRUE, "false": _FALSE} if entry["boolean"] is True else entry["boolean"]
        if not isinstance(said, Mapping) or set(said) != {"true", "false"}:
            raise InvalidInput(field, said, 'boolean: true, or {"true": [...], "false": [...]} with the texts of each')
        true, false = ({folded(text) for text in tokens_in(field, word, said[word])} for word in ("true", "false"))
        if not true or not false or true & false:
            raise InvalidInput(field, dict(said), "different texts for true and false")
        missing = Missing.read(entry, field, lambda said: check_number(field, said, low=0, high=1))
        return cls(frozenset(true), frozenset(false), missing)

    def value(self, cell: Any) -> float | None:
        text = folded(token_of(cell))
        return 1.0 if text in self.true else 0.0 if text in self.false else None

    def encode(self, cells: list[Any], name: str) -> NDArray[np.float64]:
        values = self.values(cells, name)
        return self.joined(values, np.array([value or 0.0 for value in values], np.float64).reshape(-1, 1))


@dataclass(frozen=True)
class Ranks(SingleKind):
    """One of ordered categories, as a number: 0 for the first, 1 for the last, evenly spaced between."""

    ranks: tuple[str, ...]
    missing: Missing

    key: ClassVar[str] = "ordinal"
    fields: ClassVar[tuple[str, ...]] = ("missing", "missing_tokens")
    refusal: ClassVar[str] = NO_RANK
    wanted: ClassVar[str] = "one of the ordered categories"

    @classmethod
    def read(cls, entry: Mapping[str, Any], field: str) -> Self:
        values = [text.strip() for text in tokens_in(field, "ordinal", entry["ordinal"])]
        if len(values) < 2 or len(set(values)) < len(values) or not all(values) or INDICATOR in values:
            allowed = f'ordinal: at least two different texts or numbers in order, without "{INDICATOR}"'
            raise InvalidInput(field, values, allowed)

        def place(said: Any) -> int:
            if token_of(said).strip() not in values:
                raise InvalidInput(field, said, f'missing: one of the ordered categories, or "{INDICATOR}"')
            return values.index(token_of(said).strip())

        return cls(tuple(values), Missing.read(entry, field, place))

    @property
    def is_number(self) -> bool:
        # Two ranks are no and yes.
        return len(self.ranks) > 2

    def value(self, cell: Any) -> int | None:
        text = token_of(cell).strip()
        return self.ranks.index(text) if text in self.ranks else None

    def shown(self, value: Any) -> str:
        return "" if value is None else self.ranks[value]

    def encode(self, cells: list[Any], name: str) -> NDArray[np.float64]:
        values = self.values(cells, name)
        # Missing values get a placeholder, because `joined` sets their other features to 0.
        places = np.array([value or 0 for value in values], np.float64).reshape(-1, 1)
        return self.joined(values, places / (len(self.ranks) - 1))


KINDS: Final[Mapping[str, type[ColumnKind]]] = {
    kind.key: kind for kind in (Numeric, Bins, Categories, Ranks, Truth, Dates)
}


def _whole(entry: Mapping[str, Any], field: str, bounds: Iterable[float]) -> bool:
    """Return whether ``integer`` declares whole numbers; then bounds are whole, too."""
    integer = entry.get("integer", False)
    # Beyond 2^53 float64 skips whole numbers, so a bound could be read as another one.
    exact = (float(bound).is_integer() and abs(bound) <= 2**53 for bound in bounds)
    if not isinstance(integer, bool) or (integer and not all(exact)):
        allowed = "integer: true or false; true where all bounds are whole numbers of at most 2^53"
        raise InvalidInput(field, integer, allowed)
    return integer


def _mark(entry: Mapping[str, Any], field: str) -> str | None:
    if (mark := entry.get("thousands")) is not None and mark not in tuple(MARKS):
        raise InvalidInput(field, mark, "thousands: one of " + " ".join(f'"{known}"' for known in MARKS))
    return mark
