"""Charge a job to a ledger: before it uses a record, and no second time when it is finished later."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from privmix.accounting.events import Adjacency, Event
from privmix.certificate.notes import ReservationNote
from privmix.errors import InvalidInput, Unquoted, check_integer
from privmix.jobs.dataset import Dataset
from privmix.ledger.contents import DataIdentity
from privmix.ledger.entries import Budget, Reservation
from privmix.ledger.ledger import Ledger
from privmix.ledger.pricing import CAP

_HIGHEST_SEED: Final = 2**64 - 1


@dataclass(frozen=True)
class Charge:
    """Budget taken from a ledger (or its address), with its reservation; empty without a ledger.

    ``files``: hashes of the data that it was taken for.
    """

    ledger: str | Ledger | None = field(default=None, repr=False)
    reservation: Reservation | None = None
    reserved: ReservationNote | None = None
    files: tuple[str, ...] = field(default=(), repr=False)

    def done(self, result: str) -> None:
        """Record what came of it."""
        if self.ledger is not None and self.reservation is not None:
            _book(self.ledger).commit(self.reservation, result=result)

    def budget(self) -> Budget | None:
        """Return the dataset's budget as it is now; None without a ledger."""
        if self.ledger is None or self.reservation is None:
            return None
        return _book(self.ledger).stated_budget(self.reservation.dataset)

    def bind_steps(self, steps: Sequence[str]) -> None:
        if self.ledger is not None and self.reservation is not None:
            _book(self.ledger).bind(self.reservation, steps)


@dataclass(frozen=True)
class JobCost:
    """The charge of a job: event, adjacency, purpose in the ledger, epsilon, delta, and unit (record or person)."""

    event: Event
    adjacency: Adjacency
    purpose: str
    epsilon: float
    delta: float
    unit: str


def new_note(dataset: str | None) -> dict[str, Any] | None:
    """Return the note that a run has on disk of a charge before that is made: its id; None without a ledger."""
    return None if dataset is None else {"id": uuid.uuid4().hex, "dataset": dataset, "charged": False}


def charged_note(note: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the same once it is made."""
    return None if note is None else {**note, "charged": True}


def check_noted(ledger: str | Ledger | None, dataset: str | None, note: Mapping[str, Any] | None) -> None:
    """Raise :class:`InvalidInput` unless a run's charge is of this dataset, and of a ledger where one is given."""
    if (ledger is None) != (note is None):
        # Not its address, which may hold a password.
        given = None if ledger is None else "a ledger"
        raise InvalidInput("ledger", given, "the ledger of the interrupted run, or none if it had none")
    if note is not None and note["dataset"] != dataset:
        raise InvalidInput("dataset", dataset, "the dataset that the interrupted run was charged to")


def check_budget(ledger: Any, dataset: str | None, seed: int | None, what: str) -> None:
    """Raise :class:`InvalidInput` unless ledger, dataset and seed go together; `what` is paid for, as "a release"."""
    if (ledger is None) != (dataset is None):
        # Its address may hold a password.
        given = Unquoted("only one of the two")
        raise InvalidInput("ledger, dataset", given, "both options, or neither")
    if seed is not None:
        check_integer("seed", seed, low=0, high=_HIGHEST_SEED)
    if ledger is not None and seed is not None:
        raise InvalidInput(
            "seed",
            seed,
            f"no seed with `ledger`: a seed makes the noise predictable, so the privacy cost of {what} is unbounded",
        )


def check_cap(most_per_person: int | None, ledger: Any) -> None:
    """Raise :class:`InvalidInput` where a cap of a person's records is given and nothing is charged by it."""
    if most_per_person is not None:
        check_integer(CAP, most_per_person, low=1)
        if ledger is None:
            raise InvalidInput(CAP, most_per_person, "only with `ledger`, for a budget of persons")


def charge(
    ledger: str | Ledger | None,
    note: Mapping[str, Any] | None,
    cost: JobCost,
    data: Dataset,
    most_per_person: int | None,
) -> Charge:
    """Take `cost` from a dataset's budget, durably, before a private record is used, or find the charge of `note`."""
    # A budget of persons is not charged with a price for one record, nor the other way round: `most_per_person` gives
    # the price of that number of records. The files are hashed first, which only the ledger learns: a hash under
    # another name is refused. Without a ledger nothing happens.
    if ledger is None or note is None:
        return Charge()
    book = _book(ledger)
    files = data.contents()
    reservation = book.reserve(
        note["dataset"],
        cost.event,
        adjacency=cost.adjacency,
        unit=cost.unit,
        most_per_person=most_per_person,
        purpose=cost.purpose,
        # The data may be other data by now, if a run was interrupted before it noted its records.
        contents=DataIdentity(files, data.listings() if book.keeps_listings() else ()),
        id=note["id"],
        again=note.get("charged", True),
    )
    return Charge(ledger, reservation, ReservationNote(book, reservation), files)


def check_held(
    ledger: str | Ledger | None, dataset: str | None, cost: JobCost | None, most_per_person: int | None
) -> str:
    """Raise what :func:`charge` would, before a large dataset is hashed; return how the budget counts, or "none"."""
    if ledger is None or dataset is None:
        return "none"
    book = _book(ledger)
    if cost is not None:
        book.check(dataset, cost.event, adjacency=cost.adjacency, unit=cost.unit, most_per_person=most_per_person)
    return book.mode(dataset)


def _book(ledger: str | Ledger) -> Ledger:
    return ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
