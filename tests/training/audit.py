"""What an attack's hits and false alarms prove about epsilon."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Scores = NDArray[np.float64]


def clopper_pearson(successes: int, trials: int, alpha: float) -> tuple[float, float]:
    """Lower and upper bound on a probability, each wrong with chance at most ``alpha``."""
    low = 0.0 if successes == 0 else float(stats.beta.ppf(alpha, successes, trials - successes + 1))
    high = 1.0 if successes == trials else float(stats.beta.isf(alpha, successes + 1, trials - successes))
    return low, high


def proven_epsilon(without: Scores, present: Scores, thresholds: Scores, delta: float, alpha: float) -> float:
    """A lower bound on epsilon at ``delta`` that is wrong with chance at most ``alpha``.

    Any (epsilon, delta)-private mechanism has P(score > t | present) <= e^epsilon P(score > t | absent) + delta, the
    same with the two exchanged, and both for score <= t. Thresholds are fixed beforehand; the chance of error is shared
    among all of them.

    Args:
        without: scores of runs without the canary.
        present: scores of runs with it.
        thresholds: not chosen by these scores.
        delta: of the claim.
        alpha: false alarms in all.
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
                low = clopper_pearson(int(hits.sum()), len(hits), share)[0]
                high = clopper_pearson(int(alarms.sum()), len(alarms), share)[1]
                if low > delta:
                    best = max(best, math.log((low - delta) / high))
    return best
