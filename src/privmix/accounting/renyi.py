"""Renyi DP and the moments accountant: valid bounds, looser than the PLD, kept because the papers used them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from privmix.accounting.base import Leaf, UnsupportedEvent, flatten, shift_of
from privmix.accounting.events import Adjacency, Event, FixedSizeSampled, Gaussian, Laplace, PoissonSampled, Repeated

if TYPE_CHECKING:
    import dp_accounting

_ORDERS = tuple(np.concatenate((np.linspace(1.05, 10, 90), np.arange(11, 64), 2.0 ** np.arange(6, 14))).tolist())
# More than a query's divergence was seen to lose to rounding (1e-15, at noise 1e9).
_ROUNDING = 1e-13
_RELATIVE_ROUNDING = 1e-12
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

    orders: tuple[float, ...] = _ORDERS
    name: str = "rdp"
    is_upper_bound: bool = True
    note: str = ""

    def epsilon(self, event: Event, delta: float, adjacency: Adjacency) -> float:
        from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

        return float(compute_epsilon(self.orders, self._divergences(event, adjacency), delta)[0])

    def delta(self, event: Event, epsilon: float, adjacency: Adjacency) -> float:
        from dp_accounting.rdp.rdp_privacy_accountant import compute_delta

        return float(compute_delta(self.orders, self._divergences(event, adjacency), epsilon)[0])

    def divergence(self, event: Event, adjacency: Adjacency) -> float:
        """Upper bound on the Renyi divergence at the first of the orders."""
        return float(self._divergences(event, adjacency)[0])

    def rough(self) -> RdpAccountant:
        return replace(self, orders=self.orders[::6])

    def _divergences(self, event: Event, adjacency: Adjacency) -> NDArray[np.float64]:
        """Renyi divergence of everything that ran, at every order, rounded up."""
        import dp_accounting
        from dp_accounting.rdp import RdpAccountant as LibraryRdp

        relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
        leaves = flatten(event)
        if any(isinstance(leaf, FixedSizeSampled) for leaf in leaves):
            relation = dp_accounting.NeighboringRelation.REPLACE_ONE
        accountant = LibraryRdp(self.orders, relation)
        with _quiet():
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
        # At huge noise rounding can leave a divergence below the true one, even below 0: the library's "epsilon is 0".
        slack = _ROUNDING * sum(leaves.values())
        found = np.asarray(accountant.rdp)
        return np.where(found < -slack, np.inf, np.maximum(found, 0.0) * (1 + _RELATIVE_ROUNDING) + slack)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library from reporting every order that it leaves out, which is always the safe side."""
    from absl import logging as absl_logging

    before = absl_logging.get_verbosity()
    absl_logging.set_verbosity(absl_logging.ERROR)
    try:
        yield
    finally:
        absl_logging.set_verbosity(before)


def _library_event(leaf: Leaf, adjacency: Adjacency, name: str) -> dp_accounting.DpEvent:
    import dp_accounting

    shift = shift_of(adjacency)
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


def published_fixed_size_epsilon(
    population: int, size: int, multiplier: float, count: int, delta: float, accountant: RdpAccountant
) -> float:
    """Lee et al. 2019: Wang et al.'s bound at the noise as given, without replace-one's doubled sensitivity."""
    # Twice the noise undoes the doubling that replace-one gets below.
    undoubled = Repeated(FixedSizeSampled(population, size, Gaussian(2 * multiplier)), count)
    return accountant.epsilon(undoubled, delta, Adjacency.REPLACE_ONE)


@dataclass(frozen=True)
class MomentsAccountant:
    """Abadi et al. 2016: integer log-moments of the Poisson-subsampled Gaussian and the classic tail bound."""

    # The moment is E[(mixture/F0)^order] under the mixture, which dominates the other direction (Mironov, Talwar, Zhang
    # 2019), so the figure is an upper bound.

    name: str = "moments"
    is_upper_bound: bool = True
    note: str = ""

    def epsilon(self, event: Event, delta: float, adjacency: Adjacency) -> float:
        """Return the minimum over orders of (log-moment + log 1/delta) / order, Theorem 2 of Abadi et al."""
        bounds = (self._log_moments(event, adjacency) + math.log(1 / delta)) / _MOMENT_ORDERS
        return float(bounds.min())

    def delta(self, event: Event, epsilon: float, adjacency: Adjacency) -> float:
        """Return the minimum over orders of exp(log-moment - order epsilon)."""
        exponent = float((self._log_moments(event, adjacency) - _MOMENT_ORDERS * epsilon).min())
        return math.exp(min(0.0, exponent))

    def rough(self) -> MomentsAccountant:
        return self

    def _log_moments(self, event: Event, adjacency: Adjacency) -> NDArray[np.float64]:
        total = np.zeros(_MOMENT_ORDERS.size)
        for leaf, count in flatten(event).items():
            match leaf:
                case Gaussian(multiplier) if adjacency is Adjacency.ADD_REMOVE:
                    rate = 1.0
                case PoissonSampled(rate, Gaussian(multiplier)) if adjacency is Adjacency.ADD_REMOVE:
                    pass
                case _:
                    raise UnsupportedEvent(self.name, leaf, adjacency, "only (Poisson-sampled) Gaussian queries")
            total += count * _moments_of(rate, multiplier)
        return total


def _moments_of(rate: float, multiplier: float) -> NDArray[np.float64]:
    """Return log sum_k C(order+1, k) (1-q)^(order+1-k) q^k exp((k^2 - k) / (2 s^2)), for every order."""
    left, k = _binomial_grid()
    with np.errstate(divide="ignore", invalid="ignore"):
        stay = np.where(left == 0, 0.0, left * np.log1p(-rate))
    exponents = _log_binomials() + stay + k * math.log(rate) + (k * k - k) / (2 * multiplier**2)
    return np.asarray(np.maximum(0.0, logsumexp(exponents, axis=1)))


def _binomial_grid() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return order + 1 - k, a row an order, and k."""
    k = np.arange(_MOMENT_ORDERS[-1] + 2)
    return np.maximum(_MOMENT_ORDERS[:, None] + 1 - k, 0), k


@lru_cache(maxsize=1)
def _log_binomials() -> NDArray[np.float64]:
    left, k = _binomial_grid()
    found = gammaln(_MOMENT_ORDERS[:, None] + 2) - gammaln(k + 1) - gammaln(left + 1)
    found = np.where(k <= _MOMENT_ORDERS[:, None] + 1, found, -np.inf)
    found.setflags(write=False)
    return found
