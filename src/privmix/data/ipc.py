"""Arrow IPC files and streams, and folders that Hugging Face's ``save_to_disk`` wrote; ``datasets`` is not needed."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.ipc as pa_ipc

from privmix.data.arrow_source import ArrowFormat, Described, class_names, open_arrow_like
from privmix.data.files import check_unpacked, decoding
from privmix.data.parquet import metadata_classes
from privmix.data.reader import READERS, Reader, Request
from privmix.data.source import Source
from privmix.errors import InvalidInput, StorageError
from privmix.untrusted import parse_json

FILE_MAGIC: Final = b"ARROW1"
# In a file, a stream begins after the magic word and two bytes of padding.
_STREAM_START: Final = 8
_HEADER, _LENGTH, _BUFFERS, _COMPRESSION, _DATA = 2, 0, 2, 3, 1
_BUFFER: Final = struct.Struct("<qq")


def scan(path: Path) -> tuple[list[int], int]:
    """Numbers of records of the batches, and bytes that all their buffers have once they are unpacked; memory-mapped.

    Raises:
        Exception: whatever damaged headers lead to; the caller translates.
    """
    records: list[int] = []
    unpacked = 0
    with pa.memory_map(str(path)) as file:
        if file.read(len(FILE_MAGIC)) == FILE_MAGIC:
            file.seek(_STREAM_START)
        else:
            file.seek(0)
        reader = pa_ipc.MessageReader.open_stream(file)
        while True:
            try:
                message = reader.read_next_message()
            except StopIteration:
                return records, unpacked
            if message.type not in ("record batch", "dictionary"):
                continue
            header = _Table.root(message.metadata.to_pybytes()).table(_HEADER)
            if message.type == "dictionary":
                header = header.table(_DATA)
            else:
                rows = header.integer(_LENGTH)
                if rows < 0:
                    raise ValueError("a negative number of records")
                records.append(rows)
            unpacked += _unpacked(header, message.body)


def _unpacked(batch: _Table, body: Any) -> int:
    """Bytes of a batch's buffers; packed ones begin with that number, or with -1 where packing did not pay."""
    total = 0
    for offset, length in batch.pairs(_BUFFERS):
        size = length
        if batch.has(_COMPRESSION) and length > 0:
            # Only these eight bytes of the records' own are looked at.
            (announced,) = struct.unpack("<q", body.slice(offset, 8).to_pybytes())
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

    def table(self, field: int) -> _Table:
        return _Table(self._content, self._target(field))

    def pairs(self, field: int) -> list[tuple[int, int]]:
        if not self.has(field):
            return []
        start = self._target(field)
        (count,) = struct.unpack_from("<I", self._content, start)
        end = start + 4 + count * _BUFFER.size
        return list(_BUFFER.iter_unpack(self._content[start + 4 : end]))

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
    return Described(_plain(schema), sum(batches), list(enumerate(batches)))


def _blocks(path: Path, columns: list[str], size: int, place: int) -> Iterator[Any]:
    for batch in _batches(path, columns, place):
        # Offsets in a damaged file would otherwise lead outside of its memory.
        batch.validate(full=True)
        for start in range(0, batch.num_rows, size):
            part = batch.slice(start, size)
            yield pa.record_batch([_storage(part.column(name)) for name in columns], names=columns)


ARROW: Final = ArrowFormat("an Arrow IPC file or stream", _describe, _blocks)


def arrow_classes(path: Path, label_column: str) -> tuple[str, ...] | None:
    """Class names from the schema's metadata, as for Parquet."""
    with decoding(path, ARROW.kind):
        metadata = _read_schema(path).metadata
    return metadata_classes(path, metadata, label_column)


def is_saved_dataset(folder: Path) -> bool:
    """Whether ``datasets`` saved one split here."""
    return (folder / _STATE).is_file()


def saved_splits(folder: Path) -> list[str] | None:
    """Names of the sub-folders, one a split, where ``datasets`` saved several; else None.

    Raises:
        InvalidInput: the list of splits is damaged.
        StorageError: it cannot be read.
    """
    path = folder / _SPLITS
    if not path.is_file():
        return None
    splits = _read_object(path).get("splits")
    if not isinstance(splits, list) or not all(map(_is_plain_name, splits)):
        raise InvalidInput(str(path), "something else", "a list of the names of splits")
    return splits


def saved_files(folder: Path) -> list[Path]:
    """The Arrow files of one saved split, in its own order.

    Raises:
        InvalidInput: the list of files is damaged.
        StorageError: a file is missing or cannot be read.
    """
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
    """Class names of the label's ClassLabel feature in dataset_info.json, if it is one.

    Raises:
        InvalidInput: the description is damaged.
        StorageError: it cannot be read.
    """
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
    with pa.memory_map(str(path)) as file, _open(file) as reader:
        return reader.schema


def _batches(path: Path, columns: list[str], first: int) -> Iterator[Any]:
    """Record batches, from batch ``first`` on, with at least the columns named; memory-mapped, so pages come and go."""
    schema = _read_schema(path)
    options = pa_ipc.IpcReadOptions(
        use_threads=False, included_fields=sorted({schema.get_field_index(name) for name in columns})
    )
    with pa.memory_map(str(path)) as file, _open(file, options) as reader:
        if isinstance(reader, pa_ipc.RecordBatchFileReader):
            for place in range(first, reader.num_record_batches):
                yield reader.get_batch(place)
        else:
            # Of what is passed over nothing but the headers is read, unless it is packed.
            yield from islice(reader, first, None)


def _open(file: Any, options: Any = None) -> Any:
    magic = file.read(len(FILE_MAGIC))
    file.seek(0)
    return (pa_ipc.open_file if magic == FILE_MAGIC else pa_ipc.open_stream)(file, options=options)


def _plain(schema: Any) -> Any:
    """The schema with extension types (``datasets`` registers some where it is imported) replaced by their storage."""
    return pa.schema([(field.name, _storage_type(field.type)) for field in schema])


def _storage_type(kind: Any) -> Any:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _storage(column: Any) -> Any:
    return column.storage if isinstance(column.type, pa.BaseExtensionType) else column


@READERS.register
class Arrow(Reader):
    """Arrow's files and streams, Feather among them."""

    name: ClassVar[str] = "arrow"
    words: ClassVar[str] = "Arrow"
    endings: ClassVar[str] = ".arrow, .feather"
    suffixes: ClassVar[tuple[str, ...]] = ("arrow", "feather")

    @classmethod
    def open(cls, files: list[Path], request: Request) -> Source:
        return open_arrow_like(files, request, ARROW, arrow_classes)
