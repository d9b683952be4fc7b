"""Frames of pandas and polars, Arrow tables, datasets of Hugging Face's library; none but Arrow is imported here."""
# A lazy frame is collected; data that can be read once are refused with the way to go.

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privmix.data.arrow_source import ArrowFormat, ArrowSource, Described, array_shapes
from privmix.data.columns import (
    Selection,
    check_cells,
    check_header,
    check_usable,
    is_cell,
    no_column,
    storage_type,
    usable_names,
)
from privmix.data.files import folder_split
from privmix.data.memory import MemorySource, Part, as_numbers, column_part, no_labels, objects, plain
from privmix.data.source import Schema, Source, resolve_classes
from privmix.errors import WITHHELD, InvalidInput


def library_of(data: Any) -> str:
    """``"pandas"``, ``"polars"``, ``"datasets"`` or ``"pyarrow"`` for a table of that library; else empty."""
    kinds = {
        "DataFrame": ("pandas", "polars"),
        "Dataset": ("datasets", "pyarrow"),
        "DatasetDict": ("datasets",),
        "Table": ("pyarrow",),
        "RecordBatch": ("pyarrow",),
    }
    for kind in type(data).__mro__:
        library = kind.__module__.partition(".")[0]
        if library in kinds.get(kind.__name__, ()):
            return library
    return ""


def open_frame(frame: Any, classes: Any, selection: Selection, labels: Any = None) -> Source:
    """Return a pandas or polars frame as a source, with ``labels`` if given; cell types decide nothing."""
    # NaN, NaT, NA and null are missing values. By default all columns but the label's are numbers.
    names = resolve_classes(classes)
    columns = frame_columns(frame.columns, selection.undeclared(names))
    selection.check_kind("numbers")
    label_part: Part = no_labels
    if selection.labelled and labels is None:
        if selection.label not in columns:
            raise no_column("label column", selection.label, columns, "a column of the frame, named by `label_column`")
        label_part = _part(frame, columns.index(selection.label))
    elif selection.labelled:
        label_part = column_part(plain(labels, "y"), "y")
        if len(labels) != len(frame):
            raise InvalidInput("y", "another number of labels", "one label for each record of x")
    others = [name for name in columns if labels is not None or name != selection.label]
    others = [name for name in others if name not in selection.persons]
    wanted = selection.table or selection.numbers or others
    check_usable(wanted)
    for name in wanted:
        if name not in (others if selection.labelled else columns):
            raise no_column("columns", name, columns, "columns of the frame")
    for name in wanted:
        _check_type(name, frame, columns.index(name))
    parts = [_part(frame, columns.index(name)) for name in wanted]
    inputs = _cells_of(parts) if selection.table is not None else _numbers_of(parts)
    every = _cells_of([_part(frame, place) for place in range(len(columns))])
    facts = Schema(len(frame), (len(columns),), names)
    whole = MemorySource(facts, every, label_part, MemorySource(facts, every, no_labels))
    schema = Schema(len(frame), (len(wanted),), names, selection.table)
    named = tuple(wanted) if selection.table is None else None
    return MemorySource(schema, inputs, label_part, whole, named)


def _check_type(name: str, frame: Any, place: int) -> None:
    """Raise :class:`InvalidInput` where a column's type declares lists, structs, bytes or durations."""
    try:
        none = (frame.to_series(place) if library_of(frame) == "polars" else frame.iloc[:, place]).head(0)
        kind = none.to_arrow().type if library_of(frame) == "polars" else pa.array(none).type
    except (pa.ArrowException, TypeError, OverflowError):
        # Categories are records' values: each is judged where it is read.
        return
    # polars has fixed sizes for objects alone, which may be anything: records are read for them after the charge.
    if not pa.types.is_fixed_size_binary(kind):
        check_cells(name, storage_type(kind))


def frame_columns(names: Any, values: Sequence[str]) -> list[str]:
    found = usable_names([str(name) for name in names])
    numbered = all(isinstance(name, str) is not found[place].isdecimal() for place, name in enumerate(names))
    check_header("columns of the frame", found, values, "rename this column", numbered)
    return found


def frame_inputs(frame: Any, table: tuple[str, ...] | None, numbers: tuple[str, ...] | None = None) -> NDArray[Any]:
    """Cells of the table columns of a frame, numbers of the named columns, or all columns as numbers."""
    columns = usable_names([str(name) for name in frame.columns])
    wanted = table or numbers or ()
    for name in wanted:
        if name not in columns:
            raise no_column("columns", name, columns, "columns of the frame")
    parts = [_part(frame, columns.index(name)) for name in wanted or columns]
    return (_numbers_of(parts) if table is None else _cells_of(parts))(0, len(frame))


def _part(frame: Any, place: int) -> Part:
    """Parts of a column: numbers as they are, or cells, None where a value is missing."""
    polars = library_of(frame) == "polars"
    column = frame.to_series(place) if polars else frame.iloc[:, place]

    def part(start: int, stop: int) -> NDArray[Any]:
        some = column[start:stop] if polars else column.iloc[start:stop]
        # Looking at one cell at a time is slow, and whole parts of numbers are the rule.
        if some.dtype.is_numeric() and not some.null_count() if polars else isinstance(some.dtype, np.dtype):
            numbers = np.asarray(some.to_numpy())
            if numbers.dtype.kind in "iub" or (numbers.dtype.kind == "f" and not np.isnan(numbers).any()):
                return numbers
        return _cells(some.to_list(), nan_is_missing=not polars)

    return part


def _cells(values: list[Any], nan_is_missing: bool) -> NDArray[np.object_]:
    def cell(value: Any) -> Any:
        absent = nan_is_missing and isinstance(value, float | np.floating) and value != value
        # pandas' NA is neither equal to anything nor different from it.
        return None if absent or type(value).__name__ in ("NAType", "NaTType") else value

    # Texts are the rule, and none of them is missing.
    return objects(values if set(map(type, values)) <= {str} else [cell(value) for value in values])


