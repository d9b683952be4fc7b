"""Which columns of a table hold the inputs, and turning Arrow columns into arrays."""

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privmix.data.dialect import Dialect
from privmix.data.images import image_shape
from privmix.data.source import CELLS, DECODER
from privmix.errors import WITHHELD, InvalidInput
from privmix.fields import is_printable

# Begins what stands for a name that no one can give.
_UNUSABLE: Final = "\0"
# Cells that occur in a record and not in a header. Money and per cent are numbers.
_VALUE: Final = re.compile(
    r"[-+(]*\s*[$\u20ac\u00a3]?\s*[-+]?(\d[\d.,' ]*|\.\d+)(e[-+]?\d+)?\s*[%\u20ac\u00a3)]?"
    r"|\d{1,4}([-/.])\d{1,2}\3\d{1,4}([T ].*)?|\d{1,2}[- .]+[a-z]{3,9}[- .,]+\d{2,4}|\d{1,2}:\d\d(:\d\d)?"
    r"|[-+]?(nan|inf|infinity)|true|false|\?|n/a",
    re.IGNORECASE,
)
# A line of at least this many names 0, 1, 2, ... is a header, not a record.
_MANY_PLACES: Final = 8
_MOST_LISTED: Final = 30

# Decoded at once; a record may be larger.
PART_BYTES: Final = 2**26


@dataclass(frozen=True)
class Selection:
    """The columns that the caller names: ``table`` makes a table, ``numbers`` (or one of lists, of images) arrays."""

    # `shape` is that of another dataset or a model, for what the other fields leave open. `persons` and an unread label
    # column are never inputs. Unless the header is declared, no column may bear a name in `values` (categories).

    label: str = "label"
    image: str | None = "image"
    table: tuple[str, ...] | None = None
    numbers: tuple[str, ...] | None = None
    length: int | None = None
    image_size: tuple[int, int] | None = None
    colour: str | None = None
    shape: tuple[int, ...] | None = None
    labelled: bool = True
    dialect: Dialect | None = None
    persons: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    decoder: int = DECODER

    def undeclared(self, values: Sequence[str]) -> list[str]:
        """Return declared classes and categories that no declared column is called after."""
        names = {self.label, *self.persons, *(self.table or ()), *(self.numbers or ())}
        return [value for value in (*values, *self.values) if value not in names]

    def check_kind(self, kind: str) -> None:
        """Raise :class:`InvalidInput` where something is declared of images or lists, and the inputs are others."""
        declared = (("image_size", self.image_size), ("colour", self.colour), ("feature_length", self.length))
        for field, value in declared:
            wanted, words = ("lists", "lists") if field == "feature_length" else ("images", "encoded images")
            if value is not None and kind != wanted:
                raise InvalidInput(field, value, f"no value here: the inputs are not {words}")

    def check_unnamed(self, format_: str) -> None:
        """Raise :class:`InvalidInput` where columns are declared of data that have none."""
        if (names := self.table or self.numbers) is not None:
            raise InvalidInput("columns", list(names), f"no names: {format_} has no named columns")

    @property
    def image_shape(self) -> tuple[int, ...]:
        return image_shape(self.image_size, self.colour, self.shape)

    @property
    def list_length(self) -> int:
        known = self.shape[0] if self.shape is not None and len(self.shape) == 1 else None
        if (length := known if self.length is None else self.length) is None:
            allowed = "`feature_length` N, the public number of entries of every list: this format does not declare it"
            raise InvalidInput("lists", "no declared length", allowed)
        return length


def check_names(field: str, names: Sequence[str] | None, label: str | None) -> tuple[str, ...] | None:
    """Return distinct column names without the label's, in order; None where there are none."""
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise InvalidInput(field, names, "a list of at least one column name")
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise InvalidInput(field, names, "non-empty names without repetition")
    if label in names:
        raise InvalidInput(field, names, f"columns without the label column, {label}")
    return tuple(names)


def usable_names(names: Sequence[str]) -> list[str]:
    """Column names, with a placeholder that no one can name for each empty or repeated one."""
    times = Counter(names)
    return [name if name and times[name] == 1 else f"{_UNUSABLE}{place},{name}" for place, name in enumerate(names, 1)]


def is_usable(name: str) -> bool:
    return not name.startswith(_UNUSABLE)


def place_of(name: str) -> str:
    """Describe, for people, where a column without a usable name stands."""
    place, _, own = name[len(_UNUSABLE) :].partition(",")
    return f"column {place}{f' ({own})' if own else ''}"


