"""Arrow IPC files and streams, and folders that Hugging Face's ``save_to_disk`` wrote; ``datasets`` is not needed."""

from __future__ import annotations

import io
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import pyarrow as pa
import pyarrow.ipc as pa_ipc

from privmix.data.arrow_source import ArrowFormat, Described, class_names, open_arrow_like
from privmix.data.files import check_unpacked, decoding, is_here
from privmix.data.parquet import metadata_classes, shapes_in
from privmix.data.reader import READERS, Reader, Request
from privmix.data.source import Source
from privmix.errors import InvalidInput, StorageError
from privmix.untrusted import parse_json

FILE_MAGIC: Final = b"ARROW1"
# A file ends with the footer, its length and the magic word; the footer has the places of dictionaries and batches.
_TAIL: Final = struct.Struct(f"<i{len(FILE_MAGIC)}s")
_BLOCK: Final = struct.Struct("<qi4xq")
_BLOCKS: Final = (2, 3)
_KIND, _HEADER, _BODY, _LENGTH, _BUFFERS, _COMPRESSION, _DATA = 1, 2, 3, 0, 2, 3, 1
_CONTINUES: Final = b"\xff\xff\xff\xff"
# Bytes of a remote file per request for a header; most files whose batch positions are remembered.
_HEADER_PIECE: Final = 1024
_FILES: Final = 16
_BUFFER: Final = struct.Struct("<qq")


def scan(path: Path) -> tuple[list[int], int]:
    """Return records of each batch, and the bytes of all buffers once unpacked. Callers translate any exception."""
    records: list[int] = []
    unpacked = 0
    with _bytes_of(path) as file:
        for message in messages(file):
            if message.kind == BATCH:
                rows = message.header.integer(_LENGTH)
                if rows < 0:
                    raise ValueError("a negative number of records")
                records.append(rows)
            if message.kind in (DICTIONARY, BATCH):
                unpacked += _unpacked(message, file)
    return records, unpacked


SCHEMA: Final = 1
DICTIONARY: Final = 2
BATCH: Final = 3


class Message(NamedTuple):
    """Kind and places of a message of a stream: of its first byte, of its buffers, and of what follows it."""

    # `header` is the batch's, or that of the batch which a dictionary is.

    kind: int
    start: int
    body: int
    end: int
    header: _Table


def messages(file: Any) -> Iterator[Message]:
    """Yield the messages of an IPC stream, or of a file's footer, by headers alone. Callers translate any exception."""
    file.seek(0)
    is_file = file.read(len(FILE_MAGIC)) == FILE_MAGIC
    size = file.seek(0, io.SEEK_END)
    if is_file:
        file.seek(size - _TAIL.size)
        length, _ = _TAIL.unpack(file.read(_TAIL.size))
        file.seek(size - _TAIL.size - length)
        footer = _Table.root(file.read(length))
        for place in [block[0] for field in _BLOCKS for block in footer.structs(field, _BLOCK)]:
            if (message := _message(file, place, size)) is None or message.kind == SCHEMA:
                raise ValueError("a block that is none")
            yield message
        return
    place = 0
    while (message := _message(file, place, size)) is not None:
        yield message
        place = message.end


def _message(file: Any, place: int, size: int) -> Message | None:
    """Return the one that begins at a place of a file of that size; None at a stream's end."""
    file.seek(place)
    # Streams of before Arrow 0.15 have the length alone.
    length = file.read(4)
    if length == _CONTINUES:
        length = file.read(4)
    if length in (b"", bytes(4)):
        return None
    (metadata,) = struct.unpack("<i", length)
    if metadata < 0:
        raise ValueError("a message of no length")
    root = _Table.root(file.read(metadata))
    body = file.tell()
    end = body + root.integer(_BODY)
    if end < body or end > size:
        raise ValueError("a message that ends beyond its file")
    kind = root.byte(_KIND)
    header = root if kind == SCHEMA else root.table(_HEADER)
    return Message(kind, place, body, end, header.table(_DATA) if kind == DICTIONARY else header)


def _unpacked(message: Message, file: Any) -> int:
    """Bytes of a batch's buffers; packed ones begin with that number, or with -1 where packing did not pay."""
    total = 0
    for offset, length in message.header.structs(_BUFFERS, _BUFFER):
        size = length
        if message.header.has(_COMPRESSION) and length > 0:
            if not 0 <= offset <= message.end - message.body - 8:
                raise ValueError("a buffer outside of its message")
            # Only these eight bytes of the records' own are looked at.
            file.seek(message.body + offset)
            (announced,) = struct.unpack("<q", file.read(8))
            size = length if announced < 0 else announced
        total += max(size, 0)
    return total


