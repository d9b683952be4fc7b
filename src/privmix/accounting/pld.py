"""The default accountant: pessimistic privacy loss distributions under an exponential tilt.

Sources: Koskela, Jalko, Honkela 2020 (FFT composition); Zhu, Dong, Wang 2022 (dominating pairs); Doroshenko et al. 2022
(pessimistic grid); Keich 2005 and Alghamdi et al. 2023 (tilts). Proofs: docs/accounting-numerics.md. dp_accounting's
grid loses accuracy with the number of compositions, and its transform's error hides any delta below about 1e-11.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from privmix.accounting.allocation import allocation_query
from privmix.accounting.base import Leaf, UnsupportedEvent, flatten, shift_of
from privmix.accounting.direction import LossDirection
from privmix.accounting.events import (
    Adjacency,
    Allocated,
    Bounded,
    ClusterSampled,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    NormalWeighted,
    PoissonSampled,
)
from privmix.accounting.pairs import GaussianNoise, LaplaceNoise, SampledPair
from privmix.accounting.queries import BoundedQuery, PairQuery, Query
from privmix.accounting.spreads import spread_queries

# Share of epsilon that the grid may add where that costs little; see direction.py for what it may where it costs much.
_TOLERANCE = 1e-4
# The same for guesses.
_ROUGH_TOLERANCE = 1e-2
# e to more than this overflows.
_MOST_EXPONENT = 700.0
# Shares of an epsilon, and of a delta, for the first of two steps. Below the last no price is sought.
_SHARES_OF_EPSILON = tuple(number / 40 for number in range(4, 29))
_SHARES_OF_DELTA = (0.01, 0.03, 0.08, 0.15, 0.25, 0.4, 0.6, 0.8)
_LEAST_DELTA = 1e-250
# Guesses this near may be in the wrong order.
_NEAR = 0.1
# Answers that are kept: a calibration asks for a dozen guesses and a few prices.
_ANSWERS = 2048


@dataclass(frozen=True)
class ComposedLoss:
    """The privacy loss of everything that ran, composed again under the tilt that each question needs."""

    directions: tuple[LossDirection, ...]

    def delta(self, epsilon: float) -> float:
        """Upper bound on the hockey-stick divergence at ``epsilon`` >= 0, the larger of both directions."""
        found = 0.0
        for direction in sorted(self.directions, key=lambda one: -one.guess_log_delta(epsilon)):
            if found == 0 or not direction.surely_within(epsilon, found):
                found = max(found, direction.delta(epsilon))
        return found

    def guess_epsilon(self, delta: float) -> float:
        """About ``epsilon`` at ``delta``, in milliseconds; no bound."""
        return max(direction.guess_epsilon(delta) for direction in self.directions)

    def guess_log_delta(self, epsilon: float) -> float:
        """About log ``delta`` at ``epsilon``; no bound."""
        return max(direction.guess_log_delta(epsilon) for direction in self.directions)

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 found whose divergence is at most ``delta``; infinity if there is none."""
        found = -1.0
        for direction in sorted(self.directions, key=lambda one: -one.guess_epsilon(delta)):
            if found < 0 or not direction.surely_within(found, delta):
                found = max(found, direction.epsilon(delta))
        return found * (1 + 1e-12)


@dataclass(frozen=True)
class ReplacedLoss:
    """The loss where one record leaves and another comes, by way of the dataset that has neither."""

    # P, R and P' are the laws with the one, with neither, with the other. P <= e^a R + d and R <= e^b P' + d' on every
    # event make P <= e^(a + b) P' + d + e^a d'. Every a and share of delta give a bound; for Gaussian queries the best
    # is exact (Dwork and Roth 2014, Theorem 2.2; Dong, Roth and Su 2021, Theorem 2.14).

    remove: LossDirection
    add: LossDirection

    @property
    def directions(self) -> "tuple[ReplacedLoss]":
        """Itself: which of two records is replaced by which makes no difference to the bound."""
        return (self,)

    def delta(self, epsilon: float) -> float:
        """Upper bound on the hockey-stick divergence at ``epsilon`` >= 0."""
        first = self._best_share(epsilon) * epsilon
        if first > _MOST_EXPONENT:
            # A tiny delta times a factor this large has no meaning in floats: return the trivial bound.
            return 1.0
        found = self.remove.delta(first) + math.exp(first) * self.add.delta(epsilon - first)
        return min(1.0, found * (1 + 1e-12))

    def epsilon(self, delta: float) -> float:
        """Upper bound on epsilon at ``delta``; infinity if there is none."""
        share = min(_SHARES_OF_DELTA, key=lambda share: self._guess(delta, share))
        return _in_turn(self.remove.epsilon, self.add.epsilon, delta, share)

    def guess_epsilon(self, delta: float) -> float:
        return min(self._guess(delta, share) for share in _SHARES_OF_DELTA)

    def guess_log_delta(self, epsilon: float) -> float:
        return self._log_sum(epsilon, self._best_share(epsilon))

    def _guess(self, delta: float, share: float) -> float:
        return _in_turn(self.remove.guess_epsilon, self.add.guess_epsilon, delta, share)

    def _best_share(self, epsilon: float) -> float:
        return min(_SHARES_OF_EPSILON, key=lambda share: self._log_sum(epsilon, share))

    def _log_sum(self, epsilon: float, share: float) -> float:
        first = share * epsilon
        second = first + self.add.guess_log_delta(epsilon - first)
        return float(np.logaddexp(self.remove.guess_log_delta(first), second))