def check_header(field: str, names: Sequence[str], values: Sequence[str], cure: str, numbered: bool = False) -> None:
    """Refuse column names, which are published, that look like cells of a record."""
    # `numbered`: a library wrote the whole numbers among them, so they may be places.
    cells = [name.strip() for name in names]
    numbers = [cell for cell in cells if _VALUE.fullmatch(cell)]
    places = numbers == [str(place) for place in range(len(numbers))] and (numbered or len(numbers) >= _MANY_PLACES)
    kinds = dict.fromkeys(() if places else numbers, "a number, day, truth value or missing value")
    for value in values:
        kinds.setdefault(value.strip(), "a declared class or category")
    for place, cell in enumerate(cells, 1):
        if cell in kinds and not (places and cell in numbers):
            # It may stand in a record: it is not shown.
            allowed = f"column names, which are published. A record may stand in the header line: {cure}"
            raise InvalidInput(field, f"{kinds[cell]} as the name of column {place}", allowed)


def no_column(field: str, name: str, names: Sequence[str], kind: str = "a column of the data") -> InvalidInput:
    places = [place_of(one) for one in names if not is_usable(one) and one.endswith(f",{name}")]
    if places:
        return InvalidInput(field, name, f"a name of one column, not of {' and '.join(places)}")
    known = [one for one in names if is_usable(one) and is_printable(one)]
    near = [one for one in known if one.strip().casefold() == name.strip().casefold()]
    near = near or difflib.get_close_matches(name, known, 1)
    hint = f", for example {near[0]!r}" if near else ""
    return InvalidInput(field, name, f"{kind}{hint}; the columns are {first_of(list(map(repr, known)))}")


def first_of(names: Sequence[str]) -> str:
    """Return the first names, each whole, and how many others there are."""
    more = f" and {len(names) - _MOST_LISTED:,} others" if len(names) > _MOST_LISTED else ""
    return f"{', '.join(names[:_MOST_LISTED])}{more}"


def choose_inputs(
    arrow: Any, selection: Selection, shapes: Mapping[str, tuple[int, ...]] = {}
) -> tuple[list[str], str]:
    """Return the input columns and their kind: ``table``, ``images``, ``lists`` or ``numbers``."""
    label, image = selection.label, selection.image
    if selection.labelled and label not in arrow.names:
        raise no_column("label column", label, arrow.names, "a column of the data, named by `label_column`")
    if selection.table is not None:
        for name in selection.table:
            if name not in arrow.names:
                raise no_column("columns", name, arrow.names)
            check_cells(name, arrow.field(name).type)
        return list(selection.table), "table"
    if selection.numbers is not None:
        for name in selection.numbers:
            if name not in arrow.names:
                raise no_column("columns", name, arrow.names)
        name, *more = selection.numbers
        if not more and (name in shapes or _is_list(arrow.field(name).type)):
            return [name], "lists"
        if not more and image is not None and _is_image(arrow.field(name).type):
            return [name], "images"
        for name in selection.numbers:
            if not is_number(arrow.field(name).type):
                raise InvalidInput("columns", name, "columns of numbers of the data, or one of lists or of images")
        return list(selection.numbers), "numbers"
    if image in shapes:
        return [str(image)], "lists"
    if image is not None and image in arrow.names and image != label:
        if not _is_image(arrow.field(image).type):
            raise InvalidInput("columns", image, "a column of encoded images (bytes), or another")
        return [image], "images"
    others = [field for field in arrow if field.name not in (label, *selection.persons)]
    return _choose_numbers(others, image, shapes)


