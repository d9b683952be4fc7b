"""Charge a job to a ledger, before it uses a record and once, and state the cost of a failed job to its owner."""

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from privmix.accounting.events import Adjacency, Event
from privmix.certificate.notes import ReservationNote
from privmix.errors import InvalidInput, PrivmixError, Unquoted, check_integer
from privmix.jobs.dataset import Dataset
from privmix.ledger.contents import DataIdentity
from privmix.ledger.entries import Budget, Reservation
from privmix.ledger.ledger import Ledger
from privmix.ledger.pricing import CAP
from privmix.mechanisms.run import Run
from privmix.mechanisms.run_folder import RunState
from privmix.rounding import exact, rounded_down, rounded_up

_HIGHEST_SEED: Final = 2**64 - 1
_ATTRIBUTE: Final = "spent"


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
        if self.ledger is not None and self.reservation is not None:
            _book(self.ledger).commit(self.reservation, result=result)

    def budget(self) -> Budget | None:
        """Return the dataset's budget as it is now; None without a ledger."""
        if self.ledger is None or self.reservation is None:
            return None
        # As stated: pricing every charge again takes long where there are many.
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
    return None if note is None else {**note, "charged": True}


def check_noted(ledger: str | Ledger | None, dataset: str | None, note: Mapping[str, Any] | None) -> None:
    """Raise :class:`InvalidInput` unless a run's charge is of this dataset, and of a ledger where one is given."""
    if (ledger is None) != (note is None):
        # Not its address, which may hold a password.
        given = ledger and "a ledger"
        raise InvalidInput("ledger", given, "the ledger of the interrupted run, or none if it had none")
    if note is not None and note["dataset"] != dataset:
        raise InvalidInput("dataset", dataset, "the dataset that the interrupted run was charged to")


def check_budget(
    ledger: Any, dataset: str | None, seed: int | None, what: str, most_per_person: int | None = None
) -> None:
    """Raise :class:`InvalidInput` unless the options of a charge go together; `what` is paid for, as "a release"."""
    if (ledger is None) != (dataset is None):
        # Its address may hold a password.
        raise InvalidInput("ledger, dataset", Unquoted("only one of the two"), "both options, or neither")
    if seed is not None:
        check_integer("seed", seed, low=0, high=_HIGHEST_SEED)
    if ledger is not None and seed is not None:
        why = f"a seed makes the noise predictable, so the privacy cost of {what} is unbounded"
        raise InvalidInput("seed", seed, f"no seed with `ledger`: {why}")
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
        # Only ledgers of the first version know data by listings.
        contents=DataIdentity(files, data.listings() if book.keeps_listings() else ()),
        id=note["id"],
        # Earlier versions noted a charge only once it was made.
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


@dataclass(frozen=True)
class Spent:
    """The cost of a failed job. Its text is the last note of the error (``__notes__``), which tracebacks show."""

    # `budget`: with this charge; None without a ledger, or where it cannot be read. `drawn`: noise may have been
    # drawn, so answers may exist. `kept`: `resume` continues the run; `mended`: with corrected data, too. `known`:
    # False where the ledger's answer may be lost. `pending`: a charge is still to be made, or found.
    epsilon: float
    delta: float
    dataset: str | None
    budget: Budget | None
    drawn: bool
    kept: bool
    mended: bool
    known: bool = True
    pending: bool = False

    def __str__(self) -> str:
        return f"budget: {self._charged()} {self._way_on()}"

    def _charged(self) -> str:
        cost = f"epsilon {rounded_up(self.epsilon, 4)} at delta {exact(self.delta)}"
        if self.dataset is None:
            none = "no ledger was given, so no charge is recorded."
            if self.drawn:
                return f"{none} Noise was drawn: count {cost} as spent."
            return "nothing was spent: no noise was drawn and nothing was published."
        if not self.known:
            return f"{cost} may have been charged to dataset {self.dataset!r}: see the ledger. No record was read."
        left = ""
        if (one := self.budget) is not None:
            rest = rounded_down(max(0.0, one.epsilon - one.spent), 4)
            spent = f"epsilon {rounded_up(one.spent, 4)} of {exact(one.epsilon)} is spent"
            left = f": {spent}, {rest} is left, at delta {exact(one.delta)}"
        seen = "" if self.drawn else " No noise was drawn and nothing was published."
        return f"{cost} was charged to dataset {self.dataset!r} and stays charged{left}.{seen}"

    def _way_on(self) -> str:
        if self.kept and self.mended:
            return (
                "The run is kept: correct the data (same number of records) and run the same command with `resume`. "
                "The resumed run is not charged again. privmix check lists values that do not fit; keep its output "
                "private."
            )
        if self.kept and self.pending:
            return "The run is kept: continue it with the same command and `resume`. No amount is charged twice."
        if self.kept:
            return "The run is kept: finish it with the same command and `resume`, at no further cost."
        if self.dataset is None and not self.drawn:
            return "Run the command again."
        return "No run is kept: a new run costs its epsilon again."


@dataclass(eq=False)
class Spending:
    """The cost to report if a job fails now; the job fills it in."""

    # `left`: gives the run that can resume. `charged` is None before the charge. `asked`: the dataset being charged,
    # where it may not be known whether it was. `drawn`: noise was drawn that the run does not know of.
    epsilon: float
    delta: float
    left: Callable[[], RunState | None] = lambda: None
    charged: Charge | None = None
    asked: str | None = None
    run: Run | None = None
    drawn: bool = False

    def spent(self) -> Spent | None:
        """Return the cost to report, looked up now."""
        charged, run = self.charged, self.run
        if charged is None and self.asked is None:
            return None
        state = budget = None
        # A report on a failure must not replace that failure by another one.
        with contextlib.suppress(PrivmixError):
            state = self.left()
        if charged is None and state is None:
            return None
        if charged is not None:
            with contextlib.suppress(PrivmixError):
                budget = charged.budget()
        notes = () if state is None else (state.extra.get("reservation"), state.extra.get("count"))
        reservation = None if charged is None else charged.reservation
        return Spent(
            self.epsilon,
            self.delta,
            self.asked if reservation is None else reservation.dataset,
            budget,
            self.drawn or (run is not None and run.bound),
            state is not None,
            state is not None and state.refused,
            charged is not None,
            any(note is not None and not note["charged"] for note in notes),
        )


@contextmanager
def telling(spending: Spending) -> Iterator[Spending]:
    """Add what was spent to an error that leaves the block; see :func:`spent_of`."""
    try:
        yield spending
    # Also KeyboardInterrupt: an interrupted job has spent its budget, too.
    except BaseException as error:
        # The innermost report stands: it was made nearest to the failure.
        if spent_of(error) is None:
            _note(error, spending.spent())
        raise


def spent_of(error: BaseException) -> Spent | None:
    """Return the cost of a job that ended with this error; None where nothing was charged for it."""
    found: Any = getattr(error, _ATTRIBUTE, None)
    return found if isinstance(found, Spent) else None


def not_kept(error: BaseException) -> None:
    """Report that no run can be resumed: its place is gone, too."""
    spent = spent_of(error)
    if spent is not None and spent.kept:
        error.__notes__.remove(str(spent))
        _note(error, replace(spent, kept=False, mended=False))


def _note(error: BaseException, spent: Spent | None) -> None:
    if spent is not None:
        setattr(error, _ATTRIBUTE, spent)
        error.add_note(str(spent))
