"""Released arrays: safetensors files of float32 whose every byte but the values follows from names and shapes."""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.untrusted import open_plain

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
    for name in sorted(shapes):
        first, end = end, end + 4 * math.prod(shapes[name])
        entries[name] = {"dtype": "F32", "shape": list(shapes[name]), "data_offsets": [first, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text
