"""Dominating pairs of one query, and their privacy loss on a grid, rounded to the safe side.

Every mechanism priced here is dominated by a pair of distributions on the line: noise F0 around 0 when the record is
absent and F1 around ``shift`` when it is present, mixed with the probability q that the sampling includes it.
The log-likelihood ratio of the mixture against F0 is increasing in x, so the set of outputs whose loss falls between
two grid points is an interval and its mass under both distributions follows from cumulative distribution functions
without cancellation. That is what keeps the grid exact over 10^7 compositions, where second differences of
hockey-stick divergences (the usual way) would accumulate rounding error.

"Connect the dots" (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022): the mass of a grid cell moves to its two ends so
that its mass under BOTH distributions is kept. The result dominates the exact pair: never optimistic, and the error
is second order in the grid step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from dp_accounting.pld.pld_pmf import DensePLDPmf
from numpy.typing import NDArray
from scipy import signal
from scipy.special import ndtr

Array = NDArray[np.float64]

# Loss beyond which the grid gives up and calls it infinite (safe side); exp() of it is still a float.
MAX_LOSS = 600.0
# Standard deviations of Gaussian noise that the grid covers: the mass beyond is below 1e-26 per query.
_REACH = 10.6
# Mass at very negative losses that is moved up to the first grid point kept (safe side) to shorten the grid.
_LOW_TAIL = 1e-30


@dataclass(frozen=True)
class GaussianNoise:
    """N(0, std^2) against N(shift, std^2)."""

    std: float
    shift: float = 1.0

    def reach(self) -> tuple[float, float]:
        """Interval outside which both distributions have negligible mass."""
        return -_REACH * self.std, self.shift + _REACH * self.std

    def loss(self, x: Array) -> Array:
        """log f1(x)/f0(x)."""
        return np.asarray(self.shift * (2 * x - self.shift) / (2 * self.std**2))

    def inverse_loss(self, loss: Array) -> Array:
        """Smallest x whose loss is at least ``loss``."""
        return np.asarray(loss * self.std**2 / self.shift + self.shift / 2)

    def masses(self, edges: Array, centre: float) -> Array:
        """Mass between successive ``edges`` of the noise around ``centre``; edges may be infinite."""
        z = (edges - centre) / self.std
        # Differences of tails, each on its own side, keep their relative accuracy.
        tails = ndtr(-np.abs(z))
        low, high = tails[:-1], tails[1:]
        return np.asarray(np.where(z[:-1] > 0, low - high, np.where(z[1:] <= 0, high - low, (1 - high) - low)))


@dataclass(frozen=True)
class LaplaceNoise:
    """Laplace(0, scale) against Laplace(shift, scale): the loss has atoms at -shift/scale and +shift/scale."""

    scale: float
    shift: float = 1.0

    def reach(self) -> tuple[float, float]:
        """The loss is constant outside [0, shift]; a step outside shows both atoms."""
        return -self.shift, 2 * self.shift

    def loss(self, x: Array) -> Array:
        """log f1(x)/f0(x)."""
        return np.asarray((np.abs(x) - np.abs(x - self.shift)) / self.scale)

    def inverse_loss(self, loss: Array) -> Array:
        """Smallest x whose loss is at least ``loss``."""
        top = self.shift / self.scale
        inside = (loss * self.scale + self.shift) / 2
        return np.where(loss <= -top, -np.inf, np.where(loss > top, np.inf, inside))

    def masses(self, edges: Array, centre: float) -> Array:
        """Mass between successive ``edges`` of the noise around ``centre``; edges may be infinite."""
        z = (edges - centre) / self.scale
        low, high = z[:-1], z[1:]
        upper = 0.5 * (np.exp(-np.maximum(low, 0)) - np.exp(-np.maximum(high, 0)))
        lower = 0.5 * (np.exp(np.minimum(high, 0)) - np.exp(np.minimum(low, 0)))
        return upper + lower


@dataclass(frozen=True)
class SampledPair:
    """The mixture (1 - rate) F0 + rate F1 against F0: one noisy query on a sample that holds the record at ``rate``."""

    noise: GaussianNoise | LaplaceNoise
    rate: float

    def loss_range(self) -> tuple[float, float]:
        """Lowest and highest loss of the "remove" direction that the grid must hold."""
        low, high = self.loss(np.array(self.noise.reach()))
        return max(float(low), -MAX_LOSS), min(float(high), MAX_LOSS)

    def loss(self, x: Array) -> Array:
        """log of the mixture's density over F0's density."""
        with np.errstate(divide="ignore"):
            stay = np.log1p(-self.rate)
        return np.asarray(np.logaddexp(stay, math.log(self.rate) + self.noise.loss(x)))

    def inverse_loss(self, loss: Array) -> Array:
        """Smallest x whose loss is at least ``loss`` (-inf below the lowest loss, log(1 - rate))."""
        if self.rate == 1:
            return self.noise.inverse_loss(loss)
        ratio = 1 + np.expm1(loss) / self.rate
        with np.errstate(divide="ignore"):
            base = np.log(np.maximum(ratio, 0))
        return self.noise.inverse_loss(base)

    def cells(self, low: int, high: int, step: float) -> tuple[Array, Array]:
        """Masses under (F0, mixture) of {loss < low*step}, each grid cell, {loss >= high*step}: two (high-low+2,)."""
        edges = self.inverse_loss(np.asarray(np.arange(low, high + 1) * step))
        edges = np.maximum.accumulate(np.concatenate(([-np.inf], edges, [np.inf])))
        absent = self.noise.masses(edges, 0.0)
        present = self.noise.masses(edges, self.noise.shift)
        return absent, (1 - self.rate) * absent + self.rate * present


@dataclass(frozen=True)
class LossPmf:
    """Privacy loss on a grid: ``probs[i]`` at loss ``(lower + i) * step``, ``infinity`` at infinite loss."""

    lower: int
    probs: Array
    infinity: float
    step: float

    def dense(self) -> DensePLDPmf:
        """The same distribution as dp_accounting holds it."""
        return DensePLDPmf(self.step, self.lower, self.probs, self.infinity, pessimistic_estimate=True)

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 whose hockey-stick divergence is at most ``delta``; infinity if there is none.

        What dp_accounting's ``get_epsilon_for_delta`` finds by a loop over the grid, in array operations.
        """
        if self.infinity > delta:
            return math.inf
        first = max(0, 1 - self.lower)
        probs = self.probs[first:]
        losses = (self.lower + first + np.arange(probs.size)) * self.step
        above = self.infinity + np.cumsum(probs[::-1])[::-1]
        # Sum over the losses from l on of p e^(l - loss): relative to each l, so that nothing under- or overflows.
        below = signal.lfilter([1.0], [1.0, -math.exp(-self.step)], probs[::-1])[::-1]
        if probs.size == 0 or above[0] <= math.exp(-losses[0]) * below[0] + delta:
            return 0.0
        # The divergence at a loss on the grid is above - below.
        too_much = np.flatnonzero(above - below > delta)
        # Beyond the last loss it is ``infinity`` whatever rounding says.
        after = min(int(too_much[-1]) + 1, losses.size - 1) if too_much.size else 0
        return max(0.0, float(losses[after]) + math.log(above[after] - delta) - math.log(below[after]))

    def moments(self) -> tuple[float, float]:
        """Mean and variance of the finite part (0, 0 when all loss is infinite)."""
        if not self.probs.any():
            return 0.0, 0.0
        losses = (self.lower + np.arange(self.probs.size)) * self.step
        total = float(self.probs.sum())
        mean = float(self.probs @ losses) / total
        return mean, float(self.probs @ (losses - mean) ** 2) / total


