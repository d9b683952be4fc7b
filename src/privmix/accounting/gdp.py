"""Gaussian-DP figures: the limit theorem (Bu et al. 2020) and the papers' formulas. Named comparisons, never bounds."""
# The theorem is for many rows with p sqrt(T) fixed. At n = T = 50,000 and mixup degree 1 its epsilon 1 is really 4.95.

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import scipy
from scipy.special import log_ndtr, ndtr, ndtri

from privmix.accounting.base import Leaf, UnsupportedEvent, flatten, shift_of
from privmix.accounting.events import (
    Adjacency,
    ClusterSampled,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    PoissonSampled,
)
from privmix.accounting.pure import published_instahide_epsilon
from privmix.accounting.rdp import RdpAccountant, published_fixed_size_epsilon
from privmix.errors import check_number


def gdp_delta(mu: float, epsilon: float) -> float:
    """delta(epsilon) of mu-GDP (Dong, Roth, Su 2021, Corollary 1; Li et al. 2022, Lemma 2.2)."""
    if math.isinf(mu):
        return 1.0
    if mu <= 0:
        return 0.0
    below = epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
    return max(0.0, float(ndtr(-epsilon / mu + mu / 2)) - math.exp(min(0.0, below)))


def gdp_epsilon(mu: float, delta: float) -> float:
    """Smallest epsilon >= 0 with delta(epsilon) <= ``delta`` under mu-GDP."""
    if not math.isfinite(mu):
        return math.inf
    if gdp_delta(mu, 0.0) <= delta:
        return 0.0
    high = mu * (mu + 2 * math.sqrt(2 * math.log(1 / delta)))
    return float(scipy.optimize.brentq(lambda epsilon: gdp_delta(mu, epsilon) - delta, 0.0, high, xtol=1e-12))


def gdp_mu(epsilon: float, delta: float) -> float:
    """Return the mu whose GDP guarantee passes exactly through (epsilon, delta)."""
    return float(scipy.optimize.brentq(lambda mu: gdp_delta(mu, epsilon) - delta, 1e-9, 10 + 10 * epsilon, xtol=1e-14))


def gdp_tradeoff(mu: float, alpha: np.ndarray) -> np.ndarray:
    """G_mu(alpha): the least type II error at type I error ``alpha``."""
    return np.asarray(ndtr(ndtri(1 - alpha) - mu))


def published_noise_multiplier(rate: float, rows: int, epsilon: float, delta: float) -> float:
    """Return the papers' joint noise multiplier s: mu = p sqrt(T) sqrt(exp(1/s^2) - 1) for s (DPFMix, Lemma C.3)."""
    mu = gdp_mu(epsilon, delta)
    return 1 / math.sqrt(math.log1p(mu**2 / (rate**2 * rows)))


def _poisson_mu(rate: float, multiplier: float, count: int) -> float:
    """Li et al. 2022, Equation 2: nu sqrt(exp(1/s^2) - 1) with nu = p sqrt(T)."""
    exponent = 1 / multiplier**2
    return math.inf if exponent > 700 else rate * math.sqrt(count * math.expm1(exponent))


def _uniform_mu(rate: float, multiplier: float, count: int) -> float:
    """Bu et al. 2020, uniform subsampling: sqrt(2T) p sqrt(e^(1/s^2) Phi(1.5/s) + 3 Phi(-0.5/s) - 2)."""
    exponent = 1 / multiplier**2
    if exponent > 700:
        return math.inf
    inner = math.exp(exponent) * ndtr(1.5 / multiplier) + 3 * ndtr(-0.5 / multiplier) - 2
    return rate * math.sqrt(2 * count * max(0.0, float(inner)))