def _choose_numbers(
    others: list[Any], image: str | None, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[list[str], str]:
    lists = [field.name for field in others if field.name in shapes or _is_list(field.type)]
    if len(lists) == 1:
        return lists, "lists"
    if len(lists) > 1:
        raise InvalidInput("columns", None, "one column, named: there are several columns of lists")
    check_usable([field.name for field in others])
    numbers = [field.name for field in others if is_number(field.type)]
    if len(numbers) < len(others) or not numbers:
        images = "" if image is None else f", or images in column {image}"
        allowed = f"numbers, one column of lists{images}; otherwise name the columns with `columns`"
        raise InvalidInput("columns", [field.name for field in others], allowed)
    return numbers, "numbers"


def check_usable(names: Sequence[str]) -> None:
    for name in names:
        if not is_usable(name):
            allowed = "a unique name for each column, or the names of the input columns in `columns`"
            raise InvalidInput("columns", f"no unique name: {place_of(name)}", allowed)


def is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _is_list(kind: Any) -> bool:
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(listed and is_number(kind.value_type))


def _is_image(kind: Any) -> bool:
    if pa.types.is_struct(kind):
        return kind.get_field_index("bytes") >= 0 and _is_image(kind.field("bytes").type)
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _has_length(kind: Any) -> bool:
    """Texts and bytes whose lengths Arrow states, views apart."""
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return bool(binary or pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_cell(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        return is_cell(kind.value_type)
    numbers = is_number(kind) or pa.types.is_decimal(kind)
    return bool(is_text(kind) or numbers or _is_time(kind) or pa.types.is_null(kind))


def is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def check_cells(name: str, kind: Any) -> None:
    """Raise :class:`InvalidInput` where the Arrow type of a table's column is none of :data:`CELLS`."""
    # A struct's type names its fields, which may stem from a record: no type is shown.
    if not is_cell(kind):
        raise InvalidInput(f"column {name}", "another type", CELLS)


def _is_time(kind: Any) -> bool:
    """Days, and moments of days: texts as 2015-01-31 in a table."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def table_of(columns: Sequence[Any]) -> NDArray[np.object_]:
    """(n, columns) objects: texts, floats, days as texts, and None where an Arrow column has no value."""
    table = np.empty((len(columns[0]), len(columns)), dtype=object)
    for place, column in enumerate(columns):
        column = _decoded(column)
        if is_number(column.type) or pa.types.is_decimal(column.type):
            # By way of floats; a null becomes NaN there, which as_table refuses, so it is put back.
            cells = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False).astype(object)
            cells[column.is_null().to_numpy(zero_copy_only=False)] = None
            table[:, place] = cells
        elif _is_time(column.type):
            table[:, place] = column.cast(pa.string()).to_pylist()
        else:
            table[:, place] = column.to_pylist()
    return table


def _decoded(column: Any) -> Any:
    """Return a column without a dictionary. Arrow takes no views from one, which polars writes."""
    if not pa.types.is_dictionary(column.type):
        return column
    values = column.dictionary
    if pa.types.is_string_view(values.type):
        column = pa.DictionaryArray.from_arrays(column.indices, pa.array(values.to_pylist(), pa.string()))
    return column.dictionary_decode()


def numbers_of(columns: Sequence[Any]) -> NDArray[Any]:
    """(n, columns) numbers."""
    return np.stack([column.to_numpy(zero_copy_only=False) for column in columns], axis=1)


def parts_of(block: Any, values: int) -> Iterator[Any]:
    """Parts of a record batch of at most about 64 MiB each once decoded, or of one record."""
    # A dictionary stores a value once, however often it occurs; `values` is the count of numbers per decoded record.
    rows = max(1, PART_BYTES // max(1, values))
    for start in range(0, block.num_rows, rows):
        part = block.slice(start, rows)
        sizes = np.zeros(part.num_rows, dtype=np.int64)
        for column in part.columns:
            content = column.field("bytes") if _is_image(column.type) and pa.types.is_struct(column.type) else column
            if pa.types.is_dictionary(content.type) and _has_length(content.type.value_type):
                length = pc.binary_length(content.dictionary)
                sizes += pc.fill_null(length.take(content.indices), 0).to_numpy(zero_copy_only=False)
        ends = np.cumsum(sizes)
        begin = 0
        while begin < part.num_rows:
            before = ends[begin - 1] if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, before + PART_BYTES, side="right")))
            yield part.slice(begin, end - begin)
            begin = end


def lists_of(column: Any, shape: tuple[int, ...], name: str) -> NDArray[Any]:
    """``(n, *shape)`` numbers of a column of lists, or of nested lists."""
    values = column
    for length in shape:
        fixed = pa.types.is_fixed_size_list(values.type)
        fits = fixed or bool((np.diff(values.offsets.to_numpy()) == length).all())
        values = values.flatten()
        if values.null_count or not fits:
            raise InvalidInput(f"column {name}", WITHHELD, f"lists of {' x '.join(map(str, shape))} numbers")
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(-1, *shape)


def storage_type(kind: Any) -> Any:
    """Return a type without its extension: ``datasets`` registers some where it is imported."""
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def storage(column: Any) -> Any:
    return column.storage if isinstance(column.type, pa.BaseExtensionType) else column


def image_bytes(column: Any) -> list[bytes]:
    """Return the encoded images of a column of bytes, or of structs with a field ``bytes``."""
    content = column.field("bytes") if pa.types.is_struct(column.type) else column
    if content.null_count:
        raise InvalidInput("images", WITHHELD, "no missing value")
    return list(content.to_pylist())


def labels_of(column: Any) -> NDArray[Any]:
    """Labels as numbers, or as objects for ``encode_labels`` to judge."""
    column = _decoded(column)
    if is_number(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    return np.array(column.to_pylist(), dtype=object)