class _Table:
    """A FlatBuffers table: fields by their number in the schema."""

    def __init__(self, content: bytes, place: int) -> None:
        self._content, self._place = content, place
        back = struct.unpack_from("<i", content, place)[0]
        self._fields = place - back
        if self._fields < 0:
            raise ValueError("a table outside of its buffer")
        self._count = (struct.unpack_from("<H", content, self._fields)[0] - 4) // 2

    @classmethod
    def root(cls, content: bytes) -> _Table:
        return cls(content, struct.unpack_from("<I", content, 0)[0])

    def has(self, field: int) -> bool:
        return self._offset(field) != 0

    def integer(self, field: int) -> int:
        if not self.has(field):
            return 0
        return int(struct.unpack_from("<q", self._content, self._place + self._offset(field))[0])

    def byte(self, field: int) -> int:
        return self._content[self._place + self._offset(field)] if self.has(field) else 0

    def table(self, field: int) -> _Table:
        return _Table(self._content, self._target(field))

    def structs(self, field: int, kind: struct.Struct) -> list[tuple[int, ...]]:
        if not self.has(field):
            return []
        start = self._target(field)
        (count,) = struct.unpack_from("<I", self._content, start)
        end = start + 4 + count * kind.size
        return list(kind.iter_unpack(self._content[start + 4 : end]))

    def _target(self, field: int) -> int:
        place = self._place + self._offset(field)
        return place + int(struct.unpack_from("<I", self._content, place)[0])

    def _offset(self, field: int) -> int:
        if field >= self._count:
            return 0
        return int(struct.unpack_from("<H", self._content, self._fields + 4 + 2 * field)[0])


_INFO, _STATE, _SPLITS = "dataset_info.json", "state.json", "dataset_dict.json"
DESCRIPTIONS: Final = frozenset({_INFO, _STATE, _SPLITS})


def _describe(path: Path) -> Described:
    schema = _read_schema(path)
    batches, unpacked = scan(path)
    check_unpacked(path, max(unpacked, sum(batches)), path.stat().st_size)
    return Described(schema, sum(batches), list(enumerate(batches)), shapes_in(path, schema.metadata))


def _blocks(path: Path, columns: list[str], size: int, place: int, end: int | None) -> Iterator[Any]:
    for batch in _batches(path, columns, place, end):
        # Offsets in a damaged file would otherwise lead outside of its memory.
        batch.validate(full=True)
        for start in range(0, batch.num_rows, size):
            yield batch.slice(start, size)


ARROW: Final = ArrowFormat("an Arrow IPC file or stream", _describe, _blocks)


def arrow_classes(path: Path, label_column: str) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Class names from the schema's metadata, as for Parquet."""
    with decoding(path, ARROW.kind):
        metadata = _read_schema(path).metadata
    return metadata_classes(path, metadata, label_column)


def is_saved_dataset(folder: Path) -> bool:
    return (folder / _STATE).is_file()


def saved_splits(folder: Path) -> list[str] | None:
    """Names of the sub-folders, one per split, where ``datasets`` saved several; else None."""
    path = folder / _SPLITS
    if not path.is_file():
        return None
    splits = _read_object(path).get("splits")
    if not isinstance(splits, list) or not all(map(_is_plain_name, splits)):
        raise InvalidInput(str(path), "something else", "a list of the names of splits")
    return splits


def saved_files(folder: Path) -> list[Path]:
    """Return the Arrow files of one saved split, in its own order."""
    path = folder / _STATE
    entries = _read_object(path).get("_data_files")
    listed = entries if isinstance(entries, list) else []
    names = [entry.get("filename") if isinstance(entry, dict) else None for entry in listed]
    if not names or not all(map(_is_plain_name, names)):
        raise InvalidInput(str(path), "something else", "a list of the names of Arrow files")
    files = [folder / str(name) for name in names]
    for file in files:
        if not file.is_file():
            raise StorageError(f"{file}: no such file, though {path} lists it")
    return files


def saved_classes(folder: Path, label_column: str) -> tuple[str, ...] | None:
    """Class names of the label's ClassLabel feature in dataset_info.json, if it is one."""
    path = folder / _INFO
    if not path.is_file():
        return None
    features = _read_object(path).get("features")
    with decoding(path, "a description of features"):
        return class_names(features, label_column)


