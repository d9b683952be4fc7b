"""Cost of a failed job, for its owner: what was charged, what is left, and how to resume. It describes no record."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from privmix.errors import PrivmixError
from privmix.jobs.budget import Charge
from privmix.ledger.entries import Budget
from privmix.mechanisms.run import Run
from privmix.mechanisms.run_folder import RunState
from privmix.rounding import exact, rounded_down, rounded_up

_ATTRIBUTE: Final = "spent"


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
        seen = "" if self.drawn else " No noise was drawn and nothing was published."
        return f"{cost} was charged to dataset {self.dataset!r} and stays charged{self._left()}.{seen}"

    def _left(self) -> str:
        one = self.budget
        if one is None:
            return ""
        left = rounded_down(max(0.0, one.epsilon - one.spent), 4)
        return (
            f": epsilon {rounded_up(one.spent, 4)} of {exact(one.epsilon)} is spent, {left} is left, "
            f"at delta {exact(one.delta)}"
        )

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
    except BaseException as error:
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