def remove_pmf(pair: SampledPair, step: float) -> LossPmf:
    """Loss of the mixture against F0, under the mixture: the dataset WITH the record is the true one."""
    low, _, absent, mixed = _cells(pair, step)
    probs = _connect_dots(low, mixed[1:-1], absent[1:-1], step)
    probs[0] += mixed[0]
    return _trim(LossPmf(low, probs, float(mixed[-1]), step))


def add_pmf(pair: SampledPair, step: float) -> LossPmf:
    """Loss of F0 against the mixture, under F0: the dataset WITHOUT the record is the true one."""
    _, high, absent, mixed = _cells(pair, step)
    absent, mixed = absent[::-1], mixed[::-1]
    probs = _connect_dots(-high, absent[1:-1], mixed[1:-1], step)
    probs[0] += absent[0]
    return _trim(LossPmf(-high, probs, float(absent[-1]), step))


def fixed_size_pmf(pair: SampledPair, step: float) -> LossPmf:
    """Loss of one query on a fixed-size sample under replace-one, both directions (Zhu, Dong, Wang 2022, Theorem 11).

    The divergence is the "remove" pair's for epsilon >= 0 and the "add" pair's below, with a shift of twice the
    record bound; the mass at 0 is what is left.
    """
    remove, add = remove_pmf(pair, step), add_pmf(pair, step)
    lower = min(add.lower, 0)
    upper = max(remove.lower + remove.probs.size, 1)
    probs = np.zeros(upper - lower)
    negative = min(add.probs.size, max(0, -add.lower))
    probs[add.lower - lower : add.lower - lower + negative] = add.probs[:negative]
    skip = max(0, 1 - remove.lower)
    positive = remove.probs[skip:]
    start = remove.lower + skip - lower
    probs[start : start + positive.size] = positive
    probs[-lower] = max(0.0, 1 - remove.infinity - probs.sum())
    return LossPmf(lower, probs, remove.infinity, step)