def _read_object(path: Path) -> dict[str, Any]:
    with decoding(path, "a JSON object"):
        content = parse_json(path.read_bytes(), str(path))
    if not isinstance(content, dict):
        raise InvalidInput(str(path), type(content).__name__, "a JSON object")
    return content


def _is_plain_name(name: object) -> bool:
    # Only files of the folder itself: a description must not lead elsewhere.
    return isinstance(name, str) and name not in ("", ".", "..") and Path(name).name == name


def _read_schema(path: Path) -> Any:
    with _reader(path) as (reader, _):
        return reader.schema


def _batches(path: Path, columns: list[str], first: int, end: int | None) -> Iterator[Any]:
    """Record batches, from batch ``first`` on, with at least the columns named; memory-mapped, so pages come and go."""
    schema = _read_schema(path)
    options = pa_ipc.IpcReadOptions(
        use_threads=False, included_fields=sorted({schema.get_field_index(name) for name in columns})
    )
    with _reader(path, options, first) as (reader, begins):
        if isinstance(reader, pa_ipc.RecordBatchFileReader):
            for place in range(first, reader.num_record_batches if end is None else end):
                yield reader.get_batch(place)
        else:
            # Skipped batches are read only by their headers, unless the file is packed.
            yield from islice(reader, first - begins, None if end is None else end - begins)


def _bytes_of(path: Path) -> Any:
    """Return a file whose headers are read: by way of memory, or of ranges no longer than they are."""
    return pa.memory_map(str(path)) if is_here(path) else io.BufferedReader(path.open("rb", 0), _HEADER_PIECE)


@contextmanager
def _reader(path: Path, options: Any = None, first: int = 0) -> Iterator[tuple[Any, int]]:
    """Arrow's reader of a file or stream, and number of the first batch that it has, at most ``first``."""
    if is_here(path):
        with pa.memory_map(str(path)) as file, _open(file, options) as reader:
            yield reader, 0
        return
    is_file, found = _places(path)
    file = path.open("rb", 0)
    if is_file:
        with pa_ipc.open_file(pa.PythonFile(file, mode="r"), options=options) as reader:
            yield reader, 0
        return
    size = path.stat().st_size
    batches = [start for kind, start, _ in found if kind == BATCH]
    place = [*batches, size][min(first, len(batches))]
    before = [(start, stop) for kind, start, stop in found if kind != BATCH and start < place]
    with pa_ipc.open_stream(
        pa.PythonFile(_Spliced(file, [*before, (place, size)]), mode="r"), options=options
    ) as reader:
        yield reader, min(first, len(batches))


@lru_cache(_FILES)
def _places(path: Any) -> tuple[bool, list[tuple[int, int, int]]]:
    """Whether a file at an address is an IPC file; kind, start and end of a stream's messages."""
    with _bytes_of(path) as file:
        is_file = file.read(len(FILE_MAGIC)) == FILE_MAGIC
        return is_file, [] if is_file else [(one.kind, one.start, one.end) for one in messages(file)]


class _Spliced(io.RawIOBase):
    """Some stretches of a file, one behind the other."""

    def __init__(self, file: Any, stretches: list[tuple[int, int]]) -> None:
        super().__init__()
        self._file, self._stretches = file, deque(stretches)
        self._place = stretches[0][0]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while len(self._stretches) > 1 and self._place == self._stretches[0][1]:
            self._stretches.popleft()
            self._place = self._stretches[0][0]
        self._file.seek(self._place)
        content = self._file.read(min(len(buffer), self._stretches[0][1] - self._place))
        self._place += len(content)
        buffer[: len(content)] = content
        return len(content)


def _open(file: Any, options: Any = None) -> Any:
    magic = file.read(len(FILE_MAGIC))
    file.seek(0)
    return (pa_ipc.open_file if magic == FILE_MAGIC else pa_ipc.open_stream)(file, options=options)


@READERS.register
class Arrow(Reader):
    """Arrow's files and streams, Feather among them."""

    name: ClassVar[str] = "arrow"
    words: ClassVar[str] = "Arrow"
    endings: ClassVar[str] = ".arrow, .arrows, .ipc, .feather"
    suffixes: ClassVar[tuple[str, ...]] = ("arrow", "arrows", "ipc", "feather")
    in_place: ClassVar[bool] = True

    @classmethod
    def open(cls, files: list[Path], request: Request) -> Source:
        return open_arrow_like(files, request, ARROW, arrow_classes)
