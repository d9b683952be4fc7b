"""Which columns of a table hold the inputs, and turning Arrow columns into arrays."""

from __future__ import annotations

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
from privmix.data.images import DECODER, image_shape
from privmix.data.source import CELLS
from privmix.errors import WITHHELD, InvalidInput
from privmix.fields import is_printable

# Begins what stands for a name that no one can give.
_UNUSABLE: Final = "\0"
# What a record holds and a header does not. Money and per cent are numbers.
_VALUE: Final = re.compile(
    r"[-+(]*\s*[$\u20ac\u00a3]?\s*[-+]?(\d[\d.,' ]*|\.\d+)(e[-+]?\d+)?\s*[%\u20ac\u00a3)]?"
    r"|\d{1,4}([-/.])\d{1,2}\3\d{1,4}([T ].*)?|\d{1,2}[- .]+[a-z]{3,9}[- .,]+\d{2,4}|\d{1,2}:\d\d(:\d\d)?"
    r"|[-+]?(nan|inf|infinity)|true|false|\?|n/a",
    re.IGNORECASE,
)
# So many names 0, 1, 2, ... are no record.
_MANY_PLACES: Final = 8
_MOST_LISTED: Final = 30

# Decoded at once; a record may be larger.
_PART_BYTES: Final = 2**26


@dataclass(frozen=True)
class Selection:
    """The columns that the caller names.

    Attributes:
        label: the labels' column.
        image: the column of encoded images, if the table has it; None in formats that hold no images.
        feature: the column of lists of numbers.
        table: columns of texts and numbers, in order: the source is then a table.
        numbers: columns of numbers, in order: the inputs are then arrays.
        length: how many numbers each list has.
        image_size: height and width that images are scaled to.
        colour: ``"grey"`` or ``"rgb"``, which images are converted to.
        shape: shape of another dataset's inputs or a model's, for what is not declared above.
        labelled: whether labels are read. Where they are not, there may be none: the label's column, if there is one,
            is left out of the inputs.
        dialect: how CSV files are written; None: as usual.
        persons: the columns that say whose a record is, which are none of the inputs.
        values: declared categories: none of them is the name of a column, unless that is declared, too.
        decoder: the rule that encoded images are read by; see :func:`privmix.data.images.decode_images`.
    """

    label: str = "label"
    image: str | None = "image"
    feature: str | None = None
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
        """Declared classes and categories that no declared column is called after."""
        names = {self.label, self.feature, *self.persons, *(self.table or ()), *(self.numbers or ())}
        return [value for value in (*values, *self.values) if value not in names]

    @property
    def image_shape(self) -> tuple[int, ...]:
        """(H, W) or (H, W, 3), as declared.

        Raises:
            InvalidInput: it is not.
        """
        return image_shape(self.image_size, self.colour, self.shape)

    @property
    def list_length(self) -> int:
        """Numbers in each list, as declared.

        Raises:
            InvalidInput: it is not.
        """
        known = self.shape[0] if self.shape is not None and len(self.shape) == 1 else None
        if (length := known if self.length is None else self.length) is None:
            allowed = (
                "`feature_length` N, the numbers in every list: the format does not fix it, "
                "and what is published is declared, never taken from a record"
            )
            raise InvalidInput("lists", "no declared length", allowed)
        return length


def check_columns(text_column: str | None, columns: Sequence[str] | None, label: str | None) -> tuple[str, ...] | None:
    """The columns of a table: the text column alone, or those listed, or None where the source is no table.

    Raises:
        InvalidInput: both are given, a name is empty or given twice, or the label's column is among them.

    Example:
        >>> check_columns("review", None, "stars"), check_columns(None, ["age", "job"], "income")
        (('review',), ('age', 'job'))
    """
    if text_column is not None and columns is not None:
        raise InvalidInput("text column, columns", (text_column, columns), "one of them or neither")
    if text_column is None and columns is None:
        return None
    if text_column is None:
        return check_names("columns", columns, label)
    return check_names("text column", [text_column], label)


def check_names(field: str, names: Sequence[str] | None, label: str | None) -> tuple[str, ...] | None:
    """Names of columns, in order, each once and without the label's, if there is one; None where there are none.

    Raises:
        InvalidInput: they are something else.

    Example:
        >>> check_names("columns", ["age", "dose"], "label")
        ('age', 'dose')
    """
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise InvalidInput(field, names, "a list of at least one column name")
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise InvalidInput(field, names, "names that are not empty, each of them once")
    if label in names:
        raise InvalidInput(field, names, f"columns other than the label's, {label}")
    return tuple(names)


