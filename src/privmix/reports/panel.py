"""Panels: the view of records of one kind, each in a file that no other file names, or in another package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final

from privmix._registry import Registry
from privmix.reports.blocks import Card, Section
from privmix.reports.context import Context, ShownRecord
from privmix.reports.records import PANELS_GROUP, order_of


class Panel(ABC):
    """The view of one kind of record."""

    # anchor: panels with the same one share a section; missing: offered without such a record, as title, use and
    # command.

    name: ClassVar[str]
    words: ClassVar[str]
    anchor: ClassVar[str]
    title: ClassVar[str]
    lead: ClassVar[str]
    missing: ClassVar[tuple[str, str, str] | None] = None

    @classmethod
    @abstractmethod
    def card(cls, one: ShownRecord, context: Context) -> Card:
        """Return the part of the page for one record, without fields hidden from the page's audience."""


PANELS: Final[Registry[type[Panel]]] = Registry("record kind", "privmix.reports", PANELS_GROUP)


def panels() -> list[type[Panel]]:
    """All of them, in the order in which a page shows them."""
    return sorted(PANELS.all(), key=lambda panel: order_of(panel.name))


def panel_sections(context: Context) -> list[Section]:
    """Return a section for each kind of measurement that was recorded and has a panel."""
    found: dict[str, tuple[type[Panel], list[Card]]] = {}
    for panel in panels():
        if cards := [panel.card(one, context) for one in context.of_kind(panel.name)]:
            found.setdefault(panel.anchor, (panel, []))[1].extend(cards)
    return [Section(anchor, panel.title, panel.lead, cards) for anchor, (panel, cards) in found.items()]
