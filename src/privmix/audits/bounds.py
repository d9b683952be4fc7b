"""What an attack's hits and false alarms prove about a privacy claim.

An attack scores runs of a mechanism on a dataset without a record ("absent") and with it ("present"); higher scores
speak for presence. At a threshold it has a false-alarm rate (type I error) and a miss rate (type II error). From counts
follow Clopper-Pearson upper bounds on both, and from these:

* Against an (epsilon, delta) claim: any such mechanism has 1 - miss <= e^epsilon x false alarm + delta, and the same
  with the two rates exchanged. The epsilon that this proves is valid for EVERY mechanism.
* Against a trade-off curve f (f-DP; Dong, Roth, Su 2021): miss >= f(false alarm). With upper bounds on both rates, a
  miss rate below f at that false-alarm rate refutes f. This is valid for the claim "no attack beats f", and much
  sharper than the two lines that (epsilon, delta) draws under f.
* mu of Gaussian DP (Nasr et al. 2023): the rates prove that the mechanism is not mu-DP for any smaller mu. Reading an
  epsilon off mu at a delta that no experiment reaches is valid ONLY for mechanisms whose own curve is that of mu-GDP
  there: plain Gaussian queries are, and compositions of subsampled ones are nearly, never exactly. It refutes claims of
  mu-GDP, not claims of (epsilon, delta).

Thresholds must not be chosen by the scores that prove: :func:`best_rates` chooses on the first third of the runs and
proves with the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.special import ndtri

from privmix.accounting import gdp_epsilon
from privmix.errors import InvalidInput, check_integer, check_number

Scores = NDArray[np.float64]

_CHOOSING: Final = 3
_MOST_CHOOSING: Final = 50_000
_CANDIDATES: Final = 400


def clopper_pearson(successes: ArrayLike, trials: int, alpha: float) -> tuple[Scores, Scores]:
    """Lower and upper bounds on probabilities, each wrong with chance at most ``alpha``.

    Args:
        successes: counts, from 0 to ``trials``, of any shape.
        trials: at least 1.
        alpha: in (0, 1); both bounds together are an interval at confidence 1 - 2 alpha.

    Returns:
        lower and upper bounds, in the shape of ``successes``.

    Example:
        >>> low, high = clopper_pearson([0, 100], 100, 0.05)
        >>> low.round(4).tolist(), high.round(4).tolist()
        ([0.0, 0.9705], [0.0295, 1.0])
    """
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
    """A lower bound on epsilon at ``delta`` that is wrong with chance at most ``alpha``, from thresholds fixed before.

    Any (epsilon, delta)-private mechanism has P(score > t | present) <= e^epsilon P(score > t | absent) + delta, the
    same with the two exchanged, and both for score <= t. The chance of error is shared among all of them.

    Args:
        without: scores of independent runs without the record.
        present: scores of independent runs with it.
        thresholds: not chosen by these scores.
        delta: of the claim.
        alpha: false alarms in all.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> absent, present = rng.normal(0, 1, 5000), rng.normal(1, 1, 5000)
        >>> 1.0 < proven_epsilon(absent, present, np.array([2.0]), 1e-5, 0.05) < gdp_epsilon(1.0, 1e-5)
        True
    """
    # Four inequalities a threshold, each with two bounds.
    share = alpha / (8 * len(thresholds))
    best = 0.0
    for threshold in thresholds:
        for one, other in ((present, without), (without, present)):
            for hits, alarms in (
                (one > threshold, other > threshold),
                (one <= threshold, other <= threshold),
            ):
                low = float(clopper_pearson(int(hits.sum()), len(hits), share)[0])
                high = float(clopper_pearson(int(alarms.sum()), len(alarms), share)[1])
                if low > delta:
                    best = max(best, math.log((low - delta) / high))
    return best


@dataclass(frozen=True)
class Rates:
    """An attack at one threshold.

    Attributes:
        threshold: alarms are scores above it.
        false_alarm: measured rate of alarms without the record.
        miss: measured rate of no alarm with it.
        false_alarm_high: upper bound on the true rate.
        miss_high: upper bound on the true rate. Both bounds hold together with the chance asked for.
    """

    threshold: float
    false_alarm: float
    miss: float
    false_alarm_high: float
    miss_high: float


Figure = Callable[[Scores, Scores], Scores]
"""What upper bounds on (false-alarm, miss) rates prove, for arrays of both; the larger, the more."""


def best_rates(without: Scores, present: Scores, figure: Figure, alpha: float) -> Rates:
    """The rates, with bounds, at the threshold that promises the most.

    The threshold is the best one on the first third of the runs, or 50,000 where that is fewer, for ``figure`` at the
    bounds that as many runs as are left would give. The bounds are those of the others: valid whatever these first ones
    show.

    Args:
        without: (runs,) scores of independent runs without the record, in any order that is independent of them.
        present: (runs,) scores with it.
        figure: what to prove.
        alpha: chance that one of the two bounds is wrong.
    """
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
    """How many of so many runs choose the threshold: a third, as long as more of them choose a better one."""
    return min(runs // _CHOOSING, _MOST_CHOOSING)


def rates_at(without: Scores, present: Scores, thresholds: Scores, alpha: float) -> list[Rates]:
    """The rates at each of ``thresholds``, which these scores did not choose; bounds hold for one threshold at a time.

    Example:
        >>> found = rates_at(np.arange(0.0, 10), np.arange(5.0, 15), np.array([6.5]), 0.05)[0]
        >>> found.false_alarm, found.miss
        (0.3, 0.2)
    """
    alarms, misses = _errors(without, present, thresholds)
    alarms_high, misses_high = _upper(alarms, len(without), alpha / 2), _upper(misses, len(present), alpha / 2)
    return [
        Rates(float(at), float(false) / len(without), float(miss) / len(present), float(false_high), float(miss_high))
        for at, false, miss, false_high, miss_high in zip(
            thresholds, alarms, misses, alarms_high, misses_high, strict=True
        )
    ]


def _errors(without: Scores, present: Scores, thresholds: Scores) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Counts of false alarms and of misses at each threshold."""
    alarms = len(without) - np.searchsorted(np.sort(without), thresholds, side="right")
    return alarms, np.searchsorted(np.sort(present), thresholds, side="right")