@dataclass(frozen=True)
class GdpCltAccountant:
    """The limit theorem for the sampling that really ran; exact for plain Gaussian queries, else an approximation."""

    name: str = "gdp_clt"
    is_upper_bound: bool = False
    note: str = "limit theorem for many rows: an approximation, not a bound; it is too small at finite T"

    def rough(self) -> GdpCltAccountant:
        return self

    def mu(self, event: Event, adjacency: Adjacency) -> float:
        """Root of the summed squares of every query's mu."""
        return math.sqrt(sum(self._mu(leaf, count, adjacency) ** 2 for leaf, count in flatten(event).items()))

    def epsilon(self, event: Event, delta: float, adjacency: Adjacency) -> float:
        return gdp_epsilon(self.mu(event, adjacency), delta)

    def delta(self, event: Event, epsilon: float, adjacency: Adjacency) -> float:
        return gdp_delta(self.mu(event, adjacency), epsilon)

    def _mu(self, leaf: Leaf, count: int, adjacency: Adjacency) -> float:
        shift = shift_of(adjacency)
        match leaf:
            case Gaussian(multiplier):
                return shift * math.sqrt(count) / multiplier
            case PoissonSampled(rate, Gaussian(multiplier)) if adjacency is Adjacency.ADD_REMOVE:
                return _poisson_mu(rate, multiplier, count)
            case ClusterSampled(cluster_rate, rate, Gaussian(multiplier)) if adjacency is Adjacency.ADD_REMOVE:
                # The cluster bit is public: count * cluster_rate rows are Poisson-sampled at the record rate.
                return math.sqrt(cluster_rate) * _poisson_mu(rate, multiplier, count)
            case FixedSizeSampled(population, size, Gaussian(multiplier)) if adjacency is Adjacency.REPLACE_ONE:
                return _uniform_mu(size / population, multiplier / shift, count)
            case _:
                raise UnsupportedEvent(self.name, leaf, adjacency, "no limit formula for this event")


@dataclass(frozen=True)
class AsPublishedAccountant:
    """The papers' own figure for an event, reproduced for comparison. It is not a bound.

    * Poisson: Equation 2 of DPFMix (Li et al. 2022), the limit formula used at finite T.
    * Cluster: Proposition E.3 of NeuroMixGDP-HS (Li et al. 2024), Poisson at the product of the rates. Invalid: the
      label row shows which classes were drawn.
    * Fixed size: Lee et al. 2019, Wang et al.'s Renyi bound without replace-one's doubled sensitivity.
    * Fixed size with Laplace noise: DP-InstaHide, Theorem 2, which takes a record's l1 norm for the data's diameter. It
      is a pure epsilon, for any delta.
    """

    renyi: RdpAccountant = field(default_factory=RdpAccountant)
    name: str = "as_published"
    is_upper_bound: bool = False
    note: str = "the papers' formula, shown for comparison: it is no bound and often understates the privacy loss"

    def epsilon(self, event: Event, delta: float, adjacency: Adjacency) -> float:
        match _only(event):
            case (FixedSizeSampled(population, size, Laplace(multiplier)), count):
                return published_instahide_epsilon(population, size, multiplier / size, count)
            case (Laplace(multiplier), count):
                # Rows of all records: no sampling is left.
                return published_instahide_epsilon(1, 1, multiplier, count)
            case (FixedSizeSampled(population, size, Gaussian(multiplier)), count):
                check_number("delta", delta, low=0, low_open=True)
                return published_fixed_size_epsilon(population, size, multiplier, count, delta, self.renyi)
        mu = self.mu(event, adjacency)
        return gdp_epsilon(mu, check_number("delta", delta, low=0, low_open=True))

    def delta(self, event: Event, epsilon: float, adjacency: Adjacency) -> float:
        """Return the papers' delta at ``epsilon`` (Gaussian-DP designs, and 0 or 1 where they claim a pure epsilon)."""
        match _only(event):
            case (FixedSizeSampled(_, _, Laplace()) | Laplace(), _):
                return 0.0 if epsilon >= self.epsilon(event, 0.0, adjacency) else 1.0
        return gdp_delta(self.mu(event, adjacency), epsilon)

    def rough(self) -> AsPublishedAccountant:
        """Return the same with fewer Renyi orders."""
        return replace(self, renyi=self.renyi.rough())

    def mu(self, event: Event, adjacency: Adjacency) -> float:
        """Return the papers' mu: every sampling is treated as Poisson at its overall rate."""
        total = 0.0
        for leaf, count in flatten(event).items():
            match leaf:
                case Gaussian(multiplier):
                    total += count / multiplier**2
                case PoissonSampled(rate, Gaussian(multiplier)):
                    total += _poisson_mu(rate, multiplier, count) ** 2
                case ClusterSampled(cluster_rate, rate, Gaussian(multiplier)):
                    total += _poisson_mu(cluster_rate * rate, multiplier, count) ** 2
                case _:
                    raise UnsupportedEvent(self.name, leaf, adjacency, "the papers give no Gaussian-DP formula for it")
        return math.sqrt(total)


def _only(event: Event) -> tuple[Leaf, int] | None:
    """Return the leaf that ``event`` repeats and how often, where it is of one kind."""
    leaves = flatten(event)
    return next(iter(leaves.items())) if len(leaves) == 1 else None
