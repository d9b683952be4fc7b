"""Tables as vectors, by a declared specification: nothing is fitted."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from privmix.data.source import Schema
from privmix.errors import WITHHELD, InvalidInput, StorageError, check_number
from privmix.features.base import LONGEST_NAME, Extractor


@dataclass(frozen=True)
class _Numeric:
    """A number between public bounds, scaled to [0, 1]."""

    low: float
    high: float
    log: bool
    missing: float | None

    width: ClassVar[int] = 1

    def names(self, column: str) -> list[str]:
        """What the features of such a column are called."""
        return [column]

    def unusual(self, cells: list[Any]) -> Iterator[tuple[int, str]]:
        """See :meth:`Tabular.unusual`."""
        return _unusual_numbers(cells, self.missing, self.low, self.high)

    def encode(self, cells: list[Any], name: str) -> NDArray[np.float64]:
        """(b,) cells -> (b, 1) in [0, 1]."""
        numbers = np.array([_number(cell, name, self.missing) for cell in cells], np.float64).reshape(-1, 1)
        above = np.clip(numbers, self.low, self.high) - self.low
        return np.log1p(above) / math.log1p(self.high - self.low) if self.log else above / (self.high - self.low)


@dataclass(frozen=True)
class _Categories:
    """One of a public list of values, one-hot."""

    values: tuple[str, ...]
    missing_token: str | None

    @property
    def width(self) -> int:
        return len(self.values) + (self.missing_token is not None)

    def names(self, column: str) -> list[str]:
        """What the features of such a column are called."""
        missing = [] if self.missing_token is None else [f"{column} missing"]
        return [*(f"{column}={value}" for value in self.values), *missing]

    def unusual(self, cells: list[Any]) -> Iterator[tuple[int, str]]:
        """See :meth:`Tabular.unusual`."""
        known = {*self.values, self.missing_token}
        for row, cell in enumerate(cells):
            token = "" if cell is None else _token(cell)
            absent = cell is None or (_is_missing(cell) and token not in known)
            if absent and self.missing_token is None and "" not in known:
                yield row, "missing: taken as none of the categories"
            elif absent or token == self.missing_token:
                yield row, "missing: has a place of its own"
            elif token not in known:
                yield row, "unknown category: taken as none"

    def encode(self, cells: list[Any], name: str) -> NDArray[np.float64]:
        """(b,) cells -> (b, width); all zeros where the value is unknown."""
        places = {value: place for place, value in enumerate(self.values)}
        if self.missing_token is not None:
            places[self.missing_token] = len(self.values)
        onehot = np.zeros((len(cells), self.width))
        for row, cell in enumerate(cells):
            token = "" if cell is None else _token(cell)
            # Files without types leave a cell empty where others have none.
            absent = cell is None or (_is_missing(cell) and token not in places)
            place = places.get(self.missing_token or "" if absent else token)
            if place is not None:
                onehot[row, place] = 1
        return onehot


@dataclass(frozen=True)
class _Bins:
    """Which of some public intervals a number lies in, one-hot: a linear classifier then need not be linear in it."""

    edges: tuple[float, ...]
    missing: float | None

    @property
    def width(self) -> int:
        return len(self.edges) + 1

    def names(self, column: str) -> list[str]:
        """What the features of such a column are called."""
        edges = [_token(edge) for edge in self.edges]
        between = [f"{low} <= {column} < {high}" for low, high in pairwise(edges)]
        return [f"{column} < {edges[0]}", *between, f"{column} >= {edges[-1]}"]

    def unusual(self, cells: list[Any]) -> Iterator[tuple[int, str]]:
        """See :meth:`Tabular.unusual`."""
        return _unusual_numbers(cells, self.missing, -math.inf, math.inf)

    def encode(self, cells: list[Any], name: str) -> NDArray[np.float64]:
        """(b,) cells -> (b, width); an edge belongs to the interval above it."""
        numbers = [_number(cell, name, self.missing) for cell in cells]
        return np.asarray(np.eye(self.width)[np.searchsorted(self.edges, numbers, side="right")])


def _number(cell: Any, name: str, missing: float | None) -> float:
    if missing is not None and _is_missing(cell):
        return missing
    try:
        number = float(cell)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidInput(f"column {name}", WITHHELD, "a number in every record (or declare what missing means)")
    return number


def _is_missing(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


NOT_A_NUMBER: Final = "no number"
"""What makes a record be refused; everything else that :meth:`Tabular.unusual` tells of is taken in some way."""


def _unusual_numbers(cells: list[Any], missing: float | None, low: float, high: float) -> Iterator[tuple[int, str]]:
    for row, cell in enumerate(cells):
        if missing is not None and _is_missing(cell):
            yield row, f"missing: taken as {missing:g}"
            continue
        try:
            number = _number(cell, "", None)
        except InvalidInput:
            yield row, NOT_A_NUMBER
            continue
        if number < low:
            yield row, f"below the range: taken as {low:g}"
        elif number > high:
            yield row, f"above the range: taken as {high:g}"


class Tabular(Extractor):
    """Rows of a table as vectors of norm at most 1, by a public specification.

    The specification names every column of the table, in its order, and says one of:

    - ``{"range": [low, high]}``: a number, cut to the range and scaled to [0, 1]; with ``"log": true`` on the scale of
      log(1 + value - low); with ``"missing": number``, that number where the value is missing.
    - ``{"bins": [25, 35, 50]}``: one-hot, by the interval between these numbers; with ``"missing"`` as above.
    - ``{"categories": [...]}``: one-hot. A value that is not listed, or is missing, gives zeros; with
      ``"missing_token": "?"`` a missing value, or that text, has a place of its own, the last.
    - ``{"ignore": true}``: not used.

    Bounds and categories must be public knowledge (a code book, a form, physics), not looked up in the private table.
    A text that reads as a number counts as one in a numeric column.

    Formal guarantees:
        - Per record, and nothing fitted: every constant is in the specification, which the spec holds.
        - Norm: features are divided by the square root of the number of used columns, so that no record's norm
          exceeds 1 but for the rounding to float32.
        - Silent: no message shows a value.

    Args:
        columns: mapping from a column's name to its specification, or a list of specifications with a ``"name"`` each.

    Example:
        >>> colours = Tabular({"size": {"range": [0, 10]}, "colour": {"categories": ["red", "blue"]}})
        >>> (colours.transform(np.array([[5.0, "blue"]], dtype=object)) * 2**0.5).round(3).tolist()
        [[0.5, 0.0, 1.0]]
    """

    name: ClassVar[str] = "tabular"
    argument: ClassVar[str] = "SPEC.json"
    most_text: ClassVar[int] = 2**16

    @classmethod
    def check_stated(cls, options: Mapping[str, Any]) -> None:
        """A specification whose texts are short: names and categories are its author's."""
        if set(options) != {"columns"}:
            raise InvalidInput("features options", sorted(options), "options of tabular: columns")
        found = cls(options["columns"]).options()["columns"]
        texts = [text for entry in found for text in _texts(entry)]
        if found != options["columns"] or any(len(text) > LONGEST_NAME for text in texts):
            raise InvalidInput(
                "columns of tabular", "other columns", f"a list, texts of at most {LONGEST_NAME} characters"
            )

    @classmethod
    def names_of(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        """By column and category: "age", "sex=F", "sex missing", "25 <= age < 35"."""
        encoders = cls(options["columns"])._encoders
        return tuple(
            name for column, encoder in encoders.items() if encoder is not None for name in encoder.names(column)
        )

    def __init__(self, columns: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        self._entries = _entries(columns)
        self._encoders = {entry["name"]: _encoder(entry) for entry in self._entries}
        used = sum(encoder is not None for encoder in self._encoders.values())
        if not used:
            raise InvalidInput("columns of tabular", len(self._entries), "at least one that is not ignored")
        self._scale = 1 / math.sqrt(used)

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Read the specification from a JSON file.

        Raises:
            InvalidInput: not a specification.
            StorageError: it cannot be read.
        """
        try:
            columns = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror or 'cannot be read'}") from None
        except ValueError:
            raise InvalidInput(f"table specification {path}", "no JSON", "a JSON object, one entry a column") from None
        return cls(columns)

    @classmethod
    def from_argument(cls, argument: str) -> Self:
        """``tabular:SPEC.json``."""
        return cls.from_file(argument)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that a table must have, in order."""
        return tuple(self._encoders)

    def options(self) -> dict[str, Any]:
        """The specification, as a list: the order of columns matters."""
        return {"columns": [dict(entry) for entry in self._entries]}

    def check_schema(self, schema: Schema) -> None:
        """The table's columns must be those of the specification, in the same order."""
        if schema.columns != self.columns:
            given = schema.columns or ()
            lacking = [name for name in self.columns if name not in given]
            extra = [name for name in given if name not in self.columns]
            what = f"lacking {lacking}, unknown {extra}" if lacking or extra else "another order"
            if schema.columns is None:
                what = "arrays of numbers"
            raise InvalidInput("columns for tabular", what, "a table with " + ", ".join(self.columns))

    def output_dim(self, input_shape: tuple[int, ...]) -> int:
        """One place a number, one a category."""
        if tuple(input_shape) != (len(self._entries),):
            allowed = f"({len(self._entries)},), one value a column of the specification"
            raise InvalidInput("input shape for tabular", tuple(input_shape), allowed)
        return sum(encoder.width for encoder in self._encoders.values() if encoder is not None)

    def unusual(self, x: NDArray[Any]) -> Iterator[tuple[int, str, str]]:
        """Of (b, columns) cells those that are refused, cut, missing or unknown: (row, column, why), no value.

        For the owner's eyes: what it says is about private records.

        Example:
            >>> colours = Tabular({"size": {"range": [0, 10]}, "colour": {"categories": ["red", "blue"]}})
            >>> list(colours.unusual(np.array([[5.0, "green"], ["tall", "red"]], dtype=object)))
            [(1, 'size', 'no number'), (0, 'colour', 'unknown category: taken as none')]
        """
        for place, (name, encoder) in enumerate(self._encoders.items()):
            if encoder is not None:
                for row, why in encoder.unusual(x[:, place].tolist()):
                    yield row, name, why

    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """(b, columns) texts, numbers and None -> (b, d) float32."""
        self.output_dim(x.shape[1:])
        parts = [
            encoder.encode(x[:, place].tolist(), name)
            for place, (name, encoder) in enumerate(self._encoders.items())
            if encoder is not None
        ]
        return (np.concatenate(parts, axis=1) * self._scale).astype(np.float32)


def _texts(entry: Mapping[str, Any]) -> list[str]:
    """Name and categories of a column."""
    return [entry["name"], str(entry.get("missing_token", "")), *map(_token, entry.get("categories", ()))]


def _entries(columns: Any) -> list[dict[str, Any]]:
    field, allowed = "columns of tabular", "a mapping from names to specifications, or a list of them with names"
    if isinstance(columns, Mapping):
        columns = [{"name": name, **entry} if isinstance(entry, Mapping) else entry for name, entry in columns.items()]
    if isinstance(columns, str) or not isinstance(columns, Sequence) or not columns:
        raise InvalidInput(field, type(columns).__name__, allowed)
    if not all(isinstance(entry, Mapping) and isinstance(entry.get("name"), str) for entry in columns):
        raise InvalidInput(field, "an entry without a name or of another type", allowed)
    names = [entry["name"] for entry in columns]
    if len(set(names)) != len(names):
        raise InvalidInput(field, names, "names, each of them once")
    return [dict(entry) for entry in columns]


def _encoder(entry: Mapping[str, Any]) -> _Numeric | _Bins | _Categories | None:
    field = f"specification of column {entry['name']}"
    keys = set(entry) - {"name"}
    if keys == {"ignore"} and entry["ignore"] is True:
        return None
    if "range" in keys and keys <= {"range", "log", "missing"}:
        return _numeric(entry, field)
    if "bins" in keys and keys <= {"bins", "missing"}:
        edges = entry["bins"]
        if not isinstance(edges, list | tuple) or not edges:
            raise InvalidInput(field, edges, "bins: a list of numbers, rising")
        numbers = tuple(check_number(field, edge) for edge in edges)
        if any(after <= before for before, after in pairwise(numbers)):
            raise InvalidInput(field, list(edges), "bins: a list of numbers, rising")
        missing = entry.get("missing")
        return _Bins(numbers, None if missing is None else check_number(field, missing))
    if "categories" in keys and keys <= {"categories", "missing_token"}:
        values, token = entry["categories"], entry.get("missing_token")
        if (
            not isinstance(values, list | tuple)
            or not values
            or not all(isinstance(v, str | int | float) for v in values)
        ):
            raise InvalidInput(field, values, "categories: a list of texts or numbers")
        texts = tuple(_token(value) for value in values)
        if len(set(texts)) != len(texts) or token in texts or not isinstance(token, str | None):
            raise InvalidInput(field, values, "categories, each of them once, and a missing_token that is none of them")
        return _Categories(texts, token)
    allowed = "range (with log, missing), bins (with missing), categories (with missing_token), or ignore: true"
    raise InvalidInput(field, sorted(map(str, keys)), allowed)


def _numeric(entry: Mapping[str, Any], field: str) -> _Numeric:
    bounds, log = entry["range"], entry.get("log", False)
    if not isinstance(bounds, list | tuple) or len(bounds) != 2 or not isinstance(log, bool):
        raise InvalidInput(field, [bounds, log], "range: [low, high]; log: true or false")
    low = check_number(field, bounds[0])
    high = check_number(field, bounds[1], low=low, low_open=True)
    check_number(field, high - low)
    missing = entry.get("missing")
    return _Numeric(low, high, log, None if missing is None else check_number(field, missing))


def _token(value: Any) -> str:
    """A category as text: a reader of tables may have made the category 3 a float."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