@dataclass(frozen=True)
class LeastLoss:
    """Several upper bounds on one loss, of which the least counts; all that may be it are worked out."""

    bounds: tuple[ComposedLoss | ReplacedLoss, ...]

    @property
    def directions(self) -> "tuple[LeastLoss]":
        """Itself: which of two records is replaced by which makes no difference to any of the bounds."""
        return (self,)

    def delta(self, epsilon: float) -> float:
        return self._least([one.guess_log_delta(epsilon) for one in self.bounds], 1.0, lambda one: one.delta(epsilon))

    def epsilon(self, delta: float) -> float:
        guesses = [one.guess_epsilon(delta) for one in self.bounds]
        return self._least(guesses, _NEAR * min(guesses), lambda one: one.epsilon(delta))

    def guess_epsilon(self, delta: float) -> float:
        return min(one.guess_epsilon(delta) for one in self.bounds)

    def guess_log_delta(self, epsilon: float) -> float:
        return min(one.guess_log_delta(epsilon) for one in self.bounds)

    def _least(self, guesses: list[float], room: float, found: Callable[[ComposedLoss | ReplacedLoss], float]) -> float:
        near = min(guesses) + room
        # No comparison holds of what is not a number: such a bound is worked out.
        return min(found(one) for one, guess in zip(self.bounds, guesses, strict=True) if not guess > near)


def _in_turn(first: Callable[[float], float], second: Callable[[float], float], delta: float, share: float) -> float:
    """Epsilon of two steps of which the first takes a ``share`` of ``delta``."""
    one = first(share * delta)
    left = (1 - share) * delta * math.exp(-min(one, 700.0)) * (1 - 1e-12)
    return (one + second(left)) * (1 + 1e-12) if left > _LEAST_DELTA else math.inf


@dataclass(frozen=True)
class PldAccountant:
    """Prices events by pessimistic privacy loss distributions; ``tolerance``: share of epsilon that the grid may add.

    Formal guarantees:
        * every epsilon and delta is an upper bound: intervals are rounded with "connect the dots", mass off the grid
          counts as infinite loss, and a proven bound on the composition's rounding error is added to every delta;
        * a range too wide for the memory limit coarsens the grid, which only raises the figure;
        * cluster sampling is priced as if the record's cluster bit were published in every row (valid for every
          dataset, attained by the worst one);
        * random allocation is priced by its worst pair, all rows of a block together (allocation.py), and under
          replace-one in two steps, :class:`ReplacedLoss`;
        * Poisson sampling is priced under replace-one by the lesser of two bounds: in two steps, and by the pair of
          fixed-size draws;
        * fixed-size sampling is priced under replace-one with doubled sensitivity, and refused under add/remove;
        * sums with normal weights are priced as N(0, s^2) against N(0, s^2 + 1), and refused under replace-one.
    """

    tolerance: float = _TOLERANCE
    name: str = "pld"
    is_upper_bound: bool = True
    note: str = ""

    def epsilon(self, event: Event, delta: float, adjacency: Adjacency) -> float:
        """Upper bound on epsilon at ``delta``; infinity when the loss exceeds 600 with probability above delta."""
        return _epsilon(event, adjacency, self.tolerance, self.name, delta)

    def delta(self, event: Event, epsilon: float, adjacency: Adjacency) -> float:
        return _delta(event, adjacency, self.tolerance, self.name, epsilon)

    def rough(self) -> "SaddlePoints":
        return SaddlePoints(_ROUGH_TOLERANCE, self.name)

    def loss(self, event: Event, adjacency: Adjacency) -> ComposedLoss | ReplacedLoss | LeastLoss:
        """Return the composed privacy loss itself; recent ones are kept."""
        return _composed_loss(event, adjacency, self.tolerance, self.name)


@dataclass(frozen=True)
class SaddlePoints:
    """Guesses by saddle points: they show where the search for a noise may begin, and bound no cost."""

    tolerance: float
    name: str
    is_upper_bound: bool = False
    note: str = "approximate, no bound"

    def epsilon(self, event: Event, delta: float, adjacency: Adjacency) -> float:
        return _guess(event, adjacency, self.tolerance, self.name, delta)

    def delta(self, event: Event, epsilon: float, adjacency: Adjacency) -> float:
        loss = _composed_loss(event, adjacency, self.tolerance, self.name)
        return math.exp(min(0.0, loss.guess_log_delta(epsilon)))

    def rough(self) -> "SaddlePoints":
        return self