def epsilon_of_rates(false_alarm: Scores, miss: Scores, delta: float) -> Scores:
    """The epsilon at ``delta`` that upper bounds on both rates prove, for every mechanism; at least 0.

    Example:
        >>> epsilon_of_rates(np.array([0.01]), np.array([0.5]), 0.0).round(3).tolist()
        [3.912]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        one = np.log(np.maximum(1 - miss - delta, 0) / false_alarm)
        other = np.log(np.maximum(1 - false_alarm - delta, 0) / miss)
    return np.asarray(np.maximum(np.maximum(one, other), 0.0))


def mu_of_rates(false_alarm: Scores, miss: Scores) -> Scores:
    """The mechanism is not mu-GDP for any mu below this (Nasr et al. 2023); at least 0.

    Example:
        >>> mu_of_rates(np.array([0.05]), np.array([0.740])).round(2).tolist()
        [1.0]
    """
    return np.asarray(np.maximum(ndtri(1 - false_alarm) - ndtri(miss), 0.0))


def gdp_epsilon_of_mu(mu: float, delta: float) -> float | None:
    """Epsilon of mu-GDP at ``delta``; None at delta 0, where there is none."""
    return None if delta == 0 else gdp_epsilon(mu, delta)


def largest_provable(runs: int, delta: float, alpha: float) -> float:
    """What an attack without a single error would prove with so many runs of each kind, as :func:`best_rates` does.

    Args:
        runs: with the record, and as many without.
        delta: of the claim.
        alpha: chance of error.

    Example:
        >>> round(largest_provable(1000, 1e-5, 0.05), 2)
        5.19
    """
    left = runs - _choosing(runs)
    if left < 1:
        return 0.0
    none = _upper(0, left, alpha / 2).reshape(1)
    return float(epsilon_of_rates(none, none, delta)[0])


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


def check_runs(runs: int, delta: float, confidence: float, alpha: float) -> None:
    """Raise where even an attack that never errs would prove nothing.

    Args:
        runs: all of them; half with the record, half without.
        delta: of the claim.
        confidence: asked for.
        alpha: chance of error that one bound gets.

    Raises:
        InvalidInput: too few; the message says how many are needed.

    Example:
        >>> check_runs(10, 1e-5, 0.95, 0.025)
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: runs: got 10; allowed: at least 20 at confidence 0.95, where fewer prove nothing
    """
    if largest_provable(runs // 2, delta, alpha) > 0:
        return
    needed = 1
    while largest_provable(needed, delta, alpha) <= 0:
        needed *= 2
    low = needed // 2
    while low + 1 < needed:
        middle = (low + needed) // 2
        low, needed = (low, middle) if largest_provable(middle, delta, alpha) > 0 else (middle, needed)
    allowed = f"at least {2 * needed} at confidence {confidence:g}, where fewer prove nothing"
    raise InvalidInput("runs", runs, allowed)
