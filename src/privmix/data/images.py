"""Decoding images, and folders of images by class."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from privmix.data.files import reading
from privmix.data.source import Schema, Source, resolve_classes
from privmix.errors import WITHHELD, InvalidInput, StorageError

IMAGE_SUFFIXES: Final = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp"})
_GREY_MODES: Final = frozenset({"1", "L"})
_COLOUR_MODES: Final = frozenset({"P", "RGB", "RGBA", "CMYK", "YCbCr", "LA", "PA"})


class ImageFolderSource(Source):
    """A folder with one sub-folder a class, each with PNG, JPEG, BMP or WebP images of one size.

    The sub-folders' names are the classes, in alphabetical order; names beginning with a dot are left out, and so are
    files with another suffix. Records go by class, then by file name. Images are grey (H, W) or colour (H, W, 3) as
    the header of the first one says; the others are converted to that.

    Args:
        folder: holds the sub-folders.
        classes: names or number declared by the caller; the sub-folders must be among them.
    """

    def __init__(self, folder: Path, classes: int | Sequence[str] | None) -> None:
        with reading(folder, "a folder of images"):
            found = sorted(entry.name for entry in class_folders(folder))
            names = resolve_classes(classes, found or None)
            for name in found:
                if name not in names:
                    raise InvalidInput(f"sub-folder of {folder}", name, "the declared classes, one sub-folder each")
            self._files = [
                (path, label)
                for label, name in enumerate(names)
                if (folder / name).is_dir()
                for path in sorted((folder / name).iterdir())
                if path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")
            ]
        if not self._files:
            raise InvalidInput(str(folder), "no image", f"files {', '.join(sorted(IMAGE_SUFFIXES))} by class")
        shape = image_shape(self._read(self._files[0][0]))
        self._schema = Schema(records=len(self._files), input_shape=shape, classes=names)

    @property
    def schema(self) -> Schema:
        """From the folder's listing and the header of the first image."""
        return self._schema

    def _chunks(self, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        for start in range(0, len(self._files), size):
            part = self._files[start : start + size]
            x = decode_images((self._read(path) for path, _ in part), self._schema.input_shape)
            yield x, np.array([label for _, label in part])

    def _read(self, path: Path) -> bytes:
        # The file's own name may be private (a patient's), so errors name its folder.
        with reading(path.parent, "images"):
            return path.read_bytes()


def class_folders(folder: Path) -> list[Path]:
    """Sub-folders that may be classes."""
    return [entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")]


def image_shape(encoded: bytes) -> tuple[int, ...]:
    """(H, W) or (H, W, 3), from an encoded image's header; no pixel is decoded.

    Raises:
        InvalidInput: not an image of 8 bits a channel.
    """
    with _decoding(), Image.open(io.BytesIO(encoded)) as image:
        if image.mode not in _GREY_MODES | _COLOUR_MODES:
            raise InvalidInput("image mode", image.mode, "grey or colour with 8 bits a channel")
        size = image.height, image.width
        return size if image.mode in _GREY_MODES else (*size, 3)


def decode_images(encoded: Iterator[bytes], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Decode images of one shape: (n, *shape) uint8.

    Raises:
        InvalidInput: an image is damaged or of another size; which one is not said.
    """
    mode = "L" if len(shape) == 2 else "RGB"
    images = []
    with _decoding():
        for content in encoded:
            with Image.open(io.BytesIO(content)) as image:
                if (image.height, image.width) != shape[:2]:
                    raise InvalidInput("image size", WITHHELD, f"{shape[0]} x {shape[1]} pixels, like the first image")
                if image.mode not in _GREY_MODES | _COLOUR_MODES:
                    raise InvalidInput("image mode", WITHHELD, "grey or colour with 8 bits a channel")
                images.append(np.asarray(image if image.mode == mode else image.convert(mode), dtype=np.uint8))
    return np.stack(images)


@contextmanager
def _decoding() -> Iterator[None]:
    """Whatever a decoder raises or warns of becomes one error without a trace of the image."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except (InvalidInput, StorageError):
            raise
        except Exception:
            raise InvalidInput("images", WITHHELD, "images, complete and undamaged") from None
