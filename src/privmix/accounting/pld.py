"""The default accountant: pessimistic privacy loss distributions.

Sources: Koskela, Jalko, Honkela 2020 (FFT composition); Zhu, Dong, Wang 2022 (dominating pairs); Doroshenko et al. 2022
(pessimistic grid). Deltas are read off dp_accounting's ``PrivacyLossDistribution``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from numpy.typing import NDArray

from privmix.accounting.base import Leaf, UnsupportedEvent, flatten
from privmix.accounting.compose import compose, mix_with_nothing, self_compose, window
from privmix.accounting.events import (
    Adjacency,
    Bounded,
    ClusterSampled,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    PoissonSampled,
)
from privmix.accounting.pairs import (
    GaussianNoise,
    LaplaceNoise,
    LossPmf,
    SampledPair,
    add_pmf,
    fixed_size_pmf,
    remove_pmf,
)

Array = NDArray[np.float64]

# Grid points allowed for one query and for a composition: FFT buffers stay below half a gigabyte.
_MAX_QUERY_POINTS = 2**20
_MAX_COMPOSED_POINTS = 2**22
_ROUGH_TOLERANCE = 0.3
_QUADRATURE_POINTS = 4001
# dp_accounting's own default, so figures agree with it to every digit that people print.
_DEFAULT_STEP = 1e-4


@dataclass(frozen=True)
class _Query:
    """One elementary query: its dominating pair, how it is sampled, and how often it ran."""

    pair: SampledPair
    count: int
    cluster_rate: float = 1.0
    two_sided: bool = False

    def pmfs(self, step: float) -> tuple[LossPmf, LossPmf]:
        """Loss of one run in the "remove" and the "add" direction."""
        if self.two_sided:
            pmf = fixed_size_pmf(self.pair, step)
            return pmf, pmf
        remove, add = remove_pmf(self.pair, step), add_pmf(self.pair, step)
        if self.cluster_rate < 1:
            return mix_with_nothing(remove, self.cluster_rate), mix_with_nothing(add, self.cluster_rate)
        return remove, add

    @property
    def has_atoms(self) -> bool:
        """Whether single losses have mass, which a coarse step would round up visibly."""
        return isinstance(self.pair.noise, LaplaceNoise)

    def loss_range(self) -> tuple[float, float]:
        """Least and largest loss on the grid."""
        return self.pair.loss_range()

    def spread(self) -> tuple[Array, Array, float]:
        """Losses and their masses on a fine quadrature, and the number of runs that are not empty."""
        low, high = self.pair.noise.reach()
        x = np.linspace(low, high, _QUADRATURE_POINTS)
        absent = self.pair.noise.masses(x, 0.0)
        present = self.pair.noise.masses(x, self.pair.noise.shift)
        rate = self.pair.rate
        losses = np.minimum(self.pair.loss((x[1:] + x[:-1]) / 2), 60.0)
        return losses, (1 - rate) * absent + rate * present, self.count * self.cluster_rate


@dataclass(frozen=True)
class _BoundedQuery:
    """Randomised response: loss epsilon or -epsilon, or infinite with probability delta; alike in both directions."""

    event: Bounded
    count: int
    has_atoms: bool = True

    def pmfs(self, step: float) -> tuple[LossPmf, LossPmf]:
        # Both atoms are rounded up.
        high, low = math.ceil(self.event.epsilon / step), -math.floor(self.event.epsilon / step)
        probs = np.zeros(high - low + 1)
        masses = (1 - self.event.delta) * self._shares()
        probs[-1] += masses[0]
        probs[0] += masses[1]
        pmf = LossPmf(low, probs, self.event.delta, step)
        return pmf, pmf

    def loss_range(self) -> tuple[float, float]:
        return -self.event.epsilon, self.event.epsilon

    def spread(self) -> tuple[Array, Array, float]:
        return np.array([self.event.epsilon, -self.event.epsilon]), self._shares(), float(self.count)

    def _shares(self) -> Array:
        true = 1 / (1 + math.exp(-self.event.epsilon))
        return np.array([true, 1 - true])


@dataclass(frozen=True)
class ComposedLoss:
    """The privacy loss of everything that ran."""

    remove: LossPmf
    add: LossPmf
    step: float

    @cached_property
    def distribution(self) -> PrivacyLossDistribution:
        """The same loss as dp_accounting holds it."""
        return PrivacyLossDistribution(self.remove.dense(), self.add.dense())

    def delta(self, epsilon: float) -> float:
        """Hockey-stick divergence at ``epsilon`` >= 0, the larger of both directions."""
        return min(1.0, max(0.0, float(self.distribution.get_delta_for_epsilon(float(epsilon)))))

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 whose divergence is at most ``delta``, rounded up; infinity if there is none."""
        return max(self.remove.epsilon(delta), self.add.epsilon(delta)) * (1 + 1e-12)


