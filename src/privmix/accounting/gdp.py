"""Gaussian-DP figures: the limit theorem (Bu et al. 2020), the papers' formulas, and a proven cover of a profile."""

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray
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
from privmix.accounting.pld import PldAccountant
from privmix.accounting.pure import published_instahide_epsilon
from privmix.accounting.renyi import RdpAccountant, published_fixed_size_epsilon
from privmix.errors import check_number

# The theorem is for many rows with p sqrt(T) fixed. At n = T = 50,000 and mixup degree 1 its epsilon 1 is really 4.95.


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

    def rough(self) -> "GdpCltAccountant":
        return self

    def mu(self, event: Event, adjacency: Adjacency) -> float:
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
    * Fixed size with Laplace noise: DP-InstaHide, Theorem 2, a pure epsilon; takes a record's l1 norm for the diameter.
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

    def rough(self) -> "AsPublishedAccountant":
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


Array = NDArray[np.float64]

# Most that bisections and normal tails lose to rounding; every figure is moved by it to the safe side.
_MARGIN: Final = 1e-9
# Points at which a profile is compared with a Gaussian one; between two points the chord is compared.
_KNOTS: Final = 64
_HOPELESS: Final = 1e3


def profile(mu: float, slack: float, epsilon: float) -> float:
    """Delta at ``epsilon`` of the experiment with this mu and slack, rounded up."""
    above = float(ndtr(-epsilon / mu + mu / 2)) if mu > 0 else 0.0
    below = math.exp(min(0.0, epsilon + float(log_ndtr(-epsilon / mu - mu / 2)))) if mu > 0 else 0.0
    revealed = -math.expm1(-slack)
    return revealed + (1 - revealed) * max(0.0, above * (1 + 1e-12) - below * (1 - 1e-12))


def _gaussian_profile(epsilons: Array, mu: float, revealed: float) -> Array:
    """Return the same at many epsilons, rounded down: what an event's profile must stay below."""
    above = ndtr(-epsilons / mu + mu / 2) * (1 - 1e-12)
    below = np.exp(np.minimum(0.0, epsilons + log_ndtr(-epsilons / mu - mu / 2))) * (1 + 1e-12)
    return np.asarray(revealed + (1 - revealed) * np.maximum(0.0, above - below))


@lru_cache(maxsize=64)
def covering_share(event: Event, adjacency: Adjacency, mu: float, slack: float) -> float:
    """Return the least c for which a Gaussian query of c mu^2 and a reveal of c slack cover the event's profile.

    Formal guarantees:
        * safe side: at every epsilon and in both directions the event's delta is at most that of the experiment which
          reveals the record with probability 1 - exp(-c slack) and is sqrt(c) mu-GDP otherwise. Deltas are upper bounds
          by the PLD accountant; between the points where they are taken a profile, being convex in e^epsilon, is below
          its chord, and beyond the last one it is below what is revealed.
    """
    accountant = PldAccountant()
    distance = accountant.delta(event, 0.0, adjacency)
    if not distance < 1:
        return math.inf
    # No Gaussian of less than this has the event's total variation distance; the tails usually ask for little more.
    share = max(1e-9, 0.3 * (2 * float(ndtri((1 + distance) / 2)) / mu) ** 2)
    best = math.inf
    for _ in range(12):
        top = accountant.epsilon(event, -math.expm1(-slack * min(1.0, share)), adjacency)
        if math.isfinite(top):
            # More of them near 0, where most of the mass is.
            epsilons = max(top, 1e-9) * np.linspace(0.0, 1.0, _KNOTS) ** 1.5
            bounds = np.array([accountant.delta(event, float(value), adjacency) for value in epsilons])
            best = min(best, _least_share(epsilons, bounds, mu, slack))
            if best > 1.5 * share:
                break
            # The last point asks for slack that the rest does not need.
            share /= 4
        elif share >= _HOPELESS:
            break
        else:
            share *= 4
    return best * (1 + _MARGIN)


def _least_share(epsilons: Array, bounds: Array, mu: float, slack: float) -> float:
    """Return the least c whose profile covers ``bounds`` and the chords between them; infinity if there is none."""

    def covers(share: float) -> bool:
        root, revealed = mu * math.sqrt(share), -math.expm1(-slack * min(1.0, share)) * (1 - 1e-12)
        if bounds[-1] > revealed or (bounds > _gaussian_profile(epsilons, root, revealed)).any():
            return False
        # A profile is convex in e^epsilon, so it lies below its chords. At the point where a chord is closest to the
        # Gaussian profile both have the same slope, -(1 - revealed) Phi(-epsilon / mu - mu / 2).
        slopes = np.diff(bounds) / (np.exp(epsilons[:-1]) * np.expm1(np.diff(epsilons)))
        tails = np.clip(-slopes / (1 - revealed), 1e-300, 1 - 1e-16)
        closest = np.clip(-root * (ndtri(tails) + root / 2), epsilons[:-1], epsilons[1:])
        chords = bounds[:-1] + slopes * np.exp(epsilons[:-1]) * np.expm1(closest - epsilons[:-1])
        return bool((chords <= _gaussian_profile(closest, root, revealed)).all())

    low, high = 0.0, _HOPELESS
    if not covers(high):
        return math.inf
    for _ in range(200):
        # By ratios once there is a lower end, so that small shares are as exact as large ones.
        middle = math.sqrt(low * high) if low > 0 else high / 16
        low, high = (low, middle) if covers(middle) else (middle, high)
        if low > 0 and high <= low * (1 + _MARGIN):
            break
    return high
