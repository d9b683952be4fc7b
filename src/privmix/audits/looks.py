"""Audits that may stop at any time: as soon as enough is proven, a claim is refuted, or a time is over.

Scores are looked at after so many runs, after twice, four times as many, and once more where time is over. The k-th
look has the share 1 / (k (k + 1)) of the chance of error, and these shares add up to 1: what is said at any look holds
together with all that was said at the others, however the moment to stop was chosen, and the best of all looks may be
told. That is a confidence sequence which moves at looks alone; bets within a look hold at every run (see
:mod:`privmix.audits.score_means`). Kutta, Dunsche, Wei and Zikas (2026) stop audits of f-DP by asymptotic theory; here
every look is exact where one alone is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from privmix.audits.bounds import check_audit, gdp_epsilon_of_mu
from privmix.audits.score_means import Assumed
from privmix.audits.verdict import Audit
from privmix.audits.worst_case import AttackScores
from privmix.errors import check_number
from privmix.progress import Progress

FIRST: Final = 2_000
"""Runs before the first look."""

MOST_RUNS: Final = 10_000_000
"""Runs of an audit that something else stops: their scores fit in half a gigabyte."""

Attack = Callable[[int, int, float, Progress | None], AttackScores]
"""Scores of so many runs more, the number of runs before them, when to stop, and whom to tell."""

Judge = Callable[[AttackScores, float, float], Audit]
"""What scores say at a confidence, with the chance of error of each test."""


@dataclass(frozen=True)
class Stopping:
    """When an audit stops, beside its number of runs.

    Attributes:
        seconds: after about so long; None: never.
        enough: as soon as this share of the claimed epsilon is proven, or the claim is refuted; None: never.

    Example:
        >>> Stopping(seconds=60).looks_once, Stopping().looks_once
        (False, True)
    """

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

    def enough_by(self, found: Audit) -> bool:
        """Whether nothing more is needed."""
        return self.enough is not None and (
            found.violated or found.proven_epsilon >= self.enough * found.claimed_epsilon
        )


def share_of_look(number: int) -> float:
    """Share of the chance of error that look ``number``, from 1, has.

    Example:
        >>> [round(share_of_look(number), 3) for number in (1, 2, 3)]
        [0.5, 0.167, 0.083]
    """
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
) -> Audit:
    """Attack and look, until ``stopping`` says so or there were ``runs`` runs.

    Formal guarantees:
        * Any time: each bound of the result, and ``violated``, is wrong with chance at most 1 - ``confidence``,
          however the moment to stop depends on what was seen.

    Args:
        attack: gives scores.
        judge: reads them.
        stopping: when to stop.
        claimed_epsilon: to be refuted.
        delta: of the claim.
        runs: the most there are.
        confidence: of the result.
        progress: called as work proceeds.

    Raises:
        InvalidInput: so few runs prove nothing at the first look's confidence.
    """
    if stopping.looks_once:
        share = check_audit(claimed_epsilon, delta, runs, confidence)
        return judge(attack(runs, 0, math.inf, progress), confidence, share)
    until = math.inf if stopping.seconds is None else time.monotonic() + stopping.seconds
    wanted, number = min(FIRST, runs), 1
    check_audit(claimed_epsilon, delta, wanted, _at_look(number, confidence))
    scores: AttackScores | None = None
    best: Audit | None = None
    while True:
        done = 0 if scores is None else 2 * len(scores.without)
        more = attack(wanted - done, done, until, progress)
        scores = more if scores is None else scores.and_then(more)
        level = _at_look(number, confidence)
        found = judge(scores, level, (1 - level) / 2)
        best = found if best is None else _better(best, found)
        best = replace(best, confidence=confidence, looks=number)
        if found.runs >= runs - 1 or time.monotonic() > until or stopping.enough_by(best):
            return best
        wanted, number = min(runs, 2 * wanted), number + 1


def _at_look(number: int, confidence: float) -> float:
    return 1 - (1 - confidence) * share_of_look(number)


def _better(before: Audit, found: Audit) -> Audit:
    """The last look's figures, with the best bound of all looks."""
    mu = max(before.proven_mu, found.proven_mu)
    linear = [value for value in (before.linear_epsilon, found.linear_epsilon) if value is not None]
    return replace(
        found,
        proven_epsilon=max(before.proven_epsilon, found.proven_epsilon),
        proven_mu=mu,
        gdp_epsilon=gdp_epsilon_of_mu(mu, found.delta),
        linear_epsilon=max(linear, default=None),
        below_curve=before.below_curve or found.below_curve,
        violated=before.violated or found.violated,
        assumed=_both(before.assumed, found.assumed),
    )


def _both(before: Assumed, found: Assumed) -> Assumed:
    """The better bounds; Gaussian scores are what the last test of all of them leaves."""
    kept = found
    if not found.doubt and before.gaussian_mu is not None and before.gaussian_mu > (found.gaussian_mu or 0.0):
        kept = replace(kept, gaussian_mu=before.gaussian_mu, gaussian_epsilon=before.gaussian_epsilon)
    if (before.own_noise_epsilon or 0.0) > (found.own_noise_epsilon or 0.0):
        kept = replace(kept, own_noise_epsilon=before.own_noise_epsilon, own_noise=before.own_noise)
    return kept
