"""Digits and letters of matplotlib's fonts as if written by hand: turned, slanted, bent, thick or thin, and centred.

Public images of nobody for benchmarks. The same seed gives the same images on the same versions of NumPy and
matplotlib, and a longer draw begins with a shorter one.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Final, NamedTuple

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage

# The characters of each class.
ALPHABETS: Final = {
    "digits": tuple("0123456789"),
    "letters": tuple(letter + letter.lower() for letter in ascii_uppercase),
}
SIDE: Final = 28
# Images that share a stream of random numbers.
_BLOCK: Final = 128
# Fonts that matplotlib brings, but for those of symbols, sizes and scripts without these characters.
FONTS: Final = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-BoldOblique", "DejaVuSans-Oblique"),
    *("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique"),
    *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic"),
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"),
    *("cmb10", "cmr10", "cmss10", "cmtt10", "cmti10"),
)
# The canvas that a character is bent on, in points a side, and the longer side of its ink.
_CANVAS: Final = 72
_INK: Final = 36
_DRAWN: Final = 128
# The longer side of the character's box, as a share of the image's side (LeCun et al. 1998: 20 of 28).
_BOX: Final = 20 / 28
_TURN: Final = np.deg2rad(15)
_SLANT: Final = 0.35
_STRETCH: Final = 0.25
# Points by which knots of a coarse grid are moved, and by which strokes grow or shrink on either side.
_BEND: Final = (0.5, 2.5)
_KNOTS: Final = 5
_STROKE: Final = (-0.8, 1.4)


class Drawn(NamedTuple):
    """Images (n, 28, 28) uint8, white on black, and the class (n,) of each."""

    x: NDArray[np.uint8]
    y: NDArray[np.int64]


def draw(alphabet: str, count: int, seed: int = 0) -> Drawn:
    """Return the first ``count`` images of a seed."""
    blocks = [
        _block(ALPHABETS[alphabet], np.random.default_rng([seed, 1, block])) for block in range(-(-count // _BLOCK))
    ]
    return Drawn(*(np.concatenate(part)[:count] for part in zip(*blocks, strict=True)))


# Each image: a font; an affine map (up to 15 degrees, slant 0.35, axes times 0.75 to 1.25); a smooth displacement
# (Simard et al. 2003) of 0.5 to 2.5 points where the character has 36; a thicker or thinner stroke. Then its box is
# scaled to 20/28 of the side and its centre of mass centred, as MNIST (LeCun et al. 1998). No range was fitted to any
# dataset.


def _block(characters: tuple[str, ...], generator: np.random.Generator) -> Drawn:
    labels = generator.integers(0, len(characters), _BLOCK)
    variants = generator.random(_BLOCK)
    fonts = generator.integers(0, len(FONTS), _BLOCK)
    chosen = [characters[label] for label in labels]
    strokes = [text[int(part * len(text))] for text, part in zip(chosen, variants, strict=True)]
    depths = np.stack([_depth(FONTS[font], one) for font, one in zip(fonts, strokes, strict=True)])
    bent = _sampled(depths, *_bent(generator), outside=-_CANVAS)
    thicker = generator.uniform(*_STROKE, (_BLOCK, 1, 1))
    ink = np.clip(bent + thicker + 0.5, 0, 1).astype(np.float32)
    return Drawn(np.round(255 * _centred(ink)).astype(np.uint8), labels.astype(np.int64))


@cache
def _depth(font: str, character: str) -> NDArray[np.float32]:
    """(canvas, canvas): how far a point lies inside the character's ink, in points; negative outside."""
    file = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf"
    drawn = Image.new("L", (2 * _DRAWN, 2 * _DRAWN))
    place = (_DRAWN, _DRAWN)
    ImageDraw.Draw(drawn).text(place, character, fill=255, font=ImageFont.truetype(str(file), _DRAWN), anchor="mm")
    box = drawn.getbbox()
    assert box is not None, f"{font} has no {character}"
    cut = drawn.crop(box)
    scale = _INK / max(cut.size)
    # Twice as fine as the canvas, so that distances are exact to half a point.
    cut = cut.resize([max(2, round(2 * side * scale)) for side in cut.size], Image.Resampling.BILINEAR)
    fine = Image.new("L", (2 * _CANVAS, 2 * _CANVAS))
    fine.paste(cut, (_CANVAS - cut.width // 2, _CANVAS - cut.height // 2))
    ink = np.asarray(fine) > 127
    depth = ndimage.distance_transform_edt(ink) - ndimage.distance_transform_edt(~ink)
    halved: NDArray[np.float32] = depth.reshape(_CANVAS, 2, _CANVAS, 2).mean(axis=(1, 3)).astype(np.float32) / 2
    return halved


def _bent(generator: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(_BLOCK, canvas, canvas) rows and columns of the straight character that show at each point of the bent one."""
    turn = generator.uniform(-_TURN, _TURN, _BLOCK)
    slant = generator.uniform(-_SLANT, _SLANT, _BLOCK)
    stretch = generator.uniform(1 - _STRETCH, 1 + _STRETCH, (2, _BLOCK))
    cos, sin = np.cos(turn), np.sin(turn)
    # Rows and columns of the map from the bent character to the straight one.
    of_row = np.stack([cos / stretch[0], -sin / stretch[0]])
    of_column = np.stack([(sin + slant * cos) / stretch[1], (cos - slant * sin) / stretch[1]])
    amount = generator.uniform(*_BEND, (_BLOCK, 1, 1))
    # Splines through the knots, along either axis.
    spread = ndimage.zoom(np.eye(_KNOTS), (_CANVAS / _KNOTS, 1), order=3, mode="nearest")
    middle = (_CANVAS - 1) / 2
    row, column = np.meshgrid(np.arange(_CANVAS) - middle, np.arange(_CANVAS) - middle, indexing="ij")
    maps = []
    for by_row, by_column in (of_row, of_column):
        knots = generator.standard_normal((_BLOCK, _KNOTS, _KNOTS)) * amount
        moved = spread @ knots @ spread.T
        straight = by_row[:, None, None] * row + by_column[:, None, None] * column + middle
        maps.append((straight + moved).astype(np.float32))
    return maps[0], maps[1]


def _centred(ink: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n, 28, 28) images of (n, canvas, canvas) ink: boxes of one size, centres of mass in the middle."""
    box = _BOX * SIDE
    places = np.arange(_CANVAS)
    mass = ink.sum(axis=(1, 2)).clip(min=1e-6)
    centres, spans = [], []
    for axis in (2, 1):
        along = ink.sum(axis=axis)
        centres.append((along * places).sum(axis=1) / mass)
        has = ink.max(axis=axis) > 0.5
        spans.append(np.where(has.any(axis=1), _CANVAS - has[:, ::-1].argmax(axis=1) - has.argmax(axis=1), _INK))
    # Points of the canvas a pixel.
    step = np.maximum(spans[0], spans[1]) / box
    # As many samples a pixel as the canvas has points: none is skipped.
    fine = int(np.ceil(step.max()))
    grids = []
    for centre in centres:
        within = (np.arange(SIDE * fine) + 0.5) / fine - SIDE / 2
        grids.append((centre[:, None] + within[None, :] * step[:, None]).astype(np.float32))
    rows, columns = np.broadcast_arrays(grids[0][:, :, None], grids[1][:, None, :])
    found = _sampled(ink, rows, columns, outside=0.0)
    images: NDArray[np.float32] = found.reshape(len(ink), SIDE, fine, SIDE, fine).mean(axis=(2, 4))
    return images


def _sampled(images: NDArray[np.float32], rows: Any, columns: Any, outside: float) -> NDArray[np.float32]:
    """(n, a, b) values of (n, h, w) images at real places (n, a, b), bilinear; ``outside`` beyond the border."""
    framed = np.pad(images, ((0, 0), (1, 1), (1, 1)), constant_values=outside)
    top, left = framed.shape[1] - 1.001, framed.shape[2] - 1.001
    rows, columns = np.clip(rows + 1, 0, top), np.clip(columns + 1, 0, left)
    above, before = rows.astype(np.int32), columns.astype(np.int32)
    down, right = rows - above, columns - before
    index = np.arange(len(images))[:, None, None]
    upper = framed[index, above, before] * (1 - right) + framed[index, above, before + 1] * right
    lower = framed[index, above + 1, before] * (1 - right) + framed[index, above + 1, before + 1] * right
    found: NDArray[np.float32] = (upper * (1 - down) + lower * down).astype(np.float32)
    return found
