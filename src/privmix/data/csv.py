"""CSV files with a header line, numeric columns and one column of labels; plain or gzipped."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from privmix.data.files import decoding, open_binary
from privmix.data.source import Schema, Source
from privmix.errors import InvalidInput

_BLOCK_BYTES = 2**22


class CsvSource(Source):
    """One CSV file, UTF-8, one record a line.

    Every column but the label's holds a feature and must be numeric; inputs have shape (columns,). Labels are class
    names or indices. Records are counted by lines, without looking into them.

    Args:
        path: the file.
        label_column: name of the label's column.
        classes: class names.

    Raises:
        InvalidInput: no such column, ragged rows, a value that is not a number.
        StorageError: the file cannot be read.
    """

    def __init__(self, path: Path, label_column: str, classes: tuple[str, ...]) -> None:
        self._path, self._label = path, label_column
        with decoding(path, "a CSV file in UTF-8"), open_binary(path) as stream:
            header = stream.readline().decode("utf-8-sig").rstrip("\r\n")
            names = next(csv.reader([header]), [])
            records = sum(1 for line in stream if line.rstrip(b"\r\n"))
        if len(set(names)) != len(names) or not all(names):
            raise InvalidInput(
                f"header of {path}", f"{len(names)} names", "names that are not empty, each of them once"
            )
        if label_column not in names:
            raise InvalidInput("label column", label_column, f"a column of {path}")
        self._features = [name for name in names if name != label_column]
        if not self._features:
            raise InvalidInput(f"header of {path}", "a single column", "the label's column and numeric columns")
        self._names = names
        self._schema = Schema(records=records, input_shape=(len(self._features),), classes=classes)

    @property
    def schema(self) -> Schema:
        """From the header line and the number of lines."""
        return self._schema

    def _chunks(self, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        types = {name: pa.float64() for name in self._features} | {self._label: pa.string()}
        kind = "a CSV file with as many values a row as its header, all numbers but the label"
        with decoding(self._path, kind), open_binary(self._path) as stream:
            reader = pa_csv.open_csv(
                stream,
                read_options=pa_csv.ReadOptions(
                    column_names=self._names, skip_rows=1, block_size=_BLOCK_BYTES, use_threads=False
                ),
                convert_options=pa_csv.ConvertOptions(column_types=types, null_values=[]),
            )
            for block in reader:
                for start in range(0, block.num_rows, size):
                    yield self._arrays(block.slice(start, size))

    def _arrays(self, block: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        x = np.stack([block.column(name).to_numpy(zero_copy_only=False) for name in self._features], axis=1)
        return x, np.array(block.column(self._label).to_pylist(), dtype=object)
