"""Entries of a ledger: how they are written and read, and what a dataset's entries amount to."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from privmix.accounting.events import Adjacency
from privmix.errors import InvalidInput
from privmix.ledger.contents import DataIdentity
from privmix.ledger.database import canonical, chained, datasets, entries
from privmix.ledger.pricing import PLANNED, RECORD, covered
from privmix.rounding import exact, rounded_up
from privmix.shown import Bars, Shown, spent_bars

# Fields of an entry of each kind, besides its time.
_FIELDS: dict[Any, set[str]] = {
    "init": {"name", "epsilon", "delta", "adjacency"},
    "reserve": {"id", "purpose", "event", "spent"},
    # The first version wrote one fingerprint of a listing; since then each file has its own.
    "bind": {"id"},
    "commit": {"id", "result"},
}


@dataclass(frozen=True, repr=False)
class Budget(Shown):
    """A dataset's budget and what was spent of it.

    Attributes:
        epsilon, delta: the total.
        spent: epsilon of everything reserved, composed. Planned: an upper bound, if all of it was fixed before the
            first result was seen. Adaptive: the guarantee of a filter of the spent size.
        reservations: how many, committed or not.
        uncommitted: how many of them never reported success; they count as spent all the same.
        head: hash of the newest entry: a copy elsewhere shows later that no entry was removed.
        mode: ``"planned"``: the total holds for plans fixed in advance, or chosen without seeing earlier results;
            ``"adaptive"``: for plans chosen after seeing them, too.
        filter: the adaptive budget's filter, gdp, rdp or pure.
        share: how much of the filter is spent, in [0, 1].
        unit: ``"record"``, or ``"person"`` with all of their records.
        most_per_person: persons with more records than this are not covered: the owner declared that there are none,
            for a charge for records. With None, all are covered.
    """

    dataset: str
    epsilon: float
    delta: float
    adjacency: Adjacency
    spent: float
    reservations: int
    uncommitted: int
    head: str
    mode: str = PLANNED
    filter: str | None = None
    share: float | None = None
    unit: str = RECORD
    most_per_person: int | None = None

    def shown(self) -> tuple[str, Mapping[str, object]]:
        return f"Budget of {self.dataset}", {
            "spent": f"epsilon {rounded_up(self.spent, 4)} of {exact(self.epsilon)}, at delta {exact(self.delta)}",
            "charges": f"{self.reservations:,}, {self.uncommitted:,} of them not committed",
            "adjacency": f"{self.adjacency.value}, one {self.unit}",
            "mode": self.mode,
            **({} if self.most_per_person is None else {"covers": covered(self.most_per_person)}),
        }

    def picture(self) -> Bars:
        return spent_bars(self.epsilon, self.spent, self.share)


@dataclass(frozen=True)
class Reservation:
    """Budget that was taken. ``spent`` is the dataset's epsilon with it."""

    id: str
    dataset: str
    spent: float


def binding(reservation: Reservation, contents: DataIdentity | None, new: list[str]) -> dict[str, Any]:
    """Return a bind entry: which files are new, and one hash for all of them, which distinguishes bindings."""
    files = () if contents is None else contents.files
    known = hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()
    return {"kind": "bind", "id": reservation.id, "files": new, "content": known}


def contents_of(connection: Connection, dataset_id: int, kind: str) -> list[dict[str, Any]]:
    rows = connection.execute(
        select(entries.c.content).where(entries.c.dataset_id == dataset_id).order_by(entries.c.number)
    )
    return [content for content in (parse(row.content) for row in rows) if content["kind"] == kind]


def reserved_entry(connection: Connection, id: str) -> tuple[int, dict[str, Any]] | None:
    """Return the dataset and entry of the reservation of that id, in any dataset."""
    # The id enters a LIKE pattern: hexadecimal digits hold no wildcard.
    if re.fullmatch("[0-9a-f]{32}", id) is None:
        raise InvalidInput("reservation", id, "32 hexadecimal digits")
    found = connection.execute(select(entries.c.dataset_id, entries.c.content).where(entries.c.content.contains(id)))
    for row in found:
        content = parse(row.content)
        # Commits and bindings repeat the id, and a purpose or result may hold it by chance.
        if content["kind"] == "reserve" and content["id"] == id:
            return row.dataset_id, content
    return None


def parse(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    # Deep nesting in an altered database ends in RecursionError.
    except (ValueError, TypeError, RecursionError):
        content = None
    kind = content.get("kind") if isinstance(content, dict) else None
    if not isinstance(kind, str) or not _FIELDS.get(kind, {""}) <= set(content):
        raise InvalidInput("ledger entry", text, "an entry that privmix wrote")
    return dict(content)


def append_entry(connection: Connection, dataset: Row[Any], content: dict[str, Any]) -> None:
    text = canonical({**content, "at": datetime.now(UTC).isoformat(timespec="seconds")})
    number, digest = dataset.entries + 1, chained(dataset.head, text)
    connection.execute(insert(entries).values(dataset_id=dataset.id, number=number, content=text, hash=digest))
    connection.execute(update(datasets).where(datasets.c.id == dataset.id).values(entries=number, head=digest))
