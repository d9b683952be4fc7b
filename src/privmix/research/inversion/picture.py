"""Pictures of a model inversion: originals above what an attack recovered of them."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.reports.pictures import new_figure, save_figure

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
