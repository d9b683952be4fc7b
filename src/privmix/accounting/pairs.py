"""Dominating pairs of one query, and their privacy loss on given points, rounded to the safe side.

Every mechanism here is dominated by a pair on the line: noise F0 around 0 without the record, F1 around ``shift`` with
it. The two are mixed with the probability q that the sampling includes the record. The log-likelihood ratio is
increasing in x. So outputs with a loss between two points are an interval; its masses are differences of tails.

"Connect the dots" (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022): the mass of an interval moves to its two ends so
that its mass under BOTH distributions is kept. The result dominates the exact pair; the error is second order in the
distance of the points. The mass that an interval sends to its upper end is formed as q (F1 - r F0), r the noise's
likelihood ratio at the end. Its error is therefore as small as q is. Mass that rounding may still hide is added to the
tail above each point (docs/accounting-numerics.md, section 2).
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri_exp

Array = NDArray[np.float64]

# Loss beyond which the grid gives up and calls it infinite (safe side); exp() of it is still a float.
MAX_LOSS = 600.0
# Rounding unit of float64.
UNIT = 2.0**-53
# Standard deviations at which a Gaussian tail is still a normal float.
_MOST_REACH = 37.0
# Ratios this close to 0 cannot be distinguished from it: the point may lie anywhere below.
_LEAST_RATIO = 1e-12
# Share of the least loss in which guesses make no distinction.
_NEXT_TO_LEAST = 1e-4


@dataclass(frozen=True)
class GaussianNoise:
    """N(0, std^2) against N(shift, std^2)."""

    std: float
    shift: float = 1.0

    def reach(self, log_tail: float) -> tuple[float, float]:
        """How far below 0, and how far above either centre, a mass of at most exp(``log_tail``) lies."""
        far = min(_MOST_REACH, -float(ndtri_exp(log_tail))) * self.std
        return far, far

    def log_ratio(self, x: Array) -> Array:
        """Return log f1(x)/f0(x)."""
        return np.asarray(self.shift * (2 * x - self.shift) / (2 * self.std**2))

    def at_log_ratio(self, log_ratio: Array) -> Array:
        """Smallest x with at least this log-likelihood ratio."""
        return np.asarray(log_ratio * self.std**2 / self.shift + self.shift / 2)

    def smaller_tail(self, x: Array, centre: float) -> Array:
        """Mass on the side of ``x`` that does not hold ``centre``."""
        return np.asarray(ndtr(-np.abs((x - centre) / self.std)))

    def tail_error(self, x: Array, centre: float, log_ratio_error: Array) -> Array:
        """Relative error of that tail, for an x whose log ratio is known up to ``log_ratio_error``."""
        with np.errstate(invalid="ignore"):
            z = np.abs((x - centre) / self.std)
            moved = 4 * UNIT * (z + 2 * self.shift / self.std) + log_ratio_error * self.std / self.shift
            # Mills: density / tail <= z + 1. The error function is good to (16 + 2 z^2) units (tested).
            return np.asarray(UNIT * (16 + 3 * z**2) + (z + 1) * moved)


@dataclass(frozen=True)
class LaplaceNoise:
    """Laplace(0, scale) against Laplace(shift, scale): the loss has atoms at -shift/scale and +shift/scale."""

    scale: float
    shift: float = 1.0

    def reach(self, log_tail: float) -> tuple[float, float]:
        """Return the shift twice: outside [0, shift] the log ratio is constant."""
        return self.shift, self.shift

    def log_ratio(self, x: Array) -> Array:
        return np.asarray((np.abs(x) - np.abs(x - self.shift)) / self.scale)

    def at_log_ratio(self, log_ratio: Array) -> Array:
        top = self.shift / self.scale
        inside = (log_ratio * self.scale + self.shift) / 2
        return np.where(log_ratio <= -top, -np.inf, np.where(log_ratio > top, np.inf, inside))

    def smaller_tail(self, x: Array, centre: float) -> Array:
        return np.asarray(0.5 * np.exp(-np.abs((x - centre) / self.scale)))

    def tail_error(self, x: Array, centre: float, log_ratio_error: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return np.asarray(UNIT * (8 + 4 * np.abs((x - centre) / self.scale)) + log_ratio_error)


@dataclass(frozen=True)
class Points:
    """Points that hold a loss: outputs ``x``, increasing; their losses; the noise's log ratio there and its error."""

    # ratio is 1 + (e^loss - 1) / rate: the noise's likelihood ratio, below 0 for losses that no output has.

    x: Array
    losses: Array
    ratio: Array
    log_ratio: Array
    log_ratio_error: Array


