"""Tables as vectors, by a declared specification: nothing is fitted."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from privmix.data.source import Schema
from privmix.errors import InvalidInput, StorageError
from privmix.features.base import LONGEST_NAME, Extractor
from privmix.features.table_kinds import KINDS, Bins, Kind, Numeric, token_of
from privmix.fields import is_printable, looks
from privmix.untrusted import parse_json

PLACEHOLDER: Final = "declare"
"""The field of a column of which a draft says nothing yet."""

DRAFTED: Final = "by looking at the records: no guarantee covers what it says"
"""What a specification says of itself that was drafted from private records; see :func:`privmix.spec`."""

_EXAMPLES: Final = (
    '{"range": [0, 120]}, {"bins": [18, 65]}, {"categories": ["a", "b"]}, {"ordinal": ["low", "high"]}, '
    '{"boolean": true}, {"date": ["2015-01-01", "2025-12-31"]} or {"ignore": true}'
)


class DraftedColumns(dict[str, Any]):
    """Columns that say by themselves that the records were looked at for them; what is made of them says so, too.

    Example:
        >>> Tabular(DraftedColumns({"age": {"range": [0, 9]}}) | {"dose": {"range": [0, 1]}}).options()["drafted"]
        'by looking at the records: no guarantee covers what it says'
    """

    def copy(self) -> DraftedColumns:
        return DraftedColumns(self)

    __copy__ = copy

    def __or__(self, other: Mapping[str, Any]) -> DraftedColumns:  # type: ignore[override]
        return DraftedColumns({**self, **other})


class Tabular(Extractor):
    """Rows of a table as vectors of norm at most 1, by a public specification.

    The specification has an entry a column: ``range``, ``bins``, ``categories``, ``ordinal``, ``boolean``, ``date``, or
    ``ignore`` for one that is not read; docs/tables.md has all fields. Bounds and categories must be public knowledge
    (a code book, a form, physics), not looked up in the private table.

    Formal guarantees:
        - Per record, and nothing fitted: every constant is in the specification, which the spec holds.
        - Norm: features are divided by the square root of the number of used columns, so that no record's norm
          exceeds 1 but for the rounding to float32.
        - Silent: no message shows a value.

    Args:
        columns: mapping from a column's name to its specification, or a list of specifications with a ``"name"`` each;
            a mapping may say ``"drafted"``, too.
        drafted: :data:`DRAFTED`, where the records were looked at for the specification.

    Example:
        >>> colours = Tabular({"size": {"range": [0, 10]}, "colour": {"categories": ["red", "blue"]}})
        >>> (colours.transform(np.array([[5.0, "blue"]], dtype=object)) * 2**0.5).round(3).tolist()
        [[0.5, 0.0, 1.0]]
    """

    name: ClassVar[str] = "tabular"
    decoder: int = 1
    argument: ClassVar[str] = "SPEC.json"
    most_text: ClassVar[int] = 2**16

    @classmethod
    def check_stated(cls, options: Mapping[str, Any]) -> None:
        """A specification whose texts are short: names and categories are its author's."""
        if not {"columns"} <= set(options) <= {"columns", "drafted"}:
            raise InvalidInput("features options", sorted(options), "options of tabular: columns")
        found = cls(**options).options()
        texts = [text for entry in found["columns"] for text in _texts(entry)]
        texts += [token_of(value) for entry in found["columns"] for value in entry.get("categories", ())]
        if found != options or any(len(text) > LONGEST_NAME for text in texts):
            raise InvalidInput(
                "columns of tabular", "other columns", f"a list, texts of at most {LONGEST_NAME} characters"
            )

    @classmethod
    def names_of(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        """By column and category: "age", "sex=F", "sex missing", "25 <= age < 35", "admitted month=3"."""
        kinds = cls(**options).kinds
        return tuple(name for column, kind in kinds.items() for name in kind.names(column))

    @classmethod
    def statements(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        """That the records were looked at for the specification, where it says so."""
        if options.get("drafted") is None:
            return ()
        said = (
            "The specification of the table's columns was drafted by looking at the private records. What it says, "
            "such as ranges and categories, is not covered by the guarantee."
        )
        return (said,)

    def __init__(self, columns: Mapping[str, Any] | Sequence[Mapping[str, Any]], drafted: str | None = None) -> None:
        if isinstance(columns, DraftedColumns):
            drafted = DRAFTED
        elif isinstance(columns, Mapping) and isinstance(columns.get("drafted"), str):
            drafted = columns["drafted"]
            columns = {name: entry for name, entry in columns.items() if name != "drafted"}
        if drafted not in (None, DRAFTED):
            raise InvalidInput("drafted", drafted, f"no such word, or: {DRAFTED}")
        self._drafted = drafted
        self._entries = _entries(columns)
        self._kinds = {entry["name"]: _kind(entry) for entry in self._entries}
        if not self.columns:
            raise InvalidInput("columns of tabular", len(self._entries), "at least one that is not ignored")
        self._scale = 1 / math.sqrt(len(self.columns))

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Read the specification from a JSON file.

        Raises:
            InvalidInput: not a specification, or a column or field stands in it twice.
            StorageError: it cannot be read.
        """
        try:
            content = Path(path).expanduser().read_bytes()
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror or 'cannot be read'}") from None
        field = f"table specification {path}"
        try:
            # Some editors put a byte order mark before what they save.
            columns = parse_json(content.removeprefix(codecs.BOM_UTF8), field)
        except InvalidInput:
            allowed = "a JSON object, one entry a column; each column and field stands once"
            raise InvalidInput(field, "no JSON, or a name twice in an object", allowed) from None
        return cls(columns)

    @classmethod
    def from_argument(cls, argument: str) -> Self:
        """``tabular:SPEC.json``."""
        return cls.from_file(argument)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are read, in order: a table must have them, and may have any others."""
        return tuple(name for name, kind in self._kinds.items() if kind is not None)

    @property
    def ignored(self) -> tuple[str, ...]:
        """Names of the columns that are not read."""
        return tuple(name for name, kind in self._kinds.items() if kind is None)

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """Kinds of the :attr:`columns`, by name, in order."""
        return {name: kind for name, kind in self._kinds.items() if kind is not None}

    @property
    def scale(self) -> float:
        """What features of norm at most 1 a column are multiplied by."""
        return self._scale

    @property
    def number_columns(self) -> tuple[str, ...]:
        """Names of those that hold numbers, in which text files may write a decimal comma.

        A mark between thousands that is declared decides for itself.
        """
        numbers = {name: kind for name, kind in self.kinds.items() if isinstance(kind, Numeric | Bins)}
        return tuple(name for name, kind in numbers.items() if kind.thousands not in (",", "."))

    @property
    def values(self) -> tuple[str, ...]:
        """The declared categories, as texts."""
        named = (
            value for entry in self._entries for kind in ("categories", "ordinal") for value in entry.get(kind, ())
        )
        return tuple(map(token_of, named))

    def options(self) -> dict[str, Any]:
        """The specification, as a list: the order of columns matters."""
        columns = {"columns": [dict(entry) for entry in self._entries]}
        return columns if self._drafted is None else {**columns, "drafted": self._drafted}

    def check_schema(self, schema: Schema) -> None:
        """The table's columns must be :attr:`columns`, in the same order."""
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
            allowed = f"({len(self.columns)},), one value a column of the specification that is not ignored"
            raise InvalidInput("input shape for tabular", tuple(input_shape), allowed)
        return sum(kind.width for kind in self.kinds.values())

    def unusual(self, x: NDArray[Any]) -> Iterator[tuple[int, str, str]]:
        """Of (b, columns) cells those that are refused, cut, missing or unknown: (row, column, why), no value.

        For the owner's eyes: what it says is about private records.

        Example:
            >>> colours = Tabular({"size": {"range": [0, 10]}, "colour": {"categories": ["red", "blue"]}})
            >>> list(colours.unusual(np.array([[5.0, "green"], ["tall", "red"]], dtype=object)))
            [(1, 'size', 'no number'), (0, 'colour', 'unknown category: taken as none')]
        """
        for place, (name, kind) in enumerate(self.kinds.items()):
            for row, why in kind.unusual(x[:, place].tolist()):
                yield row, name, why

    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """(b, columns) texts, numbers and None -> (b, d) float32."""
        self.output_dim(x.shape[1:])
        parts = [_encoded(kind, x[:, place].tolist(), name) for place, (name, kind) in enumerate(self.kinds.items())]
        return (np.concatenate(parts, axis=1) * self._scale).astype(np.float32)


def _encoded(kind: Kind, cells: list[Any], name: str) -> NDArray[np.float64]:
    """What the kind makes of the cells; of texts, which repeat, once each: all else may be equal and not the same."""
    if not set(map(type, cells)) <= {str, type(None)}:
        return kind.encode(cells, name)
    places = {cell: place for place, cell in enumerate(dict.fromkeys(cells))}
    return kind.encode(list(places), name)[[places[cell] for cell in cells]]


def _texts(value: Any) -> Iterator[str]:
    """Every text in an entry, keys among them."""
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
    if len(set(map(looks, names))) != len(names):
        raise InvalidInput(field, names, "names, each of them once")
    texts = [text for entry in columns for text in _texts(entry)]
    if odd := [text for text in texts if not is_printable(text) and text]:
        raise InvalidInput(field, odd[0], "names, categories and tokens in which every character shows")
    return [dict(entry) for entry in columns]


def _kind(entry: Mapping[str, Any]) -> Kind | None:
    """What a column holds; None where it is not used."""
    field = f"specification of column {entry['name']}"
    keys = set(entry) - {"name"}
    if keys == {"ignore"} and entry["ignore"] is True:
        return None
    if keys == {PLACEHOLDER}:
        allowed = f'in place of {{"{PLACEHOLDER}": ...}} what the column holds, by public knowledge: {_EXAMPLES}'
        raise InvalidInput(field, "nothing declared yet", allowed)
    for kind in KINDS.values():
        if kind.key in keys and keys <= {kind.key, *kind.fields}:
            return kind.read(entry, field)
    known = ", ".join(f"{kind.key} (with {', '.join(kind.fields)})" for kind in KINDS.values())
    raise InvalidInput(field, sorted(map(str, keys)), f"{known}, or ignore: true")
