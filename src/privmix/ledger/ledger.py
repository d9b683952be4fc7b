"""The ledger: the total budget of each private dataset, and what was spent of it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy
from sqlalchemy import Connection, Engine, Row, insert, select

from privmix.accounting.events import Adjacency, Event, event_from_dict, event_to_dict
from privmix.accounting.filters import Filter, make_filter
from privmix.errors import WITHHELD, InvalidInput, check_choice, check_number
from privmix.fields import is_printable, stored
from privmix.ledger import pricing
from privmix.ledger.contents import DataIdentity, bind, owners_of
from privmix.ledger.database import (
    FIRST_HASH,
    canonical,
    chained,
    datasets,
    entries,
    fingerprints,
    open_engine,
    shown_url,
    snapshot,
    storage_errors,
    writing,
)
from privmix.ledger.entries import Budget, Reservation, append_entry, binding, contents_of, parse, reserved_entry

# The width of the column of names in the database.
_LONGEST = 200
# Seconds to wait for the lock: everyone who reserves on the same dataset prices its history in turn. This is slower
# than an optimistic retry for one process, but never wrong, and linear in time for many.
_PATIENCE = 300.0


class Ledger:
    """Budgets of private datasets, in SQLite or PostgreSQL.

    Formal guarantees:
        * reserve before reading: when :meth:`reserve` returns, the charge is on disk; a crash at any point leaves the
          budget spent or the charge refused, never spent and not recorded;
        * never overspent: reservations of one dataset are decided one at a time, each against everything before it;
        * composed, not added: what counts for a planned budget is the epsilon of all events together at its delta, by
          the PLD accountant (pure DP where delta is 0), an upper bound for plans that were fixed in advance or chosen
          without seeing earlier results;
        * adaptive budgets hold for any choice of plans: costs add up in a privacy filter
          (:mod:`privmix.accounting.filters`), which was fixed when the budget was made;
        * as it was set: a budget that is no longer what its first entry set, or a history without its end, is refused
          by every read and every charge;
        * one adjacency and one unit: a plan priced for other pairs of datasets is refused, not converted. One exception
          is asked for by name. If every person has at most a known number of records, a plan priced for records is
          charged to persons at the price of this number of records together;
        * nothing comes back: no entry is ever changed or removed, and a reservation that was not used stays spent;
        * one budget for one content: a file that is known under a name, byte by byte, is refused under another, with
          any other files and in any place. A refusal charges nothing. This is against mistakes; the same records in
          other files, and a file of which one record was changed, are other content to it.

    Not covered: a planned budget is not a privacy filter. A user who picks a plan after seeing an earlier result can
    spend more than its total; only an adaptive budget is valid then.

    Not covered: a user who can write to the database can replace it; :func:`verify_ledger` with a kept hash notices.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._shown = shown_url(engine.url)

    def __repr__(self) -> str:
        return f"Ledger({self._shown})"

    @classmethod
    def open(cls, url: str, *, patience: float = _PATIENCE) -> Ledger:
        """Open the ledger at ``url``: ``sqlite:///FILE`` or ``postgresql://USER@HOST/DATABASE``.

        Raises :class:`InvalidInput` where there is none, or one of another version.
        """
        return cls(open_engine(url, create=False, patience=patience))

    @classmethod
    def create(cls, url: str, *, patience: float = _PATIENCE) -> Ledger:
        """Open the ledger at ``url``; make it, or bring it to this version, where needed."""
        return cls(open_engine(url, create=True, patience=patience))

    @classmethod
    def upgrade(cls, url: str, *, patience: float = _PATIENCE) -> Ledger:
        """Open the ledger at ``url``, which must exist; bring one of an earlier version to this one."""
        return cls(open_engine(url, create=False, patience=patience, upgrade=True))

    def add_dataset(
        self,
        name: str,
        *,
        epsilon: float,
        delta: float,
        adjacency: Adjacency = Adjacency.ADD_REMOVE,
        adaptive: str | None = None,
        unit: str = pricing.RECORD,
    ) -> Filter | None:
        """Give dataset ``name`` a total budget, once.

        Args:
            adaptive: the name of a privacy filter (gdp or rdp), which is returned: the total then holds for plans
            chosen
                after seeing earlier results, too. With None, for plans fixed in advance.
            unit: ``"record"``, or ``"person"``: charges are then for persons with all of their records.
        """
        check_number("epsilon", epsilon, low=0, low_open=True)
        check_number("delta", delta, low=0, high=1, high_open=True)
        if not name.strip() or len(name) > _LONGEST or not is_printable(name):
            raise InvalidInput("dataset", name, f"a printable name of at most {_LONGEST} characters")
        check_choice("unit", unit, pricing.UNITS)
        made = None if adaptive is None else make_filter(adaptive, epsilon, delta)
        row = {"name": name, "epsilon": epsilon, "delta": delta, "adjacency": adjacency.value}
        if made is not None:
            row["filter"] = canonical(stored(made))
        if unit != pricing.RECORD:
            row["unit"] = unit
        with storage_errors(self._shown), writing(self._engine) as connection:
            if connection.execute(select(datasets.c.id).where(datasets.c.name == name)).first():
                raise InvalidInput("dataset", name, "a dataset without a budget; budgets are set once")
            # On PostgreSQL two callers can both pass the check above: the unique name decides.
            try:
                connection.execute(insert(datasets).values(**row, entries=0, head=FIRST_HASH))
            except sqlalchemy.exc.IntegrityError:
                raise InvalidInput("dataset", name, "a dataset without a budget; budgets are set once") from None
            append_entry(connection, self._row(connection, name), {"kind": "init", **row})
        return made

    def reserve(
        self,
        name: str,
        event: Event,
        *,
        adjacency: Adjacency = Adjacency.ADD_REMOVE,
        unit: str = pricing.RECORD,
        most_per_person: int | None = None,
        purpose: str,
        contents: DataIdentity | None = None,
        id: str | None = None,
        again: bool = False,
    ) -> Reservation:
        """Charge ``event`` to dataset ``name``, durably. Call it before the first private row is used.

        The contents are bound first, in the same transaction: under a wrong name nothing is charged.

        Args:
            event: all that will run, such as ``plan.event``.
            adjacency, unit: of the event's figures; must be the budget's.
            most_per_person: for an event of records and a budget of persons: public upper bound on the records of a
                person; that many together are charged (:func:`privmix.accounting.pricing.group_event`).
            purpose: a word for the history, such as ``"release"``.
            id: of the reservation, 32 hexadecimal digits that no other caller draws. A second call with the same id
                charges nothing and returns the same. With None, the method draws one.
            again: it was charged under this id before, and is not charged here.

        Raises:
            BudgetExceeded: everything so far and this event would cost more than the budget. The method charges
                nothing.
            InvalidInput: no such dataset, another adjacency or unit, or the data has its budget under another name.
                Also if the id was charged on other terms, or, with ``again``, was not.
            UnsupportedEvent: the event has no price under the budget's adjacency and delta, or by its filter.
        """
        with storage_errors(self._shown), writing(self._engine) as connection:
            # Locked before anything is read: two charges that fit alone may not fit together.
            dataset = self._dataset(connection, name, lock=True)
            new = None if contents is None else bind(connection, dataset, contents)
            charged = pricing.event_for(dataset, event, unit, adjacency, most_per_person)
            charge: dict[str, Any] = {"purpose": purpose, "event": event_to_dict(charged)}
            if most_per_person is not None:
                charge |= {pricing.CAP: most_per_person, "record_event": event_to_dict(event)}
            known = None if id is None else reserved_entry(connection, id)
            if known is not None:
                # Same id, other terms: a cheap charge would cover an expensive run. Absent fields count as None.
                terms = {field: known[1].get(field) for field in ("purpose", "event", pricing.CAP, "record_event")}
                if known[0] != dataset.id or canonical(terms) != canonical(dict.fromkeys(terms) | charge):
                    raise InvalidInput("reservation", id, "a reservation with unchanged terms")
                reservation = Reservation(known[1]["id"], name, known[1]["spent"])
            # The run was charged before: a ledger without its charge is another one, or an old backup.
            elif again:
                raise InvalidInput("reservation", id, "a reservation of this ledger and dataset")
            else:
                spending = self._spending(connection, dataset, charged)
                # Callers may note an id before the charge: after a kill, a second call finds what was charged.
                reservation = Reservation(id or uuid.uuid4().hex, name, spending.epsilon)
                charge |= {} if spending.cost is None else {"cost": dict(vars(spending.cost))}
                entry = {"kind": "reserve", "id": reservation.id, **charge, "spent": spending.epsilon}
                append_entry(connection, dataset, entry)
            if new is not None:
                # A row is read again: the entry above moved the end of the history.
                append_entry(connection, self._dataset(connection, name), binding(reservation, contents, new))
        return reservation

    def check(
        self,
        name: str,
        event: Event,
        *,
        adjacency: Adjacency = Adjacency.ADD_REMOVE,
        unit: str = pricing.RECORD,
        most_per_person: int | None = None,
    ) -> None:
        """Raise what :meth:`reserve` would raise of the budget, without charging: before a large dataset is hashed."""
        with storage_errors(self._shown), snapshot(self._engine) as connection:
            dataset = self._dataset(connection, name)
            self._spending(connection, dataset, pricing.event_for(dataset, event, unit, adjacency, most_per_person))

    def bind(self, reservation: Reservation, steps: Sequence[str]) -> None:
        """Record which records a charge serves, before the first draw of the last of ``steps``.

        ``steps`` has a keyed hash of the records of each step of a series so far, in order; any other charge has one. A
        step that was bound to other records, or to the same under another key, is refused.
        """
        with storage_errors(self._shown), writing(self._engine) as connection:
            # Two copies of one run may bind at once: the lock lets the second see the entry of the first.
            dataset = self._dataset(connection, reservation.dataset, lock=True)
            known = reserved_entry(connection, reservation.id)
            if known is None or known[0] != dataset.id:
                raise InvalidInput("reservation", reservation.id, "a reservation of this dataset")
            bound = {
                one["step"]: one["content"]
                for one in contents_of(connection, dataset.id, "bind")
                if one["id"] == reservation.id and "step" in one
            }
            for step, content in enumerate(steps, start=1):
                if bound.get(step, content) != content:
                    # The difference of two releases under one noise is free of noise.
                    allowed = (
                        f"the records with which step {step} of this charge began, as the ledger lists them. A copy "
                        "or backup of a folder of a run or series cannot be used for other records"
                    )
                    raise InvalidInput("data", WITHHELD, allowed)
                if step not in bound:
                    entry = {"kind": "bind", "id": reservation.id, "files": [], "content": content, "step": step}
                    append_entry(connection, self._dataset(connection, reservation.dataset), entry)

    def knows(self, contents: DataIdentity) -> bool:
        """Whether any of the files, byte by byte, was charged here; a copy in another form is not known."""
        with storage_errors(self._shown), snapshot(self._engine) as connection:
            return bool(owners_of(connection, contents))

    def knows_data(self) -> bool:
        """Whether any data were charged to a budget here: without, there are none to recognise."""
        with storage_errors(self._shown), snapshot(self._engine) as connection:
            return connection.execute(select(fingerprints.c.kind)).first() is not None

    def keeps_listings(self) -> bool:
        """Whether an earlier version bound contents here by one hash of all files of a place."""
        with storage_errors(self._shown), snapshot(self._engine) as connection:
            listings = select(fingerprints.c.kind).where(fingerprints.c.kind == "listing")
            return connection.execute(listings).first() is not None

    def mode(self, name: str) -> str:
        """``"planned"`` or ``"adaptive"``."""
        with storage_errors(self._shown), snapshot(self._engine) as connection:
            return _mode(self._dataset(connection, name))

    def charged(self, reservation: Reservation) -> Event:
        """Return the event that an open reservation paid for; for records charged to persons, that of one record."""
        with storage_errors(self._shown), snapshot(self._engine) as connection:
            dataset = self._dataset(connection, reservation.dataset)
            entry = _uncommitted(connection, dataset, reservation)
            # A certificate is about one record; the charged event is that of a person's whole group.
            return event_from_dict(entry.get("record_event", entry["event"]))

    def commit(self, reservation: Reservation, *, result: str) -> None:
        """Record, once, that a reservation is done, and its result. The cost is the same without it."""
        with storage_errors(self._shown), writing(self._engine) as connection:
            dataset = self._dataset(connection, reservation.dataset, lock=True)
            _uncommitted(connection, dataset, reservation)
            append_entry(connection, dataset, {"kind": "commit", "id": reservation.id, "result": result})

    def names(self) -> list[str]:
        with storage_errors(self._shown), snapshot(self._engine) as connection:
            return [row.name for row in connection.execute(select(datasets.c.name).order_by(datasets.c.name))]

    def budget(self, name: str) -> Budget:
        """Budget and spending of dataset ``name``, priced again."""
        return self._budget(name, pricing.check_dataset, pricing.spent_of)

    def stated_budget(self, name: str) -> Budget:
        """Return budget and spending of dataset ``name`` as its newest charge was priced: fast with many charges, too.

        :func:`verify_ledger` prices everything again, and refuses a statement that is too small.
        """
        return self._budget(name, pricing.check_row, pricing.stated_of)

    def _budget(
        self, name: str, check: Callable[[Row[Any]], None], spending_of: Callable[..., pricing.TotalCost]
    ) -> Budget:
        # One snapshot: a charge or a commit between two reads would make the counts disagree.
        with storage_errors(self._shown), snapshot(self._engine) as connection:
            dataset = self._dataset(connection, name, check=check)
            reserves = contents_of(connection, dataset.id, "reserve")
            commits = contents_of(connection, dataset.id, "commit")
        spending, kept = spending_of(dataset, reserves), pricing.filter_of(dataset)
        return Budget(
            name,
            dataset.epsilon,
            dataset.delta,
            Adjacency(dataset.adjacency),
            spending.epsilon,
            len(reserves),
            len({c["id"] for c in reserves} - {c["id"] for c in commits}),
            dataset.head,
            _mode(dataset),
            None if kept is None else kept.name,
            spending.share,
            dataset.unit,
            pricing.cap_of(reserves),
        )

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

    def _spending(self, connection: Connection, dataset: Row[Any], event: Event) -> pricing.TotalCost:
        return pricing.with_event(dataset, contents_of(connection, dataset.id, "reserve"), event)

    def _dataset(
        self,
        connection: Connection,
        name: str,
        *,
        lock: bool = False,
        check: Callable[[Row[Any]], None] = pricing.check_dataset,
    ) -> Row[Any]:
        """Return the dataset's row, checked against the first and last entries of its history."""
        found = self._row(connection, name, lock=lock)
        check(found)
        # Two entries are enough to notice an edited budget and a cut end, and stay fast; `verify_ledger` hashes all.
        own = select(entries).where(entries.c.dataset_id == found.id)
        first = connection.execute(own.order_by(entries.c.number)).first()
        last = connection.execute(own.order_by(entries.c.number.desc())).first()
        if first is None or last is None or first.hash != chained(FIRST_HASH, first.content):
            raise InvalidInput(f"budget of {name}", "no first entry, or another one", "the terms in the first entry")
        pricing.check_first(found, parse(first.content))
        # An entry cut off the end, or a row set back, would return spent budget.
        if (last.number, last.hash) != (found.entries, found.head):
            raise InvalidInput(f"ledger history of {name}", last.number, f"{found.entries} entries, as in its row")
        return found

    def _row(self, connection: Connection, name: str, *, lock: bool = False) -> Row[Any]:
        query = select(datasets).where(datasets.c.name == name)
        # SQLite has no row locks: its writers hold the whole file from the start.
        found = connection.execute(query.with_for_update() if lock else query).first()
        if found is None:
            raise InvalidInput("dataset", name, "a dataset with a budget (privmix ledger init)")
        return found


def _uncommitted(connection: Connection, dataset: Row[Any], reservation: Reservation) -> dict[str, Any]:
    """Return a reservation's entry; raise :class:`InvalidInput` where there is none, or its result is known."""
    committed = {content["id"] for content in contents_of(connection, dataset.id, "commit")}
    for entry in contents_of(connection, dataset.id, "reserve"):
        if entry["id"] == reservation.id and entry["id"] not in committed:
            return entry
    raise InvalidInput("reservation", reservation.id, "a reservation of this dataset that is not committed yet")


def _mode(dataset: Row[Any]) -> str:
    return pricing.PLANNED if dataset.filter is None else pricing.ADAPTIVE
