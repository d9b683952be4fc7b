"""The panel about inversions: what an attack drew again, beside the originals."""

from __future__ import annotations

import base64
import binascii
import io
import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from privmix.reports.blocks import Block, Card, Pictures, Table
from privmix.reports.context import Context, Shown
from privmix.reports.fields import Fields
from privmix.reports.panel import PANELS, Panel
from privmix.reports.panels import card_of
from privmix.reports.sentences import figure

_MOST_PIXELS = 4_000_000


@PANELS.register
class InversionPanel(Panel):
    """What an inversion drew."""

    name: ClassVar[str] = "inversion"
    words: ClassVar[str] = "model inversion"
    anchor: ClassVar[str] = "inversion"
    title: ClassVar[str] = "Recovering inputs"
    lead: ClassVar[str] = "An attack that knows everything but the records tries to draw them again."
    missing: ClassVar = (
        "Inversion",
        "what can be drawn again",
        "privmix attack inversion RELEASE --data DATA --record RUN",
    )

    @classmethod
    def card(cls, one: Shown, context: Context) -> Card:
        """See :class:`~privmix.reports.panel.Panel`."""
        return _inversion_card(one, context)


def _inversion_card(one: Shown, context: Context) -> Card:
    content = one.content
    blocks: list[Block] = []
    if pictures := _pictures(content.fields("images")):
        blocks.append(pictures)
    columns = ["m", "ε", "mean squared error", "SSIM", "LPIPS"]
    cases = content.several("cases")
    # What a guess at other images reaches: an attack tells something only where it does better.
    guesses = [name for name in _GUESSES if any(item.fields(name).number("ssim") is not None for item in cases)]
    columns += [f"SSIM of {_GUESSES[name]}" for name in guesses]
    rows = [
        (
            figure(item.number("m")),
            "no noise" if item.number("epsilon") is None else figure(item.number("epsilon")),
            *(figure(item.number(name), 3) for name in ("mse", "ssim", "lpips")),
            *(figure(item.fields(name).number("ssim"), 3) for name in guesses),
        )
        for item in cases
    ]
    baseline = content.fields("baseline")
    if baseline and not guesses:
        rows.append(("guess", "–", figure(baseline.number("mse"), 3), figure(baseline.number("ssim"), 3), "–"))
    if rows:
        caption = "Likeness of what was recovered to the raw input"
        blocks.append(Table(caption, columns, rows))
    return card_of(one, blocks, ("cases", "baseline", "images"), "Model inversion")


_GUESSES = {"baseline": "other images", "mean_image": "the mean image"}


def _pictures(images: Fields) -> Pictures | None:
    """Images in a grid; None where the bytes don't fit the shape."""
    shape = [int(size) for size in images.series("shape")]
    if len(shape) not in (4, 5) or min(shape) < 1 or math.prod(shape) > _MOST_PIXELS or (shape[4:] or [3]) != [3]:
        return None
    try:
        pixels = np.frombuffer(base64.b64decode(images.text("uint8"), validate=True), np.uint8).reshape(shape)
    except (ValueError, binascii.Error):
        return None
    rows, columns = images.texts("row_labels"), images.texts("column_labels")
    rows = rows if len(rows) == shape[0] else [str(number + 1) for number in range(shape[0])]
    columns = columns if len(columns) == shape[1] else [str(number + 1) for number in range(shape[1])]
    grid = [
        (name, [(_data_uri(cell), f"{name}, {column}") for column, cell in zip(columns, line, strict=True)])
        for name, line in zip(rows, pixels, strict=True)
    ]
    return Pictures("Raw inputs beside what the attack recovered", columns, grid)


def _data_uri(pixels: NDArray[Any]) -> str:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
