"""Decoding images, and folders of images by class."""

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from privmix.data.files import files_below, is_hidden, reading, unread_words
from privmix.data.manifest import Manifest
from privmix.data.source import DECODER, NO_LABELS, Schema, Source
from privmix.errors import WITHHELD, InvalidInput, StorageError, check_integer

# Pillow's format -> suffixes of its files in a folder. No other decoder is used, even if a record's name asks for it.
# EPS starts Ghostscript on the record's bytes; TIFF's library writes about records to the standard error and takes a
# gigabyte where twelve bytes ask for it.
_FORMATS: Final = {
    "PNG": (".png",),
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "BMP": (".bmp",),
    "WEBP": (".webp",),
    "GIF": (".gif",),
}
IMAGE_SUFFIXES: Final[frozenset[str]] = frozenset(suffix for suffixes in _FORMATS.values() for suffix in suffixes)
_ALLOWED: Final = f"images of the formats {', '.join(_FORMATS)}, complete and undamaged"
# Pillow's images in memory: plain ones hold pixels, the others decode a file of such a format. Any other kind may start
# a program when it is decoded.
_TAKEN: Final = frozenset(
    {
        "PIL.Image.Image",
        "PIL.PngImagePlugin.PngImageFile",
        "PIL.JpegImagePlugin.JpegImageFile",
        "PIL.MpoImagePlugin.MpoImageFile",
        "PIL.BmpImagePlugin.BmpImageFile",
        "PIL.WebPImagePlugin.WebPImageFile",
        "PIL.GifImagePlugin.GifImageFile",
    }
)
COLOURS: Final = ("grey", "rgb")
# A colour image of this side takes 200 MB as float32.
_MAX_SIDE: Final = 2**12
# A few kilobytes of PNG can announce gigabytes; this is 8,192 x 8,192.
_MAX_PIXELS: Final = 2**26
_PIECE_VALUES: Final = 2**26
# Values of the EXIF tag for how a viewer turns the stored pixels.
_ORIENTATION: Final = 0x0112
_TURNS: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_GREY_MODES: Final = frozenset({"1", "L"})
_COLOUR_MODES: Final = frozenset({"P", "RGB", "RGBA", "CMYK", "YCbCr", "LA", "PA"})