def _grid(pair: SampledPair, step: float) -> tuple[int, int]:
    """Grid indices around the pair's losses, with a cell to spare: an atom at the end must not fall off by rounding."""
    lowest, highest = pair.loss_range()
    return math.floor(lowest / step) - 1, math.ceil(highest / step) + 1


@lru_cache(maxsize=1)
def _cells(pair: SampledPair, step: float) -> tuple[int, int, Array, Array]:
    """The grid's ends and its cells' masses; kept, since both directions need them."""
    low, high = _grid(pair, step)
    absent, mixed = pair.cells(low, high, step)
    absent.setflags(write=False)
    mixed.setflags(write=False)
    return low, high, absent, mixed


def _connect_dots(low: int, upper_masses: Array, lower_masses: Array, step: float) -> Array:
    """Split each cell's mass p between its ends l and l + step so that p = a + b and q = a e^-l + b e^-(l+step)."""
    losses = (low + np.arange(upper_masses.size)) * step
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = lower_masses * np.exp(losses)
    right = (upper_masses - scaled) / -math.expm1(-step)
    # Where the other distribution underflowed, all mass goes to the larger loss: the safe side.
    right = np.where(np.isfinite(right), np.clip(right, 0, upper_masses), upper_masses)
    probs = np.zeros(upper_masses.size + 1)
    probs[:-1] = upper_masses - right
    probs[1:] += right
    return probs


def _trim(pmf: LossPmf) -> LossPmf:
    """Shorten both ends: the low tail moves up to the first point kept, empty points at the top go."""
    first = int(np.searchsorted(np.cumsum(pmf.probs), _LOW_TAIL))
    first = min(first, pmf.probs.size - 1)
    filled = np.flatnonzero(pmf.probs)
    last = int(filled[-1]) + 1 if filled.size else pmf.probs.size
    probs = pmf.probs[first : max(last, first + 1)].copy()
    probs[0] += pmf.probs[:first].sum()
    return LossPmf(pmf.lower + first, probs, pmf.infinity, pmf.step)