def _uncached_loss(
    event: Event, adjacency: Adjacency, tolerance: float, name: str
) -> ComposedLoss | ReplacedLoss | LeastLoss:
    leaves, rough = flatten(event).items(), tolerance >= _ROUGH_TOLERANCE

    def queries(relation: Adjacency) -> list[Query]:
        return [query for leaf, count in leaves for query in _queries(leaf, count, relation, name, rough)]

    def of_pairs() -> ComposedLoss:
        found = queries(adjacency)
        ways = (False,) if all(query.symmetric for query in found) else (False, True)
        return ComposedLoss(tuple(LossDirection(found, add, tolerance) for add in ways))

    def in_two_steps() -> ReplacedLoss:
        found = queries(Adjacency.ADD_REMOVE)
        return ReplacedLoss(LossDirection(found, False, tolerance), LossDirection(found, True, tolerance))

    kinds = {type(leaf) for leaf, _ in leaves}
    if adjacency is Adjacency.ADD_REMOVE or not kinds & {Allocated, PoissonSampled}:
        return of_pairs()
    if Allocated in kinds:
        return in_two_steps()
    try:
        return LeastLoss((in_two_steps(), of_pairs()))
    except UnsupportedEvent:
        return of_pairs()


# A loss is small; its compositions are kept with those of all others (direction.py).
_composed_loss = lru_cache(maxsize=4)(_uncached_loss)


# An answer is one number and depends on the question alone. A calibration, the certificate of its result and an auditor
# of that certificate ask the same questions.
@lru_cache(maxsize=_ANSWERS)
def _epsilon(event: Event, adjacency: Adjacency, tolerance: float, name: str, delta: float) -> float:
    return _composed_loss(event, adjacency, tolerance, name).epsilon(delta)


@lru_cache(maxsize=_ANSWERS)
def _delta(event: Event, adjacency: Adjacency, tolerance: float, name: str, epsilon: float) -> float:
    return _composed_loss(event, adjacency, tolerance, name).delta(epsilon)


@lru_cache(maxsize=_ANSWERS)
def _guess(event: Event, adjacency: Adjacency, tolerance: float, name: str, delta: float) -> float:
    return _composed_loss(event, adjacency, tolerance, name).guess_epsilon(delta)


def _queries(leaf: Leaf, count: int, adjacency: Adjacency, name: str, rough: bool) -> Sequence[Query]:
    if isinstance(leaf, Allocated) and isinstance(leaf.event, Gaussian):
        return [allocation_query(leaf.event.noise_multiplier, leaf.rows, count, rough=rough)]
    if isinstance(leaf, NormalWeighted) and isinstance(leaf.event, Gaussian) and adjacency is Adjacency.ADD_REMOVE:
        return spread_queries(leaf.event.noise_multiplier, count)
    return [_query(leaf, count, adjacency, name)]


def _query(leaf: Leaf, count: int, adjacency: Adjacency, name: str) -> Query:
    shift, replaced = shift_of(adjacency), adjacency is Adjacency.REPLACE_ONE
    match leaf:
        case Bounded():
            if leaf.adjacency != adjacency.value:
                raise UnsupportedEvent(name, leaf, adjacency, f"its bound is stated for {leaf.adjacency}")
            return BoundedQuery(leaf.epsilon, leaf.delta, count)
        case Gaussian() | Laplace():
            return PairQuery(SampledPair(_noise(leaf, shift, leaf, adjacency, name), 1.0), count)
        case PoissonSampled(rate, inner):
            # Under replace-one the fixed-size pair at the same rate bounds Poisson sampling as well. Both follow from
            # advanced joint convexity (Balle, Barthe, Gaboardi 2018) on a coupling that shares the unsampled branch.
            return PairQuery(SampledPair(_noise(inner, shift, leaf, adjacency, name), rate), count, two_sided=replaced)
        case FixedSizeSampled(population, size, inner) if replaced:
            return PairQuery(
                SampledPair(_noise(inner, shift, leaf, adjacency, name), size / population), count, 1.0, True
            )
        case ClusterSampled(cluster_rate, rate, inner) if not replaced:
            return PairQuery(SampledPair(_noise(inner, shift, leaf, adjacency, name), rate), count, cluster_rate)
        case Allocated():
            raise UnsupportedEvent(name, leaf, adjacency, "random allocation is priced with Gaussian noise only")
        case NormalWeighted():
            reason = "normal weights are priced with Gaussian noise, under add_remove only"
            raise UnsupportedEvent(name, leaf, adjacency, reason)
        case FixedSizeSampled():
            raise UnsupportedEvent(name, leaf, adjacency, "fixed-size sampling is priced under replace_one only")
        case ClusterSampled():
            raise UnsupportedEvent(name, leaf, adjacency, "cluster sampling is priced under add_remove only")


def _noise(event: Event, shift: float, leaf: Leaf, adjacency: Adjacency, name: str) -> GaussianNoise | LaplaceNoise:
    match event:
        case Gaussian(multiplier):
            return GaussianNoise(multiplier, shift)
        case Laplace(multiplier):
            return LaplaceNoise(multiplier, shift)
        case _:
            raise UnsupportedEvent(name, leaf, adjacency, "only Gaussian and Laplace queries may be sampled")
