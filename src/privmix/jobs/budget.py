"""What a job is charged to a ledger: before it uses a record, and no second time when it is finished later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
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

    @classmethod
    def _of(cls, ledger: str | Ledger, book: Ledger, reservation: Reservation) -> Charge:
        return cls(ledger, reservation, ReservationNote(book, reservation))

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

    def note(self) -> dict[str, Any] | None:
        """What an interrupted run must remember to find its reservation again."""
        return None if self.reservation is None else asdict(self.reservation)

    @classmethod
    def again(
        cls, ledger: str | Ledger | None, dataset: str | None, note: Mapping[str, Any] | None, data: Dataset
    ) -> Charge:
        """The charge of an interrupted run: it was made before and is not made twice.

        Raises:
            InvalidInput: the ledger or dataset is another one than the run was charged to, or the data has its budget
                under another name.
        """
        if (ledger is None) != (note is None):
            # Not its address, which may hold a password.
            given = None if ledger is None else "a ledger"
            raise InvalidInput("ledger", given, "as in the interrupted run: given there, or not")
        if ledger is None or note is None:
            return cls()
        reservation = Reservation(**note)
        if reservation.dataset != dataset:
            raise InvalidInput("dataset", dataset, "the dataset that the interrupted run was charged to")
        book = _book(ledger)
        found = cls._of(ledger, book, reservation)
        # The data may be other data by now, if the run was interrupted before it noted its records.
        book.bind(reservation, _contents(book, data))
        return found


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
    ledger: str | Ledger | None,
    dataset: str | None,
    event: Event,
    adjacency: Adjacency,
    purpose: str,
    data: Dataset,
    unit: str,
    most_per_person: int | None = None,
) -> Charge:
    """Take the cost of ``event`` from the dataset's budget, durably. Without a ledger it does nothing.

    A budget of persons is not charged with a price for one record, nor the other way round: with ``most_per_person``
    it is charged with the price of so many.

    Call it before the first private record is used. The files' bytes are hashed before, which nothing but the ledger
    learns of: a hash under another name is refused, and nothing is charged under a wrong one.
    """
    if ledger is None or dataset is None:
        return Charge()
    book = _book(ledger)
    # What the budget does not hold is refused before a large dataset is hashed.
    book.check(dataset, event, adjacency=adjacency, unit=unit, most_per_person=most_per_person)
    contents = _contents(book, data)
    reservation = book.reserve(
        dataset,
        event,
        adjacency=adjacency,
        unit=unit,
        most_per_person=most_per_person,
        purpose=purpose,
        contents=contents,
    )
    return Charge._of(ledger, book, reservation)


def _book(ledger: str | Ledger) -> Ledger:
    return ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)


def _contents(book: Ledger, data: Dataset) -> Contents:
    """What the ledger knows the data by; also as earlier versions did, where it holds what they wrote."""
    return Contents(data.contents(), data.listings() if book.keeps_listings() else ())
