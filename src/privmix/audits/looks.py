"""Audits that may stop at any time: when enough is proven, a claim is refuted, or time is over.

Scores are read at a number of runs that doubles, and once at the end of the time. The k-th look has the share 1 / (k (k
+ 1)) of the chance of error; the shares sum to 1. All looks hold together, whenever the audit stops, and the best may
be reported. Kutta, Dunsche, Wei and Zikas (2026) stop by asymptotic theory; looks are exact.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from privmix.audits.bounds import check_audit
from privmix.audits.verdict import AuditVerdict
from privmix.audits.worst_case import AttackScores
from privmix.errors import check_number
from privmix.progress import Progress

FIRST: Final = 2_000
"""Runs before the first look."""

MOST_RUNS: Final = 10_000_000
"""Runs of an audit that something else stops: their scores fit in half a gigabyte."""

Attack = Callable[[int, int, float, Progress | None], AttackScores]
"""Function of (further runs, earlier runs, deadline, progress) to scores."""

Judge = Callable[[AttackScores, float, float], AuditVerdict]
"""Function of (scores, confidence, chance of error of each test) to an audit."""


@dataclass(frozen=True)
class Stopping:
    """When an audit stops early: after ``seconds``, or once ``enough``, a share of the claimed epsilon, is proven."""

    seconds: float | None = None
    enough: float | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None:
            check_number("seconds", self.seconds, low=0, low_open=True)
        if self.enough is not None:
            check_number("enough", self.enough, low=0, high=1, low_open=True)

    @property
    def looks_once(self) -> bool:
        """Whether only the number of runs decides."""
        return self.seconds is None and self.enough is None


def share_of_look(number: int) -> float:
    """Return the share of the chance of error of look ``number``, from 1."""
    return 1 / (number * (number + 1))


def audit_until(
    attack: Attack,
    judge: Judge,
    stopping: Stopping,
    *,
    claimed_epsilon: float,
    delta: float,
    runs: int,
    confidence: float,
    progress: Progress | None = None,
) -> AuditVerdict:
    """Attack and judge until ``stopping`` or ``runs`` runs.

    Formal guarantees:
        * Any time: each bound of the result, and ``violated``, is wrong with chance at most 1 - ``confidence``. The
          moment to stop may depend in any way on what was seen.
    """
    share = check_audit(claimed_epsilon, delta, runs, confidence)
    # A single look keeps the whole chance of error.
    if stopping.looks_once:
        return judge(attack(runs, 0, math.inf, progress), confidence, share)
    until = math.inf if stopping.seconds is None else time.monotonic() + stopping.seconds
    wanted, number = min(FIRST, runs), 1
    # An audit may end at its first look, so that look alone must be able to prove something.
    check_audit(claimed_epsilon, delta, wanted, _at_look(number, confidence))
    scores: AttackScores | None = None
    best: AuditVerdict | None = None
    while True:
        done = 0 if scores is None else 2 * len(scores.without)
        more = attack(wanted - done, done, until, progress)
        # Each look judges all runs so far: the new ones alone would give looser bounds.
        scores = more if scores is None else scores.and_then(more)
        level = _at_look(number, confidence)
        found = judge(scores, level, (1 - level) / 2)
        best = found if best is None else _better(best, found)
        best = replace(best, confidence=confidence, looks=number)
        # Runs come in pairs, with and without the canary: an odd number leaves one out.
        if found.runs >= runs - 1 or time.monotonic() > until:
            return best
        if stopping.enough is not None and (
            best.violated or best.proven_epsilon >= stopping.enough * best.claimed_epsilon
        ):
            return best
        wanted, number = min(runs, 2 * wanted), number + 1


def _at_look(number: int, confidence: float) -> float:
    return 1 - (1 - confidence) * share_of_look(number)


def _better(before: AuditVerdict, found: AuditVerdict) -> AuditVerdict:
    """Return the last look's figures, with the best bound of all looks."""
    linear = [value for value in (before.linear_epsilon, found.linear_epsilon) if value is not None]
    return replace(
        found,
        proven_epsilon=max(before.proven_epsilon, found.proven_epsilon),
        linear_epsilon=max(linear, default=None),
        below_curve=before.below_curve or found.below_curve,
        violated=before.violated or found.violated,
    )
