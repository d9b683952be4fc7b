"""The panel about collapse: whether mixed features and labels keep classes apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from privmix.reports.blocks import Block, Card, ColumnsBlock, Figure, KeyBlock, NumberBlock, Numbers, Table
from privmix.reports.panel import PANELS, Context, Offer, Panel, ShownRecord
from privmix.reports.panels import card_of
from privmix.reports.pictures import BLUE, SERIES, VERMILION, drawing, inline
from privmix.reports.records import RecordFields
from privmix.reports.sentences import figure


@PANELS.register
class CollapsePanel(Panel):
    name: ClassVar[str] = "collapse"
    words: ClassVar[str] = "collapse"
    anchor: ClassVar[str] = "collapse"
    title: ClassVar[str] = "Collapse of features and labels"
    lead: ClassVar[str] = "Whether what is mixed and noised still keeps classes apart, on public data."
    missing: ClassVar[Offer] = (
        "Collapse",
        "whether mixing keeps classes apart",
        "privmix attack collapse RELEASE --data PUBLIC --record RUN",
    )

    @classmethod
    def card(cls, one: ShownRecord, context: Context) -> Card:
        content = one.content
        blocks: list[Block] = []
        numbers = [
            NumberBlock(name.replace("_", " "), figure(value))
            for name in ("neural_collapse", "minimum_euclidean_distance")
            if (value := content.number(name)) is not None
        ]
        if numbers:
            blocks.append(Numbers(numbers))
        designs = content.several("histograms") or [content.fields("histogram")]
        drawn: list[list[Block]] = []
        for number, histogram in enumerate(designs):
            edges = histogram.series("edges")
            counts = {
                name: values for name in ("clean", "noisy") if len(values := histogram.series(name)) == len(edges) - 1
            }
            if counts and len(edges) > 1:
                svg = _histogram(f"{one.name}-hi{number}", edges, counts)
                keys = [KeyBlock(colour, name) for colour, name in zip(SERIES, counts, strict=False)]
                drawn.append([Figure(svg, f"Entries of mixed labels{_of(histogram)}, before and after noise.", keys)])
        tables: list[list[Block]] = []
        for measured in content.several("histograms") or [content.fields("label_collapse")]:
            rows = [(name.replace("_", " "), figure(value)) for name, value in measured.numbers().items()]
            if rows:
                tables.append([Table(f"Label collapse{_of(measured)}", ("figure", "value"), rows)])
        if drawn or tables:
            blocks.append(ColumnsBlock([*drawn, *tables]))
        known = ("neural_collapse", "minimum_euclidean_distance", "label_collapse", "histogram", "histograms", "labels")
        return card_of(one, blocks, known, "Collapse")


def _of(values: RecordFields) -> str:
    design = values.text("design")
    return f", design {design}" if design else ""


def _histogram(name: str, edges: Sequence[float], counts: Mapping[str, Sequence[float]]) -> Markup:
    with drawing() as (figure, axes):
        for (_, values), colour in zip(counts.items(), (BLUE, VERMILION), strict=False):
            axes.stairs(values, edges, fill=True, color=colour, alpha=0.25, linewidth=0)
            axes.stairs(values, edges, color=colour, linewidth=1.4)
        axes.set_xlabel("entry of a mixed label")
        axes.set_ylabel("how often")
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_locator(MaxNLocator(5))
        return inline(
            figure,
            name,
            "Entries of mixed labels, before and after noise",
            f"Histograms of {' and '.join(counts)} over {len(edges) - 1} bins from {edges[0]:.3g} to {edges[-1]:.3g}.",
        )
