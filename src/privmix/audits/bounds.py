"""Bounds on privacy that follow from an attack's hits and false alarms, and the verdict on a claim.

An attack scores runs without a record ("absent") and with it ("present"); higher scores speak for presence. A threshold
has a false-alarm rate (type I error) and a miss rate (type II error), with Clopper-Pearson upper bounds. From these:

* (epsilon, delta): 1 - miss <= e^epsilon x false alarm + delta, and with the rates exchanged. Valid for EVERY
  mechanism.
* f-DP (Dong, Roth, Su 2021): miss >= f(false alarm); a miss rate below f at that false-alarm rate refutes f. Much
  sharper than the two lines that (epsilon, delta) draws under f.

Thresholds must not be chosen by the scores that prove: :func:`best_rates` chooses on the first third of the runs.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from privmix.errors import InvalidInput, check_integer, check_number
from privmix.rounding import exact, rounded_down, rounded_up
from privmix.shown import Bar, Bars, Shown

Scores = NDArray[np.float64]

_CHOOSING: Final = 3
_MOST_CHOOSING: Final = 50_000
_CANDIDATES: Final = 400


def clopper_pearson(successes: ArrayLike, trials: int, alpha: float) -> tuple[Scores, Scores]:
    """Return lower and upper bounds on probabilities, each wrong with chance at most ``alpha``."""
    count = np.asarray(successes, dtype=np.float64)
    # A beta distribution of parameter 0 has no quantiles: these ends are 0 and 1.
    none = count <= 0
    low = np.where(none, 0.0, stats.beta.ppf(alpha, np.where(none, 1.0, count), trials - count + 1))
    return low, _upper(count, trials, alpha)


def _upper(successes: ArrayLike, trials: float, alpha: float) -> NDArray[np.float64]:
    count = np.asarray(successes, dtype=np.float64)
    full = count >= trials
    return np.where(full, 1.0, stats.beta.isf(alpha, count + 1, np.where(full, 1.0, trials - count)))


def proven_epsilon(without: Scores, present: Scores, thresholds: Scores, delta: float, alpha: float) -> float:
    """Return a lower bound on epsilon at ``delta``, wrong with chance at most ``alpha``, from fixed thresholds."""
    # P(score > t | present) <= e^epsilon P(score > t | absent) + delta, the same with the two exchanged, and both for
    # score <= t. All of them share the chance of error.
    # Four inequalities a threshold, each with two bounds.
    share = alpha / (8 * len(thresholds))
    best = 0.0
    for threshold in thresholds:
        for one, other in ((present, without), (without, present)):
            for hits, alarms in ((one > threshold, other > threshold), (one <= threshold, other <= threshold)):
                low = float(clopper_pearson(int(hits.sum()), len(hits), share)[0])
                high = float(clopper_pearson(int(alarms.sum()), len(alarms), share)[1])
                if low > delta:
                    best = max(best, math.log((low - delta) / high))
    return best


@dataclass(frozen=True)
class Rates:
    """Measured rates of an attack at one threshold (alarms lie above), with upper bounds that hold together."""

    threshold: float
    false_alarm: float
    miss: float
    false_alarm_high: float
    miss_high: float


Figure = Callable[[Scores, Scores], Scores]
"""Figure proven by arrays of upper bounds on (false-alarm, miss) rates; larger proves more."""


def best_rates(without: Scores, present: Scores, figure: Figure, alpha: float) -> Rates:
    """Return rates and bounds at the threshold that promises the largest ``figure``; scores in (runs,) random order."""
    # The threshold is the best one on the first third of the runs (at most 50,000), at the bounds that the remaining
    # runs would give. The bounds come from the remaining runs: valid for any outcome of the first ones.
    first = [scores[: _choosing(len(scores))] for scores in (without, present)]
    rest = [scores[_choosing(len(scores)) :] for scores in (without, present)]
    pooled = np.unique(np.concatenate(first))
    if len(pooled) == 0:
        thresholds = np.zeros(1)
    else:
        between = (pooled[1:] + pooled[:-1]) / 2
        picked = np.unique(np.linspace(0, max(len(between) - 1, 0), _CANDIDATES).round().astype(int))
        thresholds = between[picked] if len(between) else pooled
    high = [
        _upper(count * len(other) / max(len(one), 1), len(other), alpha / 2)
        for count, one, other in zip(_errors(first[0], first[1], thresholds), first, rest, strict=True)
    ]
    chosen = float(thresholds[int(np.argmax(figure(high[0], high[1])))])
    return rates_at(rest[0], rest[1], np.array([chosen]), alpha)[0]


def _choosing(runs: int) -> int:
    """Return how many runs choose the threshold: a third, up to the number beyond which no better one is chosen."""
    return min(runs // _CHOOSING, _MOST_CHOOSING)


def rates_at(without: Scores, present: Scores, thresholds: Scores, alpha: float) -> list[Rates]:
    """Return the rates at thresholds that these scores did not choose; bounds hold for one threshold at a time."""
    alarms, misses = _errors(without, present, thresholds)
    alarms_high, misses_high = _upper(alarms, len(without), alpha / 2), _upper(misses, len(present), alpha / 2)
    return [
        Rates(float(at), float(false) / len(without), float(miss) / len(present), float(false_high), float(miss_high))
        for at, false, miss, false_high, miss_high in zip(
            thresholds, alarms, misses, alarms_high, misses_high, strict=True
        )
    ]


def _errors(without: Scores, present: Scores, thresholds: Scores) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    alarms = len(without) - np.searchsorted(np.sort(without), thresholds, side="right")
    return alarms, np.searchsorted(np.sort(present), thresholds, side="right")


def epsilon_of_rates(false_alarm: Scores, miss: Scores, delta: float) -> Scores:
    """Return the epsilon at ``delta`` that upper bounds on both rates prove, for every mechanism; at least 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        one = np.log(np.maximum(1 - miss - delta, 0) / false_alarm)
        other = np.log(np.maximum(1 - false_alarm - delta, 0) / miss)
    return np.asarray(np.maximum(np.maximum(one, other), 0.0))


