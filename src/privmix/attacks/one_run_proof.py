"""Proofs about one mechanism from guesses at canaries' coins, next to its claim; and how many coins to guess."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from privmix.accounting.api import delta, epsilon
from privmix.accounting.events import Adjacency, Event
from privmix.accounting.gdp import gdp_mu
from privmix.attacks.one_run import (
    Least,
    OneRun,
    gaussian_least,
    is_refuted,
    mahloujifar_gaussian_epsilon,
    steinke_epsilon,
)
from privmix.errors import InvalidInput, check_integer, check_number

# Number of lines in addition to that of epsilon 0, and the step between those that are found first.
_LINES: Final = 256
_APART: Final = 16
_RAREST: Final = 1e-12
_SHARES: Final = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
# Noise is searched for in this range, as a factor of the planned one, to one part in a hundred.
_NOISIER: Final = 64.0
_HALVINGS: Final = 6


@lru_cache(maxsize=64)
def event_least(event: Event, adjacency: Adjacency) -> Least:
    """Return a lower bound on a mechanism's trade-off curve, from its privacy loss distribution; cached."""
    # Each pair (epsilon, delta) that holds bounds it by (r - delta) e^-epsilon and by 1 - delta - e^epsilon (1 - r).
    return _Lines(event, adjacency)


class _Lines:
    """Lines below a convex curve; finds the highest at a point."""

    # Lines that touch farther away lie lower. Every line is a bound: missing the highest one costs only power.

    def __init__(self, event: Event, adjacency: Adjacency) -> None:
        # The recursion begins with events as rare as a false proof may be: lines must reach them.
        # Beyond 40, exp(-epsilon) is lost next to 1 in double precision. A lower line costs power, not validity.
        most = min(40.0, max(epsilon(event, _RAREST, adjacency=adjacency).epsilon, 1e-6))
        self._epsilons = np.concatenate([[0.0], np.geomspace(most / 500, most, _LINES)])
        growth = np.exp(self._epsilons)
        # The two lines of each epsilon; none is known yet.
        self._starts, self._slopes = np.full(2 * growth.size, -np.inf), np.concatenate([1 / growth, growth])
        self._event, self._adjacency = event, adjacency
        self._find(range(0, growth.size, _APART))

    def __call__(self, r: float) -> float:
        step = _APART
        heights = self._starts + self._slopes * r
        highest = int(heights.argmax())
        while step > 1:
            step //= 2
            middle = highest % self._epsilons.size
            if self._find(range(max(0, middle - step), min(_LINES, middle + step) + 1, step)):
                heights = self._starts + self._slopes * r
                highest = int(heights.argmax())
        return max(0.0, float(heights[highest]))

    def _find(self, places: Iterable[int]) -> bool:
        """Work out the lines that are not known; whether there were any."""
        new = [place for place in places if self._starts[place] == -np.inf]
        for place in new:
            cost = delta(self._event, float(self._epsilons[place]), adjacency=self._adjacency)
            shrink, growth = self._slopes[[place, place + self._epsilons.size]]
            self._starts[[place, place + self._epsilons.size]] = -cost.delta * shrink, 1 - cost.delta - growth
        return bool(new)


@dataclass(frozen=True)
class Mechanism:
    """The audited mechanism as an event of its noise factor; the claim is factor 1."""

    event: Callable[[float], Event]
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def epsilon(self, delta: float, factor: float = 1.0) -> float:
        """Epsilon at ``delta`` with this multiple of the planned noise."""
        return epsilon(self.event(factor), delta, adjacency=self.adjacency).epsilon

    def is_refuted(self, run: OneRun, alpha: float, factor: float = 1.0) -> bool:
        """Whether the guesses refute that there was at least this multiple of the planned noise."""
        return is_refuted(run, event_least(self.event(factor), self.adjacency), alpha)


def mahloujifar_epsilon(run: OneRun, mechanism: Mechanism, delta: float, confidence: float) -> float:
    """Return epsilon at ``delta`` of the mechanism with the least noise refuted at ``confidence``, or 0.

    Formal guarantees:
        * Lower bound: if what ran is the mechanism at some noise, it exceeds that one's epsilon with probability at
          most 1 - ``confidence``.
        * Refutes curves: it exceeds the claimed epsilon only if the claimed trade-off curve itself is refuted.
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
    """Proofs of one run next to the claim; ``provable_epsilon``: the proof had all guesses been correct."""

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
        return self.proven_epsilon > self.claimed_epsilon

    def to_dict(self) -> dict[str, Any]:
        def figures(*names: str) -> dict[str, float | None]:
            found = {name: getattr(self, name) for name in names}
            return {name: value if math.isfinite(value) else None for name, value in found.items()}

        return {
            "canaries": self.run.canaries,
            "guesses": self.run.guesses,
            "correct": self.run.correct,
            "delta": self.delta,
            "confidence": self.confidence,
            **figures("claimed_epsilon", "proven_epsilon", "provable_epsilon"),
            "proven_by": figures("steinke", "mahloujifar"),
            "violated": self.violated,
        }


def prove(run: OneRun, mechanism: Mechanism, delta: float, confidence: float) -> OneRunProof:
    """Prove both bounds, together at ``confidence``; raise InvalidInput for too few guesses."""
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
    """Return the fewest canaries with which :func:`prove` can prove anything."""
    check_number("confidence", confidence, low=0, high=1, low_open=True, high_open=True)
    return math.floor(-math.log2((1 - confidence) / 2)) + 1


def check_enough(canaries: int, confidence: float, field: str = "canaries") -> None:
    """Raise :class:`InvalidInput` where no outcome could prove anything at ``confidence``."""
    needed = canaries_needed(confidence)
    if check_integer(field, canaries, low=1) < needed:
        raise InvalidInput(field, canaries, f"at least {needed} for confidence {confidence:.9g}; some hundreds do well")


def best_guesses(canaries: int, epsilon: float, delta: float, confidence: float) -> int:
    """Return the number of guesses that proves most if the claim (``epsilon``, ``delta``) is tight; scores normal."""
    check_enough(canaries, confidence)
    mu = gdp_mu(min(epsilon, 50.0), max(delta, 1e-12)) if epsilon > 0 else 1e-3
    each = (1 + confidence) / 2
    least = canaries_needed(confidence)
    sizes = sorted({max(least, round(share * canaries)) for share in _SHARES})

    def proven(guesses: int) -> tuple[float, int]:
        run = OneRun(canaries, guesses, math.floor(guesses * _accuracy(mu, guesses / canaries)))
        best = max(steinke_epsilon(run, delta, each), mahloujifar_gaussian_epsilon(run, delta, each))
        # If little can be proven, many guesses show a broken mechanism best.
        return best, guesses

    return max(sizes, key=proven)


def _accuracy(mu: float, share: float) -> float:
    """Return expected accuracy on the ``share`` of canaries with the highest and lowest of scores N(+-mu/2, 1)."""
    grid: NDArray[np.float64] = np.linspace(-12 - mu, 12 + mu, 4001)
    kept = ndtr(mu / 2 - grid) + ndtr(-mu / 2 - grid)
    threshold = float(grid[int(np.argmin(np.abs(kept - share)))])
    present = float(ndtr(mu / 2 - threshold))
    return present / (present + float(ndtr(-mu / 2 - threshold)))
