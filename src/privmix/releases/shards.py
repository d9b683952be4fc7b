"""Files of a release, Parquet and safetensors, whose every byte follows from the released numbers.

One form: columns ``x`` and ``y`` of fixed-size lists of float32, one row group, plain pages of about one mebibyte, no
compression. The only metadata is the Arrow schema, with any names of features and classes. All other bytes follow from
the number of rows, the widths and these names: reading compares them and takes values from known places. No parser of
the format reads a stranger's file. pandas, Polars, pyarrow and Hugging Face read shards.

The layout is that of Apache Parquet (format 2.6; metadata in Thrift's compact protocol).
"""

import base64
import hashlib
import json
import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.untrusted import open_plain

# Keys and texts.
Told = tuple[tuple[str, str], ...]

_MAGIC: Final = b"PAR1"
_MAKER: Final = b"privmix"
# Values a page; readers hold a page at a time.
_PAGE_VALUES: Final = 2**18
# Apache Arrow's serialised schema {x: fixed_size_list<float>, y: fixed_size_list<float>}: what makes readers give
# arrays of one width and not lists of any. The widths, zero here, are two little-endian integers.
_ARROW_SCHEMA: Final = base64.b64decode(
    "/////wABAAAQAAAAAAAKAAwABgAFAAgACgAAAAABBAAMAAAACAAIAAAABAAIAAAABAAAAAIAAABgAAAABAAAAHj///8AAAEQFAAAABgAAAAEAAAA"
    "AQAAABQAAAABAAAAeQAAAKr///8AAAAApP///wAAAQMQAAAAGAAAAAQAAAAAAAAABAAAAGl0ZW0AAAAAlv///wAAAQDQ////AAABEBQAAAAcAAAA"
    "BAAAAAEAAAAoAAAAAQAAAHgABgAIAAQABgAAAAAAAAAQABQACAAGAAcADAAAABAAEAAAAAAAAQMQAAAAHAAAAAQAAAAAAAAABAAAAGl0ZW0AAAYA"
    "CAAGAAYAAAAAAAEA"
)
_WIDTH_OF_X, _WIDTH_OF_Y = 196, 104
# Thrift's compact protocol: kinds of fields.
_I32, _I64, _BYTES, _LIST, _STRUCT = 5, 6, 8, 9, 12
# Parquet's numbers: type FLOAT, repetition, converted type LIST, encodings.
_FLOAT, _OPTIONAL, _REPEATED, _LISTS, _PLAIN, _RLE = 4, 1, 2, 3, 0, 3


@dataclass(frozen=True)
class Values:
    """Place of values in a shard: rows ``start`` to ``stop`` of column "x" or "y", ``width`` values a row."""

    column: str
    start: int
    stop: int
    width: int


@dataclass(frozen=True)
class ShardForm:
    """The one form of a shard of ``rows`` rows.

    Formal guarantees:
        * One form: shards of equal form differ in their values alone; any other byte, more or fewer of them included,
          is refused.
        * Bounded: nothing is read or allocated before the file's size is the form's, and then a page at a time.
    """

    # dim, classes: widths of x and y; told: metadata of the schema: names, mostly empty.

    rows: int
    dim: int
    classes: int
    told: Told = ()

    @property
    def size(self) -> int:
        return len(_MAGIC) + self._chunk_size(self.dim) + self._chunk_size(self.classes) + len(self._footer())

    @property
    def words(self) -> str:
        return f"a shard of {self.rows} rows as privmix writes it, {self.dim} values x and {self.classes} values y each"

    def check_size(self, found: int, name: str) -> None:
        """Raise :class:`InvalidInput` unless a file of ``found`` bytes can be of this form."""
        # The values first: the size of the rest is then computed only for a file that is large enough.
        if found < 4 * self.rows * (self.dim + self.classes) or found != self.size:
            raise InvalidInput(name, f"a file of {found} bytes", self.words)

    def pieces(self) -> Iterator[bytes | Values]:
        """Yield the file from first byte to last: bytes that every shard of this form shares, and values."""
        yield _MAGIC
        for name, width in (("x", self.dim), ("y", self.classes)):
            for start, stop, head in self._pages(width):
                yield head
                yield Values(name, start, stop, width)
        yield self._footer()

    def _pages(self, width: int) -> Iterator[tuple[int, int, bytes]]:
        step, head = _rows_a_page(width), b""
        for start in range(0, self.rows, step):
            stop = min(start + step, self.rows)
            # All full pages share one head: it is made once.
            if not head or stop - start < step:
                head = _page_head(stop - start, width)
            yield start, stop, head

    def _chunk_size(self, width: int) -> int:
        step = _rows_a_page(width)
        full, rest = divmod(self.rows, step)
        heads = full * len(_page_head(step, width)) if full else 0
        return heads + (len(_page_head(rest, width)) if rest else 0) + 4 * self.rows * width

    def _footer(self) -> bytes:
        x, y = self._chunk_size(self.dim), self._chunk_size(self.classes)
        chunks = [
            _chunk(b"x", self.rows * self.dim, len(_MAGIC), x),
            _chunk(b"y", self.rows * self.classes, len(_MAGIC) + x, y),
        ]
        schema = [_struct((4, _BYTES, b"schema"), (5, _I32, 2)), *_list_column(b"x"), *_list_column(b"y")]
        arrow = bytearray(_ARROW_SCHEMA)
        struct.pack_into("<i", arrow, _WIDTH_OF_X, self.dim)
        struct.pack_into("<i", arrow, _WIDTH_OF_Y, self.classes)
        told = [_entry(key.encode(), text.encode()) for key, text in self.told]
        meta = _struct(
            (1, _I32, 2),
            (2, _LIST, (_STRUCT, schema)),
            (3, _I64, self.rows),
            (4, _LIST, (_STRUCT, [_struct((1, _LIST, (_STRUCT, chunks)), (2, _I64, x + y), (3, _I64, self.rows))])),
            (5, _LIST, (_STRUCT, [_entry(b"ARROW:schema", base64.b64encode(arrow)), *told])),
            (6, _BYTES, _MAKER),
        )
        return meta + struct.pack("<I", len(meta)) + _MAGIC


