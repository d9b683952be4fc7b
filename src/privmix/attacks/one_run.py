"""What one run proves: many canaries, each in or out by the toss of a coin, and a guess at some of the coins.

Of k canaries each is included with probability 1/2, independently. From what the run published, an attacker guesses r of
the coins and abstains from the rest; v guesses are correct. Privacy limits how often v can be large:

* Steinke, Nasr, Jagielski 2023 (Theorem 5.2): under (epsilon, delta)-DP, v is hardly more than the number of correct
  guesses against randomised response, whatever the mechanism.
* Mahloujifar, Melis, Chaudhuri 2024 (Theorem 3.2, Algorithm 3): under f-DP, a recursion over v that uses the whole
  trade-off curve, so that one guess at a time need not be as revealing as epsilon allows.

Neither asks that canaries do not influence one another: that costs the attacker success, and never the proof its truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.special import ndtr, ndtri

from privmix.accounting import Adjacency, Event, epsilon, epsilon_delta_curve
from privmix.accounting.gdp import gdp_epsilon, gdp_mu
from privmix.errors import InvalidInput, check_integer, check_number

Least = Callable[[float], float]
"""Trade-off curve in another form: the least probability that an event of probability r can have without the record."""

# Rounding of ten thousand additions is far below this; the recursion stays on the safe side of it.
_ROUNDING: Final = 1e-9
# Nothing larger is looked for.
_LARGEST_EPSILON, _LARGEST_MU = 64.0, 64.0
_LINES: Final = 192
_SHARES: Final = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
# Noise is searched for in this range, as a factor of the planned one, to one part in a hundred.
_NOISIER, _HALVINGS = 64.0, 6


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

    canaries: int
    guesses: int
    correct: int

    def __post_init__(self) -> None:
        check_integer("canaries", self.canaries, low=1)
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


def event_least(event: Event, adjacency: Adjacency) -> Least:
    """The curve of a mechanism, from its own privacy loss distribution; a lower bound, so tests by it are valid.

    Each pair (epsilon, delta) that holds bounds it by (r - delta) e^-epsilon and by 1 - delta - e^epsilon (1 - r).

    Example:
        >>> from privmix.accounting import Gaussian
        >>> exact = gaussian_least(1.0)(0.7)
        >>> 0.99 * exact < event_least(Gaussian(1.0), Adjacency.ADD_REMOVE)(0.7) <= exact
        True
    """
    most = min(40.0, max(epsilon(event, 1e-7, adjacency=adjacency).epsilon, 1e-6))
    epsilons = np.concatenate([[0.0], np.geomspace(most / 500, most, _LINES - 1)])
    deltas = epsilon_delta_curve(event, epsilons.tolist(), adjacency=adjacency)
    growth = np.exp(epsilons)
    slopes = np.concatenate([1 / growth, growth])
    starts = np.concatenate([-deltas / growth, 1 - deltas - growth])
    return lambda r: max(0.0, float((starts + slopes * r).max()))


def is_refuted(run: OneRun, least: Least, alpha: float) -> bool:
    """Whether so many correct guesses have probability below ``alpha`` under f-DP.

    Mahloujifar, Melis, Chaudhuri 2024, Algorithm 3. With p_j the probability of j correct guesses, let r_t be the sum of
    (j / k) p_j over j >= t, and h_t that of ((r - j) / k) p_j: mean probabilities that a canary's guess is correct, or
    wrong, while at least t are correct. Turning a canary's coin turns a correct guess into a wrong one and takes one
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
        >>> 0.4 < mahloujifar_mu(OneRun(1000, 1000, 600), 0.95) < 0.5
        True
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
    """:func:`mahloujifar_mu` as epsilon at ``delta``: a bound for mechanisms whose curve is a Gaussian's.

    Example:
        >>> round(mahloujifar_gaussian_epsilon(OneRun(1000, 1000, 600), 1e-5, 0.95), 1)
        1.8
    """
    return gdp_epsilon(mahloujifar_mu(run, confidence), delta)


