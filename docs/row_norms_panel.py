"""Panel for records of kind ``row-norms``."""

from __future__ import annotations

from privmix.reports.blocks import Card, NumberBlock, Numbers
from privmix.reports.panel import PANELS, Context, Panel, ShownRecord
from privmix.reports.sentences import figure


@PANELS.register
class RowNormsPanel(Panel):
    """The median and the largest norm."""

    name = "row-norms"
    words = "norms of rows"
    anchor = "row-norms"
    title = "How long rows are"
    lead = "Norms of the released rows; they are as public as the release."
    missing = ("Row norms", "how long the rows are", "privmix row-norms RELEASE --record RUN")

    @classmethod
    def card(cls, one: ShownRecord, context: Context) -> Card:
        numbers = [NumberBlock(name, figure(one.content.number(name))) for name in ("median", "largest")]
        return Card(one.record.title, [Numbers(numbers)], one.record.statements, one.record.private)
