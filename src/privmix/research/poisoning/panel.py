"""The panel about poisoned records: an attack's success against each defence, and the certified bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from markupsafe import Markup
from matplotlib.ticker import FixedLocator, FuncFormatter

from privmix.reports.blocks import Block, Card, ColumnsBlock, Figure, KeyBlock, NumberBlock, Numbers, Paragraphs, Table
from privmix.reports.panel import PANELS, Context, Panel, ShownRecord
from privmix.reports.panels import card_of
from privmix.reports.pictures import BLUE, INK, MUTED, PAPER, VERMILION, drawing, inline
from privmix.reports.records import RecordFields
from privmix.reports.sentences import capitalised, figure, percent
from privmix.rounding import percent_up

# More rows than this are a table and no picture.
_MOST_ROWS: Final = 40
# In a row of one: the drawn image above, all goal inputs below.
_ABOVE: Final = 0.14
_HALO: Final[dict[str, Any]] = {
    "markeredgecolor": PAPER,
    "markeredgewidth": 1.0,
    "linewidth": 0,
    "clip_on": False,
    "zorder": 5,
}


@dataclass(frozen=True)
class Row:
    """One defence: rate of successful trials with its interval, mean share of goal inputs, certified bound or None."""

    rate: float
    low: float
    high: float
    share: float | None
    bound: float | None


@PANELS.register
class PoisoningPanel(Panel):
    name: ClassVar[str] = "poisoning"
    words: ClassVar[str] = "poisoning"
    anchor: ClassVar[str] = "poisoning"
    title: ClassVar[str] = "Poisoned records"
    lead: ClassVar[str] = (
        "The success of an attacker who controls a few records. A guarantee limits every such attack, also unknown "
        "ones; other defences limit none, and were tried against this one."
    )

    @classmethod
    def card(cls, one: ShownRecord, context: Context) -> Card:
        return poisoning_card(one, context)


def poisoning_card(one: ShownRecord, context: Context) -> Card:
    content = one.content
    results = content.several("results")
    rows = [_row(item) for item in results]
    records, controlled = content.number("records"), content.number("poisoned_records")
    share = None if not records or controlled is None else controlled / records
    numbers = [
        NumberBlock("poisoned records", figure(controlled), f"of {figure(records)} ({percent(share, 2)})"),
        NumberBlock("trials", figure(content.number("trials")), "each with classes and an image of its own"),
    ]
    known = [(row.bound, item) for row, item in zip(rows, results, strict=True) if row and row.bound is not None]
    if known:
        bound, item = min(known, key=lambda pair: pair[0])
        numbers.append(NumberBlock("best certified limit", percent_up(bound), item.text("defence")))
    blocks: list[Block] = [Numbers(numbers)]
    if words := _words(content):
        blocks.append(Paragraphs(words))
    level = percent(content.number("confidence"), 0)
    table = _table(results, rows, level)
    drawn = [row for row in rows if row is not None]
    if drawn and len(drawn) == len(rows) <= _MOST_ROWS:
        keys = [KeyBlock("dot", "trials that succeeded"), KeyBlock("blue-dot", "share of all goal inputs, mean")]
        keys += [KeyBlock("ink-bar", "most that the guarantee allows")] if known else []
        caption = f"Numbers are those of the table. Lines: {level} intervals of the rate of success."
        blocks.append(ColumnsBlock([[Figure(draw_success(f"{one.name}-success", drawn), caption, keys)]]))
    if results:
        blocks.append(table)
    return card_of(one, blocks, _FIELDS, "Poisoning")


def _words(content: RecordFields) -> list[str]:
    found = []
    if threat := content.text("threat"):
        found.append(f"The attacker's reach: {threat}.")
    if success := content.text("success_means"):
        found.append(f"It counts as success where {success}.")
    if content.text("setting") == "transfer":
        found.append(
            "Only the last layer is trained, on a frozen extractor that was trained on other images and that the "
            "attacker has."
        )
    about = content.text("about")
    return [f"{capitalised(about)}.", *found] if about else found


def _row(item: RecordFields) -> Row | None:
    rate, interval = item.number("success_rate"), item.series("interval")
    if rate is None or len(interval) != 2 or not all(0 <= value <= 1 for value in (rate, *interval)):
        return None
    low, high = interval
    return Row(rate, low, high, item.number("share"), _bound(item))


def _bound(item: RecordFields) -> float | None:
    found = item.number("certified_bound")
    return found if item.text("guarantee") and found is not None and 0 <= found <= 1 else None


def _table(results: Sequence[RecordFields], rows: Sequence[Row | None], level: str) -> Table:
    dropped = any(item.number("removed") for item in results)
    columns = ["defence", f"success ({level} interval)", "goal inputs", "accuracy", "certified: at most"]
    cells = []
    for place, (item, row) in enumerate(zip(results, rows, strict=True), start=1):
        bound = _bound(item)
        line = [
            f"{place} · {item.text('defence') or 'defence'}",
            percent(item.number("success_rate"))
            + ("" if row is None else f" ({percent(row.low, 0)} to {percent(row.high, 0)})"),
            percent(item.number("share")),
            percent(item.number("accuracy")),
            "nothing" if bound is None else f"{percent_up(bound)}, by {item.text('guarantee')}",
        ]
        if dropped:
            line.append(f"{figure(item.number('removed'))} ({figure(item.number('removed_poisoned'))})")
        cells.append(line)
    columns += ["dropped (poisoned)"] if dropped else []
    return Table("Success of the attack by defence", columns, cells, text=(4,))


def draw_success(name: str, rows: Sequence[Row]) -> Markup:
    """Rates of success with intervals, shares of goal inputs and certified limits, a line a defence."""
    with drawing(6.2, 0.9 + 0.42 * len(rows)) as (picture, axes):
        axes.grid(True, axis="x")
        axes.grid(False, axis="y")
        places = range(len(rows))
        for place, row in zip(places, rows, strict=True):
            axes.plot([row.low, row.high], [place - _ABOVE] * 2, color=VERMILION, linewidth=1.4)
            if row.bound is not None:
                axes.plot([row.bound] * 2, [place - 0.38, place + 0.38], color=INK, linewidth=2.6, clip_on=False)
        axes.plot([row.rate for row in rows], [place - _ABOVE for place in places], "o", color=VERMILION, **_HALO)
        shares = [(row.share, place + _ABOVE) for place, row in zip(places, rows, strict=True) if row.share is not None]
        if shares:
            axes.plot(*zip(*shares, strict=True), "o", color=BLUE, markersize=5, **_HALO)
        axes.set_xlim(0, 1)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.xaxis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
        axes.yaxis.set_major_locator(FixedLocator(list(places)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value + 1:g}"))
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0, colors=MUTED)
        axes.set_xlabel("success of the attack")
        stated = "; ".join(
            f"{place} {percent(row.rate)}"
            + ("" if row.bound is None else f", at most {percent_up(row.bound)} certified")
            for place, row in enumerate(rows, start=1)
        )
        return inline(
            picture,
            name,
            "Success of the attack by defence",
            f"How often the attacker got what it wanted, by the numbers of the defences in the table: {stated}.",
        )


_FIELDS: Final = (
    "attack", "defence", "about", "threat", "success_means", "setting", "records", "poisoned_records", "trials",
    "confidence", "results", "successes", "interval", "share", "accuracy", "base_successes", "certified_bound",
    "guarantee", "removed", "removed_poisoned", "outcomes", "success_rate", "above_bound",
)  # fmt: skip