def write_shard(stream: IO[bytes], x: NDArray[np.float32], y: NDArray[np.float32], told: Told = ()) -> str:
    """Write rows ``x`` (rows, d) and ``y`` (rows, K) as one shard; returns the SHA-256 of its bytes."""
    hasher = hashlib.sha256()
    columns = {"x": np.ascontiguousarray(x, np.float32), "y": np.ascontiguousarray(y, np.float32)}
    for piece in ShardForm(len(x), x.shape[1], y.shape[1], told).pieces():
        content = piece if isinstance(piece, bytes) else columns[piece.column][piece.start : piece.stop].data.cast("B")
        stream.write(content)
        hasher.update(content)
    return hasher.hexdigest()


def read_shard(
    stream: IO[bytes], form: ShardForm, name: str, seen: Callable[[Any], object]
) -> Iterator[tuple[Values, NDArray[np.float32]]]:
    """Read a shard of a known form; yield places and values (rows, width), a page at a time."""
    # stream: a regular file at its start, of open_plain; seen: gets all bytes in order, before the values are yielded.
    allowed = form.words
    form.check_size(os.fstat(stream.fileno()).st_size, name)
    for piece in form.pieces():
        if isinstance(piece, bytes):
            if stream.read(len(piece)) != piece:
                raise InvalidInput(name, "other bytes around its values", allowed)
            seen(piece)
            continue
        values = np.empty((piece.stop - piece.start, piece.width), np.float32)
        if stream.readinto(values.data.cast("B")) != values.nbytes:  # type: ignore[attr-defined]
            raise InvalidInput(name, "a file cut short", allowed)
        seen(values.data.cast("B"))
        yield piece, values
    # The size was checked, but a file can grow while it is read.
    if stream.read(1):
        raise InvalidInput(name, "more bytes", allowed)


