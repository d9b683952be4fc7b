"""Tables as vectors, by a declared specification: nothing is fitted."""

import codecs
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from privmix.data.source import Schema
from privmix.errors import InvalidInput, StorageError
from privmix.features.base import LONGEST_NAME, Extractor, Usual
from privmix.features.models import OwnModel
from privmix.features.table_cells import ColumnKind, number_in, token_of
from privmix.features.table_kinds import KINDS, Bins, Numeric
from privmix.fields import is_printable, looks
from privmix.untrusted import parse_json

PLACEHOLDER: Final = "declare"
"""The field of a column without a declaration in a draft."""

DRAFTED: Final = "by looking at the records: no guarantee covers what it says"
"""Mark of a specification that was drafted from private records; see :func:`privmix.spec`."""

_ESTIMATED: Final = "by private estimates at epsilon {!r} and delta {!r}, for one record added or removed"


def estimated_mark(epsilon: float, delta: float) -> str:
    """Return the mark of a specification that was estimated from private records, at this cost."""
    return _ESTIMATED.format(float(epsilon), float(delta))


def _is_estimated(mark: Any) -> bool:
    # A stranger's certificate may hold anything there.
    words = mark.split() if isinstance(mark, str) else []
    numbers = [number_in(word.rstrip(",")) for word in words if word[0].isdigit()]
    # The mark is rebuilt from its two numbers, so that no free text of a stranger reaches a certificate.
    return len(numbers) == 2 and min(numbers) > 0 and numbers[1] < 1 and mark == estimated_mark(*numbers)


_EXAMPLES: Final = (
    '{"range": [0, 120]}, {"bins": [18, 65]}, {"categories": ["a", "b"]}, {"ordinal": ["low", "high"]}, '
    '{"boolean": true}, {"date": ["2015-01-01", "2025-12-31"]} or {"ignore": true}'
)


# Measured on public tables (benchmarks/results/table_numbers.md). Variance of a number on [0, 1].
_NUMBER_VARIANCE: Final = 0.04
# Records clipped to this part of their usual distance from the mean lose less than noise then does.
_NEARER: Final = 0.75
# See :class:`~privmix.features.base.Usual`. Numbers vary together: both are of tables with no other columns.
_NUMBER_DECAY: Final = 2.7
_NUMBER_SHAPES: Final = 0.07
_LEAST_DECAY: Final = 0.5


class DraftedColumns(dict[str, Any]):
    """Columns whose specification records how private records were used for it; unions keep the mark."""

    def __init__(self, columns: Mapping[str, Any], mark: str = DRAFTED) -> None:
        super().__init__(columns)
        self.mark = mark

    def copy(self) -> "DraftedColumns":
        return DraftedColumns(self, self.mark)

    __copy__ = copy

    def _joined(self, other: object) -> str:
        if not isinstance(other, DraftedColumns) or self.mark == other.mark == DRAFTED:
            return self.mark
        # Two estimates are two costs, and a look has no bound at all.
        raise InvalidInput("columns", "columns of two specifications", "one call of privmix spec for all columns")

    def __or__(self, other: Mapping[str, Any]) -> "DraftedColumns":  # type: ignore[override]
        return DraftedColumns({**self, **other}, self._joined(other))

    def __ror__(self, other: Mapping[str, Any]) -> "DraftedColumns":  # type: ignore[override]
        return DraftedColumns({**other, **self}, self.mark)

    def update(self, *others: Any, **more: Any) -> None:
        self._joined(*others or [None])
        super().update(*others, **more)

    def __ior__(self, other: Any) -> "DraftedColumns":  # type: ignore[override,misc]
        self.update(other)
        return self


