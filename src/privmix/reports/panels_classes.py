"""The panel about classes: images of their means, or the public texts nearest to them, and how sure both are."""

from __future__ import annotations

from typing import Final

from privmix.reports.blocks import Block, Callout, Card, Numbers, Table
from privmix.reports.blocks import NumberBlock as Figure
from privmix.reports.context import Context, ShownRecord
from privmix.reports.fields import RecordFields
from privmix.reports.images import pictures_of
from privmix.reports.panel import PANELS, Panel
from privmix.reports.panels import card_of
from privmix.reports.sentences import percent

_KNOWN: Final = ("form", "classes", "sure", "seen", "explained", "images", "texts", "nearest")
_IMAGES_A_LINE: Final = 5
_LONGEST: Final = 200
# Degrees of visibility that a record may state, and their words on a page.
_SEEN: Final = {"clear": "clearly", "coarse": "coarsely", "nothing": "nothing: noise", "in part": "little of it"}


@PANELS.register
class ClassesPanel(Panel):
    name = "classes"
    words = "pictures of classes"
    anchor = "classes"
    title = "Pictures of the classes"
    lead = (
        "The information of the released numbers about each class, as images or compared with public texts. It comes "
        "from the release only and shows no single record."
    )
    missing = ("Pictures of classes", "from the release only", "privmix picture RELEASE --record RUN")

    @classmethod
    def card(cls, one: ShownRecord, context: Context) -> Card:
        """Images or texts, then how sure each class is."""
        content = one.content
        blocks: list[Block] = [*_headline(content)]
        blocks += pictures_of(
            content.fields("images"), "Class means, and other means that are as likely under the noise", _IMAGES_A_LINE
        )
        blocks += _nearest(content) or _surety(content)
        return card_of(one, blocks, _KNOWN, "Pictures of the classes")


def _headline(content: RecordFields) -> list[Block]:
    """How many classes can be seen; a warning where none can."""
    seen = content.texts("seen")
    if not seen:
        return []
    if set(seen) == {"nothing"}:
        text = "The noise exceeds the differences between classes. The pictures show features that all classes share."
        return [Callout("warning", "No class can be seen", text)]
    counts = [(word, sum(one == word for one in seen)) for word in _SEEN]
    names = {word: f"seen {said}" if word in ("clear", "coarse") else said for word, said in _SEEN.items()}
    shown = [Figure(names[word], f"{count:,}", f"of {len(seen):,} classes") for word, count in counts if count]
    return [Numbers(shown)]


def _rows(content: RecordFields) -> list[tuple[str, str, str]]:
    """Name, share that is known, and word of each class."""
    names, sure, seen = content.texts("classes"), content.series("sure"), content.texts("seen")
    words = [_SEEN.get(word, word) for word in seen]
    return [(name, percent(share), word) for name, share, word in zip(names, sure, words, strict=False)]


def _surety(content: RecordFields) -> list[Block]:
    rows = _rows(content)
    caption = "Known share of a class's differences; the rest is noise"
    return [Table(caption, ("class", "known", "can be seen"), rows, text=(2,))] if rows else []


def _nearest(content: RecordFields) -> list[Block]:
    """Return a line for each of the nearest texts of a class."""
    found = content.several_lists("nearest")
    rows = []
    for (name, known, _), texts in zip(_rows(content), found, strict=False):
        for place, one in enumerate(texts):
            text, share = one.text("text"), one.number("probability")
            cut = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
            rows.append((name if place == 0 else "", known if place == 0 else "", cut, percent(share)))
    columns = ("class", "known", "nearest public texts", "chance of the class")
    caption = "Public texts nearest to each class, and the known share of its differences"
    return [Table(caption, columns, rows, text=(2,))] if rows else []
