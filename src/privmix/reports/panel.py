"""Panels: the view of records of one kind, and their input: the records that may be shown, and nothing else."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from privmix._registry import Registry
from privmix.reports.blocks import Card, Section
from privmix.reports.records import (
    PANELS_GROUP,
    RecordFields,
    RunRecord,
    order_of,
    public_command,
    public_records,
    public_values,
)

OWNER, PUBLIC = "owner", "public"
AUDIENCES: Final = (OWNER, PUBLIC)
Offer: TypeAlias = tuple[str, str, str]
# Names single records, or how runs ended: nothing for the public, with any data.
_OWNER_ONLY: Final = frozenset({"highest_risk", "outcomes"})


@dataclass(frozen=True)
class ShownRecord:
    """A record as the page shows it, without fields hidden from its audience; ids begin with ``name``."""

    record: RunRecord
    name: str
    content: RecordFields
    digest: str


@dataclass(frozen=True)
class Context:
    """The sources of a page.

    Formal guarantees:
        * For the public: records marked as private are left out before anything else is done with them. No byte of the
          page depends on them, nor on how many there are.
        * For the public, fields that single out records are left out of public records too. In their commands and
          settings, files and addresses are named without the way to them.
    """

    audience: str
    shown: tuple[ShownRecord, ...]

    @classmethod
    def of(cls, records: Iterable[RunRecord], audience: str) -> "Context":
        """Keep what ``audience`` may see, in an order that follows from the records alone."""
        if audience != OWNER:
            records = public_records(records)
        # By content: a record that has another's id takes nothing's place.
        kept = {record.to_dict()["content_sha256"]: record for record in records}
        ordered = sorted(
            kept.items(), key=lambda item: (order_of(item[1].kind), item[1].title, item[1].record_id, item[0])
        )
        shown = (_shown(record, digest, f"r{place}", audience) for place, (digest, record) in enumerate(ordered))
        return cls(audience, tuple(shown))

    def of_kind(self, *kinds: str) -> list[ShownRecord]:
        return [one for one in self.shown if one.record.kind in kinds]

    def guarantee_for(self, one: ShownRecord) -> RecordFields:
        """Return the guarantee of what a record is about; nothing where it is not known."""
        for other in self.of_kind("guarantee"):
            if other.record.subject["id"] == one.record.subject["id"]:
                return other.content
        return RecordFields(None)

    def catch_limit(self, one: ShownRecord) -> tuple[list[float], list[float]] | None:
        """(false-alarm rates, detection rates that no attack exceeds), by the guarantee of what a record is about."""
        curve = self.guarantee_for(one).fields("tradeoff").curve("alpha", "beta")
        if not curve or self.lacks_limit(one):
            return None
        order = np.argsort(curve[0])
        alpha, beta = (np.asarray(values)[order] for values in curve)
        return alpha.tolist(), (1 - beta).tolist()

    def lacks_limit(self, one: ShownRecord) -> bool:
        """Whether the guarantee of what a record is about is known, and limits nothing: its noise can be guessed."""
        return self.guarantee_for(one).flag("insecure_seed")

    def __iter__(self) -> Iterator[ShownRecord]:
        return iter(self.shown)


def _shown(record: RunRecord, digest: str, name: str, audience: str) -> ShownRecord:
    if audience != OWNER:
        shown = {
            "content": _without(record.content, _OWNER_ONLY),
            "settings": public_values(record.settings),
            "command": public_command(record.command),
        }
        record = RunRecord(**{**vars(record), **shown})
    # The digest is that of the whole record: by it, owner and reader name the same file.
    return ShownRecord(record, name, RecordFields(record.content), digest)


def _without(values: Any, names: frozenset[str]) -> Any:
    """Return the same without fields of these names, at any depth."""
    if isinstance(values, Mapping):
        return {name: _without(value, names) for name, value in values.items() if name not in names}
    if isinstance(values, Sequence) and not isinstance(values, str):
        return [_without(value, names) for value in values]
    return values


class Panel(ABC):
    """The view of one kind of record."""

    # anchor: panels with the same one share a section; missing: offered without such a record, as title, use and
    # command.

    name: ClassVar[str]
    words: ClassVar[str]
    anchor: ClassVar[str]
    title: ClassVar[str]
    lead: ClassVar[str]
    missing: ClassVar[Offer | None] = None

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
