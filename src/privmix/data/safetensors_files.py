"""safetensors files with tensors x and y, read in slices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from privmix.data.arrow_source import name_list
from privmix.data.files import decoding
from privmix.data.manifest import Manifest
from privmix.data.memory import plain
from privmix.data.reader import READERS, Reader, Request, refuse_columns, refuse_images
from privmix.data.shards import joined, named_arrays
from privmix.data.source import MAX_RECORD_VALUES, NO_LABELS, Source, array_schema, resolve_classes
from privmix.errors import InvalidInput
from privmix.untrusted import parse_json

_KIND: Final = "a safetensors file"
_TYPES: Final = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "u2",
    "I16": "i2",
    "U32": "u4",
    "I32": "i4",
    "U64": "u8",
    "I64": "i8",
    "F16": "f2",
    # Widened: NumPy has none.
    "BF16": "f4",
    "F32": "f4",
    "F64": "f8",
}
PIECE_VALUES: Final = 2**24


class SafetensorsSource(Source):
    """Tensors ``x`` and ``y`` of a file, or ``x_train`` and ``y_train`` (``x_test``, ...) for a split."""

    def __init__(self, path: Path, split: str, classes: tuple[str, ...], labelled: bool = True) -> None:
        self._path = path
        with decoding(path, _KIND), safe_open(path, framework="numpy") as file:
            self._names = named_arrays(path, file.keys(), split, labelled, "tensor")
            (x_shape, x_type), *labels = (_header(file, name) for name in self._names)
            narrow = any(file.get_slice(name).get_dtype() == "BF16" for name in self._names)
            self._framework = "pt" if narrow else "numpy"
        self._schema = array_schema(x_shape, x_type, labels[0][0] if labels else None, classes)

    travels = True

    def manifest(self) -> Manifest:
        return Manifest.of([(0, self._schema.records)], file=self._path, anywhere=True)

    def _chunks(self, first: int, stop: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        step = min(size, max(1, PIECE_VALUES // math.prod(self._schema.input_shape)))
        for start in range(first, self._schema.records, step):
            part = slice(start, min(start + step, self._schema.records))
            # Opened again for each slice: the pages of a long-lived map would all count as ours.
            with decoding(self._path, _KIND), safe_open(self._path, framework=self._framework) as file:
                x, *labels = (plain(file.get_slice(name)[part], name) for name in self._names)
            yield x, labels[0].reshape(-1) if labels else NO_LABELS


def safetensors_classes(path: Path) -> tuple[str, ...] | None:
    """Class names under the metadata key ``classes``, a JSON list."""
    with decoding(path, _KIND), safe_open(path, framework="numpy") as file:
        metadata = file.metadata() or {}
    if "classes" not in metadata:
        return None
    with decoding(path, "a JSON list of class names in its metadata"):
        return name_list(parse_json(metadata["classes"], str(path)))


def _header(file: Any, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    tensor = file.get_slice(name)
    shape, kind = tuple(tensor.get_shape()), str(tensor.get_dtype())
    if kind not in _TYPES:
        raise InvalidInput(f"type of {name}", kind, "one of " + ", ".join(_TYPES))
    if math.prod(shape[1:]) > MAX_RECORD_VALUES:
        raise InvalidInput(f"shape of {name}", shape, f"records of at most {MAX_RECORD_VALUES} values")
    return shape, np.dtype(_TYPES[kind])


@READERS.register
class Safetensors(Reader):
    """Tensors x and y."""

    name: ClassVar[str] = "safetensors"
    words: ClassVar[str] = "safetensors"
    endings: ClassVar[str] = ".safetensors"
    suffixes: ClassVar[tuple[str, ...]] = ("safetensors",)

    @classmethod
    def open(cls, files: list[Path], request: Request) -> Source:
        refuse_columns(request, ".safetensors")
        refuse_images(request)
        classes = resolve_classes(request.classes, safetensors_classes(files[0]) if request.classes is None else None)
        labelled = request.selection.labelled
        return joined([SafetensorsSource(file, request.split, classes, labelled) for file in files])

    @classmethod
    def holds_split(cls, file: Path, split: str) -> bool:
        with decoding(file, _KIND), safe_open(file, framework="numpy") as content:
            return f"x_{split}" in content.keys()  # noqa: SIM118 - it is no dictionary
