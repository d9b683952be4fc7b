"""What one run proves: many canaries, each in or out by the toss of a coin, and a guess at some of the coins.

Of k canaries each is included with probability 1/2, independently. From what the run published, an attacker guesses r
of the coins and abstains from the rest; v guesses are correct. Privacy limits how often v can be large:

* Steinke, Nasr, Jagielski 2023 (Theorem 5.2): under (epsilon, delta)-DP, v is hardly more than the number of correct
  guesses against randomised response, whatever the mechanism.
* Mahloujifar, Melis, Chaudhuri 2024 (Theorem 3.2, Algorithm 3): under f-DP, a recursion over v that uses the whole
  trade-off curve, so that one guess at a time need not be as revealing as epsilon allows.

Neither asks that canaries do not influence one another: that costs the attacker success, and never the proof its truth.

If they do not, more follows (the setting of Xiang, Wang, Xiao, Tian and Wang 2025). What is seen of a canary is then at
best one of two Gaussians, mu apart, on its own. Of k such pairs nobody guesses r better than at those whose
log-likelihood ratios L are largest, and each guess is wrong with probability 1 / (1 + e^|L|). Let t be the least of
these r ratios. Given t, the other r - 1 are independent draws of |L| above t, so that their errors are binomial; and
the share of |L| above t follows a beta law. One integral over that law gives the law of the errors. Without the
assumption it does not hold: what canaries share by chance can betray all of them at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.special import expit, ndtr, ndtri

from privmix.accounting.gdp import gdp_epsilon
from privmix.errors import InvalidInput, check_integer, check_number
from privmix.fields import Count, check_fields

Least = Callable[[float], float]
"""Trade-off curve in another form: the least probability that an event of probability r can have without the record."""

# Rounding of ten thousand additions is far below this; the recursion stays on the safe side of it.
_ROUNDING: Final = 1e-9
# Quantiles at which the law of the least certain guess is cut; pieces are taken at their worse end.
_CUTS: Final = np.unique(np.concatenate([[0.0], np.geomspace(1e-9, 1, 200), np.linspace(0, 1, 401)]))
# Nothing larger is looked for.
_LARGEST_EPSILON, _LARGEST_MU = 64.0, 64.0


@dataclass(frozen=True)
class OneRun:
    """How well the coins of one run were guessed.

    Attributes:
        canaries: k, each included with probability 1/2.
        guesses: r, fixed before the coins were known; the attacker abstained from the others.
        correct: v.

    Raises:
        InvalidInput: not 0 <= correct <= guesses <= canaries.

    Example:
        >>> OneRun(canaries=1000, guesses=100, correct=75).accuracy
        0.75
    """

    canaries: Count
    guesses: int
    correct: int

    def __post_init__(self) -> None:
        check_fields(self)
        check_integer("guesses", self.guesses, low=1, high=self.canaries)
        check_integer("correct guesses", self.correct, low=0, high=self.guesses)

    @property
    def accuracy(self) -> float:
        """Share of guesses that are correct."""
        return self.correct / self.guesses

    @classmethod
    def of(cls, scores: ArrayLike, included: ArrayLike, guesses: int) -> OneRun:
        """Guess "in" for the highest scores and "out" for as many of the lowest, and count what is correct.

        Args:
            scores: (k,) higher where a canary seems to have been included.
            included: (k,) bool, the coins.
            guesses: r; from 1 to k.

        Example:
            >>> OneRun.of([3.0, -2.0, 0.1, 1.0], [True, False, True, False], guesses=3)
            OneRun(canaries=4, guesses=3, correct=2)
        """
        seen, coins = np.asarray(scores, dtype=np.float64), np.asarray(included, dtype=bool)
        if seen.ndim != 1 or seen.shape != coins.shape or not np.isfinite(seen).all():
            raise InvalidInput("scores", seen.shape, "one finite score and one coin a canary")
        check_integer("guesses", guesses, low=1, high=len(seen))
        order = np.argsort(seen, kind="stable")
        highest = (guesses + 1) // 2
        correct = coins[order[len(seen) - highest :]].sum() + (~coins[order[: guesses - highest]]).sum()
        return cls(len(seen), guesses, int(correct))


def steinke_p_value(run: OneRun, epsilon: float, delta: float) -> float:
    """How likely at least so many correct guesses are, at most, if the mechanism is (``epsilon``, ``delta``)-DP.

    Steinke, Nasr, Jagielski 2023, Theorem 5.2: with X binomial of r trials and success e^epsilon / (1 + e^epsilon),
    P[X >= v] + 2 k delta max_i P[v - i <= X < v] / i.

    Formal guarantees:
        * Valid: for an (epsilon, delta)-DP mechanism (add/remove) and independent fair coins, it is at most p with
          probability at most p.
        * Any canaries: they may influence one another, and records beside them may be anything.

    Args:
        run: guesses and successes.
        epsilon: >= 0.
        delta: in [0, 1].

    Example:
        >>> round(steinke_p_value(OneRun(100, 100, 75), math.log(3), 0.0), 3)
        0.553
    """
    check_number("epsilon", epsilon, low=0)
    check_number("delta", delta, low=0, high=1)
    success = 1 / (1 + math.exp(-epsilon))
    tail = float(stats.binom.sf(run.correct - 1, run.guesses, success))
    if delta == 0 or run.correct == 0:
        return min(1.0, tail)
    below = np.cumsum(stats.binom.pmf(np.arange(run.correct - 1, -1, -1), run.guesses, success))
    worst = float((below / np.arange(1, run.correct + 1)).max())
    return min(1.0, tail + 2 * run.canaries * delta * worst)


def steinke_epsilon(run: OneRun, delta: float, confidence: float) -> float:
    """The largest epsilon up to which (epsilon, ``delta``)-DP is refuted at ``confidence``; 0 if none is.

    Formal guarantees:
        * Lower bound: it exceeds the true epsilon at ``delta`` with probability at most 1 - ``confidence``.

    Args:
        run: guesses and successes.
        delta: in [0, 1].
        confidence: in (0, 1).

    Example:
        >>> round(steinke_epsilon(OneRun(1000, 100, 75), delta=1e-4, confidence=0.95), 3)
        0.673
    """
    alpha = 1 - check_number("confidence", confidence, low=0, high=1, low_open=True, high_open=True)

    def refuted(value: float) -> bool:
        return steinke_p_value(run, value, delta) <= alpha

    # All smaller ones must be refuted as well: the term with delta need not grow with epsilon.
    grid = np.concatenate([[0.0], np.geomspace(1e-3, _LARGEST_EPSILON, 96)])
    last = -1
    while last + 1 < len(grid) and refuted(float(grid[last + 1])):
        last += 1
    if last < 0:
        return 0.0
    if last == len(grid) - 1:
        return _LARGEST_EPSILON
    return _bisected(refuted, float(grid[last]), float(grid[last + 1]))


def gaussian_least(mu: float) -> Least:
    """The curve of mu-GDP: Phi(Phi^-1(r) - mu).

    Example:
        >>> round(gaussian_least(1.0)(0.5), 4)
        0.1587
    """
    return lambda r: float(ndtr(ndtri(r) - mu))


def is_refuted(run: OneRun, least: Least, alpha: float) -> bool:
    """Whether so many correct guesses have probability below ``alpha`` under f-DP.

    Mahloujifar, Melis, Chaudhuri 2024, Algorithm 3. With p_j the probability of j correct guesses, let r_t be the sum
    of (j / k) p_j over j >= t, and h_t that of ((r - j) / k) p_j: mean probabilities that a canary's guess is correct,
    or wrong, while at least t are correct. Turning a canary's coin turns a correct guess into a wrong one and takes one
    from their number, so h_t >= least(r_{t+1}). If P[at least v correct] were alpha, then all probabilities together,
    r_0 + h_0, would come to more than r / k.

    Formal guarantees:
        * Valid: for an f-DP mechanism and independent fair coins it is True with probability at most ``alpha``.
        * Any canaries: as :func:`steinke_p_value`.

    Args:
        run: guesses and successes.
        least: the curve, in both directions of the adjacency: see :data:`Least`.
        alpha: in (0, 1).

    Example:
        >>> run = OneRun(canaries=1000, guesses=1000, correct=600)
        >>> is_refuted(run, gaussian_least(0.1), 0.05), is_refuted(run, gaussian_least(0.5), 0.05)
        (True, False)
    """
    check_number("alpha", alpha, low=0, high=1, low_open=True, high_open=True)
    total = run.guesses / run.canaries * (1 + _ROUNDING)
    correct = alpha * run.correct / run.canaries
    wrong = alpha * (run.guesses - run.correct) / run.canaries
    for number in range(run.correct - 1, -1, -1):
        if correct + wrong > total:
            return True
        before, wrong = wrong, max(wrong, least(correct))
        correct += number / (run.guesses - number) * (wrong - before)
    return correct + wrong > total


def mahloujifar_mu(run: OneRun, confidence: float) -> float:
    """The largest mu up to which mu-GDP is refuted at ``confidence``; 0 if none is.

    Formal guarantees:
        * Lower bound: for a mu-GDP mechanism it exceeds mu with probability at most 1 - ``confidence``.

    Example:
        >>> round(mahloujifar_mu(OneRun(1000, 1000, 600), 0.95), 3)
        0.164
    """
    alpha = 1 - check_number("confidence", confidence, low=0, high=1, low_open=True, high_open=True)

    def refuted(mu: float) -> bool:
        return is_refuted(run, gaussian_least(mu), alpha)

    return _largest_mu(refuted)


def _largest_mu(refuted: Callable[[float], bool]) -> float:
    """The end of those that are refuted; 0 if none is."""
    if not refuted(0.0):
        return 0.0
    high = 0.25
    while refuted(high):
        high *= 2
        if high > _LARGEST_MU:
            return _LARGEST_MU
    return _bisected(refuted, 0.0 if high == 0.25 else high / 2, high)


def mahloujifar_gaussian_epsilon(run: OneRun, delta: float, confidence: float) -> float:
    """:func:`mahloujifar_mu` as epsilon at ``delta``: a bound for mechanisms whose curve is a Gaussian's.

    Example:
        >>> round(mahloujifar_gaussian_epsilon(OneRun(1000, 1000, 600), 1e-5, 0.95), 2)
        0.58
    """
    return gdp_epsilon(mahloujifar_mu(run, confidence), delta)


def apart_p_value(run: OneRun, mu: float) -> float:
    """How likely at least so many correct guesses are, at most, if each canary is under mu-GDP and on its own.

    Formal guarantees:
        * Valid: for canaries that do not influence one another, independent fair coins and any attack that guesses so
          many of them, it is at most p with probability at most p.

    Args:
        run: guesses and successes.
        mu: >= 0.

    Example:
        >>> round(apart_p_value(OneRun(1000, 500, 300), 0.3), 3), round(apart_p_value(OneRun(1000, 500, 300), 0.0), 6)
        (0.422, 4e-06)
    """
    check_number("mu", mu, low=0)
    wrong = run.guesses - run.correct
    share = stats.beta.ppf(_CUTS[1:-1], run.guesses, run.canaries - run.guesses + 1)
    # Where a canary is guessed that is t = mu x, the share of what is more certain is Phi(mu/2 - x) + Phi(-mu/2 - x).
    low, high = np.zeros_like(share), np.full_like(share, mu / 2 + 40.0)
    for _ in range(60):
        middle = (low + high) / 2
        more = ndtr(mu / 2 - middle) + ndtr(-mu / 2 - middle) > share
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    among = ndtr(-mu / 2 - high)
    others = among / np.maximum(among + ndtr(mu / 2 - high), np.finfo(np.float64).tiny)
    own = expit(-mu * high)
    tail = own * stats.binom.cdf(wrong - 1, run.guesses - 1, others)
    tail += (1 - own) * stats.binom.cdf(wrong, run.guesses - 1, others)
    # Of the most certain piece all may be right.
    return min(1.0, float(np.diff(_CUTS) @ np.concatenate([[1.0], tail])) + _ROUNDING)


def apart_mu(run: OneRun, confidence: float) -> float:
    """The largest mu up to which mu-GDP is refuted at ``confidence``, if canaries do not influence one another.

    Formal guarantees:
        * Lower bound: of such canaries it exceeds mu with probability at most 1 - ``confidence``.

    Example:
        >>> run = OneRun(1000, 500, 300)
        >>> mahloujifar_mu(run, 0.95) < round(apart_mu(run, 0.95), 3)
        True
    """
    alpha = 1 - check_number("confidence", confidence, low=0, high=1, low_open=True, high_open=True)
    return _largest_mu(lambda mu: apart_p_value(run, mu) <= alpha)


def _bisected(refuted: Callable[[float], bool], low: float, high: float) -> float:
    """The refuted end of the interval, to four digits."""
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
