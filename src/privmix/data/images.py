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
from privmix.errors import WITHHELD, InvalidInput, StorageError, check_integer

IMAGE_SUFFIXES: Final = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp"})
_MAX_SIDE: Final = 2**12
_GREY_MODES: Final = frozenset({"1", "L"})
_COLOUR_MODES: Final = frozenset({"P", "RGB", "RGBA", "CMYK", "YCbCr", "LA", "PA"})


class ImageFolderSource(Source):
    """A folder with one sub-folder a class, each with PNG, JPEG, BMP or WebP images, of one size or scaled to one.

    The sub-folders' names are the classes, in alphabetical order; names beginning with a dot are left out, and so are
    files with another suffix. Records go by class, then by file name. Images are grey (H, W) or colour (H, W, 3) as
    the header of the first one says; the others are converted to that.

    Args:
        folder: holds the sub-folders.
        classes: names or number declared by the caller; the sub-folders must be among them.
        image_size: height and width that each image is scaled to, see :func:`decode_images`.
    """

    def __init__(
        self, folder: Path, classes: int | Sequence[str] | None, image_size: tuple[int, int] | None = None
    ) -> None:
        self._resize = image_size is not None
        with reading(folder, "a folder of images"):
            found = sorted(entry.name for entry in class_folders(folder))
            names = resolve_classes(classes, found or None)
            for name in found:
                if name not in names:
                    raise InvalidInput(f"sub-folder of {folder}", WITHHELD, "the declared classes, one sub-folder each")
            self._files = [
                (path, label)
                for label, name in enumerate(names)
                if (folder / name).is_dir()
                for path in sorted((folder / name).iterdir())
                if path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")
            ]
        if not self._files:
            raise InvalidInput(str(folder), "no image", f"files {', '.join(sorted(IMAGE_SUFFIXES))} by class")
        self.files = tuple(path for path, _ in self._files)
        shape = image_shape(self._read(self._files[0][0]), image_size)
        self._schema = Schema(records=len(self._files), input_shape=shape, classes=names)

    @property
    def schema(self) -> Schema:
        """From the folder's listing and the header of the first image."""
        return self._schema

    def _chunks(self, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        for start in range(0, len(self._files), size):
            part = self._files[start : start + size]
            x = decode_images((self._read(path) for path, _ in part), self._schema.input_shape, resize=self._resize)
            yield x, np.array([label for _, label in part])

    def _read(self, path: Path) -> bytes:
        # The file's own name may be private (a patient's), so errors name its folder.
        with reading(path.parent, "images"):
            return path.read_bytes()


def class_folders(folder: Path) -> list[Path]:
    """Sub-folders that may be classes."""
    return [entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")]


def check_image_size(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    """Height and width from one side of a square or a pair.

    Example:
        >>> check_image_size(32), check_image_size((24, 32))
        ((32, 32), (24, 32))
    """
    if size is None:
        return None
    sides = list(size) if isinstance(size, tuple | list) else [size, size]
    if len(sides) != 2:
        raise InvalidInput("image size", size, "an integer, or a height and a width")
    height, width = (check_integer("image size", side, low=1, high=_MAX_SIDE) for side in sides)
    return height, width


def image_shape(encoded: bytes, image_size: tuple[int, int] | None = None) -> tuple[int, ...]:
    """(H, W) or (H, W, 3), from an encoded image's header; no pixel is decoded. H, W are ``image_size`` if given.

    Raises:
        InvalidInput: not an image of 8 bits a channel.
    """
    with _decoding(), Image.open(io.BytesIO(encoded)) as image:
        if image.mode not in _GREY_MODES | _COLOUR_MODES:
            raise InvalidInput("image mode", image.mode, "grey or colour with 8 bits a channel")
        size = image_size or (image.height, image.width)
        return size if image.mode in _GREY_MODES else (*size, 3)


def decode_images(encoded: Iterator[bytes], shape: tuple[int, ...], *, resize: bool = False) -> NDArray[np.uint8]:
    """Decode images of one shape: (n, *shape) uint8.

    With ``resize``, each image, whatever its size, is scaled (bicubic) so that it just covers H x W, and what sticks
    out is cut off evenly on both sides: for a square, the shorter side becomes H, then a crop of the centre.

    Formal guarantees:
        - Per record: what becomes of an image depends on that image and the public ``shape`` only.

    Raises:
        InvalidInput: an image is damaged or, without ``resize``, of another size; which one is not said.
    """
    mode = "L" if len(shape) == 2 else "RGB"
    images = []
    with _decoding():
        for content in encoded:
            with Image.open(io.BytesIO(content)) as image:
                if not resize and (image.height, image.width) != shape[:2]:
                    allowed = f"{shape[0]} x {shape[1]} pixels, like the first image; image_size scales all to one size"
                    raise InvalidInput("image size", WITHHELD, allowed)
                if image.mode not in _GREY_MODES | _COLOUR_MODES:
                    raise InvalidInput("image mode", WITHHELD, "grey or colour with 8 bits a channel")
                plain = image if image.mode == mode else image.convert(mode)
                images.append(np.asarray(_cover(plain, shape[0], shape[1]) if resize else plain, dtype=np.uint8))
    return np.stack(images)


def _cover(image: Image.Image, height: int, width: int) -> Image.Image:
    if (image.height, image.width) == (height, width):
        return image
    scale = min(image.height / height, image.width / width)
    left, top = (image.width - width * scale) / 2, (image.height - height * scale) / 2
    box = left, top, min(left + width * scale, image.width), min(top + height * scale, image.height)
    # Cropping within the scaling: an image that is very long never becomes a huge one.
    return image.resize((width, height), Image.Resampling.BICUBIC, box=box)


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
