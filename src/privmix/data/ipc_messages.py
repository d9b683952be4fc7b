"""How many records an Arrow IPC file holds, and how large they become, from its messages' headers alone.

The layout is Arrow's Message.fbs (Apache Arrow columnar format, version 1.4): a FlatBuffers table a message. pyarrow
itself gives the number only with the records, unpacked.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.ipc as pa_ipc

FILE_MAGIC: Final = b"ARROW1"
# In a file, a stream begins after the magic word and two bytes of padding.
_STREAM_START: Final = 8
_HEADER, _LENGTH, _BUFFERS, _COMPRESSION, _DATA = 2, 0, 2, 3, 1
_BUFFER: Final = struct.Struct("<qq")


def scan(path: Path) -> tuple[int, int]:
    """Number of records, and of bytes that all their buffers have once they are unpacked; memory-mapped.

    Raises:
        Exception: whatever damaged headers lead to; the caller translates.
    """
    records = unpacked = 0
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
                records += rows
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
