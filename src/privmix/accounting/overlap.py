"""How much the outputs on two neighbouring datasets overlap: the Bhattacharyya coefficient of a worst pair.

The coefficient of two laws P and Q is the integral of sqrt(p q): 1 if they are equal, 0 if they are apart. It
multiplies over independent queries, and no attack lowers it: a mechanism that keeps to a plan's worst pair has at least
the plan's own. Audits compare means of scores with it. If sampling is combined with replace-one, the pair is that of
opposite records. The pair is not the worst of all. A row of fixed size takes another record when it does not take this
one, and the other may be nearer to one of the two (:func:`dominates`).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from privmix.accounting.base import Leaf, UnsupportedEvent, flatten
from privmix.accounting.events import (
    Adjacency,
    ClusterSampled,
    Composed,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    NormalWeighted,
    PoissonSampled,
    Repeated,
)

Reals = NDArray[np.float64]

_NAME: Final = "overlap"
# Standard deviations of noise beyond which nothing adds up.
_REACH, _LAPLACE_REACH = 14.0, 60.0
_WIDE: Final = 500.0
_MOST_POINTS: Final = 2**20


def log_overlap(event: Event, adjacency: Adjacency) -> float:
    """Log of the Bhattacharyya coefficient of two neighbours' outputs of ``event``: <= 0, -mu^2 / 8 for mu-GDP."""
    return sum(count * _of_leaf(leaf, adjacency) for leaf, count in flatten(event).items())


def dominates(event: Event, adjacency: Adjacency) -> bool:
    """Whether :func:`log_overlap` is that of the worst pair of all, and not of the audited one alone."""
    if adjacency is Adjacency.ADD_REMOVE:
        return True
    return all(isinstance(leaf, Gaussian | Laplace) for leaf in flatten(event))


def with_noise_times(event: Event, factor: float) -> Event:
    """Return the event with every noise multiplied by ``factor``."""
    match event:
        case Gaussian(noise):
            return Gaussian(noise * factor)
        case Laplace(noise):
            return Laplace(noise * factor)
        case PoissonSampled(rate, inner):
            return PoissonSampled(rate, with_noise_times(inner, factor))
        case FixedSizeSampled(population, size, inner):
            return FixedSizeSampled(population, size, with_noise_times(inner, factor))
        case ClusterSampled(cluster_rate, rate, inner):
            return ClusterSampled(cluster_rate, rate, with_noise_times(inner, factor))
        case NormalWeighted(inner):
            return NormalWeighted(with_noise_times(inner, factor))
        case Repeated(inner, count):
            return Repeated(with_noise_times(inner, factor), count)
        case Composed(events):
            return Composed(tuple(with_noise_times(one, factor) for one in events))
        case _:
            raise UnsupportedEvent(_NAME, event, Adjacency.ADD_REMOVE, "the event has no noise of its own")


def _of_leaf(leaf: Leaf, adjacency: Adjacency) -> float:
    match leaf:
        case Gaussian(noise):
            shift = 1.0 if adjacency is Adjacency.ADD_REMOVE else 2.0
            return -((shift / noise) ** 2) / 8
        case Laplace():
            return math.log1p(-_apart(leaf, 1.0, adjacency))
        case PoissonSampled(rate, Gaussian() | Laplace() as inner):
            return _log1m(_apart(inner, rate, adjacency))
        case FixedSizeSampled(population, size, Gaussian() | Laplace() as inner):
            return _log1m(_apart(inner, size / population, adjacency))
        case ClusterSampled(cluster_rate, rate, Gaussian() as inner) if adjacency is Adjacency.ADD_REMOVE:
            # The class bit is public: nothing is apart where it was not drawn.
            return _log1m(cluster_rate * _apart(inner, rate, adjacency))
        case NormalWeighted(Gaussian(noise)) if adjacency is Adjacency.ADD_REMOVE:
            # Variances s^2 and s^2 + 1.
            return 0.25 * math.log1p(1 / noise**2) - 0.5 * math.log1p(1 / (2 * noise**2))
        case _:
            raise UnsupportedEvent(_NAME, leaf, adjacency, "its worst pair's overlap is not known here")


def _log1m(apart: float) -> float:
    return math.log1p(-min(apart, 1 - 1e-300))


def _apart(noise: Gaussian | Laplace, rate: float, adjacency: Adjacency) -> float:
    """1 - coefficient of a sampled query's pair: half the integral of (sqrt p - sqrt q)^2, of which nothing cancels."""
    scale = noise.noise_multiplier
    if isinstance(noise, Gaussian):
        # Rates are crossed within scale^2; noise itself needs its scale in small steps.
        reach, step = _REACH * scale + 2.0, min(0.05 * scale, 0.1 * scale**2)
    else:
        reach, step = _LAPLACE_REACH * scale + 1.0, min(0.05, 0.004 * scale) if scale < _WIDE else 0.004 * scale
    step = max(step, reach / _MOST_POINTS)
    # Kinks lie on the grid, where it is fine.
    step = 1 / math.ceil(1 / step) if step <= 1 else step
    x = np.arange(-math.ceil(reach / step), math.ceil(reach / step) + 1) * step

    def density(centre: float) -> Reals:
        if isinstance(noise, Gaussian):
            return np.asarray(-(((x - centre) / scale) ** 2) / 2 - math.log(scale) - math.log(2 * math.pi) / 2)
        return np.asarray(-np.abs(x - centre) / scale - math.log(2 * scale))

    def mixture(centre: float) -> Reals:
        """Return the log of (1 - rate) F_0 + rate F_centre over F_0."""
        gain = density(centre) - density(0.0)
        if rate == 1:
            return gain
        near = np.log1p(rate * np.expm1(np.minimum(gain, 30.0)))
        return np.asarray(np.where(gain < 30, near, np.logaddexp(math.log1p(-rate), math.log(rate) + gain)))

    one, other = mixture(1.0), (np.zeros_like(x) if adjacency is Adjacency.ADD_REMOVE else mixture(-1.0))
    low, gap = np.minimum(one, other), np.abs(one - other)
    with np.errstate(divide="ignore"):
        # log (e^(gap / 2) - 1)^2
        logs = density(0.0) + low + gap + 2 * np.log(-np.expm1(-gap / 2))
    return float(min(1.0, np.exp(logsumexp(logs)) * step / 2))