@dataclass(frozen=True)
class Atoms:
    """A privacy loss on finitely many points: ``probs[i]`` at ``losses[i]``, ``infinity`` at infinite loss."""

    # missing is 1 - sum(probs) without its rounding error: infinity, less what rounding up added.

    losses: Array
    probs: Array
    infinity: float
    missing: float

    def mixed_with_nothing(self, weight: float) -> "Atoms":
        """Return the loss of a query that runs with public probability ``weight`` and else shows nothing (loss 0)."""
        probs = weight * self.probs
        probs[int(np.argmin(np.abs(self.losses)))] += 1 - weight
        return Atoms(self.losses, probs, weight * self.infinity, weight * self.missing)


@dataclass(frozen=True)
class LossPmf:
    """Privacy loss on a grid: ``probs[i]`` at loss ``(lower + i) * step``, ``infinity`` at infinite loss."""

    # missing is 1 - sum(probs), where that is known without the sum's rounding error.

    lower: int
    probs: Array
    infinity: float
    step: float
    missing: float = field(default=math.nan)

    def __post_init__(self) -> None:
        if math.isnan(self.missing):
            object.__setattr__(self, "missing", self.infinity)

    def losses(self) -> Array:
        return np.asarray(np.arange(self.lower, self.lower + self.probs.size) * self.step)


