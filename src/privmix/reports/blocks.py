"""What a report page is made of: sections of cards of blocks. Values only; templates turn them into HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from markupsafe import Markup

Tone = Literal["danger", "warning", "note"]


@dataclass(frozen=True)
class Paragraphs:
    """Sentences, a paragraph each."""

    texts: Sequence[str | Markup]
    block: ClassVar[str] = "paragraphs"


@dataclass(frozen=True)
class Points:
    """Sentences as a list."""

    texts: Sequence[str | Markup]
    block: ClassVar[str] = "points"


@dataclass(frozen=True)
class Callout:
    """What nobody may overlook."""

    tone: Tone
    title: str
    text: str
    block: ClassVar[str] = "callout"


@dataclass(frozen=True)
class Number:
    """A figure that stands out: what it is, how much, and a word on it."""

    name: str
    value: str
    note: str = ""
    tone: str = ""


@dataclass(frozen=True)
class Numbers:
    """Figures that stand out, in a row."""

    numbers: Sequence[Number]
    block: ClassVar[str] = "numbers"


@dataclass(frozen=True)
class Table:
    """Rows of text under a caption; the first cell of a row is its heading.

    Attributes:
        caption: what the table shows; also its accessible name.
        columns: headings.
        rows: cells, as many as columns.
        text: columns that hold text and not figures, by index (the first always does).
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: Sequence[int] = ()
    block: ClassVar[str] = "table"


@dataclass(frozen=True)
class Heatmap:
    """A table of counts with shares as shades.

    Attributes:
        caption: what it shows.
        corner: what rows and columns are.
        columns: headings.
        rows: for each a heading, and for each cell its text and its shade from 0 to 1.
    """

    caption: str
    corner: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[tuple[str, float]]]]
    block: ClassVar[str] = "heatmap"


@dataclass(frozen=True)
class Key:
    """An entry of a figure's legend: how it is drawn (a style of the page's style sheet) and what it is."""

    style: str
    label: str


@dataclass(frozen=True)
class Figure:
    """A drawing with its caption and legend."""

    svg: Markup
    caption: str | Markup
    keys: Sequence[Key] = ()
    block: ClassVar[str] = "figure"


@dataclass(frozen=True)
class Pictures:
    """A grid of small images with headings.

    Attributes:
        caption: what it shows.
        columns: headings.
        rows: for each a heading, and for each image a data URI and what it shows.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[tuple[str, str]]]]
    block: ClassVar[str] = "pictures"


@dataclass(frozen=True)
class Command:
    """A command line to copy."""

    name: str
    line: str
    note: str = ""
    block: ClassVar[str] = "command"


@dataclass(frozen=True)
class Columns:
    """Blocks side by side where there is room, else one column after the other.

    Attributes:
        columns: blocks of each.
        flowing: columns of different heights fill the room one below the other.
    """

    columns: Sequence[Sequence[Block]]
    flowing: bool = False
    block: ClassVar[str] = "columns"


@dataclass(frozen=True)
class Details:
    """Blocks that are shown when asked for, and in print.

    Attributes:
        title: what is asked for.
        blocks: what it is.
    """

    title: str
    blocks: Sequence[Block]
    block: ClassVar[str] = "details"


Block = Paragraphs | Points | Callout | Numbers | Table | Heatmap | Figure | Pictures | Command | Columns | Details


@dataclass(frozen=True)
class Card:
    """One record's part of a section.

    Attributes:
        title: what it is about; empty where the section says it.
        blocks: what it shows.
        notes: sentences that must stand beside the figures.
        private: whether any figure in it stems from private rows.
    """

    title: str
    blocks: Sequence[Block]
    notes: Sequence[str] = ()
    private: bool = False


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading of its own."""

    anchor: str
    title: str
    lead: str
    cards: Sequence[Card] = field(default_factory=tuple)