@dataclass(frozen=True)
class PldAccountant:
    """Prices events by pessimistic privacy loss distributions.

    Formal guarantees:
        * every epsilon and delta is an upper bound: cells are rounded with "connect the dots", mass off the grid and
          the FFT's measured rounding error count as infinite loss;
        * a range too wide for the memory limit coarsens the grid, which only raises the figure;
        * cluster sampling is priced as if the record's cluster bit were published in every row (valid for every
          dataset, attained by the worst one);
        * fixed-size sampling is priced under replace-one with doubled sensitivity, and refused under add/remove.

    Args:
        tolerance: variance that the grid may add to the composed loss, as a share of it.

    Example:
        >>> from privmix.accounting.events import Gaussian, PoissonSampled, Repeated, Adjacency
        >>> event = Repeated(PoissonSampled(64 / 50_000, Gaussian(1.260)), 50_000)
        >>> round(PldAccountant().epsilon(event, 1e-5, Adjacency.ADD_REMOVE), 3)
        1.011
    """

    tolerance: float = 1e-2
    name: str = "pld"
    is_upper_bound: bool = True
    note: str = ""

    def epsilon(self, event: Event, delta: float, adjacency: Adjacency) -> float:
        """Upper bound on epsilon at ``delta``; infinity when the loss exceeds 600 with probability above delta."""
        return self.loss(event, adjacency).epsilon(delta)

    def delta(self, event: Event, epsilon: float, adjacency: Adjacency) -> float:
        """Upper bound on delta at ``epsilon`` >= 0."""
        return self.loss(event, adjacency).delta(epsilon)

    def rough(self) -> PldAccountant:
        """The same on a coarse grid."""
        return replace(self, tolerance=_ROUGH_TOLERANCE)

    def loss(self, event: Event, adjacency: Adjacency) -> ComposedLoss:
        """The composed privacy loss itself; recent ones are kept."""
        return _composed_loss(event, adjacency, self.tolerance, self.name)


@lru_cache(maxsize=8)
def _composed_loss(event: Event, adjacency: Adjacency, tolerance: float, name: str) -> ComposedLoss:
    queries = [_query(leaf, count, adjacency, name) for leaf, count in flatten(event).items()]
    step = _grid_step(queries, tolerance)
    while True:
        pmfs = [(query.pmfs(step), query.count) for query in queries]
        if sum(max(_points(remove, n), _points(add, n)) for (remove, add), n in pmfs) <= _MAX_COMPOSED_POINTS:
            break
        step *= 2
    removes, adds = zip(*((self_compose(r, n), self_compose(a, n)) for (r, a), n in pmfs), strict=True)
    remove, add = removes[0], adds[0]
    for next_remove, next_add in zip(removes[1:], adds[1:], strict=True):
        remove, add = compose(remove, next_remove), compose(add, next_add)
    return ComposedLoss(remove, add, step)


def _points(pmf: LossPmf, count: int) -> int:
    low, high = window(pmf, count)
    return high - low + 1


def _query(leaf: Leaf, count: int, adjacency: Adjacency, name: str) -> _Query | _BoundedQuery:
    match adjacency:
        case Adjacency.ADD_REMOVE:
            shift = 1.0
        case Adjacency.REPLACE_ONE:
            # One record leaves and another comes: the sum moves by up to twice a record's bound.
            shift = 2.0
    replace = adjacency is Adjacency.REPLACE_ONE
    match leaf:
        case Bounded():
            if leaf.adjacency != adjacency.value:
                raise UnsupportedEvent(name, leaf, adjacency, f"its bound is stated for {leaf.adjacency}")
            return _BoundedQuery(leaf, count)
        case Gaussian() | Laplace():
            return _Query(SampledPair(_noise(leaf, shift, leaf, adjacency, name), 1.0), count)
        case PoissonSampled(rate, inner):
            # Under replace-one the fixed-size pair at the same rate bounds Poisson sampling as well: both argue by
            # advanced joint convexity (Balle, Barthe, Gaboardi 2018) on a coupling that shares the unsampled branch.
            return _Query(SampledPair(_noise(inner, shift, leaf, adjacency, name), rate), count, two_sided=replace)
        case FixedSizeSampled(population, size, inner) if replace:
            return _Query(SampledPair(_noise(inner, shift, leaf, adjacency, name), size / population), count, 1.0, True)
        case ClusterSampled(cluster_rate, rate, inner) if not replace:
            return _Query(SampledPair(_noise(inner, shift, leaf, adjacency, name), rate), count, cluster_rate)
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


def _grid_step(queries: list[_Query | _BoundedQuery], tolerance: float) -> float:
    """Grid step: the library's default where that is fine enough, finer for small losses, coarser where it may be.

    "Connect the dots" splits a loss at distance u from its grid point, adding variance u (step - u): at most
    step^2/4, and at most step |loss| for the many losses close to 0. The step adds at most ``tolerance`` of the
    composed variance; it is the default unless that adds less than a hundredth of the tolerance.
    """
    spreads = [query.spread() for query in queries]
    variance = sum(runs * float(mass @ losses**2) for losses, mass, runs in spreads)

    def added(step: float) -> float:
        return sum(
            runs * float(mass @ np.minimum(np.abs(losses) * step, step**2 / 4)) for losses, mass, runs in spreads
        )

    longest = max(high - low for low, high in (query.loss_range() for query in queries))
    step = _DEFAULT_STEP
    atoms = any(query.has_atoms for query in queries)
    while not atoms and added(2 * step) <= tolerance / 100 * variance and step < 1:
        step *= 2
    while added(step) > tolerance * variance and longest / step < _MAX_QUERY_POINTS:
        step /= 2
    while longest / step > _MAX_QUERY_POINTS:
        step *= 2
    return step