def _rows_a_page(width: int) -> int:
    return max(1, _PAGE_VALUES // width)


def _page_head(rows: int, width: int) -> bytes:
    """Bytes before the values of a page: its header, and which row each value belongs to."""
    values = rows * width
    # A row begins at repetition level 0 and goes on at 1; no list and no value is missing (definition level 3).
    repetition = _run(rows, 0) if width == 1 else (_run(1, 0) + _run(width - 1, 1)) * rows
    levels = b"".join(struct.pack("<I", len(runs)) + runs for runs in (repetition, _run(values, 3)))
    size = len(levels) + 4 * values
    data = _struct((1, _I32, values), (2, _I32, _PLAIN), (3, _I32, _RLE), (4, _I32, _RLE))
    return _struct((1, _I32, 0), (2, _I32, size), (3, _I32, size), (5, _STRUCT, data)) + levels


def _run(length: int, level: int) -> bytes:
    """Repeat the same level, in Parquet's run-length encoding."""
    return _varint(length << 1) + bytes([level])


def _entry(key: bytes, value: bytes) -> bytes:
    return _struct((1, _BYTES, key), (2, _BYTES, value))


def _list_column(name: bytes) -> list[bytes]:
    """Return the schema of a column of lists: the column, its list, the element."""
    logical = _struct((3, _STRUCT, _struct()))
    return [
        _struct((3, _I32, _OPTIONAL), (4, _BYTES, name), (5, _I32, 1), (6, _I32, _LISTS), (10, _STRUCT, logical)),
        _struct((3, _I32, _REPEATED), (4, _BYTES, b"list"), (5, _I32, 1)),
        _struct((1, _I32, _FLOAT), (3, _I32, _OPTIONAL), (4, _BYTES, b"element")),
    ]


def _chunk(name: bytes, values: int, offset: int, size: int) -> bytes:
    """Place of a column and how it is stored."""
    meta = _struct(
        (1, _I32, _FLOAT),
        (2, _LIST, (_I32, [_zigzag(_PLAIN), _zigzag(_RLE)])),
        (3, _LIST, (_BYTES, [_text(part) for part in (name, b"list", b"element")])),
        (4, _I32, 0),
        (5, _I64, values),
        (6, _I64, size),
        (7, _I64, size),
        (9, _I64, offset),
    )
    return _struct((2, _I64, offset), (3, _STRUCT, meta))


def _struct(*fields: tuple[int, int, Any]) -> bytes:
    """Thrift struct of (number, kind, value), numbers rising."""
    found, last = b"", 0
    for number, kind, value in fields:
        # The short form of a field header: numbers here rise by less than 16.
        found += bytes([(number - last) << 4 | kind])
        last = number
        if kind in (_I32, _I64):
            found += _zigzag(value)
        elif kind == _BYTES:
            found += _text(value)
        elif kind == _LIST:
            of, items = value
            # The short form of a list header holds at most 14 items: no list here is longer.
            found += bytes([len(items) << 4 | of]) + b"".join(items)
        else:
            found += value
    return found + b"\0"


def _text(value: bytes) -> bytes:
    return _varint(len(value)) + value


def _zigzag(value: int) -> bytes:
    # Zigzag of a number that is never negative.
    return _varint(value << 1)


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    found = bytearray()
    while value >= 128:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


Shapes = Mapping[str, tuple[int, ...]]


def arrays_bytes(arrays: Mapping[str, NDArray[np.float32]]) -> bytes:
    """Return the one file of these arrays, byte for byte what the safetensors package writes."""
    head = _head({name: array.shape for name, array in arrays.items()})
    return head + b"".join(np.ascontiguousarray(arrays[name], np.float32).tobytes() for name in sorted(arrays))


def read_arrays(path: Path, name: str, shapes: Shapes) -> tuple[dict[str, NDArray[np.float32]], str]:
    """Read a file of float32 arrays of known names and shapes; return them and the file's SHA-256.

    Formal guarantees:
        * One form: any other byte, more or fewer of them included, is refused.
        * Bounded: nothing is allocated before the file's size is that of the shapes.
        * Once: the file is opened and read once; the hash is that of the bytes which the values came from.
    """
    allowed = "float32 arrays " + ", ".join(f"{key} {shapes[key]}" for key in sorted(shapes)) + ", and nothing else"
    head = _head(shapes)
    found: dict[str, NDArray[np.float32]] = {}
    hasher = hashlib.sha256(head)
    with open_plain(path, name) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size != len(head) + sum(4 * math.prod(shape) for shape in shapes.values()):
            raise InvalidInput(name, f"a file of {size} bytes", allowed)
        if stream.read(len(head)) != head:
            raise InvalidInput(name, "another header", allowed)
        for key in sorted(shapes):
            found[key] = np.empty(shapes[key], np.float32)
            if stream.readinto(found[key].data.cast("B")) != found[key].nbytes:  # type: ignore[attr-defined]
                raise InvalidInput(name, "a file cut short", allowed)
            hasher.update(found[key].data.cast("B"))
        if stream.read(1):
            raise InvalidInput(name, "more bytes", allowed)
    return found, hasher.hexdigest()


def _head(shapes: Shapes) -> bytes:
    entries: dict[str, Any] = {}
    end = 0
    # By name, as the safetensors package orders arrays of one type.
    for name in sorted(shapes):
        first, end = end, end + 4 * math.prod(shapes[name])
        entries[name] = {"dtype": "F32", "shape": list(shapes[name]), "data_offsets": [first, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    # The package pads its header so that arrays begin at a multiple of eight bytes.
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text