@dataclass(frozen=True)
class SampledPair:
    """The mixture (1 - rate) F0 + rate F1 against F0: one noisy query on a sample that holds the record at ``rate``."""

    noise: GaussianNoise | LaplaceNoise
    rate: float

    def loss(self, x: Array) -> Array:
        """Return the log of the mixture's density over F0's density."""
        log_ratio = self.noise.log_ratio(x)
        if self.rate == 1:
            return log_ratio
        near = np.log1p(self.rate * np.expm1(np.minimum(log_ratio, 30.0)))
        return np.where(log_ratio < 30, near, np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + log_ratio))

    def span(self, log_tail: float, add: bool) -> tuple[float, float]:
        """Return outputs beyond which at most exp(``log_tail``) of the distribution's mass lies, on either side."""
        # Above, only a sample with the record goes far.
        below, above = self.noise.reach(log_tail)[0], self.noise.reach(min(log_tail - math.log(self.rate), -0.7))[1]
        return -below, below if add else max(below, self.noise.shift + above)

    def points(self, log_tail: float, count: int, add: bool) -> Points:
        """About ``count`` points, equally spaced in x, and loss 0."""
        low, high = self.span(log_tail, add)
        x = np.union1d(np.linspace(low, high, count), [0.0, self.noise.shift / 2, self.noise.shift])
        losses = self.loss(x)
        if isinstance(self.noise, LaplaceNoise):
            # Beyond the atoms by a hair: an interval that is open above holds no atom.
            inside = (x >= 0) & (x <= self.noise.shift)
            width = float(np.diff(losses[inside]).max())
            losses = np.concatenate(([losses[0] - width], losses[inside], [losses[-1] + width]))
            return self.points_at(losses)
        kept = np.abs(losses) <= MAX_LOSS
        # If rounding makes losses equal, one point is enough.
        kept[1:] &= np.diff(losses) > 0
        log_ratio, lowest = self.noise.log_ratio(x), -math.inf
        if self.rate < 1:
            lowest = math.log(max(4 * _LEAST_RATIO, _NEXT_TO_LEAST * min(1.0, (1 - self.rate) / self.rate)))
        merged = bool(log_ratio[0] <= lowest)
        kept &= log_ratio > lowest
        x, losses, log_ratio = x[kept], losses[kept], log_ratio[kept]
        with np.errstate(over="ignore"):
            ratio = np.exp(log_ratio)
        if merged:
            # Losses next to the least cannot be distinguished from it: one point for all of them, which no output has.
            least = math.log1p(-self.rate) * (1 + 8 * UNIT)
            x, losses = np.concatenate(([-np.inf], x)), np.concatenate(([least], losses))
            log_ratio = np.concatenate(([-np.inf], log_ratio))
            ratio = np.concatenate(([1 + math.expm1(least) / self.rate], ratio))
        return self._with_error(x, losses, ratio, log_ratio)

    def grid(self, log_tail: float, step: float, add: bool) -> tuple[int, int]:
        """Return indices of the grid around the losses, with a spare cell against rounding at the end."""
        ends = np.clip(self.loss(np.array(self.span(log_tail, add))), -MAX_LOSS, MAX_LOSS)
        return math.floor(ends[0] / step) - 1, math.ceil(ends[1] / step) + 1

    def grid_points(self, low: int, high: int, step: float) -> Points:
        return self.points_at(np.asarray(np.arange(low, high + 1) * step))

    def points_at(self, losses: Array) -> Points:
        if self.rate == 1:
            with np.errstate(over="ignore"):
                return self._with_error(self.noise.at_log_ratio(losses), losses, np.exp(losses), losses)
        with np.errstate(over="ignore"):
            surplus = np.expm1(losses) / self.rate
        with np.errstate(divide="ignore", invalid="ignore"):
            log_ratio = np.where(surplus < -1 - _LEAST_RATIO, -np.inf, np.log1p(np.maximum(surplus, _LEAST_RATIO - 1)))
        return self._with_error(self.noise.at_log_ratio(log_ratio), losses, 1 + surplus, log_ratio)

    def _with_error(self, x: Array, losses: Array, ratio: Array, log_ratio: Array) -> Points:
        """Add how far the log ratio at x may be from the one whose loss is ``losses``."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            error = UNIT * 8 * (np.abs(np.expm1(-log_ratio)) + np.abs(log_ratio) + np.abs(losses))
        if self.rate < 1:
            # Next to the least loss the point can't be placed: the whole tail below it is in doubt.
            error = np.where(log_ratio <= math.log(2 * _LEAST_RATIO), np.inf, error)
        error = np.where(np.isinf(log_ratio), 0.0, error)
        return Points(x, losses, ratio, log_ratio, error)

    def masses(self, points: Points, centre: float) -> tuple[Array, Array]:
        """Mass below the first point, between successive ones and above the last (k+1,); error of each tail (k,)."""
        tails = self.noise.smaller_tail(points.x, centre)
        error = tails * np.minimum(1.0, self.noise.tail_error(points.x, centre, points.log_ratio_error))
        error[tails == 0] = 0.0
        above = points.x > centre
        # Differences of tails, each on its own side, keep their relative accuracy.
        low, high = tails[:-1], tails[1:]
        inner = np.where(above[:-1], low - high, np.where(above[1:], (1 - high) - low, high - low))
        first = 1 - tails[0] if above[0] else tails[0]
        last = tails[-1] if above[-1] else 1 - tails[-1]
        return np.maximum(np.concatenate(([first], inner, [last])), 0.0), error


def pair_atoms(pair: SampledPair, points: Points, add: bool) -> Atoms:
    """Return the loss of ``pair`` on ``points``, rounded up.

    Formal guarantees:
        * the atoms dominate the exact pair: no tail is below the exact tail of a dominating pair, rounding included;
        * mass above the last point is infinite loss, mass below the first moves up to it.
    """
    # "Remove": loss of the mixture against F0 under the mixture; the dataset WITH the record is the true one. "Add":
    # loss of F0 against the mixture, under F0.
    absent, absent_error = pair.masses(points, 0.0)
    present, present_error = pair.masses(points, pair.noise.shift)
    rate, losses = pair.rate, points.losses
    gaps = -np.expm1(-np.diff(losses))
    # Losses may be so large that neighbours on the grid are one float: an infinite scale, treated below.
    scale = np.divide(rate, gaps, out=np.full(gaps.size, np.inf), where=gaps > 0)
    ratio = points.ratio
    if add:
        end = ratio[1:]
        with np.errstate(invalid="ignore", over="ignore"):
            scale = scale * np.exp(-losses[1:])
        mass, tail_error = absent, absent_error
    else:
        end = ratio[:-1]
        mass, tail_error = (1 - rate) * absent + rate * present, (1 - rate) * absent_error + rate * present_error
    with np.errstate(over="ignore", invalid="ignore"):
        up = scale * (end * absent[1:-1] - present[1:-1]) * (1 if add else -1)
        size = 1 + np.abs(end)
        doubt = (present_error[1:] + present_error[:-1]) + size * (absent_error[1:] + absent_error[:-1])
        doubt = scale * (doubt + 8 * UNIT * (present[1:-1] + size * absent[1:-1])) + 8 * UNIT * mass[1:-1]
    return assembled(losses, mass, up, doubt, tail_error, add)


def assembled(losses: Array, mass: Array, up: Array, doubt: Array, tail_error: Array, add: bool) -> Atoms:
    """Atoms from each interval's mass, its share for the upper end, and the doubt in both; "add" turns the losses."""
    # If a ratio or the scale overflowed, all mass goes to the larger loss: the safe side.
    up = np.where(np.isfinite(up), np.clip(up, 0, mass[1:-1]), mass[1:-1])
    doubt = np.where(np.isfinite(doubt), np.minimum(doubt, mass[1:-1]), mass[1:-1])
    if add:
        losses = -losses[::-1]
        mass, up, doubt, tail_error = mass[::-1], up[::-1], doubt[::-1], tail_error[::-1]
    probs = np.zeros(losses.size)
    probs[:-1] = mass[1:-1] - up
    probs[1:] += up
    probs[0] += mass[0]
    # The tail from point i on holds the mass above it and what its lower neighbour sends up; each may be too small.
    lift = np.zeros(losses.size + 1)
    lift[1:-1] = tail_error[1:] + doubt
    lifted = probs + lift[:-1] - lift[1:]
    added = -float(lifted[lifted < 0].sum())
    infinity = float(mass[-1] + tail_error[-1])
    return Atoms(losses, np.maximum(lifted, 0.0), infinity, float(mass[-1]) - added)


def fixed_size_atoms(remove: Atoms, add: Atoms) -> Atoms:
    """Loss of one query on a fixed-size sample under replace-one, both ways (Zhu, Dong, Wang 2022, Theorem 11)."""
    # The divergence is the "remove" pair's for epsilon >= 0 and the "add" pair's below, with a shift of twice the
    # record bound; the mass at 0 is the rest.
    high, low = remove.losses > 0, add.losses < 0
    losses = np.concatenate((add.losses[low], [0.0], remove.losses[high]))
    outer = math.fsum((remove.probs[high].sum(), add.probs[low].sum(), remove.infinity))
    rest = max(0.0, 1 - outer) + 32 * UNIT
    probs = np.concatenate((add.probs[low], [rest], remove.probs[high]))
    return Atoms(losses, probs, remove.infinity, remove.infinity - 32 * UNIT)
