"""A worst-case audit: attack a plan's worst pair of neighbours on the real engine, and compare with what is claimed.

It may stop at any time: when enough is proven, a claim is refuted, or time is over. Scores are read at a number of runs
that doubles, and once at the end of the time. The k-th look has the share 1 / (k (k + 1)) of the chance of error; the
shares sum to 1. All looks hold together, whenever the audit stops, and the best may be reported. Kutta, Dunsche, Wei
and Zikas (2026) stop by asymptotic theory; looks are exact.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from scipy.special import ndtri

from privmix.accounting.api import epsilon, tradeoff_curve
from privmix.accounting.base import UnsupportedEvent
from privmix.accounting.events import Adjacency, Event
from privmix.audits import bounds
from privmix.audits.bounds import AuditVerdict, Rates, Scores, check_audit
from privmix.audits.defaults import CONFIDENCE, RUNS
from privmix.audits.worst_case import AttackScores, EngineFactory, attack, real_engine, worst_case_of
from privmix.errors import InvalidInput, check_number
from privmix.plans.plan import Plan
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


_POINTS: Final = 60
_LEAST: Final = 1e-300

_EXACT: Final = "exact likelihood ratio of everything released"


def audit_plan(
    plan: Plan,
    claimed_epsilon: float,
    delta: float,
    *,
    own_price: bool = True,
    runs: int = RUNS,
    confidence: float = CONFIDENCE,
    seed: int | None = None,
    make: EngineFactory = real_engine,
    workers: int | None = None,
    progress: Progress | None = None,
    stopping: Stopping | None = None,
) -> AuditVerdict:
    """Audit a release plan at its worst case. Reads no private data; a private count's own query is not attacked."""
    # own_price: the claim is the plan's own cost by the accountant: rates below its trade-off curve refute it too.
    # runs: trials in total, half of them with the record. seed: for tests; None takes fresh keys.
    case = worst_case_of(plan)

    def attacked(more: int, before: int, until: float, told: Progress | None) -> AttackScores:
        # Numbers of engine runs follow those of trials: there are never more of them.
        how: dict[str, Any] = {"seed": seed, "make": make, "workers": workers, "progress": told}
        return attack(case, more, first=before, until=until, **how)

    def judged(scores: AttackScores, level: float, share: float) -> AuditVerdict:
        return judge(
            scores,
            design=plan.design,
            event=plan.event_after_count,
            adjacency=plan.adjacency,
            claimed_epsilon=claimed_epsilon,
            priced_epsilon=plan.cost(delta).epsilon,
            delta=delta,
            confidence=level,
            share=share,
            own_price=own_price,
        )

    said = {"claimed_epsilon": claimed_epsilon, "delta": delta, "confidence": confidence}
    return audit_until(attacked, judged, stopping or Stopping(), runs=runs, progress=progress, **said)


def judge(
    scores: AttackScores,
    *,
    design: str,
    event: Event,
    adjacency: Adjacency,
    claimed_epsilon: float,
    priced_epsilon: float,
    delta: float,
    confidence: float,
    share: float,
    own_price: bool,
) -> AuditVerdict:
    """Judge a claim by an attack's scores; see :class:`AuditVerdict`."""
    # share: chance of error of each of both tests, from check_audit. priced_epsilon: by PLD.
    proven = _proven(scores.without, scores.present, delta, share)
    curve = Curve(event, adjacency)
    below = curve.excludes(scores.without, scores.present, share / 2)
    below = curve.excludes(scores.repeats_without, scores.repeats_present, share / 2) or below
    return AuditVerdict(
        design=design,
        attack=_EXACT,
        runs=2 * len(scores.without),
        delta=delta,
        confidence=confidence,
        claimed_epsilon=claimed_epsilon,
        priced_epsilon=priced_epsilon,
        published_epsilon=published_epsilon(event, delta, adjacency),
        proven_epsilon=proven,
        largest_provable_epsilon=bounds.largest_provable(len(scores.without), delta, share),
        below_curve=below,
        violated=proven > claimed_epsilon or (own_price and below),
        linear_epsilon=_proven(scores.linear_without, scores.linear_present, delta, share),
        points=_points(scores, share),
    )


def _proven(without: Scores, present: Scores, delta: float, share: float) -> float:
    rates = bounds.best_rates(without, present, lambda alarm, miss: bounds.epsilon_of_rates(alarm, miss, delta), share)
    return float(bounds.epsilon_of_rates(np.array([rates.false_alarm_high]), np.array([rates.miss_high]), delta)[0])


def _points(scores: AttackScores, share: float) -> tuple[Rates, ...]:
    """Rates along the whole trade-off: thresholds at quantiles of both kinds of scores."""
    shares = np.linspace(0, 1, _POINTS // 2)
    thresholds = np.unique(np.concatenate([np.quantile(scores.without, shares), np.quantile(scores.present, shares)]))
    return tuple(bounds.rates_at(scores.without, scores.present, thresholds, 2 * share))


@dataclass(frozen=True)
class Curve:
    """The trade-off curve of ``event`` on the safe side: no attack has a miss rate below it."""

    event: Event
    adjacency: Adjacency

    def excludes(self, without: Scores, present: Scores, alpha: float) -> bool:
        """Whether these scores refute the curve; of a true one that has chance at most ``alpha``."""
        rates = bounds.best_rates(without, present, self._margin, alpha)
        exact = tradeoff_curve(self.event, [rates.false_alarm_high], adjacency=self.adjacency)[0]
        return bool(rates.miss_high < exact)

    def _margin(self, false_alarm: Scores, miss: Scores) -> Scores:
        # Chords of a convex curve lie above it: good enough to choose a threshold by, not to judge with. Normal scores
        # weigh small rates as confidence bounds do; differences would favour the curve's ends, where all is close.
        at, values = self._grid
        return np.asarray(ndtri(np.maximum(np.interp(false_alarm, at, values), _LEAST)) - ndtri(miss))

    @cached_property
    def _grid(self) -> tuple[Scores, Scores]:
        at = np.concatenate([[0.0], np.geomspace(1e-7, 0.5, 200), 1 - np.geomspace(1e-7, 0.5, 200)[::-1], [1.0]])
        return at, tradeoff_curve(self.event, at, adjacency=self.adjacency)


def published_epsilon(event: Event, delta: float, adjacency: Adjacency) -> float | None:
    """Return the papers' figure for an event, or None where they have no formula for it."""
    try:
        found = epsilon(event, delta, accountant="as_published", adjacency=adjacency).epsilon
    except (UnsupportedEvent, InvalidInput):
        return None
    return found if math.isfinite(found) else None
