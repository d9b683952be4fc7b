"""Pictures of a model inversion: originals above what an attack recovered of them."""

import base64
import binascii
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from privmix.errors import InvalidInput
from privmix.reports.blocks import Pictures
from privmix.reports.pictures import new_figure, save_figure
from privmix.reports.records import RecordFields

_PIXEL = np.dtype(np.uint8)


def draw_inversion(record: Mapping[str, Any], path: Path) -> None:
    """Draw the pictures of a record: one row for the originals of each degree, one for each budget."""
    pictures = unpack_images(record["images"])
    rows, columns = pictures.shape[:2]
    labels = list(record["images"]["row_labels"])
    similar = _similarities(record, labels)
    figure = new_figure(2.6 + 0.62 * columns, 0.5 + 0.66 * rows)
    grid = figure.subplots(rows, columns, squeeze=False)
    for (row, column), axes in np.ndenumerate(grid):
        axes.imshow(pictures[row, column], cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        axes.set_xticks([])
        axes.set_yticks([])
        # A rule above each degree's originals keeps its rows together.
        for name, spine in axes.spines.items():
            spine.set_visible(name == "top" and "raw" in labels[row])
            spine.set_linewidth(2)
        if column == 0:
            text = labels[row] + (f"\nSSIM {similar[row]:.2f}" if row in similar else "")
            axes.set_ylabel(text, rotation=0, ha="right", va="center", fontsize=9)
    figure.suptitle("Images recovered by an inversion of released rows", fontsize=10)
    save_figure(figure, path)


def unpack_images(images: Mapping[str, Any]) -> NDArray[np.uint8]:
    """(rows, columns, height, width) or (..., 3) uint8 pictures from their stored form."""
    shape = tuple(images["shape"])
    content = base64.b64decode(images["uint8"], validate=True)
    if len(shape) not in (4, 5) or len(content) != math.prod(shape):
        raise InvalidInput("images", f"{len(content)} bytes", f"{math.prod(shape)} bytes, as their shape implies")
    return np.frombuffer(content, _PIXEL).reshape(shape)


def _similarities(record: Mapping[str, Any], labels: list[str]) -> dict[int, float]:
    """Structural similarity by row of pictures: cases follow each other as the rows without originals do."""
    recovered = [row for row, label in enumerate(labels) if "raw" not in label]
    return {row: case["ssim"] for row, case in zip(recovered, record["cases"], strict=True)}


# Limit for all images of one record.
_MOST_VALUES: Final = 4_000_000


def stored_images(pixels: NDArray[np.uint8], rows: Sequence[str], columns: Sequence[str]) -> Mapping[str, Any]:
    """Return (rows, columns, H, W) or (rows, columns, H, W, 3) images as JSON values."""
    return {
        "shape": list(pixels.shape),
        "uint8": base64.b64encode(np.ascontiguousarray(pixels).tobytes()).decode(),
        "row_labels": list(rows),
        "column_labels": list(columns),
    }


def pictures_of(images: RecordFields, caption: str) -> list[Pictures]:
    """Return the grid of :func:`stored_images`; none where it does not fit."""
    pixels = _pixels(images)
    if pixels is None:
        return []
    rows, columns = _labels(images, "row_labels", pixels.shape[0]), _labels(images, "column_labels", pixels.shape[1])
    grid = [
        (row, [(_data_uri(cell), f"{row}, {name}") for name, cell in zip(columns, line, strict=True)])
        for row, line in zip(rows, pixels, strict=True)
    ]
    return [Pictures(caption, columns, grid)]


def _data_uri(pixels: NDArray[np.uint8]) -> str:
    """(H, W) or (H, W, 3) as the address of a PNG that holds it."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def _pixels(images: RecordFields) -> NDArray[np.uint8] | None:
    """Return the bytes; None where they don't fit the shape."""
    shape = [int(size) for size in images.series("shape")]
    if len(shape) not in (4, 5) or min(shape) < 1 or math.prod(shape) > _MOST_VALUES or (shape[4:] or [3]) != [3]:
        return None
    try:
        return np.frombuffer(base64.b64decode(images.text("uint8"), validate=True), np.uint8).reshape(shape)
    except (ValueError, binascii.Error):
        return None


def _labels(images: RecordFields, name: str, count: int) -> list[str]:
    given = list(images.texts(name))
    return given if len(given) == count else [str(number + 1) for number in range(count)]