@dataclass(frozen=True)
class Mechanism:
    """What is audited, with its noise as the unknown: the claim is that the factor is 1.

    Attributes:
        event: what ran, if its noise were the planned one times the factor.
        adjacency: of the claim.

    Example:
        >>> from privmix.accounting import Gaussian
        >>> mechanism = Mechanism(lambda factor: Gaussian(2.0 * factor))
        >>> round(mechanism.epsilon(1e-5), 2) < round(mechanism.epsilon(1e-5, 0.5), 2)
        True
    """

    event: Callable[[float], Event]
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def epsilon(self, delta: float, factor: float = 1.0) -> float:
        """Epsilon at ``delta`` with so many times the planned noise."""
        return epsilon(self.event(factor), delta, adjacency=self.adjacency).epsilon

    def is_refuted(self, run: OneRun, alpha: float, factor: float = 1.0) -> bool:
        """Whether the guesses refute that there was at least so many times the planned noise."""
        return is_refuted(run, event_least(self.event(factor), self.adjacency), alpha)


def mahloujifar_epsilon(run: OneRun, mechanism: Mechanism, delta: float, confidence: float) -> float:
    """Epsilon at ``delta`` of the mechanism with the least noise that is refuted at ``confidence``; 0 if none is.

    Formal guarantees:
        * Lower bound: if what ran is the mechanism at some noise, it exceeds that one's epsilon with probability at
          most 1 - ``confidence``.
        * Refutes curves: it exceeds the claimed epsilon only if the claimed trade-off curve itself is refuted.

    Example:
        >>> from privmix.accounting import Gaussian
        >>> mechanism = Mechanism(lambda factor: Gaussian(2.0 * factor))
        >>> run = OneRun(1000, 1000, 600)
        >>> 1.0 < mahloujifar_epsilon(run, mechanism, 1e-5, 0.95) < mechanism.epsilon(1e-5)
        True
    """
    alpha = 1 - check_number("confidence", confidence, low=0, high=1, low_open=True, high_open=True)
    if not is_refuted(run, gaussian_least(0.0), alpha):
        # Blind guessing does as well: no noise is refuted.
        return 0.0
    high = 1.0
    if mechanism.is_refuted(run, alpha):
        while mechanism.is_refuted(run, alpha, high / 2) and high > 1 / _NOISIER:
            high /= 2
    else:
        while not mechanism.is_refuted(run, alpha, high := high * 2):
            if high >= _NOISIER:
                return 0.0
    low = high / 2
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if mechanism.is_refuted(run, alpha, middle) else (middle, high)
    return mechanism.epsilon(delta, high)


@dataclass(frozen=True)
class OneRunProof:
    """What one run proves beside what was claimed.

    Attributes:
        run: guesses and successes.
        delta: of the claim and of the proofs.
        confidence: with which all of it holds together.
        claimed_epsilon: the upper bound.
        steinke: lower bound by :func:`steinke_epsilon`.
        mahloujifar: lower bound by :func:`mahloujifar_epsilon`.
        provable_epsilon: what would have been proven had all guesses been correct.
    """

    run: OneRun
    delta: float
    confidence: float
    claimed_epsilon: float
    steinke: float
    mahloujifar: float
    provable_epsilon: float

    @property
    def proven_epsilon(self) -> float:
        """The larger of the two bounds, each of which has half the chance of error."""
        return max(self.steinke, self.mahloujifar)

    @property
    def violated(self) -> bool:
        """Whether the claim is refuted."""
        return self.proven_epsilon > self.claimed_epsilon

    def to_dict(self) -> dict[str, Any]:
        """JSON values; infinities become None."""
        figures = {
            "claimed_epsilon": self.claimed_epsilon,
            "proven_epsilon": self.proven_epsilon,
            "provable_epsilon": self.provable_epsilon,
        }
        return {
            "canaries": self.run.canaries,
            "guesses": self.run.guesses,
            "correct": self.run.correct,
            "delta": self.delta,
            "confidence": self.confidence,
            **{name: value if math.isfinite(value) else None for name, value in figures.items()},
            "proven_by": {
                name: value if math.isfinite(value) else None
                for name, value in (("steinke", self.steinke), ("mahloujifar", self.mahloujifar))
            },
            "violated": self.violated,
        }


