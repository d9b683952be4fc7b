"""What every job that can be charged asks of its options."""

from __future__ import annotations

from typing import Any, Final

from privmix.errors import InvalidInput, check_integer
from privmix.mechanisms.run_place import RunState

_HIGHEST_SEED: Final = 2**64 - 1


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


def check_same_seed(state: RunState, seed: int | None) -> None:
    """Raise :class:`InvalidInput` unless the seed is the one that an interrupted run began with.

    A run goes on with its own key, so that another seed would be said and not used.

    Args:
        state: of the run, whose maker noted its seed in ``extra``; a complete run has no notes any more, and draws
            nothing.
        seed: given now, or None.

    Example:
        >>> check_same_seed(RunState("a", {}, {"seed": None}, False), 3)
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: seed: got 3; allowed: no seed, as in the interrupted run
    """
    if state.complete and not state.extra:
        return
    before = state.extra.get("seed")
    if before != seed:
        raise InvalidInput("seed", seed, f"{'no seed' if before is None else before}, as in the interrupted run")