def _cells_of(parts: list[Part]) -> Part:
    def table(start: int, stop: int) -> NDArray[np.object_]:
        made = np.empty((stop - start, len(parts)), dtype=object)
        for place, part in enumerate(parts):
            made[:, place] = part(start, stop)
        return made

    return table


def _numbers_of(parts: list[Part]) -> Part:
    return lambda start, stop: np.stack([as_numbers(part(start, stop)) for part in parts], axis=1)


def open_table(data: Any, split: str, classes: Any, selection: Selection) -> Source:
    """Return an Arrow ``Table``, ``RecordBatch`` or ``Dataset``, or Hugging Face's, as a source."""
    # Its schema acts as a Parquet schema. Names of a ClassLabel are taken only on request (classes="ClassLabel"): some
    # ways of making them look into records.
    table = split_named(data, split) if isinstance(data, dict) else data
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    features = getattr(table, "features", None)
    coded = None if features is None else getattr(features.get(selection.label), "names", None)
    names = resolve_classes(classes, coded=coded)
    if features is None:
        records = table.num_rows if isinstance(table, pa.Table) else table.count_rows()
        described = Described(table.schema, records)
    else:
        if table.format["type"] == "custom":
            allowed = (
                "a dataset without a transform: apply it with `data.map`, or drop it with `data.with_format(None)`"
            )
            raise InvalidInput("data", "a Dataset with a transform", allowed)
        table = table.with_format("arrow")
        described = Described(features.arrow_schema, len(table), shapes=array_shapes(features.to_dict()))

    def blocks(_: Path, columns: list[str], size: int, *__: int | None) -> Iterator[Any]:
        if features is not None:
            for some in table.select_columns(columns).iter(size):
                yield from some.combine_chunks().to_batches()
        elif isinstance(table, pa.Table):
            yield from table.select(columns).to_batches(max_chunksize=size)
        else:
            yield from table.to_batches(columns=columns, batch_size=size)

    kind = "records of its schema" if features is None else "records of its features"
    held = [Path("data")], ArrowFormat(kind, lambda _: described, blocks)
    source = HeldTableSource(*held, selection, names, coded)
    schema = described.schema
    usable = zip(usable_names(schema.names), schema, strict=True)
    cells = tuple(name for name, field in usable if is_cell(storage_type(field.type)))
    # Other columns of a record stand for it only together with its inputs: labels alone are those of many datasets.
    if set(source.input_columns) <= set(cells):
        source.whole = HeldTableSource(*held, Selection(label="", table=cells, labelled=False), names)
    return source


class HeldTableSource(ArrowSource):
    """A table that its schema describes, in its own order; see :func:`open_table`."""

    travels = False
    # The same records with all columns but lists, images and the like: see `content_hashes`.
    whole: "HeldTableSource | None" = None


_TORCH: Final = (
    "`(x, y)` of arrays, tensors, texts or images, in one order: `dataset.tensors` of a TensorDataset, "
    "`x, y = map(list, zip(*dataset))` of others. Images have their channels last"
)
_STREAM: Final = (
    "data that can be read twice: `load_dataset` without `streaming=True`, or a Parquet file that is written once "
    '(`stream.to_parquet("train.parquet")`)'
)
_READER: Final = "data that can be read twice: its table (`reader.read_all()`), its Arrow dataset, or its files"
_REFUSED: Final = {
    ("datasets", "IterableDataset"): _STREAM,
    ("datasets", "IterableDatasetDict"): _STREAM,
    ("torch", "DataLoader"): _TORCH,
    ("torch", "Dataset"): _TORCH,
    ("pyarrow", "RecordBatchReader"): _READER,
}


def settled(data: Any) -> Any:
    """Return the frame that a polars ``LazyFrame`` gives, also in ``(x, labels)``; return anything else as it is.

    Formal guarantees:
        * Once: a query runs a single time for each call, so that hashes, persons and records agree.
        * Silent: what a query raises is not shown; it may quote a record.
    """
    if isinstance(data, tuple) and len(data) == 2 and _is(data[0], "polars", "LazyFrame"):
        return settled(data[0]), data[1]
    if _is(data, "polars", "LazyFrame"):
        return _collected(data)
    for (library, name), allowed in _REFUSED.items():
        if _is(data, library, name):
            raise InvalidInput("data", f"{type(data).__name__} of {library}", allowed)
    if isinstance(data, Iterator):
        allowed = "data that can be read twice: a list, (x, y), or a file"
        raise InvalidInput("data", f"{type(data).__name__}, which can be read once", allowed)
    return data


def split_named(data: dict[str, Any], split: str) -> Any:
    """Return one of Hugging Face's splits by its name, or by another word for it."""
    found = [name for name in data if name == split or folder_split(name) == split]
    if not found:
        raise InvalidInput("split", split, "a split of the data: " + ", ".join(sorted(data)))
    return data[found[0]]


def may_have_splits(data: Any) -> bool:
    """Whether it is one of Hugging Face's datasets, which may have several splits."""
    return any(one.__module__.partition(".")[0] == "datasets" for one in type(data).__mro__)


def _is(data: Any, library: str, name: str) -> bool:
    return any(one.__name__ == name and one.__module__.partition(".")[0] == library for one in type(data).__mro__)


def _collected(frame: Any) -> Any:
    try:
        return frame.collect()
    except MemoryError:
        raise
    except Exception:
        allowed = "a LazyFrame with a query that runs; `.collect()` shows its error"
        raise InvalidInput("data", WITHHELD, allowed) from None
