"""A table's header, read without its records: column names, and types where the format declares them."""

import glob
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from privmix.data.columns import is_number, is_text, usable_names
from privmix.data.csv import column_names
from privmix.data.dialect import Dialect
from privmix.data.files import decoding, split_of
from privmix.data.frames import frame_columns, library_of
from privmix.data.parquet import PARQUET
from privmix.data.reader import formats, no_csv, reader_of, refuse_arrow
from privmix.data.remote import is_remote, local_path
from privmix.errors import InvalidInput, StorageError

NUMBER: Final = "number"
WHOLE: Final = "whole number"
BOOLEAN: Final = "boolean"
DATE: Final = "date"
TEXT: Final = "text"
UNKNOWN: Final = ""


def columns_of(
    data: Any, dialect: Dialect | None = None, split: str = "train", values: Sequence[str] = ()
) -> Mapping[str, str] | None:
    """Names of a table's columns -> kind, one of those above ("" if undeclared); None for JSON lines.

    Formal guarantees:
        - Unread: of a CSV file only the header line, of Parquet only the schema, of a frame in memory only the names of
          its columns. Types of a frame's columns follow from the records.
    """
    library = library_of(data)
    if library:
        if library == "pyarrow":
            names = data.schema.names
        else:
            names = data.column_names if library == "datasets" else data.columns
        # A `DatasetDict` has the column names of each split, and all splits of a table share them.
        if isinstance(names, Mapping):
            names = next(iter(names.values()))
        return dict.fromkeys(frame_columns(names, values), UNKNOWN)
    if not isinstance(data, str | Path):
        raise InvalidInput("data", type(data).__name__, "a file, or a frame whose columns have names")
    if is_remote(data):
        raise InvalidInput("data", str(data), "a file on this machine: copy one that has the header")
    file = _first(local_path(data), split)
    reader = reader_of(file)
    if reader is not None and reader.name == "csv":
        return dict.fromkeys(column_names(file, dialect, values), UNKNOWN)
    if dialect is not None and reader is not None:
        raise no_csv()
    if reader is not None and reader.name == "jsonl":
        return None
    if reader is not None and reader.name == "parquet":
        with decoding(file, PARQUET.kind):
            schema = PARQUET.describe(file).schema
        names = usable_names(schema.names)
        PARQUET.check_names(file, names, values)
        return {name: _declared(field.type) for name, field in zip(names, schema, strict=True)}
    raise InvalidInput("data", str(data), f"a table: CSV, JSON lines or Parquet. {formats()}")


def _declared(kind: Any) -> str:
    # A dictionary is only a way to store repeated values: their own type decides.
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    # Truth values come first, since `is_number` accepts them as numbers.
    if pa.types.is_boolean(kind):
        return BOOLEAN
    if pa.types.is_integer(kind):
        return WHOLE
    if is_number(kind) or pa.types.is_decimal(kind):
        return NUMBER
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return DATE
    return TEXT if is_text(kind) else UNKNOWN


def _first(place: Path, split: str) -> Path:
    """Return the first file of a split: all have one header, or are refused when they are opened."""
    if place.is_file():
        refuse_arrow([place], place)
        return place
    if place.is_dir():
        found = sorted(file for file in place.rglob("*") if file.is_file() and not file.name.startswith("."))
    else:
        found = [Path(name) for name in sorted(glob.glob(str(place), recursive=True))]
    refuse_arrow(found, place)
    tables = [file for file in found if reader_of(file) is not None]
    tables = [file for file in tables if not file.name.lower().endswith((".json", ".txt"))] or tables
    marked = [file for file in tables if split in (split_of(file.name), split_of(file.parent.name))]
    if not (marked or tables):
        raise StorageError(f"{place}: no such file, or no table in the folder")
    return (marked or tables)[0]
