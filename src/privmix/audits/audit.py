"""A worst-case audit: attack a plan's worst pair of neighbours on the real engine, and compare with what is claimed."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
from scipy.special import ndtri

from privmix.accounting import Adjacency, Event, UnsupportedEvent, epsilon, tradeoff_curve
from privmix.audits.bounds import (
    Rates,
    Scores,
    best_rates,
    check_runs,
    epsilon_of_rates,
    gdp_epsilon_of_mu,
    largest_provable,
    mu_of_rates,
    rates_at,
)
from privmix.audits.defaults import CONFIDENCE, RUNS
from privmix.audits.worst_case import AttackScores, EngineFactory, attack, real_engine, worst_case_of
from privmix.errors import InvalidInput, check_integer, check_number
from privmix.plans import Plan
from privmix.progress import Progress
from privmix.rounding import exact, rounded_down, rounded_up
from privmix.shown import Bar, Bars, Shown

_POINTS: Final = 60
_LEAST: Final = 1e-300


class Proof(Protocol):
    """A claim, and what an attack proves beside it."""

    @property
    def claimed_epsilon(self) -> float: ...
    @property
    def proven_epsilon(self) -> float: ...
    @property
    def delta(self) -> float: ...
    @property
    def confidence(self) -> float: ...
    @property
    def violated(self) -> bool: ...


class ShownProof(Shown):
    """An audit that shows its claim beside what is proven."""

    @property
    @abstractmethod
    def proves(self) -> Proof:
        """What is shown."""

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """The verdict, and what it rests on."""
        proof = self.proves
        claimed = "nothing" if math.isinf(proof.claimed_epsilon) else f"epsilon {rounded_up(proof.claimed_epsilon, 4)}"
        return f"Audit: {'refuted' if proof.violated else 'not refuted'} at confidence {proof.confidence:g}", {
            "claim": f"{claimed} at delta {exact(proof.delta)}",
            "proven": f"epsilon at least {rounded_down(proof.proven_epsilon, 4)}",
        }

    def picture(self) -> Bars:
        """The claim, and what is proven."""
        proof, bars = self.proves, []
        if not math.isinf(proof.claimed_epsilon):
            claimed = f"at most {rounded_up(proof.claimed_epsilon)}"
            bars.append(Bar("claimed", proof.claimed_epsilon, claimed, strong=False))
        proven = f"at least {rounded_down(proof.proven_epsilon)}"
        return Bars(f"Epsilon at delta {exact(proof.delta)}", [*bars, Bar("proven", proof.proven_epsilon, proven)])


@dataclass(frozen=True, repr=False)
class Audit(ShownProof):
    """What a worst-case audit found.

    Formal guarantees:
        * Sound: ``violated`` is true of a correct claim with chance at most 1 - ``confidence``. It rests on bounds that
          hold for every mechanism with the claimed (epsilon, delta) and, where the claim is the plan's own price, on
          the plan's own trade-off curve, of which the accountant gives a lower bound, both for the exact attack and
          for a search for noise that was used twice. The chance is shared among them.
        * ``proven_epsilon`` is at most the true epsilon at ``delta`` with chance at least ``confidence``, whatever the
          mechanism is. It may be far below: what no experiment of this size can show is not shown.
        * Trials are independent if the engine draws records and noise as its plan says; one that does not is at fault
          whatever the audit says of it.

    Attributes:
        design: audited.
        attack: how runs were scored.
        runs: trials, half of them with the record.
        delta: of the claim.
        confidence: of every statement.
        claimed_epsilon: infinite where nothing was claimed.
        priced_epsilon: upper bound by PLD of what really ran.
        published_epsilon: the papers' formula for what ran; None where they give none.
        proven_epsilon: lower bound by Clopper-Pearson.
        gdp_epsilon: epsilon of the proven mu of Gaussian DP; valid for mechanisms whose curve is that of mu-GDP, and a
            guide for the others. None at delta 0.
        proven_mu: no mu-GDP holds below it.
        largest_provable_epsilon: what an attack without an error would prove with so many runs.
        below_curve: whether rates were measured that the plan's own trade-off curve rules out.
        violated: whether the claim is refuted.
        linear_epsilon: lower bound that the weaker, linear attack proves.
        points: measured rates with upper bounds, one threshold at a time, over all runs.
    """

    design: str
    attack: str
    runs: int
    delta: float
    confidence: float
    claimed_epsilon: float
    priced_epsilon: float
    published_epsilon: float | None
    proven_epsilon: float
    gdp_epsilon: float | None
    proven_mu: float
    largest_provable_epsilon: float
    below_curve: bool
    violated: bool
    linear_epsilon: float | None
    points: tuple[Rates, ...]

    @property
    def proves(self) -> Proof:
        """Its own figures."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """JSON values, as the run record of an audit holds them."""
        black_box = None
        if self.linear_epsilon is not None:
            black_box = {"attack": _LINEAR, "proven_epsilon": self.linear_epsilon}
        return {
            "design": self.design,
            "method": "worst case",
            "attack": self.attack,
            "runs": self.runs,
            "delta": self.delta,
            "confidence": self.confidence,
            "claimed_epsilon": _finite(self.claimed_epsilon),
            "priced_epsilon": _finite(self.priced_epsilon),
            "published_epsilon": self.published_epsilon,
            "proven_epsilon": self.proven_epsilon,
            "proven_by": {"clopper-pearson": self.proven_epsilon, "gdp": self.gdp_epsilon},
            "proven_mu": self.proven_mu,
            "largest_provable_epsilon": self.largest_provable_epsilon,
            "below_curve": self.below_curve,
            "violated": self.violated,
            "black_box": black_box,
            "points": {
                "alpha": [point.false_alarm for point in self.points],
                "beta": [point.miss for point in self.points],
                "alpha_high": [point.false_alarm_high for point in self.points],
                "beta_high": [point.miss_high for point in self.points],
            },
        }

    @property
    def statements(self) -> list[str]:
        """Sentences that must stand beside the figures."""
        chance = f"{1 - self.confidence:.3g}"
        found = [
            f"The audit attacks the worst pair of neighbouring datasets of design {self.design} with the real engine; "
            "no private record was read.",
            f"Proven epsilon is a lower bound by Clopper-Pearson, above the true one with chance at most {chance}. "
            f"With {self.runs} runs no attack could have proven more than {rounded_up(self.largest_provable_epsilon)}.",
            "The figure named gdp holds for mechanisms whose trade-off curve is that of mu-GDP, which this one's is "
            "nearly, not exactly; no claim is called violated because of it.",
        ]
        if not self.violated:
            found.append("That nothing was refuted does not prove the claim: the accountant's bound does.")
        return found


_EXACT: Final = "exact likelihood ratio of everything released"
_LINEAR: Final = "linear statistic, which knows neither rates nor noise"


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
) -> Audit:
    """Audit a release plan at its worst case. Reads no private data.

    A private record count's own query is not attacked; what is released after it is.

    Args:
        plan: what runs.
        claimed_epsilon: to be refuted; infinite if nothing is claimed.
        delta: of the claim.
        own_price: the claim is the plan's own price by the accountant, so that rates below the plan's trade-off curve
            refute it too. False for claims made by other formulas.
        runs: trials in all, half of them with the record.
        confidence: of the audit's statements.
        seed: for tests; None takes fresh keys.
        make: makes the audited engine.
        workers: engines that run at once.
        progress: called as work proceeds.

    Raises:
        InvalidInput: a value is out of range, or so few runs prove nothing at this confidence.

    Example:
        >>> from privmix.planning import ReleaseConfig
        >>> config = ReleaseConfig(records=1000, dim=9, classes=("a", "b"), mixup_degree=16, rows=50, centre="none")
        >>> found = audit_plan(config.calibrate(2.0, 1e-3), 2.0, 1e-3, runs=2000, seed=0)
        >>> found.violated, found.proven_epsilon < 2
        (False, True)
    """
    share = check_audit(claimed_epsilon, delta, runs, confidence)
    case = worst_case_of(plan)
    found = attack(case, runs, seed=seed, make=make, workers=workers, progress=progress)
    return judge(
        found,
        design=plan.design,
        event=plan.event_after_count,
        adjacency=plan.adjacency,
        claimed_epsilon=claimed_epsilon,
        priced_epsilon=plan.cost(delta).epsilon,
        delta=delta,
        confidence=confidence,
        share=share,
        own_price=own_price,
    )


def check_audit(claimed_epsilon: float, delta: float, runs: int, confidence: float) -> float:
    """Check an audit's numbers; returns the chance of error that each of its two tests gets.

    Raises:
        InvalidInput: one is out of range, or there are too few runs for the confidence.
    """
    if claimed_epsilon != math.inf:
        check_number("claimed epsilon", claimed_epsilon, low=0)
    check_number("delta", delta, low=0, high=1, high_open=True)
    check_number("confidence", confidence, low=0.5, high=1 - 1e-12)
    check_integer("runs", runs, low=2)
    share = (1 - confidence) / 2
    check_runs(runs, delta, confidence, share)
    return share


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
) -> Audit:
    """What scores of an attack say of a claim; see :class:`Audit`.

    Args:
        scores: of the attack.
        design: name of what was attacked.
        event: what the accountant priced for it.
        adjacency: of the claim.
        claimed_epsilon: to be refuted.
        priced_epsilon: by PLD.
        delta: of the claim.
        confidence: of every statement.
        share: chance of error of each of both tests, from :func:`check_audit`.
        own_price: see :func:`audit_plan`.
    """
    proven = _proven(scores.without, scores.present, delta, share)
    mu_rates = best_rates(scores.without, scores.present, mu_of_rates, share)
    mu = float(mu_of_rates(np.array([mu_rates.false_alarm_high]), np.array([mu_rates.miss_high]))[0])
    curve = Curve(event, adjacency)
    below = curve.excludes(scores.without, scores.present, share / 2)
    below = curve.excludes(scores.repeats_without, scores.repeats_present, share / 2) or below
    return Audit(
        design=design,
        attack=_EXACT,
        runs=2 * len(scores.without),
        delta=delta,
        confidence=confidence,
        claimed_epsilon=claimed_epsilon,
        priced_epsilon=priced_epsilon,
        published_epsilon=published_epsilon(event, delta, adjacency),
        proven_epsilon=proven,
        gdp_epsilon=gdp_epsilon_of_mu(mu, delta),
        proven_mu=mu,
        largest_provable_epsilon=largest_provable(len(scores.without), delta, share),
        below_curve=below,
        violated=proven > claimed_epsilon or (own_price and below),
        linear_epsilon=_proven(scores.linear_without, scores.linear_present, delta, share),
        points=_points(scores, share),
    )


def _proven(without: Scores, present: Scores, delta: float, share: float) -> float:
    rates = best_rates(without, present, lambda alarm, miss: epsilon_of_rates(alarm, miss, delta), share)
    return float(epsilon_of_rates(np.array([rates.false_alarm_high]), np.array([rates.miss_high]), delta)[0])


def _points(scores: AttackScores, share: float) -> tuple[Rates, ...]:
    """Rates along the whole trade-off: thresholds at quantiles of both kinds of scores."""
    shares = np.linspace(0, 1, _POINTS // 2)
    thresholds = np.unique(np.concatenate([np.quantile(scores.without, shares), np.quantile(scores.present, shares)]))
    return tuple(rates_at(scores.without, scores.present, thresholds, 2 * share))


@dataclass(frozen=True)
class Curve:
    """The trade-off curve of what ran, on the safe side: no attack has a miss rate below it.

    Attributes:
        event: what ran.
        adjacency: of the claim.
    """

    event: Event
    adjacency: Adjacency

    def excludes(self, without: Scores, present: Scores, alpha: float) -> bool:
        """Whether these scores refute the curve; of a true one that has chance at most ``alpha``."""
        rates = best_rates(without, present, self._margin, alpha)
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
    """The papers' figure for an event, or None where they have no formula for it."""
    try:
        found = epsilon(event, delta, accountant="as_published", adjacency=adjacency).epsilon
    except (UnsupportedEvent, InvalidInput):
        return None
    return _finite(found)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