def usable_names(names: Sequence[str]) -> list[str]:
    """Names of columns, with what no one can name in place of those that are empty or there several times.

    Example:
        >>> [name.startswith(_UNUSABLE) for name in usable_names(["", "age", "dose", "dose"])]
        [True, False, True, True]
    """
    times = Counter(names)
    return [name if name and times[name] == 1 else f"{_UNUSABLE}{place},{name}" for place, name in enumerate(names, 1)]


def is_usable(name: str) -> bool:
    """Whether it is a name that a column alone has; see :func:`usable_names`."""
    return not name.startswith(_UNUSABLE)


def place_of(name: str) -> str:
    """Where a column stands that is not usable, for people.

    Example:
        >>> [place_of(name) for name in usable_names(["", "dose", "dose"])]
        ['column 1', 'column 2 (dose)', 'column 3 (dose)']
    """
    place, _, own = name[len(_UNUSABLE) :].partition(",")
    return f"column {place}{f' ({own})' if own else ''}"


def check_header(field: str, names: Sequence[str], values: Sequence[str], cure: str, numbered: bool = False) -> None:
    """Raise :class:`InvalidInput` where names of columns, which are published, look like cells of a record.

    Args:
        field: whose names.
        names: from :func:`usable_names`.
        values: declared classes and categories.
        cure: what to do about it.
        numbered: whether whole numbers among them were written by a library and not by a file: these may be places.
    """
    cells = [name.strip() for name in names]
    numbers = [cell for cell in cells if _VALUE.fullmatch(cell)]
    places = numbers == [str(place) for place in range(len(numbers))] and (numbered or len(numbers) >= _MANY_PLACES)
    kinds = dict.fromkeys(() if places else numbers, "a number, day, truth value or missing value")
    for value in values:
        kinds.setdefault(value.strip(), "a declared class or category")
    for place, cell in enumerate(cells, 1):
        if cell in kinds and not (places and cell in numbers):
            # It may stand in a record: it is not shown.
            allowed = f"names, which are published; a record must not be taken for them: {cure}"
            raise InvalidInput(field, f"{kinds[cell]} as the name of column {place}", allowed)


def no_column(field: str, name: str, names: Sequence[str], kind: str = "a column of the data") -> InvalidInput:
    """The error for a column that is not there, or that no one can tell from others; it lists those that are.

    Args:
        field: which argument names it.
        name: which column.
        names: from :func:`usable_names`.
        kind: what is wanted.
    """
    places = [place_of(one) for one in names if not is_usable(one) and one.endswith(f",{name}")]
    if places:
        return InvalidInput(field, name, f"a name that one column has, not {' and '.join(places)}")
    known = [one for one in names if is_usable(one) and is_printable(one)]
    near = [one for one in known if one.strip().casefold() == name.strip().casefold()]
    near = near or difflib.get_close_matches(name, known, 1)
    hint = f", such as {near[0]!r}" if near else ""
    return InvalidInput(field, name, f"{kind}{hint}; there are {first_of(list(map(repr, known)))}")


def first_of(names: Sequence[str]) -> str:
    """Names for people, each of them whole, and how many others there are.

    Example:
        >>> first_of(["age", "dose"])
        'age, dose'
    """
    more = f" and {len(names) - _MOST_LISTED:,} others" if len(names) > _MOST_LISTED else ""
    return f"{', '.join(names[:_MOST_LISTED])}{more}"