def prove(run: OneRun, mechanism: Mechanism, delta: float, confidence: float) -> OneRunProof:
    """Both bounds, together at ``confidence``.

    Raises:
        InvalidInput: too few guesses to prove anything; the message says how many are needed.

    Example:
        >>> from privmix.accounting import Gaussian
        >>> proof = prove(OneRun(1000, 1000, 600), Mechanism(lambda factor: Gaussian(2.0 * factor)), 1e-5, 0.95)
        >>> 0 < proof.steinke < proof.mahloujifar == proof.proven_epsilon < proof.claimed_epsilon, proof.violated
        (True, False)
    """
    check_enough(run.guesses, confidence)
    each = (1 + confidence) / 2
    perfect = OneRun(run.canaries, run.guesses, run.guesses)
    return OneRunProof(
        run,
        delta,
        confidence,
        mechanism.epsilon(delta),
        steinke_epsilon(run, delta, each),
        mahloujifar_epsilon(run, mechanism, delta, each),
        max(steinke_epsilon(perfect, delta, each), mahloujifar_gaussian_epsilon(perfect, delta, each)),
    )


def canaries_needed(confidence: float) -> int:
    """The fewest canaries with which :func:`prove` can prove anything: fair coins guess fewer by luck alone.

    Example:
        >>> canaries_needed(0.95), canaries_needed(1 - 1e-6)
        (6, 21)
    """
    check_number("confidence", confidence, low=0, high=1, low_open=True, high_open=True)
    return math.floor(-math.log2((1 - confidence) / 2)) + 1


def check_enough(canaries: int, confidence: float, field: str = "canaries") -> None:
    """Raise :class:`InvalidInput` where no outcome could prove anything at ``confidence``."""
    needed = canaries_needed(confidence)
    if check_integer(field, canaries, low=1) < needed:
        raise InvalidInput(field, canaries, f"at least {needed} for confidence {confidence:.9g}; some hundreds do well")


def best_guesses(canaries: int, epsilon: float, delta: float, confidence: float) -> int:
    """How many coins to guess, chosen beforehand: what proves most where scores are as far apart as is claimed.

    Args:
        canaries: k.
        epsilon: claimed; scores are taken as normal, with the mu that passes through (epsilon, delta).
        delta: of the claim.
        confidence: of :func:`prove`.

    Example:
        >>> best_guesses(1000, 8.0, 1e-5, 0.95) >= best_guesses(1000, 0.1, 1e-5, 0.95)
        True
    """
    check_enough(canaries, confidence)
    mu, each = _mu_through(epsilon, delta), (1 + confidence) / 2
    least = canaries_needed(confidence)
    sizes = sorted({max(least, round(share * canaries)) for share in _SHARES})

    def proven(guesses: int) -> tuple[float, int]:
        run = OneRun(canaries, guesses, math.floor(guesses * _accuracy(mu, guesses / canaries)))
        best = max(steinke_epsilon(run, delta, each), mahloujifar_gaussian_epsilon(run, delta, each))
        # Where little can be proven, many guesses show a broken mechanism best.
        return best, guesses

    return max(sizes, key=proven)


def _accuracy(mu: float, share: float) -> float:
    """Expected accuracy on the ``share`` of canaries with the highest and lowest of scores N(+-mu/2, 1)."""
    grid: NDArray[np.float64] = np.linspace(-12 - mu, 12 + mu, 4001)
    kept = ndtr(mu / 2 - grid) + ndtr(-mu / 2 - grid)
    threshold = float(grid[int(np.argmin(np.abs(kept - share)))])
    present = float(ndtr(mu / 2 - threshold))
    return present / (present + float(ndtr(-mu / 2 - threshold)))


def _mu_through(epsilon: float, delta: float) -> float:
    return gdp_mu(min(epsilon, 50.0), max(delta, 1e-12)) if epsilon > 0 else 1e-3


def _bisected(refuted: Callable[[float], bool], low: float, high: float) -> float:
    """The refuted end of the interval, to four digits."""
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
