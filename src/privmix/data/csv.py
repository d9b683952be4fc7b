"""CSV files with a header line and one label column, plain or packed. Other columns are numbers, in tables texts."""
# Quotes enclose whole cells and must be closed, or reading refuses the file: one record must not absorb others.

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, ClassVar, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from privmix.data.arrow_source import ArrowFormat, ArrowSource, Described
from privmix.data.columns import check_header, usable_names
from privmix.data.dialect import BrokenQuotes, Dialect, Quotes, other_separator
from privmix.data.files import PIECE, Entries, Limited, decoding, is_zipped, open_binary
from privmix.data.reader import READERS, Reader, Request
from privmix.data.source import Source, resolve_classes
from privmix.errors import InvalidInput

BLOCK_BYTES: Final = 2**22
_HEADER_BYTES: Final = 2**20
# Characters of a record; the parser takes none longer than two blocks.
_MOST_HELD: Final = 2**26
_CURE: Final = (
    "if the file has no header line, declare the names or the number of columns: `csv` header=NAME|NAME. If these are "
    "the column names, declare the same names there"
)
_ENCODED: Final = "declare other encodings with `csv` encoding=NAME; convert UTF-16 with iconv -f UTF-16 -t UTF-8"
_LINE_FEED, _RETURN, _QUOTE = b'\n\r"'


def csv_format(label_column: str, numeric: bool, labelled: bool = True, dialect: Dialect | None = None) -> ArrowFormat:
    """CSV with a header line; label values are always texts, other columns numbers if ``numeric``, else texts."""
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

    texts = "numbers in all columns except the label" if numeric else "texts"
    return ArrowFormat(
        f"a CSV file in {dialect.encoding} with as many cells in each row as in the header, quotes around whole cells "
        f"only, and {texts}. privmix check lists cells that do not fit; {_ENCODED}",
        describe,
        blocks,
        "" if dialect.header else _CURE,
    )


def column_names(path: Path, dialect: Dialect | None = None, values: Sequence[str] = ()) -> list[str]:
    """Return the :func:`usable_names` of the header line of a CSV file; nothing beyond that line is read."""
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
    """Header and records of a CSV file one by one, with U+FFFD for wrongly encoded bytes."""
    # The value None stands for a record with broken quotes. Its end is unknown, so no record comes after it.
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
    """Return the lines as one text, if no quote is open at its end."""
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
        allowed = "quotes around single cells: remove quotes around whole lines"
        raise InvalidInput(f"header of {path}", "a line in quotes as a whole", allowed)
    mark = other_separator(names[0], dialect) if len(names) == 1 else None
    # The header is not quoted: of a file without one it is a record.
    if mark is not None and label != names[0]:
        found = f"a single column with {mark} in its name"
        allowed = f"several columns separated by {dialect.separator}, or `csv` 'separator={mark}'"
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
    """Record batches of the columns in ``types``, from the record at ``place`` to before the one at ``end``."""
    with open_binary(path) as stream:
        names = usable_names(_header(path, stream, dialect))
        if place:
            stream.seek(place)
        rest = stream if end is None else cast(IO[bytes], Limited(stream, end - stream.tell()))
        # pyarrow goes on where the header ended.
        yield from pa_csv.open_csv(
            _Pieces(rest, dialect.encoding, dialect.mark),
            read_options=pa_csv.ReadOptions(column_names=names, block_size=BLOCK_BYTES, use_threads=False),
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
    """Count records with the parser that reads them later; note where some of them begin."""
    # A row of the wrong length counts too: reading refuses it, since opening must not reveal it. The same holds for
    # broken quotes or an overlong record: then lines are counted, that record as one, and reading refuses the file.
    with open_binary(path) as stream:
        names = usable_names(_header(path, stream, dialect))
        if not any(piece.strip(b"\r\n") for piece in iter(lambda: stream.read(BLOCK_BYTES), b"")):
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
            # In Latin-1 no byte is wrong. pyarrow makes texts of rows of another length, and prints where that fails.
            blocks = pa_csv.open_csv(
                _Pieces(stream, "latin-1", dialect.mark, starts),
                read_options=pa_csv.ReadOptions(column_names=names, block_size=BLOCK_BYTES, use_threads=False),
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
    """Count the non-empty lines of any length; as in the parser, CR also ends a line."""
    count, begun = 0, False
    while piece := stream.read(BLOCK_BYTES):
        parts = piece.replace(b"\r", b"\n").split(b"\n")
        count += sum(map(bool, parts)) - (begun and bool(parts[0]))
        begun = bool(parts[-1]) or (begun and len(parts) == 1)
    return count


class _Starts:
    """Byte positions where records of a CSV file begin, found by the line ends outside quotes."""

    def __init__(self, start: int) -> None:
        self._start = self._place = start
        self._entries = Entries()
        self._ended, self._inside, self._begun = 0, False, False

    @property
    def records(self) -> int:
        """How many there are up to here, one that is not ended among them."""
        return self._ended + self._begun

    def add(self, piece: bytes) -> None:
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
            for end in whole[np.unique(ends[whole] // PIECE, return_index=True)[1]].tolist():
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
    """The rest of a text file as UTF-8, in pieces that do not end between CR and LF."""

    # pyarrow drops the LF there, also inside quotes: a cell would depend on what precedes it in the file.

    def __init__(self, stream: IO[bytes], encoding: str, mark: str, starts: _Starts | None = None) -> None:
        super().__init__()
        self._starts = starts
        self._stream, self._held, self._ended, self._quotes = stream, b"", False, Quotes(mark)
        self._decoder = None if encoding == "utf-8" else codecs.getincrementaldecoder(encoding)()

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        wanted = BLOCK_BYTES if size is None or size < 0 else size
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
        raise InvalidInput(
            f"header of {path}", "an empty line", "a line of column names; without one declare `csv` header=NAMES"
        )
    if any("\0" in name for name in names):
        raise InvalidInput(f"header of {path}", "a NUL character, as in UTF-16", f"{dialect.encoding} ({_ENCODED})")
    return names


def _cells_of(line: bytes, dialect: Dialect) -> tuple[str, ...]:
    """Cells of any first line: where that line is a record, no result may depend on it."""
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
    name: ClassVar[str] = "csv"
    words: ClassVar[str] = "CSV"
    endings: ClassVar[str] = ".csv, .tsv, .txt"
    suffixes: ClassVar[tuple[str, ...]] = ("csv", "tsv", "txt")
    zipped: ClassVar[bool] = True
    dialects: ClassVar[bool] = True
    in_place: ClassVar[bool] = True

    @classmethod
    def open(cls, files: list[Path], request: Request) -> Source:
        dialect = (request.selection.dialect or Dialect()).of(files[0])
        selection = replace(request.selection, image=None, dialect=dialect)
        format_ = csv_format(selection.label, selection.table is None, selection.labelled, dialect)
        return ArrowSource(files, format_, selection, resolve_classes(request.classes))
