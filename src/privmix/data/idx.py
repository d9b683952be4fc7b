"""The idx format of MNIST: big-endian header, then the values; plain or gzipped."""
# Bytes: 0, 0, type code, number of axes n, then n unsigned 32-bit lengths, then the array in C order.

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.files import check_unpacked, is_zipped, open_binary, reading
from privmix.data.manifest import Manifest
from privmix.data.reader import READERS, Reader, Request
from privmix.data.source import NO_LABELS, Source, array_schema, resolve_classes
from privmix.errors import WITHHELD, InvalidInput, StorageError

_TYPES: Final = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_PIECE_BYTES: Final = 2**26
_MNIST_CLASSES: Final = tuple(map(str, range(10)))


@dataclass(frozen=True)
class IdxHeader:
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def header_bytes(self) -> int:
        return 4 + 4 * len(self.shape)


class IdxSource(Source):
    """A pair of idx files: inputs (two axes or more) and labels (one axis; None: absent or not read)."""

    def __init__(self, inputs: Path, labels: Path | None, classes: tuple[str, ...]) -> None:
        self._files = [(path, read_idx_header(path)) for path in (inputs, labels) if path is not None]
        (_, x_header), *rest = self._files
        self._schema = array_schema(x_header.shape, x_header.dtype, rest[0][1].shape if rest else None, classes)
        for path, header in self._files:
            # Before memory is asked for.
            check_unpacked(path, math.prod(header.shape) * header.dtype.itemsize, path.stat().st_size)

    travels = True

    def manifest(self) -> Manifest:
        """Return a manifest in which a reader can begin anywhere, unless a file is packed."""
        path, _ = self._files[0]
        return Manifest.of([(0, self._schema.records)], file=path, anywhere=not is_zipped(path))

    def _chunks(self, first: int, stop: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        step = min(size, max(1, _PIECE_BYTES // _record_bytes(self._files[0][1])))
        xs, *labels = (_read_records(path, header, step, first) for path, header in self._files)
        return zip(xs, labels[0], strict=True) if labels else ((x, NO_LABELS) for x in xs)


def read_idx_header(path: Path) -> IdxHeader:
    with reading(path, "an idx file"), open_binary(path) as stream:
        start = stream.read(4)
        if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in _TYPES or start[3] == 0:
            raise InvalidInput(
                str(path), WITHHELD, "an idx file, which begins with two zero bytes, a type code and the number of axes"
            )
        # The number of axes is a single byte, so a forged header asks for at most 1,020 bytes here.
        lengths = stream.read(4 * start[3])
        if len(lengths) < 4 * start[3]:
            raise InvalidInput(str(path), "a truncated header", f"the lengths of {start[3]} axes")
        return IdxHeader(np.dtype(_TYPES[start[2]]), struct.unpack(f">{start[3]}I", lengths))


def _read_records(path: Path, header: IdxHeader, step: int, first: int = 0) -> Iterator[NDArray[Any]]:
    count, size = header.shape[0], _record_bytes(header)
    with reading(path, "an idx file"), open_binary(path) as stream:
        place = header.header_bytes + first * size
        if not is_zipped(path):
            stream.seek(place)
        while place > stream.tell() and stream.read(min(_PIECE_BYTES, place - stream.tell())):
            pass
        for start in range(first, count, step):
            wanted = min(step, count - start) * size
            values = stream.read(wanted)
            if len(values) < wanted:
                allowed = f"{header.header_bytes + count * size} bytes, as in its header: the file is truncated"
                raise InvalidInput(str(path), WITHHELD, allowed)
            array = np.frombuffer(values, dtype=header.dtype).reshape(-1, *header.shape[1:])
            # Values in the file are big-endian, and torch takes arrays of the native byte order only.
            yield array.astype(header.dtype.newbyteorder("="))
        # A longer file suggests a wrong header, by which records would be cut at wrong places.
        if stream.read(1):
            allowed = f"{header.header_bytes + count * size} bytes, as in its header: the file is longer"
            raise InvalidInput(str(path), WITHHELD, allowed)


def _record_bytes(header: IdxHeader) -> int:
    return math.prod(header.shape[1:]) * header.dtype.itemsize


@READERS.register
class Idx(Reader):
    name: ClassVar[str] = "idx"
    words: ClassVar[str] = "idx"
    endings: ClassVar[str] = "idx"
    in_place: ClassVar[bool] = True

    @classmethod
    def claims(cls, name: str) -> bool:
        plain = name.removesuffix(".gz")
        return any(mark in plain for mark in ("-idx", ".idx"))

    @classmethod
    def open(cls, files: list[Path], request: Request) -> Source:
        request.selection.check_unnamed("idx")
        request.selection.check_kind("arrays")
        inputs = [file for file in files if "images" in file.name] or files
        if len(inputs) > 1:
            raise InvalidInput(
                "data", str(inputs[0].parent), "one idx file of images for each split, with images in its name"
            )
        # A list read from the labels would reveal which classes occur; these file names imply ten digits.
        public = _MNIST_CLASSES if inputs[0].name.startswith(("train-images-idx3", "t10k-images-idx3")) else None
        if not request.selection.labelled:
            return IdxSource(inputs[0], None, resolve_classes(request.classes, public))
        candidates = cls.companions(inputs[0])
        existing = [file for file in candidates if file.is_file() and file != inputs[0]]
        if not existing:
            raise StorageError(f"{candidates[0]}: no such file. It should hold the labels of {inputs[0].name}")
        return IdxSource(inputs[0], existing[0], resolve_classes(request.classes, public))

    @classmethod
    def companions(cls, file: Path) -> list[Path]:
        labels = file.with_name(file.name.replace("images", "labels").replace("idx3", "idx1"))
        return [labels, labels.with_suffix("") if labels.suffix == ".gz" else labels.with_name(labels.name + ".gz")]
