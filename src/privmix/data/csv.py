"""CSV files with a header line and one column of labels; plain or packed.

The other columns are numbers, or texts where the caller asks for a table. Cells in quotes may hold separators, quotes
(doubled) and line breaks: a record is what the parser takes for one, wherever records are counted or read. Quotes stand
around whole cells and are closed, or the file is refused when it is read: one record must not take in others.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from privmix.data.arrow_source import ArrowFormat, ArrowSource, Described
from privmix.data.columns import Selection, check_header, usable_names
from privmix.data.dialect import BrokenQuotes, Dialect, Quotes, other_separator
from privmix.data.files import Entries, Limited, decoding, is_zipped, open_binary
from privmix.data.reader import READERS, Reader, Request, refuse_images
from privmix.data.source import Source, resolve_classes
from privmix.errors import InvalidInput

_BLOCK_BYTES: Final = 2**22
_HEADER_BYTES: Final = 2**20
# Of a record, in characters; the parser takes no longer ones than two blocks.
_MOST_HELD: Final = 2**26
_CURE: Final = (
    "where the files have no header line, declare `header` NAMES, or `no_header` and how many columns there are; where "
    "these are the names of the columns, declare them: `header` with the same names"
)
_ENCODED: Final = "declare another `encoding`; convert UTF-16, as by iconv -f UTF-16 -t UTF-8"
_LINE_FEED, _RETURN, _QUOTE = b'\n\r"'


def csv_format(label_column: str, numeric: bool, labelled: bool = True, dialect: Dialect | None = None) -> ArrowFormat:
    """CSV with a header line.

    Args:
        label_column: its values are texts always.
        numeric: every other column is numbers, else texts.
        labelled: whether there must be labels.
        dialect: how the files are written.
    """
    dialect = dialect or Dialect()

    def describe(path: Path) -> Described:
        with open_binary(path) as stream:
            names = _header(path, stream, dialect)
        _check_header(path, names, label_column if labelled else None, dialect)
        names = usable_names(names)
        return Described(pa.schema([(name, kind_of(name)) for name in names]), *_count(path, dialect))

    def kind_of(name: str) -> Any:
        return pa.float64() if numeric and name != label_column else pa.string()

    def blocks(path: Path, columns: list[str], size: int, place: int, end: int | None) -> Iterator[Any]:
        for block in _parse(path, dialect, {name: kind_of(name) for name in columns}, place, end):
            block = block if numeric else _with_points(block, dialect)
            for start in range(0, block.num_rows, size):
                yield block.slice(start, size)

    texts = "all numbers but the label" if numeric else "texts"
    return ArrowFormat(
        f"a CSV file with as many values a row as its header and quotes around whole cells alone, {texts} in "
        f"{dialect.encoding} ({_ENCODED})",
        describe,
        blocks,
        "" if dialect.header else _CURE,
    )


def column_names(path: Path, dialect: Dialect | None = None, values: Sequence[str] = ()) -> list[str]:
    """The names in the header line of a CSV file, see :func:`usable_names`; nothing beyond it is looked at.

    Raises:
        InvalidInput: there is no such line.
        StorageError: the file can't be read.
    """
    dialect = (dialect or Dialect()).of(path)
    with (
        decoding(path, f"a CSV file with a header line in {dialect.encoding} ({_ENCODED})"),
        open_binary(path) as stream,
    ):
        names = _header(path, stream, dialect)
    _check_header(path, names, None, dialect)
    names = usable_names(names)
    if not dialect.header:
        check_header(f"header of {path}", names, values, _CURE)
    return names


def rows_of(path: Path, stream: IO[bytes], dialect: Dialect | None = None) -> Iterator[list[str] | None]:
    """Header and records of a CSV file one by one, with U+FFFD for what is in another encoding.

    None stands for a record whose quotes are broken; where it ends nobody can say, so nothing comes after it.
    """
    dialect = dialect or Dialect()
    yield _header(path, stream, dialect)
    held: list[str] = []
    size = 0
    for line in io.TextIOWrapper(stream, encoding=dialect.encoding, errors="replace", newline=""):
        held.append(line)
        size += len(line)
        if (record := _closed(held)) is None:
            if size > _MOST_HELD:
                break
            continue
        held, size = [], 0
        if not _whole(record, dialect.mark):
            yield None
            return
        if record := record.rstrip("\r\n"):
            yield _cells(record, dialect.mark)
    if held:
        yield None


def _closed(lines: list[str]) -> str | None:
    """The lines as one text, if no quote is open at its end."""
    if lines[-1].count('"') % 2 == (len(lines) == 1):
        return None
    return "".join(lines)


def _whole(record: str, mark: str) -> bool:
    try:
        Quotes(mark).add(record.encode())
    except BrokenQuotes:
        return False
    return True


def _cells(record: str, mark: str) -> list[str]:
    if '"' not in record:
        return record.split(mark)
    cell, cells, place = re.compile(rf'"((?:[^"]|"")*)"|([^"{re.escape(mark)}]*)'), [], 0
    while found := cell.match(record, place):
        cells.append(found[2] if found[1] is None else found[1].replace('""', '"'))
        place = found.end() + 1
        if place > len(record):
            break
    return cells


def _check_header(path: Path, names: list[str], label: str | None, dialect: Dialect) -> None:
    if len(names) == 1 and dialect.mark in names[0]:
        allowed = "quotes around single cells: take away those around whole lines"
        raise InvalidInput(f"header of {path}", "a line in quotes as a whole", allowed)
    mark = other_separator(names[0], dialect) if len(names) == 1 else None
    # The header is not quoted: of a file without one it is a record.
    if mark is not None and label != names[0]:
        found = f"a single column with {mark} in its name"
        allowed = f"several columns, with {dialect.separator} between them; else declare `separator` '{mark}'"
        raise InvalidInput(f"header of {path}", found, allowed)
    if label is not None and len(names) == 1:
        raise InvalidInput(f"header of {path}", "a single column", "the label's column and others")


def _with_points(block: Any, dialect: Dialect) -> Any:
    names = block.schema.names
    columns = [
        dialect.as_point(column) if name in dialect.numbers else column
        for name, column in zip(names, block.columns, strict=True)
    ]
    return pa.record_batch(columns, names=names)


def _parse(path: Path, dialect: Dialect, types: dict[str, Any], place: int, end: int | None) -> Iterator[Any]:
    """Record batches of the columns in ``types``, in the file's blocks.

    From the record on that begins at ``place`` (0: the first one), up to the one that begins at ``end``.
    """
    with open_binary(path) as stream:
        names = usable_names(_header(path, stream, dialect))
        if place:
            stream.seek(place)
        rest = stream if end is None else cast(IO[bytes], Limited(stream, end - stream.tell()))
        # pyarrow goes on where the header ended.
        yield from pa_csv.open_csv(
            _Pieces(rest, dialect.encoding, dialect.mark),
            read_options=pa_csv.ReadOptions(column_names=names, block_size=_BLOCK_BYTES, use_threads=False),
            parse_options=pa_csv.ParseOptions(delimiter=dialect.mark, newlines_in_values=True),
            convert_options=pa_csv.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                null_values=[],
                strings_can_be_null=False,
                decimal_point=dialect.decimal,
            ),
        )


def _count(path: Path, dialect: Dialect) -> tuple[int, NDArray[np.int64] | None]:
    """Number of records, by the parser that reads them later, block after block; and where some of them begin.

    A row of another length than the header's is one, too: it is refused when records are read, for opening must not
    tell whether there is one. Nor whether quotes are broken, or a record is longer than the parser can take: lines are
    counted then, of which that record is one, and reading refuses the file.
    """
    with open_binary(path) as stream:
        names = usable_names(_header(path, stream, dialect))
        if _is_blank(stream):
            return 0, None
    skipped = 0
    starts: _Starts | None = None

    def wrong(_: Any) -> str:
        nonlocal skipped
        skipped += 1
        return "skip"

    try:
        with open_binary(path) as stream:
            _header(path, stream, dialect)
            starts = None if is_zipped(path) else _Starts(stream.tell())
            # Bytes of one column, and not texts: values are not looked into.
            # As Latin-1 no byte is wrong: of rows of other length pyarrow makes texts, and prints where it can't.
            blocks = pa_csv.open_csv(
                _Pieces(stream, "latin-1", dialect.mark, starts),
                read_options=pa_csv.ReadOptions(column_names=names, block_size=_BLOCK_BYTES, use_threads=False),
                parse_options=pa_csv.ParseOptions(
                    delimiter=dialect.mark, newlines_in_values=True, invalid_row_handler=wrong
                ),
                convert_options=pa_csv.ConvertOptions(
                    column_types={names[0]: pa.binary()}, include_columns=names[:1], null_values=[]
                ),
            )
            records = sum(int(block.num_rows) for block in blocks) + skipped
    except (pa.ArrowInvalid, BrokenQuotes):
        with open_binary(path) as stream:
            _header(path, stream, dialect)
            return _count_lines(stream), None
    return records, None if starts is None else starts.stretches(records)


def _count_lines(stream: IO[bytes]) -> int:
    """Lines with something in them, of whatever length; as the parser has it, CR ends a line, too."""
    count, begun = 0, False
    while piece := stream.read(_BLOCK_BYTES):
        parts = piece.replace(b"\r", b"\n").split(b"\n")
        count += sum(map(bool, parts)) - (begun and bool(parts[0]))
        begun = bool(parts[-1]) or (begun and len(parts) == 1)
    return count


class _Starts:
    """Where records begin in a CSV file, by line ends outside of quotes, found as its bytes go by.

    Args:
        start: place of the first byte that is added.

    Example:
        >>> starts = _Starts(10)
        >>> starts.add(b'1,"a\\n b"\\r\\n\\n2,c\\n3')
        >>> starts.records
        3
    """

    def __init__(self, start: int) -> None:
        self._start = self._place = start
        self._entries = Entries()
        self._ended, self._inside, self._begun = 0, False, False

    @property
    def records(self) -> int:
        """How many there are up to here, one that is not ended among them."""
        return self._ended + self._begun

    def add(self, piece: bytes) -> None:
        """Look at what comes next."""
        content = np.frombuffer(piece, np.uint8)
        ends = np.flatnonzero((content == _LINE_FEED) | (content == _RETURN))
        if self._inside or b'"' in piece:
            quotes = np.flatnonzero(content == _QUOTE)
            ends = ends[(np.searchsorted(quotes, ends) + self._inside) % 2 == 0]
            self._inside ^= bool(len(quotes) % 2)
        if len(ends):
            # Empty lines are no records, and CR LF ends one line and then an empty one.
            filled = np.diff(ends, prepend=-1) > 1
            before = np.cumsum(filled) + (self._ended + (self._begun and not filled[0]))
            # Never between CR and LF.
            whole = np.flatnonzero(
                (content[ends] == _LINE_FEED) | (np.append(content, _LINE_FEED)[ends + 1] != _LINE_FEED)
            )
            for end in whole[np.unique(ends[whole] // self._entries.apart, return_index=True)[1]].tolist():
                self._entries.note(self._place + int(ends[end]) + 1, int(before[end]))
            if len(whole):
                self._entries.note(self._place + int(ends[whole[-1]]) + 1, int(before[whole[-1]]))
            self._ended = int(before[-1])
            self._begun = int(ends[-1]) + 1 < len(piece)
        else:
            self._begun = self._begun or bool(piece)
        self._place += len(piece)

    def stretches(self, records: int) -> NDArray[np.int64] | None:
        """(k, 2) places and records up to the next one; None where the parser found another number of records."""
        return self._entries.stretches(self._start, records) if self.records == records else None


class _Pieces(io.RawIOBase):
    """The rest of a text file as UTF-8, in pieces that do not end between CR and LF.

    There pyarrow drops the LF, in quotes, too: a cell would depend on what stands before it in the file.

    Raises:
        BrokenQuotes: of :meth:`read`, where one record would take in others.
    """

    def __init__(self, stream: IO[bytes], encoding: str, mark: str, starts: _Starts | None = None) -> None:
        super().__init__()
        self._starts = starts
        self._stream, self._held, self._ended, self._quotes = stream, b"", False, Quotes(mark)
        self._decoder = None if encoding == "utf-8" else codecs.getincrementaldecoder(encoding)()

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        wanted = _BLOCK_BYTES if size is None or size < 0 else size
        # One more, to see whether the file goes on.
        while len(self._held) <= wanted and not self._ended:
            content = self._stream.read(wanted)
            self._ended = not content
            if self._starts is not None and content:
                self._starts.add(content)
            if self._decoder is not None:
                content = self._decoder.decode(content, final=self._ended).encode()
            self._held += content
        end = min(wanted, len(self._held))
        if 1 < end < len(self._held) and self._held[end - 1 : end] == b"\r":
            end -= 1
        piece, self._held = self._held[:end], self._held[end:]
        self._quotes.add(piece)
        if not piece:
            self._quotes.end()
        return piece


def _is_blank(stream: IO[bytes]) -> bool:
    while piece := stream.read(_BLOCK_BYTES):
        if piece.strip(b"\r\n"):
            return False
    return True


def _header(path: Path, stream: IO[bytes], dialect: Dialect) -> list[str]:
    """Column names; leaves the stream at the first record. A first line of the declared names is no record."""
    if dialect.header:
        with open_binary(path) as again:
            first = again.readline(_HEADER_BYTES)
        # Packed files are read forward alone.
        if dialect.header == _cells_of(first, dialect):
            stream.readline(_HEADER_BYTES)
        elif first.startswith(codecs.BOM_UTF8):
            stream.read(len(codecs.BOM_UTF8))
        return list(dialect.header)
    names = next(csv.reader(_lines(path, stream, dialect.encoding), delimiter=dialect.mark, strict=True), [])
    if not names:
        raise InvalidInput(f"header of {path}", "an empty line", "names of columns, or none with `header` NAMES")
    if any("\0" in name for name in names):
        raise InvalidInput(f"header of {path}", "a NUL character, as of UTF-16", f"{dialect.encoding} ({_ENCODED})")
    return names


def _cells_of(line: bytes, dialect: Dialect) -> tuple[str, ...]:
    """Cells of a first line, whatever it is: where it is a record, nothing must depend on it."""
    text = line.removeprefix(codecs.BOM_UTF8).decode(dialect.encoding, errors="replace")
    try:
        return tuple(next(csv.reader([text], delimiter=dialect.mark), []))
    except csv.Error:
        return ()


def _lines(path: Path, stream: IO[bytes], declared: str) -> Iterator[str]:
    encoding = "utf-8-sig" if declared == "utf-8" else declared
    while line := stream.readline(_HEADER_BYTES):
        if len(line) == _HEADER_BYTES:
            raise InvalidInput(f"header of {path}", "a longer line", f"less than {_HEADER_BYTES} bytes")
        yield line.decode(encoding)
        encoding = declared


@READERS.register
class Csv(Reader):
    """Tables of numbers, or of texts; see the top of this file."""

    name: ClassVar[str] = "csv"
    words: ClassVar[str] = "CSV"
    endings: ClassVar[str] = ".csv, .tsv, .txt"
    suffixes: ClassVar[tuple[str, ...]] = ("csv", "tsv", "txt")
    zipped: ClassVar[bool] = True
    dialects: ClassVar[bool] = True
    in_place: ClassVar[bool] = True

    @classmethod
    def open(cls, files: list[Path], request: Request) -> Source:
        refuse_images(request)
        asked = request.selection
        if asked.length is not None:
            raise InvalidInput("feature_length", asked.length, "none: CSV holds no lists")
        selection = Selection(
            asked.label,
            image=None,
            table=asked.table,
            numbers=asked.numbers,
            labelled=asked.labelled,
            dialect=(asked.dialect or Dialect()).of(files[0]),
            persons=asked.persons,
            values=asked.values,
        )
        format_ = csv_format(selection.label, selection.table is None, selection.labelled, selection.dialect)
        return ArrowSource(files, format_, selection, resolve_classes(request.classes))