def largest_provable(runs: int, delta: float, alpha: float) -> float:
    """Return what an attack without an error would prove with ``runs`` with the record and as many without."""
    left = runs - _choosing(runs)
    if left < 1:
        return 0.0
    none = _upper(0, left, alpha / 2).reshape(1)
    return float(epsilon_of_rates(none, none, delta)[0])


def check_audit(claimed_epsilon: float, delta: float, runs: int, confidence: float) -> float:
    """Check an audit's numbers; return the chance of error of each of its two tests."""
    if claimed_epsilon != math.inf:
        check_number("claimed epsilon", claimed_epsilon, low=0)
    check_number("delta", delta, low=0, high=1, high_open=True)
    check_number("confidence", confidence, low=0.5, high=1 - 1e-12)
    check_integer("runs", runs, low=2)
    share = (1 - confidence) / 2
    check_runs(runs, delta, confidence, share)
    return share


def check_runs(runs: int, delta: float, confidence: float, alpha: float) -> None:
    """Raise where even an attack that never errs would prove nothing; ``alpha``: chance of error of one bound."""
    if largest_provable(runs // 2, delta, alpha) > 0:
        return
    needed = 1
    while largest_provable(needed, delta, alpha) <= 0:
        needed *= 2
    low = needed // 2
    while low + 1 < needed:
        middle = (low + needed) // 2
        low, needed = (low, middle) if largest_provable(middle, delta, alpha) > 0 else (middle, needed)
    allowed = f"at least {2 * needed} at confidence {confidence:g}; fewer cannot prove an epsilon"
    raise InvalidInput("runs", runs, allowed)


LINEAR: Final = "linear statistic, which knows neither rates nor noise"
"""The weaker attack."""


class ShownProof(Shown):
    """An audit that shows its claim next to the proven bound."""

    @property
    @abstractmethod
    def proves(self) -> Any:
        """The claim, and the bound that an attack proves, as :class:`AuditVerdict` has them."""

    def shown(self) -> tuple[str, Mapping[str, object]]:
        proof = self.proves
        claimed = "nothing" if math.isinf(proof.claimed_epsilon) else f"epsilon {rounded_up(proof.claimed_epsilon, 4)}"
        return f"Audit: {'refuted' if proof.violated else 'not refuted'} at confidence {proof.confidence:g}", {
            "claim": f"{claimed} at delta {exact(proof.delta)}",
            "proven": f"epsilon at least {rounded_down(proof.proven_epsilon, 4)}",
        }

    def picture(self) -> Bars:
        proof, bars = self.proves, []
        if not math.isinf(proof.claimed_epsilon):
            claimed = f"at most {rounded_up(proof.claimed_epsilon)}"
            bars.append(Bar("claimed", proof.claimed_epsilon, claimed, strong=False))
        proven = f"at least {rounded_down(proof.proven_epsilon)}"
        return Bars(f"Epsilon at delta {exact(proof.delta)}", [*bars, Bar("proven", proof.proven_epsilon, proven)])


@dataclass(frozen=True, repr=False)
class AuditVerdict(ShownProof):
    """Result of a worst-case audit.

    Formal guarantees:
        * Sound: ``violated`` is true of a correct claim with chance at most 1 - ``confidence``. It rests on bounds that
          hold for every mechanism with the claimed (epsilon, delta). If the claim is the plan's own price, it also
          rests on the plan's own trade-off curve. The accountant gives a lower bound of this curve, both for the exact
          attack and for a search for noise that was used twice. The chance is shared among them.
        * ``proven_epsilon`` is at most the true epsilon at ``delta`` with chance at least ``confidence``, for any
          mechanism. It may be far below: what no experiment of this size can show is not shown.
        * Trials are independent if the engine draws records and noise as its plan states; an engine that does not is at
          fault with any verdict.
    """

    # priced_epsilon: upper bound by PLD; published_epsilon: the papers' formula, or None. below_curve: rates that the
    # plan's trade-off curve rules out. linear_epsilon: proven by the weaker, linear attack; points: one threshold at a
    # time, over all runs. looks: more than 1 if it could stop early.

    design: str
    attack: str
    runs: int
    delta: float
    confidence: float
    claimed_epsilon: float
    priced_epsilon: float
    published_epsilon: float | None
    proven_epsilon: float
    largest_provable_epsilon: float
    below_curve: bool
    violated: bool
    linear_epsilon: float | None
    points: tuple[Rates, ...]
    looks: int = 1

    @property
    def proves(self) -> Any:
        return self

    def shown(self) -> tuple[str, Mapping[str, object]]:
        title, facts = super().shown()
        published = self.published_epsilon
        formula = {} if published is None else {"the papers' formula": f"epsilon {rounded_up(published, 4)}, no bound"}
        return title, {
            **facts,
            "proven by": f"Clopper-Pearson, {self.runs} runs; for every mechanism",
            "price of what ran": f"epsilon {rounded_up(self.priced_epsilon, 4)}, an upper bound",
            **formula,
        }

    def to_dict(self) -> dict[str, Any]:
        black_box = None
        if self.linear_epsilon is not None:
            black_box = {"attack": LINEAR, "proven_epsilon": self.linear_epsilon}
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
            "proven_by": {"clopper-pearson": self.proven_epsilon},
            "looks": self.looks,
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
        """Sentences that must accompany the figures."""
        chance = f"{1 - self.confidence:.3g}"
        found = [
            f"The audit attacks the worst pair of neighbouring datasets of design {self.design} with the real engine; "
            "no private record was read.",
            f"Proven epsilon is a lower bound by Clopper-Pearson, above the true one with chance at most {chance}. "
            f"With {self.runs} runs no attack could have proven more than {rounded_up(self.largest_provable_epsilon)}.",
        ]
        if not self.violated:
            found.append("That nothing was refuted does not prove the claim: the accountant's bound does.")
        return found


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
