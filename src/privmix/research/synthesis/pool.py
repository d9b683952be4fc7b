"""A pool of synthetic images as a folder: images that other commands read as a dataset, a card, and two pictures."""

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from privmix.data.overlap import CARD, IMAGES
from privmix.folders import FolderKind

POOL: Final = FolderKind("out", "a pool of synthetic images", frozenset({CARD, IMAGES}))

WARNINGS: Final = (
    "Made from images that were called public: these may be copied in parts or whole, and nothing protects them.",
    "If they are public, no private record was seen and nothing here costs privacy.",
)
_COLUMNS: Final = 20
_GAP: Final = 2


def write_pool(
    path: Path,
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    classes: Sequence[str],
    card: Mapping[str, Any],
    pictures: Mapping[str, NDArray[np.uint8]],
    *,
    overwrite: bool = False,
) -> None:
    """Write a pool of images (n, H, W) or (n, H, W, C); the folder appears whole or not at all."""
    with POOL.new(path, overwrite=overwrite) as draft:
        with draft.new(IMAGES, shared=True) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, array in (("x", images), ("y", labels.astype(np.int64)), ("classes", np.array(classes))):
                held = io.BytesIO()
                np.lib.format.write_array(held, array, allow_pickle=False)
                # Without the time of day: the same images give the same bytes.
                archive.writestr(zipfile.ZipInfo(f"{name}.npy"), held.getvalue(), zipfile.ZIP_DEFLATED)
        for name, picture in pictures.items():
            with draft.new(name, shared=True) as stream:
                Image.fromarray(picture).save(stream, format=Path(name).suffix.removeprefix("."))
        draft.write(CARD, (json.dumps(card, indent=2, sort_keys=True) + "\n").encode(), shared=True)


def contact_sheet(images: NDArray[np.uint8], labels: NDArray[np.int64], classes: int) -> NDArray[np.uint8]:
    """Return the first images of every class, a class a row.

    Example:
        >>> contact_sheet(np.zeros((6, 8, 8), np.uint8), np.array([0, 1, 0, 1, 0, 0]), 2).shape
        (22, 42)
    """
    rows = [images[labels == label][:_COLUMNS] for label in range(classes)]
    return _grid([row for row in rows if len(row)])


def copies_sheet(
    synthetic: NDArray[np.uint8], training: NDArray[np.uint8], nearest: NDArray[np.int64], distance: NDArray[np.float64]
) -> NDArray[np.uint8]:
    """Return the synthetic images that lie nearest to training images; below each, the training image.

    Example:
        >>> some = np.zeros((3, 8, 8), np.uint8)
        >>> copies_sheet(some, some, np.array([0, 1, 2]), np.zeros(3)).shape
        (22, 32)
    """
    first = np.argsort(distance, kind="stable")[:_COLUMNS]
    return _grid([synthetic[first], training[nearest[first]]])


def _grid(rows: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    height, width = rows[0].shape[1:3]
    columns = max(len(row) for row in rows)
    size = len(rows) * (height + _GAP) + _GAP, columns * (width + _GAP) + _GAP
    sheet = np.full((*size, *rows[0].shape[3:]), 128, dtype=np.uint8)
    for at, row in enumerate(rows):
        for place, image in enumerate(row):
            top, left = _GAP + at * (height + _GAP), _GAP + place * (width + _GAP)
            sheet[top : top + height, left : left + width] = image
    return sheet
