"""The ledger: what each private dataset may cost in all, and what was spent of it."""

from __future__ import annotations

import json
import math
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy
from sqlalchemy import Connection, Engine, Row, insert, select, update

from privmix.accounting import Adjacency, Composed, Event, epsilon, event_from_dict, event_to_dict
from privmix.errors import InvalidInput, PrivmixError, check_choice, check_number
from privmix.ledger.database import open_engine, shown_url, snapshot, storage_errors, writing
from privmix.ledger.schema import FIRST_HASH, canonical, chained, datasets, entries, fingerprints
from privmix.rounding import exact, rounded_down, rounded_up

_LONGEST = 200
# What an entry of each kind holds besides its time.
_FIELDS: dict[Any, set[str]] = {
    "init": {"name", "epsilon", "delta", "adjacency"},
    "reserve": {"id", "purpose", "event", "spent"},
    "bind": {"id", "fingerprint"},
    "commit": {"id", "result"},
}
# Seconds to wait for the lock: everyone who reserves on the same dataset prices its history in turn.
_PATIENCE = 300.0


class BudgetExceeded(PrivmixError):
    """A reservation would cost more than the dataset's budget leaves. Exit code 3.

    Example:
        >>> str(BudgetExceeded("patients", requested=2.0, spent=3.0, composed=4.2, budget=4.0, delta=1e-05))
        'budget of patients: epsilon 4.2 in all would exceed 4 (requested 2, spent 3, remaining 1; delta 1e-05)'
    """

    exit_code = 3

    def __init__(
        self, dataset: str, *, requested: float, spent: float, composed: float, budget: float, delta: float
    ) -> None:
        self.requested, self.spent, self.composed = requested, spent, composed
        super().__init__(
            f"budget of {dataset}: epsilon {rounded_up(composed, 4)} in all would exceed {exact(budget)} "
            f"(requested {rounded_up(requested, 4)}, spent {rounded_up(spent, 4)}, "
            f"remaining {rounded_down(max(0.0, budget - spent), 4)}; delta {exact(delta)})"
        )


@dataclass(frozen=True)
class Budget:
    """A dataset's budget and what is gone of it.

    Attributes:
        dataset: its name.
        epsilon: the total budget.
        delta: at this delta.
        adjacency: which pairs of datasets both are about.
        spent: epsilon of everything reserved, composed, an upper bound.
        reservations: how many, committed or not.
        uncommitted: how many of them never reported success; they count as spent all the same.
        head: hash of the newest entry: kept elsewhere, it shows later that no entry was taken away.
    """

    dataset: str
    epsilon: float
    delta: float
    adjacency: Adjacency
    spent: float
    reservations: int
    uncommitted: int
    head: str


@dataclass(frozen=True)
class Reservation:
    """Budget that was taken. ``spent`` is the dataset's epsilon with it."""

    id: str
    dataset: str
    spent: float