class Tabular(Extractor):
    """Rows of a table as vectors of norm at most 1, by a public specification.

    Each column has an entry: ``range``, ``bins``, ``categories``, ``ordinal``, ``boolean``, ``date``. The entry
    ``ignore`` drops a column (docs/tables.md has all fields). Bounds and categories must be public knowledge (a code
    book, a form, physics), not looked up in the private table.

    Formal guarantees:
        - Per record, and nothing fitted: every constant is in the specification, which the spec holds.
        - Norm: features are divided by the square root of the number of used columns, so that no record's norm
          exceeds 1 but for the rounding to float32.
        - Silent: no message shows a value.

    Args:
        columns: mapping from a column's name to its specification, or a list of specifications with a ``"name"`` each.
            A mapping may also have the key ``"drafted"``.
        drafted: :data:`DRAFTED` or :func:`estimated_mark`, where the records were used for the specification.
        middle: whether numbers are counted from the middle of their range, on [-1, 1]: the same noise then hides half
            as much of them. Without it they are on [0, 1], as in releases of earlier versions.
    """

    name: ClassVar[str] = "tabular"
    decoder: int = 1
    argument: ClassVar[str] = "SPEC.json"
    most_text: ClassVar[int] = 2**16

    @classmethod
    def check_stated(cls, options: Mapping[str, Any]) -> None:
        """Raise unless the texts are short: names and categories are the author's."""
        if not {"columns"} <= set(options) <= {"columns", "drafted", "middle"}:
            raise InvalidInput("features options", sorted(options), "options of tabular: columns")
        found = cls.from_options(options).options()
        texts = [text for entry in found["columns"] for text in _texts(entry)]
        texts += [token_of(value) for entry in found["columns"] for value in entry.get("categories", ())]
        # A certificate may come from a stranger: options in another form than privmix writes are refused.
        if found != options or any(len(text) > LONGEST_NAME for text in texts):
            raise InvalidInput(
                "columns of tabular", "other columns", f"a list, texts of at most {LONGEST_NAME} characters"
            )

    @classmethod
    def from_options(cls, options: Mapping[str, Any], own: OwnModel | None = None) -> Self:
        # Specs of earlier versions have numbers on [0, 1].
        return super().from_options({"middle": False, **options}, own)

    @classmethod
    def names_of(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        """By column and category: "age", "sex=F", "sex missing", "25 <= age < 35", "admitted month=3"."""
        kinds = cls(**options).kinds
        return tuple(name for column, kind in kinds.items() for name in kind.names(column))

    @classmethod
    def statements(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        mark = options.get("drafted")
        if mark is None:
            return ()
        if mark != DRAFTED:
            return (f"The specification of the table's columns was made {mark}. Add this cost to the guarantee.",)
        said = (
            "The specification of the table's columns was drafted by looking at the private records. What it says, "
            "such as ranges and categories, is not covered by the guarantee."
        )
        return (said,)

    def __init__(
        self, columns: Mapping[str, Any] | Sequence[Mapping[str, Any]], drafted: str | None = None, middle: bool = True
    ) -> None:
        if isinstance(columns, DraftedColumns):
            if drafted not in (None, columns.mark):
                raise InvalidInput("drafted", drafted, "the mark of these columns, or none")
            drafted = columns.mark
        elif isinstance(columns, Mapping) and isinstance(columns.get("drafted"), str):
            drafted = columns["drafted"]
            columns = {name: entry for name, entry in columns.items() if name != "drafted"}
        if drafted not in (None, DRAFTED) and not _is_estimated(drafted):
            raise InvalidInput("drafted", drafted, f"a mark that privmix spec writes, such as: {DRAFTED}")
        self._drafted = drafted
        self._entries = _entries(columns)
        self._kinds = {entry["name"]: _kind(entry) for entry in self._entries}
        if not self.columns:
            raise InvalidInput("columns of tabular", len(self._entries), "at least one that is not ignored")
        # Each column's features have norm at most 1, so this bounds a record's norm without any look at data.
        self._scale = 1 / math.sqrt(len(self.columns))
        if not isinstance(middle, bool):
            raise InvalidInput("middle", middle, "True or False")
        numbers = sum(kind.is_number for kind in self.kinds.values()) / len(self.columns)
        self._middle = middle and numbers > 0
        variance = [_variance(kind, middle) for kind in self.kinds.values()]
        self.usual = Usual(
            spectrum_decay=max(_LEAST_DECAY, _NUMBER_DECAY * numbers**2),
            concentration=2.0,
            number_shapes=_NUMBER_SHAPES * numbers**2,
            residual=min(Usual.residual, _NEARER * math.sqrt(sum(variance) / len(variance))),
        )

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Read the specification from a JSON file without repeated keys."""
        try:
            content = Path(path).expanduser().read_bytes()
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror or 'cannot be read'}") from None
        field = f"table specification {path}"
        try:
            # Some editors put a byte order mark before what they save.
            columns = parse_json(content.removeprefix(codecs.BOM_UTF8), field)
        except InvalidInput:
            allowed = "a JSON object with one entry for each column, without repeated fields"
            raise InvalidInput(field, "not JSON, or a repeated name in an object", allowed) from None
        return cls(columns)

    @classmethod
    def from_argument(cls, argument: str) -> Self:
        return cls.from_file(argument)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are read, in order: a table must have them, and may have any others."""
        return tuple(name for name, kind in self._kinds.items() if kind is not None)

    @property
    def ignored(self) -> tuple[str, ...]:
        return tuple(name for name, kind in self._kinds.items() if kind is None)

    @property
    def kinds(self) -> Mapping[str, ColumnKind]:
        return {name: kind for name, kind in self._kinds.items() if kind is not None}

    @property
    def scale(self) -> float:
        """The factor on features of norm at most 1 a column."""
        return self._scale

    @property
    def number_columns(self) -> tuple[str, ...]:
        """Columns of numbers that may have a decimal comma (a declared thousands mark excludes that)."""
        numbers = {name: kind for name, kind in self.kinds.items() if isinstance(kind, Numeric | Bins)}
        return tuple(name for name, kind in numbers.items() if kind.thousands not in (",", "."))

    @property
    def values(self) -> tuple[str, ...]:
        named = (
            value for entry in self._entries for kind in ("categories", "ordinal") for value in entry.get(kind, ())
        )
        return tuple(map(token_of, named))

    def options(self) -> dict[str, Any]:
        """Return the specification, as a list: the order of columns matters."""
        columns = {"columns": [dict(entry) for entry in self._entries]}
        marks = {"drafted": self._drafted, "middle": self._middle or None}
        return columns | {name: mark for name, mark in marks.items() if mark is not None}

    def check_schema(self, schema: Schema) -> None:
        """Raise unless the table's columns are :attr:`columns`, in the same order."""
        if schema.columns != self.columns:
            given = schema.columns or ()
            lacking = [name for name in self.columns if name not in given]
            extra = [name for name in given if name not in self.columns]
            what = f"lacking {lacking}, unknown {extra}" if lacking or extra else "another order"
            if schema.columns is None:
                what = "arrays of numbers"
            raise InvalidInput("columns for tabular", what, "a table with " + ", ".join(self.columns))

    def output_dim(self, input_shape: tuple[int, ...]) -> int:
        """One place a number, one a category; see :meth:`names_of` for all."""
        if tuple(input_shape) != (len(self.columns),):
            allowed = f"({len(self.columns)},), one value for each column that the specification does not ignore"
            raise InvalidInput("input shape for tabular", tuple(input_shape), allowed)
        return sum(kind.width for kind in self.kinds.values())

    def unusual(self, x: NDArray[Any]) -> Iterator[tuple[int, str, str]]:
        for place, (name, kind) in enumerate(self.kinds.items()):
            for row, why in kind.unusual(x[:, place].tolist()):
                yield row, name, why

    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        self.output_dim(x.shape[1:])
        parts = [
            self.scaled(kind, _encoded(kind, x[:, place].tolist(), name))
            for place, (name, kind) in enumerate(self.kinds.items())
        ]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def scaled(self, kind: ColumnKind, encoded: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (b, width) features of a column's encoded cells; its numbers on [0, 1] become ones on [-1, 1]."""
        if self._middle and kind.is_number:
            # A missing value with a feature of its own keeps 0 in the other one.
            number = 2 * encoded[:, 0] - 1 + encoded[:, 1:].sum(axis=1)
            encoded = np.column_stack([number, encoded[:, 1:]])
        return encoded * self._scale


def _variance(kind: ColumnKind, middle: bool) -> float:
    """Return the usual variance of a column's features, added up."""
    if kind.is_number:
        return _NUMBER_VARIANCE * (4 if middle else 1)
    return 0.25 if kind.width == 1 else 1 - 1 / kind.width


def _encoded(kind: ColumnKind, cells: list[Any], name: str) -> NDArray[np.float64]:
    """Encode the cells by their kind; texts repeat and are encoded once each: other equal values may differ."""
    if not set(map(type, cells)) <= {str, type(None)}:
        return kind.encode(cells, name)
    places = {cell: place for place, cell in enumerate(dict.fromkeys(cells))}
    return kind.encode(list(places), name)[[places[cell] for cell in cells]]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield str(key)
            yield from _texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, str):
        yield value


def _entries(columns: Any) -> list[dict[str, Any]]:
    field, allowed = "columns of tabular", "a mapping from names to specifications, or a list of them with names"
    if isinstance(columns, Mapping):
        columns = [{"name": name, **entry} if isinstance(entry, Mapping) else entry for name, entry in columns.items()]
    if isinstance(columns, str) or not isinstance(columns, Sequence) or not columns:
        raise InvalidInput(field, type(columns).__name__, allowed)
    if not all(isinstance(entry, Mapping) and isinstance(entry.get("name"), str) for entry in columns):
        raise InvalidInput(field, "an entry without a name or of another type", allowed)
    names = [entry["name"] for entry in columns]
    # Names that look alike would be confused in messages and certificates.
    if len(set(map(looks, names))) != len(names):
        raise InvalidInput(field, names, "names without repetition")
    texts = [text for entry in columns for text in _texts(entry)]
    if odd := [text for text in texts if not is_printable(text) and text]:
        raise InvalidInput(field, odd[0], "names, categories and tokens of visible characters only")
    return [dict(entry) for entry in columns]


def _kind(entry: Mapping[str, Any]) -> ColumnKind | None:
    field = f"specification of column {entry['name']}"
    keys = set(entry) - {"name"}
    if keys == {"ignore"} and entry["ignore"] is True:
        return None
    if keys == {PLACEHOLDER}:
        allowed = f'a declaration from public knowledge instead of {{"{PLACEHOLDER}": ...}}: {_EXAMPLES}'
        raise InvalidInput(field, "nothing declared yet", allowed)
    for kind in KINDS.values():
        if kind.key in keys and keys <= {kind.key, *kind.fields}:
            return kind.read(entry, field)
    known = ", ".join(f"{kind.key} (with {', '.join(kind.fields)})" for kind in KINDS.values())
    raise InvalidInput(field, sorted(map(str, keys)), f"{known}, or ignore: true")
