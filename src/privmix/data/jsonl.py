"""JSON lines: one object a line, in UTF-8; plain or gzipped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privmix.data.columns import Selection, choose_inputs
from privmix.data.files import decoding, open_binary
from privmix.data.source import Schema, Source
from privmix.errors import WITHHELD, InvalidInput

_KIND: Final = "JSON lines in UTF-8, one object a line"
# A longer line is no record, but a file without line breaks: refuse it before it fills the memory.
_LINE_BYTES: Final = 2**26
_PIECE: Final = 4096


class JsonlSource(Source):
    """One file of JSON lines, or several read in the order given.

    Inputs are the columns of a table (texts, numbers, truth values; a key that is missing or null is no value), or a
    key with lists of numbers, or all other keys, which are numbers. Keys, and the length of lists, are those of the
    first record: they are public. Records are counted by lines, without looking into them.

    Args:
        paths: the files.
        selection: names of keys.
        classes: class names.

    Raises:
        InvalidInput: no such key, a line that is not a JSON object, a value of another type.
        StorageError: a file cannot be read.
    """

    def __init__(self, paths: Sequence[Path], selection: Selection, classes: tuple[str, ...]) -> None:
        self._paths, self._selection = list(paths), selection
        records = sum(self._count(path) for path in paths)
        # Validates the count before a first record is looked for.
        Schema(records=records, input_shape=(1,), classes=classes)
        first = next(self._rows())
        with decoding(self._paths[0], _KIND):
            # Any type does in the columns of a table, and so does none.
            arrow = pa.schema([(name, _kind(value, selection.table is not None)) for name, value in first.items()])
        self._inputs, self._form = self._choose(arrow)
        shape = (len(first[self._inputs[0]]),) if self._form == "lists" else (len(self._inputs),)
        self._schema = Schema(records, shape, classes, selection.table)

    @property
    def schema(self) -> Schema:
        """From the number of lines and the keys of the first record."""
        return self._schema

    def _chunks(self, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        rows: list[dict[str, Any]] = []
        for row in self._rows():
            rows.append(row)
            if len(rows) == min(size, _PIECE):
                yield self._arrays(rows)
                rows = []
        if rows:
            yield self._arrays(rows)

    def _choose(self, arrow: Any) -> tuple[list[str], str]:
        try:
            return choose_inputs(arrow, self._selection)
        except InvalidInput as error:
            if error.field == "columns" and self._selection.table is None:
                # It lists keys, which no header sets apart from a record's content.
                raise InvalidInput("columns", WITHHELD, error.allowed) from None
            raise

    def _arrays(self, rows: list[dict[str, Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
        labels = [row.get(self._selection.label) for row in rows]
        if any(label is None for label in labels):
            raise InvalidInput(f"column {self._selection.label}", WITHHELD, "no missing value")
        texts = any(isinstance(label, str) for label in labels)
        y = np.array(labels, dtype=object) if texts else _numbers(labels, self._selection.label)
        if self._form == "table":
            return _table(rows, self._inputs), y
        if self._form == "numbers":
            return np.stack([_numbers([row.get(name) for row in rows], name) for name in self._inputs], axis=1), y
        name, length = self._inputs[0], self._schema.input_shape[0]
        lists = [row.get(name) for row in rows]
        if not all(isinstance(value, list) and len(value) == length for value in lists):
            raise InvalidInput(f"column {name}", WITHHELD, f"lists of {length} numbers, like the first")
        return _numbers([number for value in lists for number in value or ()], name).reshape(-1, length), y

    def _count(self, path: Path) -> int:
        with decoding(path, _KIND), open_binary(path) as stream:
            return sum(1 for _ in _lines(path, stream))

    def _rows(self) -> Iterator[dict[str, Any]]:
        for path in self._paths:
            with decoding(path, _KIND), open_binary(path) as stream:
                for line in _lines(path, stream):
                    row = json.loads(line.decode("utf-8"), parse_constant=_refuse)
                    if not isinstance(row, dict):
                        raise InvalidInput(str(path), WITHHELD, _KIND)
                    yield row


def _lines(path: Path, stream: IO[bytes]) -> Iterator[bytes]:
    """Lines that are not blank, without a byte order mark."""
    start = True
    while line := stream.readline(_LINE_BYTES):
        if len(line) == _LINE_BYTES:
            raise InvalidInput(str(path), "a longer line", f"lines of less than {_LINE_BYTES} bytes")
        if start:
            line, start = line.removeprefix(b"\xef\xbb\xbf"), False
        if line.strip():
            yield line


def _refuse(constant: str) -> NoReturn:
    # Python's parser takes NaN and Infinity, which JSON does not have.
    raise ValueError("not JSON")


def _kind(value: Any, table: bool) -> Any:
    if table and not isinstance(value, list | dict):
        return pa.string()
    if isinstance(value, list) and value and all(map(_is_number, value)):
        return pa.list_(pa.float64())
    return pa.float64() if _is_number(value) else pa.string() if isinstance(value, str) else pa.struct([])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _numbers(values: list[Any], name: str) -> NDArray[np.float64]:
    if not all(map(_is_number, values)):
        raise InvalidInput(f"column {name}", WITHHELD, "numbers, and no missing value")
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError:
        raise InvalidInput(f"column {name}", WITHHELD, "numbers that fit float32") from None


def _table(rows: list[dict[str, Any]], names: list[str]) -> NDArray[np.object_]:
    table = np.empty((len(rows), len(names)), dtype=object)
    for place, name in enumerate(names):
        values = [row.get(name) for row in rows]
        if any(isinstance(value, list | dict) for value in values):
            raise InvalidInput(f"column {name}", WITHHELD, "texts, numbers, truth values or nothing")
        # JSON can spell half of a surrogate pair, which is no text: encoding it fails, here rather than later.
        "".join(value for value in values if isinstance(value, str)).encode()
        table[:, place] = values
    return table