class ImageFolderSource(Source):
    """A folder with one sub-folder per class, each with PNG, JPEG, BMP, WebP or GIF images at any depth.

    Records go by class, folder and file name. Hidden files are left out; other files that are not read count in
    ``unread``. Opening lists the folder and reads no file. Without labels, images of the folder itself come first.

    Formal guarantees:
        - Declared: shape and classes are the caller's; no record decides either, nor what becomes of another record.
    """

    def __init__(
        self,
        folder: Path,
        classes: tuple[str, ...],
        shape: tuple[int, ...],
        labelled: bool = True,
        decoder: int = DECODER,
    ) -> None:
        place = {name: index for index, name in enumerate(classes)}
        with reading(folder, "a folder of images"):
            found = sorted(entry.name for entry in class_folders(folder))
            top = [path for path in sorted(folder.iterdir()) if not path.is_dir()]
            below = [
                (path, name)
                for name in sorted(found, key=lambda name: place.get(name, len(place)))
                for path in files_below(folder / name)
            ]
        self._labelled, self._decoder = labelled, decoder
        listed = below if labelled else [*((path, ".") for path in top), *below]
        self._files = [(path, name) for path, name in listed if is_image(path)]
        others = [path for path, _ in listed if not is_image(path)]
        suffixes = ", ".join(sorted(IMAGE_SUFFIXES))
        self.unread: str = unread_words([*others, *(top if labelled else ())], f"{suffixes} in folders of classes")
        if not self._files:
            allowed = f"files {suffixes} by class{'. ' if self.unread else ''}{self.unread}"
            raise InvalidInput(str(folder), "no image", allowed)
        self.files: tuple[Path, ...] = tuple(path for path, _ in self._files)
        self._folder = folder
        self._schema = Schema(records=len(self._files), input_shape=shape, classes=classes)

    travels = True

    def __reduce__(self) -> tuple[Any, ...]:
        # Names of files may be private: the folder is listed again.
        return type(self), (self._folder, self._schema.classes, self._schema.input_shape, self._labelled, self._decoder)

    def manifest(self) -> Manifest:
        return Manifest.of([(0, len(self._files))], file=self._folder, anywhere=True)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(str(path.relative_to(self._folder)) for path, _ in self._files)

    def _chunks(self, first: int, stop: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        step = min(size, max(1, _PIECE_VALUES // math.prod(self._schema.input_shape)))
        for start in range(first, len(self._files), step):
            yield self.some(start, start + step)

    def some(self, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
        part = self._files[start:stop]
        x = decode_images((self._read(path) for path, _ in part), self._schema.input_shape, self._decoder)
        return x, np.array([name for _, name in part], dtype=object) if self._labelled else NO_LABELS

    def _read(self, path: Path) -> bytes:
        # The file's own name may be private (a patient's), and so may its class: errors name the folder of all.
        with reading(self._folder, "images"):
            return path.read_bytes()


def class_folders(folder: Path) -> list[Path]:
    return [entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")]


def is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES and not is_hidden(path)


def check_image_size(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    """Height and width from one side of a square or a pair."""
    if size is None:
        return None
    sides = list(size) if isinstance(size, tuple | list) else [size, size]
    if len(sides) != 2:
        raise InvalidInput("image_size", size, "an integer, or a height and a width")
    height, width = (check_integer("image_size", side, low=1, high=_MAX_SIDE) for side in sides)
    return height, width


def image_shape(
    image_size: tuple[int, int] | None, colour: str | None, default: tuple[int, ...] | None = None
) -> tuple[int, ...]:
    """(H, W) or (H, W, 3) from declared size and colour, or from ``default``; never from an image."""
    known = default if default is not None and (len(default) == 2 or (len(default) == 3 and default[2] == 3)) else None
    if colour is None and known is not None:
        colour = "grey" if len(known) == 2 else "rgb"
    size = known[:2] if image_size is None and known is not None else image_size
    if size is None or colour is None:
        missing = " and ".join(name for name, value in (("size", size), ("colour", colour)) if value is None)
        allowed = (
            "`image_size` SIDE and `colour` grey or rgb: every image is scaled and converted to them, since the "
            "published shape must not come from a record"
        )
        raise InvalidInput("images", f"no declared {missing}", allowed)
    return tuple(size) if colour == "grey" else (*size, 3)


def decode_images(encoded: Iterator[bytes], shape: tuple[int, ...], decoder: int = DECODER) -> NDArray[np.uint8]:
    """Decode images, each converted to ``shape``: ``(n, *shape)`` uint8.

    The EXIF orientation is applied, and transparent pixels show white behind them. An image is scaled (bicubic) so that
    it just covers H x W, then cropped evenly around its centre. Grey is ITU-R 601. Only the first of several frames is
    read. ``decoder`` 1 ignores orientation and drops transparency.

    Formal guarantees:
        - Per record: what becomes of an image depends on that image, the public ``shape`` and ``decoder`` only.
        - Named: PNG, JPEG, BMP, WebP and GIF are decoded, by their content; nothing else is, and no program is started.
        - Bounded: an image of more than 2^26 pixels is refused by its header, before it is decoded.
    """
    images = []
    with _decoding():
        for content in encoded:
            with Image.open(io.BytesIO(content), formats=tuple(_FORMATS)) as image:
                images.append(_fitted(image, shape, decoder))
    return np.stack(images)


def _fitted(image: Image.Image, shape: tuple[int, ...], decoder: int) -> NDArray[np.uint8]:
    mode = "L" if len(shape) == 2 else "RGB"
    if image.height * image.width > _MAX_PIXELS:
        raise InvalidInput("image size", WITHHELD, f"at most {_MAX_PIXELS:,} pixels")
    if image.mode not in _GREY_MODES | _COLOUR_MODES:
        raise InvalidInput("image mode", WITHHELD, "grey or colour with 8 bits per channel")
    if decoder > 1:
        image = _turned(image)
    layered = "RGBA" if decoder > 1 and image.has_transparency_data else mode
    fitted = _cover(image if image.mode == layered else image.convert(layered), shape[0], shape[1])
    if layered != mode:
        fitted = Image.alpha_composite(Image.new("RGBA", fitted.size, "white"), fitted).convert(mode)
    return np.asarray(fitted, dtype=np.uint8)


def _turned(image: Image.Image) -> Image.Image:
    """Turn an image by its EXIF orientation; an image with a damaged EXIF part stays as it is, as in viewers."""
    try:
        turn = _TURNS.get(int(image.getexif().get(_ORIENTATION, 1)))
    except Exception:
        turn = None
    return image if turn is None else image.transpose(turn)


def is_picture(record: Any) -> bool:
    """Whether a record in memory is an image of Pillow's, or the bytes of an encoded one; it is not looked into."""
    return isinstance(record, Image.Image | bytes)


def pictures_of(records: Sequence[Any], shape: tuple[int, ...], decoder: int = DECODER) -> NDArray[np.uint8]:
    """``(n, *shape)`` uint8 of images in memory, Pillow's or encoded; converted as :func:`decode_images` does.

    Formal guarantees: those of :func:`decode_images`. An image that Pillow opened decodes when its pixels are first
    read: only those of the same formats are read.
    """
    images = []
    for record in records:
        if isinstance(record, bytes):
            images.append(decode_images(iter([record]), shape, decoder)[0])
        elif f"{type(record).__module__}.{type(record).__qualname__}" in _TAKEN:
            with _decoding():
                images.append(_fitted(record, shape, decoder))
        elif isinstance(record, Image.Image):
            allowed = f"Pillow images in memory (`image.copy()`) or of the formats {', '.join(_FORMATS)}"
            raise InvalidInput("x", WITHHELD, allowed)
        else:
            raise InvalidInput("x", WITHHELD, "Pillow images or encoded images, as in every other record")
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
    """Turn every error and warning of a decoder into one error without a trace of the image."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except (InvalidInput, StorageError):
            raise
        except Exception:
            raise InvalidInput("images", WITHHELD, _ALLOWED) from None
