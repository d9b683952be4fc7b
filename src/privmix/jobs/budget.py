"""What a job is charged to a ledger: before it uses a record, and no second time when it is finished later."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from privmix.accounting import Adjacency, Event
from privmix.certificate.reservation import ReservationNote
from privmix.errors import InvalidInput, check_integer
from privmix.jobs.dataset import Dataset
from privmix.ledger import Budget, Contents, Ledger, Reservation
from privmix.ledger.pricing import CAP

_HIGHEST_SEED: Final = 2**64 - 1


@dataclass(frozen=True)
class Charge:
    """Budget taken from a ledger, or nothing where no ledger is used.

    Attributes:
        ledger: where, or its address.
        reservation: there.
        reserved: what lets the certificate say so.
    """

    ledger: str | Ledger | None = field(default=None, repr=False)
    reservation: Reservation | None = None
    reserved: ReservationNote | None = None

    def done(self, result: str) -> None:
        """Record what came of it."""
        if self.ledger is not None and self.reservation is not None:
            _book(self.ledger).commit(self.reservation, result=result)

    def budget(self) -> Budget | None:
        """The dataset's budget as it is now; None without a ledger.

        Raises:
            StorageError: the ledger can't be read.
        """
        if self.ledger is None or self.reservation is None:
            return None
        return _book(self.ledger).stated_budget(self.reservation.dataset)

    def bind_steps(self, steps: Sequence[str]) -> None:
        """See :meth:`privmix.ledger.Ledger.bind`; without a ledger nothing is bound."""
        if self.ledger is not None and self.reservation is not None:
            _book(self.ledger).bind(self.reservation, steps)


@dataclass(frozen=True)
class Cost:
    """What a job is charged for.

    Attributes:
        event: that happens to the records.
        adjacency: of the guarantee.
        purpose: as the ledger notes it.
        epsilon, delta: as its owner is told of it.
        unit: of the guarantee: record or person.
    """

    event: Event
    adjacency: Adjacency
    purpose: str
    epsilon: float
    delta: float
    unit: str


def new_note(dataset: str | None) -> dict[str, Any] | None:
    """What a run has on disk of a charge before that is made: its id. None without a ledger."""
    return None if dataset is None else {"id": uuid.uuid4().hex, "dataset": dataset, "charged": False}


def charged_note(note: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The same once it is made."""
    return None if note is None else {**note, "charged": True}


def check_noted(ledger: str | Ledger | None, dataset: str | None, note: Mapping[str, Any] | None) -> None:
    """Raise :class:`InvalidInput` unless a run's charge is of this dataset, and of a ledger where one is given."""
    if (ledger is None) != (note is None):
        # Not its address, which may hold a password.
        given = None if ledger is None else "a ledger"
        raise InvalidInput("ledger", given, "as in the interrupted run: given there, or not")
    if note is not None and note["dataset"] != dataset:
        raise InvalidInput("dataset", dataset, "the dataset that the interrupted run was charged to")


def check_budget(ledger: Any, dataset: str | None, seed: int | None, what: str) -> None:
    """Raise :class:`InvalidInput` unless these say who pays for what; reads nothing.

    Args:
        ledger: that is to be charged, or None.
        dataset: its name there, or None.
        seed: of tests and benchmarks, which take the privacy away, or None.
        what: is paid for, as in "a release".

    Example:
        >>> check_budget("sqlite:///l.db", "patients", 7, "a release")
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: seed: got 7; allowed: no seed with `ledger`: a release that anyone can \
re-create has no price
    """
    if (ledger is None) != (dataset is None):
        # Its address may hold a password.
        given = (None if ledger is None else "a ledger", dataset)
        raise InvalidInput("ledger, dataset", given, "both or none of them")
    if seed is not None:
        check_integer("seed", seed, low=0, high=_HIGHEST_SEED)
    if ledger is not None and seed is not None:
        raise InvalidInput("seed", seed, f"no seed with `ledger`: {what} that anyone can re-create has no price")


def check_cap(most_per_person: int | None, ledger: Any) -> None:
    """Raise :class:`InvalidInput` where a cap of a person's records is said and nothing is charged by it."""
    if most_per_person is not None:
        check_integer(CAP, most_per_person, low=1)
        if ledger is None:
            raise InvalidInput(CAP, most_per_person, "nothing without `ledger`: it is for a charge to persons")


def charge(
    ledger: str | Ledger | None, note: Mapping[str, Any] | None, cost: Cost, data: Dataset, most_per_person: int | None
) -> Charge:
    """Take ``cost`` from the budget of a dataset, durably, or find that it was taken. Without a ledger it does nothing.

    A budget of persons is not charged with a price for one record, nor the other way round: with ``most_per_person``
    it is charged with the price of so many.

    Call it before the first private record is used. The files' bytes are hashed before, which nothing but the ledger
    learns of: a hash under another name is refused, and nothing is charged under a wrong one.

    Args:
        ledger: or its address.
        note: see :func:`new_note`; a charge that is noted as made must be there.
        cost, data, most_per_person: of the job.
    """
    if ledger is None or note is None:
        return Charge()
    book = _book(ledger)
    reservation = book.reserve(
        note["dataset"],
        cost.event,
        adjacency=cost.adjacency,
        unit=cost.unit,
        most_per_person=most_per_person,
        purpose=cost.purpose,
        # The data may be other data by now, if a run was interrupted before it noted its records.
        contents=Contents(data.contents(), data.listings() if book.keeps_listings() else ()),
        id=note["id"],
        again=note.get("charged", True),
    )
    return Charge(ledger, reservation, ReservationNote(book, reservation))


def check_held(ledger: str | Ledger | None, dataset: str | None, cost: Cost | None, most_per_person: int | None) -> str:
    """Raise what :func:`charge` would of the budget, before a large dataset is hashed; ``cost`` None: nothing.

    Returns:
        how the budget counts; "none" without a ledger.
    """
    if ledger is None or dataset is None:
        return "none"
    book = _book(ledger)
    if cost is not None:
        book.check(dataset, cost.event, adjacency=cost.adjacency, unit=cost.unit, most_per_person=most_per_person)
    return book.mode(dataset)


def _book(ledger: str | Ledger) -> Ledger:
    return ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
