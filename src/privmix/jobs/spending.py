"""What a job that failed had cost, for its owner: what was charged, what is left, and how to go on.

All of it are figures of the plan and of the ledger, and what became of the run; nothing is said of a record.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from privmix.errors import PrivmixError
from privmix.jobs.budget import Charge
from privmix.ledger import Budget
from privmix.mechanisms.run import Run
from privmix.mechanisms.run_place import RunState
from privmix.rounding import exact, rounded_down, rounded_up

_ATTRIBUTE: Final = "spent"


@dataclass(frozen=True)
class Spent:
    """What a failed job had cost. Its text is the last note of the error (``__notes__``), which tracebacks show.

    Attributes:
        epsilon, delta: what its charge pays for.
        dataset: in the ledger; None where none is used, and nothing was recorded.
        budget: of the dataset, with this charge; None without a ledger, or where it can't be asked.
        drawn: noise may have been drawn for the records, so that answers may exist; False: nobody can have seen any.
        kept: the run is there, and goes on with ``resume``.
        mended: it goes on with mended data, too.
        known: whether it is known that it was charged: an answer of the ledger may be lost.
        pending: whether a charge for it is still to be made, or found.
    """

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
            none = "no ledger was given, so nothing is recorded;"
            if self.drawn:
                return f"{none} noise was drawn, so count {cost} as spent."
            return f"{none} no noise was drawn and nothing was published: nothing is spent."
        if not self.known:
            return f"whether {cost} was charged to dataset {self.dataset!r} is not known. No record was read."
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
                "The run is kept: mend the data, as many records as before, and give the same command with `resume`; "
                "that is not charged again. privmix check finds what does not fit, for your eyes alone."
            )
        if self.kept and self.pending:
            return "The run is kept: the same command with `resume` goes on; what was charged is not charged again."
        if self.kept:
            return "The run is kept: the same command with `resume` finishes it and costs nothing more."
        if self.dataset is None and not self.drawn:
            return "No run is kept: begin anew."
        return "No run is kept: another one costs its epsilon again."


@dataclass(eq=False)
class Spending:
    """What of a job's cost is to be told if it fails now; the job fills it in as it goes.

    Attributes:
        epsilon, delta: what its charge pays for.
        left: gives the run that can go on, if there is one.
        charged: what was charged; None before: then there is nothing to tell.
        asked: the dataset that is being charged: whether it was may not be known.
        run: whose records are bound where noise was drawn for them.
        drawn: whether noise was drawn beside what the run knows of.
    """

    epsilon: float
    delta: float
    left: Callable[[], RunState | None] = lambda: None
    charged: Charge | None = None
    asked: str | None = None
    run: Run | None = None
    drawn: bool = False

    def spent(self) -> Spent | None:
        """What is to be told, looked up now."""
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
    """An error that leaves the block carries what was spent; see :func:`spent_of`. It is the same error otherwise.

    Example:
        >>> with telling(Spending(2.0, 1e-5)) as spending:
        ...     spending.charged = Charge()
        ...     raise ValueError("a record that is none")
        Traceback (most recent call last):
        ...
        ValueError: a record that is none
        budget: no ledger was given, so nothing is recorded; no noise was drawn and nothing was published: nothing is \
spent. No run is kept: begin anew.
    """
    try:
        yield spending
    except BaseException as error:
        if spent_of(error) is None:
            _note(error, spending.spent())
        raise


def spent_of(error: BaseException) -> Spent | None:
    """What a job that ended with this error had cost; None where nothing was charged for it.

    Example:
        >>> spent_of(ValueError("something else")) is None
        True
    """
    found: Any = getattr(error, _ATTRIBUTE, None)
    return found if isinstance(found, Spent) else None


def not_kept(error: BaseException) -> None:
    """Say that there is no run to go on with: its place is gone, too."""
    spent = spent_of(error)
    if spent is not None and spent.kept:
        error.__notes__.remove(str(spent))
        _note(error, replace(spent, kept=False, mended=False))


def _note(error: BaseException, spent: Spent | None) -> None:
    if spent is not None:
        setattr(error, _ATTRIBUTE, spent)
        error.add_note(str(spent))