def choose_inputs(
    arrow: Any, selection: Selection, shapes: Mapping[str, tuple[int, ...]] = {}
) -> tuple[list[str], str]:
    """Columns of the inputs, and whether they are a ``table``, ``images``, ``lists`` or ``numbers``.

    Raises:
        InvalidInput: a named column is not there or of another type, or the choice is not clear.
    """
    label, feature, image = selection.label, selection.feature, selection.image
    if selection.labelled and label not in arrow.names:
        raise no_column("label column", label, arrow.names)
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
            if not is_number(arrow.field(name).type):
                raise InvalidInput("columns", name, "columns of numbers of the data")
        return list(selection.numbers), "numbers"
    if feature is not None:
        if feature not in arrow.names:
            raise no_column("feature column", feature, arrow.names, "a column of lists of numbers")
        if not (feature in shapes or _is_list(arrow.field(feature).type)):
            raise InvalidInput("feature column", feature, "a column of lists of numbers")
        return [feature], "lists"
    if image in shapes:
        return [str(image)], "lists"
    if image is not None and image in arrow.names and image != label:
        if not _is_image(arrow.field(image).type):
            raise InvalidInput("image column", image, "a column of encoded images (bytes)")
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
        raise InvalidInput("feature column", None, "a choice: there are several columns of lists")
    check_usable([field.name for field in others])
    numbers = [field.name for field in others if is_number(field.type)]
    if len(numbers) < len(others) or not numbers:
        images = "" if image is None else f", or images in column {image}"
        allowed = f"numbers, one column of lists{images}; name text_column or columns where there are texts"
        raise InvalidInput("columns", [field.name for field in others], allowed)
    return numbers, "numbers"


def check_usable(names: Sequence[str]) -> None:
    """Raise :class:`InvalidInput` where all columns are wanted, and one of these has no name, or that of another."""
    for name in names:
        if not is_usable(name):
            allowed = "a name for each, that no other has; or `columns`: the names of those that are wanted"
            raise InvalidInput("columns", f"no name of its own: {place_of(name)}", allowed)


def is_number(kind: Any) -> bool:
    """Integers, floating point, truth values."""
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


def _is_text(kind: Any) -> bool:
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)
    return any(test(kind) for test in tests)


def _is_cell(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_cell(kind.value_type)
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    numbers = is_number(kind) or pa.types.is_decimal(kind)
    return bool(texts or numbers or _is_time(kind) or pa.types.is_null(kind))


def check_cells(name: str, kind: Any) -> None:
    """Raise :class:`InvalidInput` where the Arrow type of a table's column is none of :data:`CELLS`."""
    # A struct's type names its fields, which may stem from a record: no type is shown.
    if not _is_cell(kind):
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
    """A column without a dictionary. Arrow takes no views from one, which polars writes."""
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
    """Parts of a record batch of at most about 64 MiB each once they are decoded, or of one record.

    Args:
        block: its columns may have dictionaries, whose values stand once and are meant many times.
        values: numbers that a record decodes to.
    """
    rows = max(1, _PART_BYTES // max(1, values))
    for start in range(0, block.num_rows, rows):
        part = block.slice(start, rows)
        sizes = np.zeros(part.num_rows, dtype=np.int64)
        for column in part.columns:
            content = column.field("bytes") if _is_image(column.type) and pa.types.is_struct(column.type) else column
            if pa.types.is_dictionary(content.type):
                length = pc.binary_length(content.dictionary) if _is_text(content.type.value_type) else None
                if length is not None:
                    sizes += pc.fill_null(length.take(content.indices), 0).to_numpy(zero_copy_only=False)
        ends = np.cumsum(sizes)
        begin = 0
        while begin < part.num_rows:
            before = ends[begin - 1] if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, before + _PART_BYTES, side="right")))
            yield part.slice(begin, end - begin)
            begin = end


def lists_of(column: Any, shape: tuple[int, ...], name: str) -> NDArray[Any]:
    """(n, *shape) numbers of a column of lists, or of lists of lists.

    Raises:
        InvalidInput: a list has another length, or a missing value.
    """
    values = column
    for length in shape:
        fits = _all_of_length(values, length)
        values = values.flatten()
        if values.null_count or not fits:
            raise InvalidInput(f"column {name}", WITHHELD, f"lists of {' x '.join(map(str, shape))} numbers")
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(-1, *shape)


def storage_type(kind: Any) -> Any:
    """A type without its extension: ``datasets`` registers some where it is imported."""
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def storage(column: Any) -> Any:
    """A column without the extension of its type."""
    return column.storage if isinstance(column.type, pa.BaseExtensionType) else column


def image_bytes(column: Any) -> list[bytes]:
    """The encoded images of a column of bytes, or of structs with a field ``bytes``.

    Raises:
        InvalidInput: a value is missing.
    """
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


def _all_of_length(column: Any, length: int) -> bool:
    if pa.types.is_fixed_size_list(column.type):
        return True
    return bool((np.diff(column.offsets.to_numpy()) == length).all())
