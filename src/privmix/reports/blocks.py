"""Parts of a report page: sections of cards of blocks. Templates turn these values into HTML."""

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
class PointsBlock:
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
    name: str
    line: str
    note: str = ""
    block: ClassVar[str] = "command"


@dataclass(frozen=True)
class ColumnsBlock:
    """Blocks side by side where the width suffices; ``flowing``: columns of different heights fill the space."""

    columns: "Sequence[Sequence[Block]]"
    flowing: bool = False
    block: ClassVar[str] = "columns"


@dataclass(frozen=True)
class Details:
    """Blocks that a reader opens by their title; open in print."""

    title: str
    blocks: "Sequence[Block]"
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
