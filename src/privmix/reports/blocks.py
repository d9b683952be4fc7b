"""Parts of a report page: sections of cards of blocks, and small images. Templates turn these values into HTML."""

from __future__ import annotations

import base64
import binascii
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from privmix.reports.records import RecordFields

Tone = Literal["danger", "warning", "note"]


@dataclass(frozen=True)
class Paragraphs:
    """Sentences, a paragraph each."""

    texts: Sequence[str | Markup]
    block: ClassVar[str] = "paragraphs"


@dataclass(frozen=True)
class PointsBlock:
    """Sentences as a list."""

    texts: Sequence[str | Markup]
    block: ClassVar[str] = "points"


@dataclass(frozen=True)
class Callout:
    """A notice that no reader may overlook."""

    tone: Tone
    title: str
    text: str
    block: ClassVar[str] = "callout"


@dataclass(frozen=True)
class NumberBlock:
    """A figure that stands out: what it is, how much, and a word on it."""

    name: str
    value: str
    note: str = ""
    tone: str = ""


@dataclass(frozen=True)
class Numbers:
    """Figures that stand out, in a row."""

    numbers: Sequence[NumberBlock]
    block: ClassVar[str] = "numbers"


@dataclass(frozen=True)
class Table:
    """Rows of text under a caption; first cells are headings; ``text``: indices of further columns of text."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: Sequence[int] = ()
    block: ClassVar[str] = "table"


@dataclass(frozen=True)
class Heatmap:
    """A table of counts; each row is a heading and, for each cell, its text and shade from 0 to 1."""

    caption: str
    corner: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[tuple[str, float]]]]
    block: ClassVar[str] = "heatmap"


@dataclass(frozen=True)
class KeyBlock:
    """An entry of a figure's legend: how it is drawn (a style of the page's style sheet) and what it is."""

    style: str
    label: str


@dataclass(frozen=True)
class Figure:
    """A drawing with its caption and legend."""

    svg: Markup
    caption: str | Markup
    keys: Sequence[KeyBlock] = ()
    block: ClassVar[str] = "figure"


@dataclass(frozen=True)
class Pictures:
    """A grid of small images; each row is a heading and, for each image, a data URI and its description."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[tuple[str, str]]]]
    block: ClassVar[str] = "pictures"


@dataclass(frozen=True)
class CommandBlock:
    """A command line to copy."""

    name: str
    line: str
    note: str = ""
    block: ClassVar[str] = "command"


@dataclass(frozen=True)
class ColumnsBlock:
    """Blocks side by side where the width suffices; ``flowing``: columns of different heights fill the space."""

    columns: Sequence[Sequence[Block]]
    flowing: bool = False
    block: ClassVar[str] = "columns"


@dataclass(frozen=True)
class Details:
    """Blocks that a reader opens by their title; open in print."""

    title: str
    blocks: Sequence[Block]
    block: ClassVar[str] = "details"


Block = (
    Paragraphs
    | PointsBlock
    | Callout
    | Numbers
    | Table
    | Heatmap
    | Figure
    | Pictures
    | CommandBlock
    | ColumnsBlock
    | Details
)


@dataclass(frozen=True)
class Card:
    """One record's part of a section; ``notes`` must accompany its figures."""

    # title: empty where the section states it; private: a figure stems from private rows.

    title: str
    blocks: Sequence[Block]
    notes: Sequence[str] = ()
    private: bool = False


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading of its own; ``folded``: its cards wait behind their heading; open in print."""

    anchor: str
    title: str
    lead: str
    cards: Sequence[Card] = field(default_factory=tuple)
    folded: bool = False


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
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode()


def png(pixels: NDArray[np.uint8]) -> bytes:
    """(H, W) or (H, W, 3) as PNG."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG", optimize=True)
    return stream.getvalue()


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
