"""CSV files with a header line and one column of labels; plain or gzipped.

The other columns are numbers, or texts where the caller asks for a table.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.csv as pa_csv

from privmix.data.arrow_source import ArrowFormat, ArrowSource
from privmix.data.columns import Selection
from privmix.data.files import filled_lines, open_binary
from privmix.data.reader import READERS, Reader, Request, refuse_images
from privmix.data.source import Source, resolve_classes
from privmix.errors import InvalidInput

_BLOCK_BYTES: Final = 2**22
_HEADER_BYTES: Final = 2**20


def csv_format(label_column: str, numeric: bool, labelled: bool = True) -> ArrowFormat:
    """CSV in UTF-8, with a header line.

    Args:
        label_column: its values are texts always.
        numeric: every other column is numbers; records are then counted by lines, without looking into them. Else
            every value is a text, quoted ones may hold line breaks, and counting follows the quotes.
        labelled: whether there must be labels.
    """

    def describe(path: Path) -> tuple[Any, int]:
        with open_binary(path) as stream:
            names = _header(path, stream)
            if labelled and label_column not in names:
                raise InvalidInput("label column", label_column, f"a column of {path}")
            if labelled and len(names) == 1:
                raise InvalidInput(f"header of {path}", "a single column", "the label's column and others")
            lines = sum(1 for _ in filled_lines(stream, _BLOCK_BYTES, rb"\r")) if numeric else 0
        return pa.schema([(name, kind_of(name)) for name in names]), lines if numeric else _count(path)

    def kind_of(name: str) -> Any:
        return pa.float64() if numeric and name != label_column else pa.string()

    def blocks(path: Path, columns: list[str], size: int) -> Iterator[Any]:
        for block in _parse(path, {name: kind_of(name) for name in columns}, quoted_breaks=not numeric):
            for start in range(0, block.num_rows, size):
                yield block.slice(start, size)

    rest = "all numbers but the label" if numeric else "texts in UTF-8"
    return ArrowFormat(f"a CSV file with as many values a row as its header, {rest}", describe, blocks)


def _parse(path: Path, types: dict[str, Any], quoted_breaks: bool) -> Iterator[Any]:
    """Record batches of the columns in ``types``, in the file's blocks."""
    with open_binary(path) as stream:
        names = _header(path, stream)
        # pyarrow goes on where the header ended.
        yield from pa_csv.open_csv(
            stream,
            read_options=pa_csv.ReadOptions(column_names=names, block_size=_BLOCK_BYTES, use_threads=False),
            parse_options=pa_csv.ParseOptions(newlines_in_values=quoted_breaks),
            convert_options=pa_csv.ConvertOptions(
                column_types=types, include_columns=list(types), null_values=[], strings_can_be_null=False
            ),
        )


def _count(path: Path) -> int:
    """Number of records, by the parser that reads them later; block after block.

    Where it can't parse one, of lines: such a record is refused when records are read, for opening must not tell
    whether there is one.
    """
    with open_binary(path) as stream:
        names = _header(path, stream)
        if _is_blank(stream):
            return 0
    try:
        # Bytes, not texts: values are not looked into.
        return sum(int(block.num_rows) for block in _parse(path, {names[0]: pa.binary()}, quoted_breaks=True))
    except pa.ArrowInvalid:
        with open_binary(path) as stream:
            _header(path, stream)
            return sum(1 for _ in filled_lines(stream, _BLOCK_BYTES, rb"\r"))


def _is_blank(stream: IO[bytes]) -> bool:
    while piece := stream.read(_BLOCK_BYTES):
        if piece.strip(b"\r\n"):
            return False
    return True


def _header(path: Path, stream: IO[bytes]) -> list[str]:
    """Column names; leaves the stream at the first record."""
    names = next(csv.reader(_lines(path, stream)), [])
    if len(set(names)) != len(names) or not all(names):
        raise InvalidInput(f"header of {path}", f"{len(names)} names", "names that are not empty, each of them once")
    return names


def _lines(path: Path, stream: IO[bytes]) -> Iterator[str]:
    encoding = "utf-8-sig"
    while line := stream.readline(_HEADER_BYTES):
        if len(line) == _HEADER_BYTES:
            raise InvalidInput(f"header of {path}", "a longer line", f"less than {_HEADER_BYTES} bytes")
        yield line.decode(encoding)
        encoding = "utf-8"


@READERS.register
class Csv(Reader):
    """Tables of numbers, or of texts; see the top of this file."""

    name: ClassVar[str] = "csv"
    words: ClassVar[str] = "CSV"
    endings: ClassVar[str] = ".csv"
    suffixes: ClassVar[tuple[str, ...]] = ("csv",)
    zipped: ClassVar[bool] = True

    @classmethod
    def open(cls, files: list[Path], request: Request) -> Source:
        refuse_images(request)
        asked = request.selection
        if asked.length is not None:
            raise InvalidInput("feature_length", asked.length, "none: CSV holds no lists")
        selection = Selection(
            asked.label, image=None, table=asked.table, numbers=asked.numbers, labelled=asked.labelled
        )
        format_ = csv_format(selection.label, numeric=selection.table is None, labelled=selection.labelled)
        return ArrowSource(files, format_, selection, resolve_classes(request.classes))
