"""Small images in records and on pages: raw bytes in JSON, PNG in HTML."""

from __future__ import annotations

import base64
import binascii
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from privmix.reports.blocks import Pictures
from privmix.reports.fields import RecordFields

MOST_VALUES: Final = 4_000_000
"""Limit for all images of one record."""
_LARGEST_SIDE: Final = 96


def stored_images(pixels: NDArray[np.uint8], rows: Sequence[str], columns: Sequence[str]) -> Mapping[str, Any]:
    """Return (rows, columns, H, W) or (rows, columns, H, W, 3) images as JSON values."""
    return {
        "shape": list(pixels.shape),
        "uint8": base64.b64encode(np.ascontiguousarray(pixels).tobytes()).decode(),
        "row_labels": list(rows),
        "column_labels": list(columns),
    }


def side_for(classes: int) -> int:
    """Side of images that fit into a record: two a class."""
    return max(1, min(_LARGEST_SIDE, math.isqrt(MOST_VALUES // (6 * classes))))


def small_image(image: NDArray[np.float32], side: int) -> NDArray[np.uint8]:
    """(H, W), (H, W, 1) or (H, W, 3) in [0, 1] as bytes of (h, w) or (h, w, 3), no side longer than ``side``."""
    step = -(-max(image.shape[:2]) // side)
    height, width = (-(-length // step) for length in image.shape[:2])
    room = [(0, height * step - image.shape[0]), (0, width * step - image.shape[1]), *[(0, 0)] * (image.ndim - 2)]
    means = np.pad(image, room, mode="edge").reshape(height, step, width, step, -1).mean(axis=(1, 3))
    return np.asarray(np.rint(255 * (means if means.shape[2] == 3 else means[..., 0])), np.uint8)


def pictures_of(images: RecordFields, caption: str, at_once: int | None = None) -> list[Pictures]:
    """Return the grid of :func:`stored_images` in pieces of ``at_once`` columns; none where it does not fit."""
    pixels = _pixels(images)
    if pixels is None:
        return []
    rows, columns = _labels(images, "row_labels", pixels.shape[0]), _labels(images, "column_labels", pixels.shape[1])
    width = at_once or len(columns)
    found = []
    for start in range(0, len(columns), width):
        names = columns[start : start + width]
        grid = [
            (row, [(data_uri(cell), f"{row}, {name}") for name, cell in zip(names, line[start:], strict=False)])
            for row, line in zip(rows, pixels, strict=True)
        ]
        found.append(Pictures(caption, names, grid))
    return found


def data_uri(pixels: NDArray[np.uint8]) -> str:
    """(H, W) or (H, W, 3) as the address of a PNG that holds it."""
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode()


def png(pixels: NDArray[np.uint8]) -> bytes:
    """(H, W) or (H, W, 3) as PNG."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _pixels(images: RecordFields) -> NDArray[np.uint8] | None:
    """Return the bytes; None where they don't fit the shape."""
    shape = [int(size) for size in images.series("shape")]
    if len(shape) not in (4, 5) or min(shape) < 1 or math.prod(shape) > MOST_VALUES or (shape[4:] or [3]) != [3]:
        return None
    try:
        return np.frombuffer(base64.b64decode(images.text("uint8"), validate=True), np.uint8).reshape(shape)
    except (ValueError, binascii.Error):
        return None


def _labels(images: RecordFields, name: str, count: int) -> list[str]:
    given = list(images.texts(name))
    return given if len(given) == count else [str(number + 1) for number in range(count)]
