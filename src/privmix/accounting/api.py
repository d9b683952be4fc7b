"""The questions people ask: epsilon, delta, curves, and how much noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix.accounting.base import Accountant, PrivacyCost
from privmix.accounting.calibration import Calibration, calibrate_noise
from privmix.accounting.events import Adjacency, Event
from privmix.accounting.gdp import AsPublishedAccountant, GdpCltAccountant
from privmix.accounting.pld import PldAccountant
from privmix.accounting.pure import PureAccountant
from privmix.accounting.rdp import MomentsAccountant, RdpAccountant
from privmix.errors import check_choice, check_number

ACCOUNTANTS: Final[dict[str, Accountant]] = {
    accountant.name: accountant
    for accountant in (
        PldAccountant(),
        RdpAccountant(),
        MomentsAccountant(),
        PureAccountant(),
        GdpCltAccountant(),
        AsPublishedAccountant(),
    )
}


def get_accountant(name: str) -> Accountant:
    """Return the accountant called ``name``: pld, rdp, moments, pure (bounds), gdp_clt, as_published (comparisons)."""
    return ACCOUNTANTS[check_choice("accountant", name, ACCOUNTANTS)]


def epsilon(
    event: Event, delta: float, *, accountant: str = "pld", adjacency: Adjacency = Adjacency.ADD_REMOVE
) -> PrivacyCost:
    """Price ``event``: the smallest epsilon that ``accountant`` can state at ``delta``.

    Args:
        event: what ran.
        delta: in (0, 1); 0 is allowed for the ``pure`` accountant, and as published for Laplace noise.
        accountant: see :func:`get_accountant`.
        adjacency: which pairs of datasets the figure is about.

    Raises:
        UnsupportedEvent: the accountant has no valid price for this event under this adjacency.
        InvalidInput: ``delta`` is out of range.
    """
    chosen = get_accountant(accountant)
    _check_delta(delta, accountant)
    value = chosen.epsilon(event, delta, adjacency)
    return PrivacyCost(value, delta, adjacency, chosen.name, chosen.is_upper_bound, chosen.note)


def delta(
    event: Event, epsilon: float, *, accountant: str = "pld", adjacency: Adjacency = Adjacency.ADD_REMOVE
) -> PrivacyCost:
    """Price ``event`` the other way round: the smallest delta at ``epsilon`` >= 0."""
    chosen = get_accountant(accountant)
    check_number("epsilon", epsilon, low=0)
    value = chosen.delta(event, epsilon, adjacency)
    return PrivacyCost(epsilon, value, adjacency, chosen.name, chosen.is_upper_bound, chosen.note)


def epsilon_delta_curve(
    event: Event,
    epsilons: Sequence[float],
    *,
    accountant: str = "pld",
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
) -> NDArray[np.float64]:
    """Deltas at each of ``epsilons``, never rising with epsilon: shape (len(epsilons),)."""
    chosen = get_accountant(accountant)
    for value in epsilons:
        check_number("epsilon", value, low=0)
    order = np.argsort(np.asarray(epsilons, dtype=np.float64), kind="stable")
    deltas = np.array([chosen.delta(event, float(value), adjacency) for value in epsilons])
    # What holds at an epsilon holds at every larger one; bounds are not equally close everywhere.
    deltas[order] = np.minimum.accumulate(deltas[order])
    return deltas


def tradeoff_curve(
    event: Event,
    alphas: ArrayLike,
    *,
    accountant: str = "pld",
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    points: int = 65,
) -> NDArray[np.float64]:
    """Least type II error of any test at type I error ``alphas`` (f-DP; Dong, Roth, Su 2021, Proposition 2.5).

    f(alpha) = max over epsilon of max(0, 1 - delta - e^epsilon alpha, e^-epsilon (1 - delta - alpha)). Every epsilon
    gives a valid lower bound, so a finite grid of ``points`` does too: an attacker is never better than this.

    Example:
        >>> from privmix.accounting.events import Gaussian
        >>> tradeoff_curve(Gaussian(1.0), [0.05]).round(3).tolist()
        [0.74]
    """
    alpha = np.atleast_1d(np.asarray(alphas, dtype=np.float64))
    for value in alpha:
        check_number("alpha", float(value), low=0, high=1)
    chosen = get_accountant(accountant)
    most = min(60.0, max(chosen.epsilon(event, 1e-9, adjacency), 1e-6))
    if chosen.delta(event, most, adjacency) > 1 - 1e-9:
        # All the other deltas are as large: nothing is promised.
        return np.zeros(len(alpha))
    # Closer together where epsilon is small: a large alpha has its best epsilon there.
    grid = most * np.linspace(0.0, 1.0, points) ** 2
    deltas = epsilon_delta_curve(event, grid.tolist(), accountant=accountant, adjacency=adjacency)
    kept = (1 - deltas)[:, None]
    growth = np.exp(grid)[:, None]
    bounds = np.maximum(kept - growth * alpha, (kept - alpha) / growth)
    return np.asarray(np.maximum(bounds.max(axis=0), 0.0))


def calibrate(
    make_event: Callable[[float], Event],
    epsilon: float,
    delta: float,
    *,
    accountant: str = "pld",
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
) -> Calibration:
    """Find the least noise: ``make_event(noise_multiplier)`` costs at most ``epsilon`` at ``delta``.

    Example:
        >>> from privmix.accounting.events import Gaussian, PoissonSampled, Repeated
        >>> found = calibrate(lambda s: Repeated(PoissonSampled(64 / 60_000, Gaussian(s)), 60_000), 1.0, 1e-5)
        >>> round(found.noise_multiplier, 3), found.epsilon <= 1.0
        (1.187, True)
    """
    check_number("epsilon", epsilon, low=0, low_open=True)
    _check_delta(delta, accountant)
    return calibrate_noise(make_event, epsilon, delta, get_accountant(accountant), adjacency)


def _check_delta(delta: float, accountant: str) -> None:
    check_number("delta", delta, low=0, high=1, low_open=accountant not in ("pure", "as_published"), high_open=True)
