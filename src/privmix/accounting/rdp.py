"""Renyi DP and the moments accountant: valid bounds, looser than the PLD, kept because the papers used them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import dp_accounting
import numpy as np
from dp_accounting.rdp import RdpAccountant as _LibraryRdp
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from privmix.accounting.base import Leaf, UnsupportedEvent, flatten
from privmix.accounting.events import (
    Adjacency,
    ClusterSampled,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    PoissonSampled,
    Repeated,
)

_ORDERS = tuple(np.concatenate((np.linspace(1.05, 10, 90), np.arange(11, 64), 2.0 ** np.arange(6, 14))).tolist())
_MOMENT_ORDERS = np.arange(1, 513)


@dataclass(frozen=True)
class RdpAccountant:
    """Renyi DP through dp_accounting: Poisson sampling (Mironov, Talwar, Zhang 2019), fixed size (Wang et al. 2019).

    Formal guarantees:
        * every figure is an upper bound;
        * under replace-one the noise multiplier is halved before the library sees it, since the library does not
          account for the doubled sensitivity of that relation;
        * events without a Renyi bound here (cluster sampling, sampled Laplace) raise.
    """

    name: str = "rdp"
    is_upper_bound: bool = True
    note: str = ""

    def epsilon(self, event: Event, delta: float, adjacency: Adjacency) -> float:
        """Upper bound on epsilon at ``delta`` > 0."""
        return float(self._composed(event, adjacency).get_epsilon(delta))

    def delta(self, event: Event, epsilon: float, adjacency: Adjacency) -> float:
        """Upper bound on delta at ``epsilon``."""
        return float(self._composed(event, adjacency).get_delta(epsilon))

    def _composed(self, event: Event, adjacency: Adjacency) -> _LibraryRdp:
        relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
        leaves = flatten(event)
        if any(isinstance(leaf, FixedSizeSampled) for leaf in leaves):
            relation = dp_accounting.NeighboringRelation.REPLACE_ONE
        accountant = _LibraryRdp(_ORDERS, relation)
        for leaf, count in leaves.items():
            composed = _library_event(leaf, adjacency, self.name)
            try:
                accountant.compose(composed, count)
            except ValueError:
                # The library's fixed-size bound loses all digits at huge noise; sampling only ever helps, so the
                # query without it is a valid bound.
                if not isinstance(composed, dp_accounting.SampledWithoutReplacementDpEvent):
                    raise
                accountant.compose(composed.event, count)
        return accountant


def _library_event(leaf: Leaf, adjacency: Adjacency, name: str) -> dp_accounting.DpEvent:
    match adjacency:
        case Adjacency.ADD_REMOVE:
            shift = 1.0
        case Adjacency.REPLACE_ONE:
            shift = 2.0
    match leaf:
        case Gaussian(multiplier):
            return dp_accounting.GaussianDpEvent(multiplier / shift)
        case Laplace(multiplier) if adjacency is Adjacency.ADD_REMOVE:
            return dp_accounting.LaplaceDpEvent(multiplier)
        case PoissonSampled(rate, Gaussian(multiplier)) if adjacency is Adjacency.ADD_REMOVE:
            return dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
        case FixedSizeSampled(population, size, Gaussian(multiplier)) if adjacency is Adjacency.REPLACE_ONE:
            inner = dp_accounting.GaussianDpEvent(multiplier / shift)
            return dp_accounting.SampledWithoutReplacementDpEvent(population, size, inner)
        case _:
            raise UnsupportedEvent(name, leaf, adjacency, "no Renyi bound for this event")


def published_fixed_size_epsilon(population: int, size: int, multiplier: float, count: int, delta: float) -> float:
    """Lee et al. 2019: Wang et al.'s bound at the noise as given, without replace-one's doubled sensitivity."""
    # Twice the noise undoes the doubling that replace-one gets below.
    undoubled = Repeated(FixedSizeSampled(population, size, Gaussian(2 * multiplier)), count)
    return RdpAccountant().epsilon(undoubled, delta, Adjacency.REPLACE_ONE)


@dataclass(frozen=True)
class MomentsAccountant:
    """Abadi et al. 2016: integer log-moments of the Poisson-subsampled Gaussian and the classic tail bound.

    The moment is E[(mixture/F0)^order] under the mixture, which dominates the other direction (Mironov, Talwar,
    Zhang 2019), so the figure is an upper bound.
    """

    name: str = "moments"
    is_upper_bound: bool = True
    note: str = ""

    def epsilon(self, event: Event, delta: float, adjacency: Adjacency) -> float:
        """min over orders of (log-moment + log 1/delta) / order, Theorem 2 of Abadi et al."""
        bounds = (self._log_moments(event, adjacency) + math.log(1 / delta)) / _MOMENT_ORDERS
        return float(bounds.min())

    def delta(self, event: Event, epsilon: float, adjacency: Adjacency) -> float:
        """min over orders of exp(log-moment - order epsilon)."""
        exponent = float((self._log_moments(event, adjacency) - _MOMENT_ORDERS * epsilon).min())
        return math.exp(min(0.0, exponent))

    def _log_moments(self, event: Event, adjacency: Adjacency) -> NDArray[np.float64]:
        total = np.zeros(_MOMENT_ORDERS.size)
        for leaf, count in flatten(event).items():
            match leaf:
                case Gaussian(multiplier) if adjacency is Adjacency.ADD_REMOVE:
                    rate = 1.0
                case PoissonSampled(rate, Gaussian(multiplier)) if adjacency is Adjacency.ADD_REMOVE:
                    pass
                case ClusterSampled() | _:
                    raise UnsupportedEvent(self.name, leaf, adjacency, "only (Poisson-sampled) Gaussian queries")
            total += count * np.array([_log_moment(int(order), rate, multiplier) for order in _MOMENT_ORDERS])
        return total


def _log_moment(order: int, rate: float, multiplier: float) -> float:
    """log sum_k C(order+1, k) (1-q)^(order+1-k) q^k exp((k^2 - k) / (2 s^2))."""
    k = np.arange(order + 2)
    binomial = gammaln(order + 2) - gammaln(k + 1) - gammaln(order + 2 - k)
    with np.errstate(divide="ignore"):
        stay = np.where(k == order + 1, 0.0, (order + 1 - k) * np.log1p(-rate) if rate < 1 else -np.inf)
    return max(0.0, float(logsumexp(binomial + stay + k * math.log(rate) + (k * k - k) / (2 * multiplier**2))))