class Ledger:
    """Budgets of private datasets, in SQLite or PostgreSQL.

    Formal guarantees:
        * reserve before reading: when :meth:`reserve` returns, the charge is on disk; a crash at any point leaves the
          budget spent or the charge refused, never spent and not recorded;
        * never overspent: reservations of one dataset are decided one at a time, each against everything before it;
        * composed, not added: what counts is the epsilon of all events together at the budget's delta, by the PLD
          accountant (pure DP where delta is 0), an upper bound;
        * one adjacency: a plan priced for other pairs of datasets is refused, not converted;
        * nothing comes back: no entry is ever changed or removed, and a reservation that was not used stays spent;
        * one budget for one content: data that is known under a name, byte by byte, is refused under another. This is
          against mistakes; the same records in other files are other content to it.

    Not covered: someone who can write to the database can replace all of it. :func:`verify_ledger` with a hash kept
    elsewhere notices that.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._shown = shown_url(engine.url)

    @classmethod
    def open(cls, url: str, *, patience: float = _PATIENCE) -> Ledger:
        """Open the ledger at ``url``: ``sqlite:///FILE`` or ``postgresql://USER@HOST/DATABASE``.

        Raises:
            InvalidInput: there is none, or one of another version.
            StorageError: it can't be reached.
        """
        return cls(open_engine(url, create=False, patience=patience))

    @classmethod
    def create(cls, url: str, *, patience: float = _PATIENCE) -> Ledger:
        """Open the ledger at ``url``; make it, or bring it to this version, where needed."""
        return cls(open_engine(url, create=True, patience=patience))

    def add_dataset(
        self, name: str, *, epsilon: float, delta: float, adjacency: Adjacency = Adjacency.ADD_REMOVE
    ) -> None:
        """Give dataset ``name`` a total budget, once and for all.

        Raises:
            InvalidInput: the name is taken, or a value is out of range.
        """
        check_number("epsilon", epsilon, low=0, low_open=True)
        check_number("delta", delta, low=0, high=1, high_open=True)
        if not name.strip() or len(name) > _LONGEST or not name.isprintable():
            raise InvalidInput("--dataset", name, f"a printable name of at most {_LONGEST} characters")
        row = {"name": name, "epsilon": epsilon, "delta": delta, "adjacency": adjacency.value}
        with storage_errors(self._shown), writing(self._engine) as connection:
            if connection.execute(select(datasets.c.id).where(datasets.c.name == name)).first():
                raise InvalidInput("--dataset", name, "a dataset without a budget; budgets are set once")
            try:
                connection.execute(insert(datasets).values(**row, entries=0, head=FIRST_HASH))
            except sqlalchemy.exc.IntegrityError:
                raise InvalidInput("--dataset", name, "a dataset without a budget; budgets are set once") from None
            _append(connection, self._dataset(connection, name), {"kind": "init", **row})

    def reserve(
        self, name: str, event: Event, *, adjacency: Adjacency = Adjacency.ADD_REMOVE, purpose: str
    ) -> Reservation:
        """Charge ``event`` to dataset ``name``, durably. Call it before the first private row is read.

        Args:
            name: the dataset.
            event: all that will run, such as ``plan.event``.
            adjacency: what the event's figures are about; must be the budget's.
            purpose: a word for the history, such as ``"release"``.

        Raises:
            BudgetExceeded: everything so far and this event would cost more than the budget. Nothing is charged.
            InvalidInput: no such dataset, or another adjacency.
            UnsupportedEvent: the event has no price under the budget's adjacency and delta.
        """
        with storage_errors(self._shown), writing(self._engine) as connection:
            dataset = self._dataset(connection, name, lock=True)
            check_choice("adjacency", adjacency.value, [dataset.adjacency])
            before = [entry_event(content) for content in _contents(connection, dataset.id, "reserve")]
            spent = price([*before, event], dataset.delta, adjacency)
            if not spent <= dataset.epsilon:
                raise BudgetExceeded(
                    name,
                    requested=price([event], dataset.delta, adjacency),
                    spent=price(before, dataset.delta, adjacency),
                    composed=spent,
                    budget=dataset.epsilon,
                    delta=dataset.delta,
                )
            reservation = Reservation(uuid.uuid4().hex, name, spent)
            charge = {"id": reservation.id, "purpose": purpose, "event": event_to_dict(event), "spent": spent}
            _append(connection, dataset, {"kind": "reserve", **charge})
        return reservation

    def bind(self, reservation: Reservation, fingerprint: str) -> None:
        """Record which content (a SHA-256 in hex) the reservation is for.

        Raises:
            InvalidInput: this content has its budget under another name.
        """
        with storage_errors(self._shown), writing(self._engine) as connection:
            dataset = self._dataset(connection, reservation.dataset, lock=True)
            if reservation.id not in {content["id"] for content in _contents(connection, dataset.id, "reserve")}:
                raise InvalidInput("reservation", reservation.id, "one of this dataset")
            owner = connection.execute(
                select(datasets.c.name, datasets.c.id)
                .join(fingerprints, fingerprints.c.dataset_id == datasets.c.id)
                .where(fingerprints.c.fingerprint == fingerprint)
            ).first()
            if owner is not None and owner.id != dataset.id:
                raise InvalidInput("--dataset", dataset.name, f"{owner.name}, under which this data has its budget")
            if owner is None:
                try:
                    connection.execute(insert(fingerprints).values(fingerprint=fingerprint, dataset_id=dataset.id))
                except sqlalchemy.exc.IntegrityError:
                    raise InvalidInput(
                        "--dataset", dataset.name, "the name under which this data has its budget"
                    ) from None
            _append(connection, dataset, {"kind": "bind", "id": reservation.id, "fingerprint": fingerprint})

    def require(self, reservation: Reservation) -> None:
        """Raise :class:`InvalidInput` unless the dataset has this reservation, and has not committed it."""
        with storage_errors(self._shown), snapshot(self._engine) as connection:
            dataset = self._dataset(connection, reservation.dataset)
            reserved = {content["id"] for content in _contents(connection, dataset.id, "reserve")}
            committed = {content["id"] for content in _contents(connection, dataset.id, "commit")}
            if reservation.id not in reserved - committed:
                raise InvalidInput("reservation", reservation.id, "one of this dataset that is not committed yet")

    def commit(self, reservation: Reservation, *, result: str) -> None:
        """Record that what was reserved is done, and what came of it. The cost is the same without it.

        Raises:
            InvalidInput: no such reservation, or it was committed before.
        """
        with storage_errors(self._shown), writing(self._engine) as connection:
            dataset = self._dataset(connection, reservation.dataset, lock=True)
            reserved = {content["id"] for content in _contents(connection, dataset.id, "reserve")}
            committed = {content["id"] for content in _contents(connection, dataset.id, "commit")}
            if reservation.id not in reserved - committed:
                raise InvalidInput("reservation", reservation.id, "one of this dataset that is not committed yet")
            _append(connection, dataset, {"kind": "commit", "id": reservation.id, "result": result})

    def names(self) -> list[str]:
        """The datasets that have a budget."""
        with storage_errors(self._shown), snapshot(self._engine) as connection:
            return [row.name for row in connection.execute(select(datasets.c.name).order_by(datasets.c.name))]

    def budget(self, name: str) -> Budget:
        """What dataset ``name`` may cost and has cost."""
        with storage_errors(self._shown), snapshot(self._engine) as connection:
            dataset = self._dataset(connection, name)
            reserves = _contents(connection, dataset.id, "reserve")
            commits = _contents(connection, dataset.id, "commit")
        adjacency = Adjacency(dataset.adjacency)
        spent = price([entry_event(content) for content in reserves], dataset.delta, adjacency)
        open_ones = len({c["id"] for c in reserves} - {c["id"] for c in commits})
        return Budget(name, dataset.epsilon, dataset.delta, adjacency, spent, len(reserves), open_ones, dataset.head)

    def history(self, name: str) -> list[dict[str, Any]]:
        """Every entry of dataset ``name``, oldest first, with its number and hash."""
        with storage_errors(self._shown), snapshot(self._engine) as connection:
            dataset = self._dataset(connection, name)
            rows = connection.execute(
                select(entries).where(entries.c.dataset_id == dataset.id).order_by(entries.c.number)
            ).all()
        return [{**parse(row.content), "number": row.number, "hash": row.hash} for row in rows]

    def everything(self) -> tuple[list[Row[Any]], list[Row[Any]], list[Row[Any]]]:
        """Rows of datasets, entries and fingerprints as they are at one moment, for :func:`verify_ledger`."""
        with storage_errors(self._shown), snapshot(self._engine) as connection:
            return (
                list(connection.execute(select(datasets).order_by(datasets.c.name))),
                list(connection.execute(select(entries).order_by(entries.c.dataset_id, entries.c.number))),
                list(connection.execute(select(fingerprints))),
            )

    def _dataset(self, connection: Connection, name: str, *, lock: bool = False) -> Row[Any]:
        query = select(datasets).where(datasets.c.name == name)
        # SQLite has no row locks: its writers hold the whole file from the start.
        found = connection.execute(query.with_for_update() if lock else query).first()
        if found is None:
            raise InvalidInput("--dataset", name, "a dataset with a budget (privmix ledger init)")
        check_dataset(found)
        return found


def check_dataset(row: Row[Any]) -> None:
    """Raise :class:`InvalidInput` unless the row is one that privmix may have written."""
    check_choice("ledger adjacency", row.adjacency, [relation.value for relation in Adjacency])
    check_number("ledger epsilon", row.epsilon, low=0, low_open=True)
    check_number("ledger delta", row.delta, low=0, high=1, high_open=True)


def price(events: list[Event], delta: float, adjacency: Adjacency) -> float:
    """Epsilon of all ``events`` together, an upper bound."""
    if not events:
        return 0.0
    accountant = "pld" if delta > 0 else "pure"
    cost = epsilon(Composed(tuple(events)), delta, accountant=accountant, adjacency=adjacency).epsilon
    return math.inf if math.isnan(cost) else cost


def entry_event(content: dict[str, Any]) -> Event:
    """The event that a reserve entry charged."""
    return event_from_dict(content["event"])


def _contents(connection: Connection, dataset_id: int, kind: str) -> list[dict[str, Any]]:
    rows = connection.execute(
        select(entries.c.content).where(entries.c.dataset_id == dataset_id).order_by(entries.c.number)
    )
    return [content for content in (parse(row.content) for row in rows) if content["kind"] == kind]


def parse(text: str) -> dict[str, Any]:
    """The content of an entry."""
    try:
        content = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        content = None
    kind = content.get("kind") if isinstance(content, dict) else None
    if not isinstance(kind, str) or not _FIELDS.get(kind, {""}) <= set(content):
        raise InvalidInput("ledger entry", text, "an entry that privmix wrote")
    return dict(content)


def _append(connection: Connection, dataset: Row[Any], content: dict[str, Any]) -> None:
    text = canonical({**content, "at": datetime.now(UTC).isoformat(timespec="seconds")})
    number, digest = dataset.entries + 1, chained(dataset.head, text)
    connection.execute(insert(entries).values(dataset_id=dataset.id, number=number, content=text, hash=digest))
    connection.execute(update(datasets).where(datasets.c.id == dataset.id).values(entries=number, head=digest))
