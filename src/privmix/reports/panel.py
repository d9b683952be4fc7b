"""Panels: what a page shows of records of one kind, each in a file that nothing else names.

Those of other packages come by the entry points ``privmix.panels``. Such an entry point has the name of the kind of
records, which records may have from then on; its module registers the panel, and is imported when a page is made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final

from privmix._registry import Registry
from privmix.reports.blocks import Card, Section
from privmix.reports.context import Context, Shown
from privmix.reports.records import PANELS_GROUP, order_of


class Panel(ABC):
    """What a page shows of one kind of record.

    Attributes:
        name: the kind.
        words: what people call it.
        anchor: of its section in addresses of the page; panels with the same one share a section.
        title, lead: of the section.
        missing: what a page without such a record offers in its place, if anything: a title, what it would tell, and
            the command.
    """

    name: ClassVar[str]
    words: ClassVar[str]
    anchor: ClassVar[str]
    title: ClassVar[str]
    lead: ClassVar[str]
    missing: ClassVar[tuple[str, str, str] | None] = None

    @classmethod
    @abstractmethod
    def card(cls, one: Shown, context: Context) -> Card:
        """The part of the page that shows one record.

        Args:
            one: the record, without what the page's audience may not see.
            context: the page's other records.
        """


PANELS: Final[Registry[type[Panel]]] = Registry("record kind", "privmix.reports", PANELS_GROUP)


def panels() -> list[type[Panel]]:
    """All of them, in the order in which a page shows them."""
    return sorted(PANELS.all(), key=lambda panel: order_of(panel.name))


def panel_sections(context: Context) -> list[Section]:
    """A section for each kind of measurement that was recorded and has a panel."""
    found: dict[str, tuple[type[Panel], list[Card]]] = {}
    for panel in panels():
        if cards := [panel.card(one, context) for one in context.of_kind(panel.name)]:
            found.setdefault(panel.anchor, (panel, []))[1].extend(cards)
    return [Section(anchor, panel.title, panel.lead, cards) for anchor, (panel, cards) in found.items()]
