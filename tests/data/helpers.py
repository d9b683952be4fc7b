"""Small datasets on disk, one function a format."""

from __future__ import annotations

import gzip
import io
import struct
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from PIL import Image

IDX_CODES = {"uint8": 0x08, "int8": 0x09, "int16": 0x0B, "int32": 0x0C, "float32": 0x0D, "float64": 0x0E}


def idx_bytes(array: NDArray[Any]) -> bytes:
    header = struct.pack(">BBBB", 0, 0, IDX_CODES[array.dtype.name], array.ndim)
    lengths = struct.pack(f">{array.ndim}I", *array.shape)
    return header + lengths + array.astype(array.dtype.newbyteorder(">")).tobytes()


def write_mnist(folder: Path, prefix: str, x: NDArray[Any], y: NDArray[Any], zipped: bool = True) -> None:
    for name, array in ((f"{prefix}-images-idx3-ubyte", x), (f"{prefix}-labels-idx1-ubyte", y)):
        content = idx_bytes(array)
        (folder / (name + ".gz" * zipped)).write_bytes(gzip.compress(content) if zipped else content)


def png(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, format="PNG")
    return buffer.getvalue()
