"""Proofs from one run with many canaries, each included by a fair coin, and a guess at r of the k coins; v are correct.

* Steinke, Nasr, Jagielski 2023 (Theorem 5.2): under (epsilon, delta)-DP, v is hardly more than the number of correct
  guesses against randomised response, for any mechanism.
* Mahloujifar, Melis, Chaudhuri 2024 (Theorem 3.2, Algorithm 3): under f-DP, a recursion over v that uses the whole
  trade-off curve. Both stay valid where canaries influence each other; only power is lost.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.special import ndtr, ndtri

from privmix.accounting.gdp import gdp_epsilon
from privmix.errors import InvalidInput, check_integer, check_number
from privmix.fields import Count, check_fields

Least = Callable[[float], float]
"""Trade-off curve in another form: the least probability that an event of probability r can have without the record."""

# Rounding of ten thousand additions is far below this; the recursion stays on the safe side of it.
_ROUNDING: Final = 1e-9
# The search stops at these values.
_LARGEST_EPSILON, _LARGEST_MU = 64.0, 64.0


@dataclass(frozen=True)
class OneRun:
    """Guesses of one run: ``correct`` of ``guesses`` coins, fixed beforehand, of k ``canaries``."""

    canaries: Count
    guesses: int
    correct: int

    def __post_init__(self) -> None:
        check_fields(self)
        check_integer("guesses", self.guesses, low=1, high=self.canaries)
        check_integer("correct guesses", self.correct, low=0, high=self.guesses)

    @classmethod
    def of(cls, scores: ArrayLike, included: ArrayLike, guesses: int) -> "OneRun":
        """Guess "in" for the highest (k,) scores and "out" for as many of the lowest, r in total; count hits."""
        seen, coins = np.asarray(scores, dtype=np.float64), np.asarray(included, dtype=bool)
        if seen.ndim != 1 or seen.shape != coins.shape or not np.isfinite(seen).all():
            raise InvalidInput("scores", seen.shape, "one finite score and one coin a canary")
        check_integer("guesses", guesses, low=1, high=len(seen))
        # A stable sort breaks ties by the order of the canaries, which does not depend on the coins.
        order = np.argsort(seen, kind="stable")
        highest = (guesses + 1) // 2
        correct = coins[order[len(seen) - highest :]].sum() + (~coins[order[: guesses - highest]]).sum()
        return cls(len(seen), guesses, int(correct))


def steinke_p_value(run: OneRun, epsilon: float, delta: float) -> float:
    """Bound the chance of this many correct guesses under (``epsilon``, ``delta``)-DP.

    Steinke, Nasr, Jagielski 2023, Theorem 5.2. Let X be binomial of r trials and success e^epsilon / (1 + e^epsilon).
    The bound is P[X >= v] + 2 k delta max_i P[v - i <= X < v] / i.

    Formal guarantees:
        * Valid: for an (epsilon, delta)-DP mechanism (add/remove) and independent fair coins, it is at most p with
          probability at most p.
        * Any canaries: they may influence one another, and the other records may be anything.
    """
    check_number("epsilon", epsilon, low=0)
    check_number("delta", delta, low=0, high=1)
    # In this form a large epsilon does not overflow.
    success = 1 / (1 + math.exp(-epsilon))
    tail = float(stats.binom.sf(run.correct - 1, run.guesses, success))
    if delta == 0 or run.correct == 0:
        return min(1.0, tail)
    # The chances P[v - i <= X < v], for i = 1, 2, ...: terms below v, summed downwards.
    below = np.cumsum(stats.binom.pmf(np.arange(run.correct - 1, -1, -1), run.guesses, success))
    worst = float((below / np.arange(1, run.correct + 1)).max())
    return min(1.0, tail + 2 * run.canaries * delta * worst)


def steinke_epsilon(run: OneRun, delta: float, confidence: float) -> float:
    """Return the largest epsilon up to which (epsilon, ``delta``)-DP is refuted at ``confidence``, or 0.

    Formal guarantees:
        * Lower bound: it exceeds the true epsilon at ``delta`` with probability at most 1 - ``confidence``.
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
    """Return the trade-off curve of mu-GDP: Phi(Phi^-1(r) - mu)."""
    return lambda r: float(ndtr(ndtri(r) - mu))


def is_refuted(run: OneRun, least: Least, alpha: float) -> bool:
    """Whether this many correct guesses have probability below ``alpha`` under f-DP; ``least``: the trade-off curve.

    Mahloujifar, Melis, Chaudhuri 2024, Algorithm 3. Let p_j be the probability of j correct guesses. Let r_t be the sum
    of (j / k) p_j over j >= t, and h_t that of ((r - j) / k) p_j. These are mean probabilities that a canary's guess is
    correct, or wrong, while at least t are correct. Turning a canary's coin turns a correct guess into a wrong one and
    takes one from their number, so h_t >= least(r_{t+1}). If P[at least v correct] were alpha, then all probabilities
    together, r_0 + h_0, would come to more than r / k.

    Formal guarantees:
        * Valid: for an f-DP mechanism and independent fair coins it is True with probability at most ``alpha``.
        * Any canaries: as :func:`steinke_p_value`.
    """
    check_number("alpha", alpha, low=0, high=1, low_open=True, high_open=True)
    # Rounding may only make a refutation harder.
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
    """Return the largest mu up to which mu-GDP is refuted at ``confidence``, or 0.

    Formal guarantees:
        * Lower bound: for a mu-GDP mechanism it exceeds mu with probability at most 1 - ``confidence``.
    """
    alpha = 1 - check_number("confidence", confidence, low=0, high=1, low_open=True, high_open=True)

    def refuted(mu: float) -> bool:
        return is_refuted(run, gaussian_least(mu), alpha)

    if not refuted(0.0):
        return 0.0
    high = 0.25
    while refuted(high):
        high *= 2
        if high > _LARGEST_MU:
            return _LARGEST_MU
    return _bisected(refuted, 0.0 if high == 0.25 else high / 2, high)


def mahloujifar_gaussian_epsilon(run: OneRun, delta: float, confidence: float) -> float:
    """Return :func:`mahloujifar_mu` as epsilon at ``delta``: a bound for mechanisms with a Gaussian curve."""
    return gdp_epsilon(mahloujifar_mu(run, confidence), delta)


def _bisected(refuted: Callable[[float], bool], low: float, high: float) -> float:
    """Return the refuted end of the interval, to four digits."""
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
