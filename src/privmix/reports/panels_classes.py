"""The panel about classes: images of their means, or the public texts nearest to them, and how sure both are."""

from __future__ import annotations

from typing import Final

from privmix.reports.blocks import Block, Callout, Card, Numbers, Table
from privmix.reports.blocks import Number as Figure
from privmix.reports.context import Context, Shown
from privmix.reports.fields import Fields
from privmix.reports.images import pictures_of
from privmix.reports.panel import PANELS, Panel
from privmix.reports.panels import card_of
from privmix.reports.sentences import percent

_KNOWN: Final = ("form", "classes", "sure", "seen", "explained", "images", "texts", "nearest")
_IMAGES_A_LINE: Final = 5
_LONGEST: Final = 200
# What a record may say is seen, and how a page says it.
_SEEN: Final = {
    "clear": "clearly",
    "coarse": "coarsely",
    "nothing": "nothing: noise",
    "in part": "little of it",
}


@PANELS.register
class ClassesPanel(Panel):
    """What classes look like."""

    name = "classes"
    words = "what classes look like"
    anchor = "classes"
    title = "What the classes look like"
    lead = (
        "What the released numbers say of each class as a whole, put back into images or set beside public texts. "
        "It is made from the release alone and shows no single record."
    )
    missing = ("What classes look like", "from the release alone", "privmix picture RELEASE --record RUN")

    @classmethod
    def card(cls, one: Shown, context: Context) -> Card:
        """Images or texts, then how sure each class is."""
        content = one.content
        blocks: list[Block] = [*_headline(content)]
        blocks += pictures_of(
            content.fields("images"), "Class means, and other means that the noise leaves as likely", _IMAGES_A_LINE
        )
        blocks += _nearest(content) or _surety(content)
        return card_of(one, blocks, _KNOWN, "What the classes look like")


def _headline(content: Fields) -> list[Block]:
    """How many classes can be seen; a warning where none can."""
    seen = content.texts("seen")
    if not seen:
        return []
    if set(seen) == {"nothing"}:
        text = "Noise is larger than what the classes differ by. What is shown is what all classes have in common."
        return [Callout("warning", "Nothing can be seen of any class", text)]
    counts = [(word, sum(one == word for one in seen)) for word in _SEEN]
    names = {word: f"seen {said}" if word in ("clear", "coarse") else said for word, said in _SEEN.items()}
    shown = [Figure(names[word], f"{count:,}", f"of {len(seen):,} classes") for word, count in counts if count]
    return [Numbers(shown)]


def _rows(content: Fields) -> list[tuple[str, str, str]]:
    """Name, share that is known, and word of each class."""
    names, sure, seen = content.texts("classes"), content.series("sure"), content.texts("seen")
    words = [_SEEN.get(word, word) for word in seen]
    return [(name, percent(share), word) for name, share, word in zip(names, sure, words, strict=False)]


def _surety(content: Fields) -> list[Block]:
    rows = _rows(content)
    caption = "Known of what sets a class apart; the rest is noise"
    return [Table(caption, ("class", "known", "can be seen"), rows, text=(2,))] if rows else []


def _nearest(content: Fields) -> list[Block]:
    """A line for each of the nearest texts of a class."""
    found = content.several_lists("nearest")
    rows = []
    for (name, known, _), texts in zip(_rows(content), found, strict=False):
        for place, one in enumerate(texts):
            text, share = one.text("text"), one.number("probability")
            cut = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
            rows.append((name if place == 0 else "", known if place == 0 else "", cut, percent(share)))
    columns = ("class", "known", "nearest public texts", "chance of the class")
    caption = "Public texts nearest to each class, and what is known of what sets it apart"
    return [Table(caption, columns, rows, text=(2,))] if rows else []
