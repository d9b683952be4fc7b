"""Epsilon, delta, curves and calibration: figures on the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from privmix.accounting.base import Accountant, PrivacyCost, UnsupportedEvent
from privmix.accounting.events import Adjacency, Event
from privmix.accounting.gdp import AsPublishedAccountant, GdpCltAccountant
from privmix.accounting.pld import PldAccountant
from privmix.accounting.pure import PureAccountant
from privmix.accounting.renyi import MomentsAccountant, RdpAccountant
from privmix.errors import InvalidInput, check_choice, check_number
from privmix.rounding import percent_up, rounded_up
from privmix.shown import Bar, Bars

# Calibration stops when epsilon is this close below its target (relative).
_CLOSE = 1e-4
_LEAST, _MOST = 1e-3, 1e9
# Every second step halves the range, so the search ends far sooner; what is left ends on its safe side.
_STEPS = 200
# Steps of which no root of a smooth price needs as many.
_HALVED = range(7, _STEPS, 2)
# Most that a step may change the noise's logarithm.
_FURTHEST = math.log(10)
# Noises closer than this, in logarithms, have prices that differ by their rounding as well.
_TELLING = 1e-3
# Log of the price over its target where that is infinite.
_HOPELESS = 60.0

# Log of a price over its target, of a noise.
_Price = Callable[[float], float]


@dataclass(frozen=True)
class Calibration:
    """The noise found, the event it makes, and that event's epsilon (at most the target)."""

    noise_multiplier: float
    event: Event
    epsilon: float


def calibrate_noise(
    make_event: Callable[[float], Event], epsilon: float, delta: float, accountant: Accountant, adjacency: Adjacency
) -> Calibration:
    """Smallest noise multiplier whose event costs at most ``epsilon`` at ``delta``.

    Formal guarantees:
        * the returned event's epsilon, computed once more by the same accountant, is <= ``epsilon``;
        * it is within 0.5% of the target unless less noise than 1e-3 already meets it, or the price jumps there;
        * if no noise up to 1e9 meets the target, this raises: it never returns an optimistic value.
    """

    price = _price_over(epsilon, make_event, delta, accountant, adjacency)
    rough = _price_over(epsilon, make_event, delta, accountant.rough(), adjacency)
    start, slope = _guessed(rough, 1e-4), -1.0
    if start is not None:
        slope = (rough(start * 1.01) - rough(start)) / math.log(1.01)
    noise = _least_noise(price, 1.0 if start is None else start, slope)
    if noise is None:
        raise _no_noise(epsilon)
    event = make_event(noise)
    return Calibration(noise, event, accountant.epsilon(event, delta, adjacency))


def _price_over(
    epsilon: float, make_event: Callable[[float], Event], delta: float, by: Accountant, adjacency: Adjacency
) -> _Price:
    def gap(noise: float) -> float:
        cost = by.epsilon(make_event(noise), delta, adjacency)
        return math.log(cost / epsilon) if 0 < cost < math.inf else (_HOPELESS if cost > 0 else -_HOPELESS)

    return gap


def _no_noise(epsilon: float) -> InvalidInput:
    return InvalidInput(
        "epsilon",
        epsilon,
        "more than the parts of this plan that are independent of the noise cost, or fewer rows: "
        "above 1e9 of them, prices at much noise are lost in rounding",
    )


def _guessed(rough: _Price, tolerance: float) -> float | None:
    """Return the noise at which the rough price meets the target; None if none does."""
    low, high = _LEAST, 1.0
    while rough(high) > 0:
        low, high = high, high * 10
        if high > _MOST:
            return None
    return _root(rough, low, high, tolerance)


def _least_noise(price: _Price, start: float, slope: float) -> float | None:
    """Return the noise whose price is within the tolerance below the target, by few prices; None if none meets it."""
    # The guess gives the start and the first slope; later slopes are those between the last two prices. A step that
    # leaves the interval of bracketing noises halves it, and so does every second of many. If the price jumps over the
    # tolerance, the answer is the noise behind the jump.
    dear, fine = 0.0, math.inf
    noise, last, aim = start, None, _CLOSE / 2
    for step in range(_STEPS):
        gap = price(noise)
        if gap <= 0 and (gap >= -_CLOSE or noise <= _LEAST):
            return noise
        if gap > 0 and noise >= _MOST:
            return None
        dear, fine = (max(dear, noise), fine) if gap > 0 else (dear, min(fine, noise))
        if fine <= dear * (1 + _CLOSE / 8):
            return fine
        if last is not None and abs(gap) < _HOPELESS and abs(math.log(noise / last[0])) > _TELLING:
            slope = (gap - last[1]) / math.log(noise / last[0])
        if abs(gap) < _HOPELESS:
            last = noise, gap
            move = -(gap + aim) / slope if slope < 0 else math.copysign(1.0, gap)
        else:
            move = math.copysign(_FURTHEST, gap)
        following = noise * math.exp(max(-_FURTHEST, min(_FURTHEST, move)))
        if dear > 0 and fine < math.inf and (not dear < following < fine or step in _HALVED):
            following = math.sqrt(dear * fine)
        noise = max(_LEAST, min(_MOST, following))
    return fine if fine < math.inf else None


def _root(price: _Price, low: float, high: float, tolerance: float) -> float:
    """Root of a decreasing function of the noise's logarithm; an end where it has the same sign at both."""
    if price(low) <= 0:
        return low
    if price(high) >= 0:
        return high
    # Prices are rounded: at exp(log(low)) the sign could differ from the one that was found at low itself.
    ends = {math.log(low): low, math.log(high): high}
    root = scipy.optimize.brentq(lambda t: price(ends.get(t, math.exp(t))), *ends, xtol=tolerance, rtol=1e-12)
    return math.exp(float(root))


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

    ``delta`` is in (0, 1); 0 is allowed for the ``pure`` accountant, and as published for Laplace noise. Raises
    :class:`UnsupportedEvent` where the accountant has no valid price for this event under this adjacency.
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
    event: Event, epsilons: Sequence[float], *, accountant: str = "pld", adjacency: Adjacency = Adjacency.ADD_REMOVE
) -> NDArray[np.float64]:
    """Deltas at each of ``epsilons``, never rising with epsilon: shape (len(epsilons),)."""
    chosen = get_accountant(accountant)
    for value in epsilons:
        check_number("epsilon", value, low=0)
    order = np.argsort(np.asarray(epsilons, dtype=np.float64), kind="stable")
    deltas = np.array([chosen.delta(event, float(value), adjacency) for value in epsilons])
    # A bound at an epsilon holds at every larger epsilon; bounds are not equally close everywhere.
    deltas[order] = np.minimum.accumulate(deltas[order])
    return deltas


def right_at_most(event: Event | None, cost: PrivacyCost) -> float:
    """Return how often the best attack wins an even bet; without an event, the bound by (epsilon, delta) alone."""
    # The one figure of this kind: certificates, cards, reports and studio print it by percent_up.
    if event is not None:
        distance = float(epsilon_delta_curve(event, [0.0], adjacency=cost.adjacency)[0])
        return min(1.0, (1 + distance) / 2)
    growth = math.exp(-min(cost.epsilon, 700.0))
    return (1 + cost.delta * growth) / (1 + growth)


def price_picture(event: Event | None, cost: PrivacyCost) -> Bars | None:
    """Return the odds of the best attack as a notebook draws them; None where nothing is promised."""
    if not math.isfinite(cost.epsilon):
        return None
    try:
        right = right_at_most(None if cost.delta == 0 else event, cost)
    except (UnsupportedEvent, InvalidInput):
        return None
    limit = Bar(f"epsilon {rounded_up(cost.epsilon)}", right, percent_up(right))
    return Bars(
        "Best attack on an even bet, right at most", [Bar("guessing", 0.5, "50%", strong=False), limit], full=1.0
    )


def tradeoff_curve(
    event: Event,
    alphas: ArrayLike,
    *,
    accountant: str = "pld",
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    points: int = 65,
) -> NDArray[np.float64]:
    """Least type II error of any test at type I error ``alphas`` (f-DP; Dong, Roth, Su 2021, Proposition 2.5)."""
    # f(alpha) = max over epsilon of max(0, 1 - delta - e^epsilon alpha, e^-epsilon (1 - delta - alpha)). Every epsilon
    # gives a valid lower bound, so a finite grid of `points` does too.
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


def guess_noise(
    make_event: Callable[[float], Event],
    epsilon: float,
    delta: float,
    *,
    accountant: str = "pld",
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
) -> float:
    """Return about the noise of :func:`calibrate` (mostly within 2%): for pictures, never for a release."""
    check_number("epsilon", epsilon, low=0, low_open=True)
    _check_delta(delta, accountant)
    rough = get_accountant(accountant).rough()
    noise = _guessed(_price_over(epsilon, make_event, delta, rough, adjacency), 1e-3)
    if noise is None:
        raise _no_noise(epsilon)
    return noise


def _check_delta(delta: float, accountant: str) -> None:
    check_number("delta", delta, low=0, high=1, low_open=accountant not in ("pure", "as_published"), high_open=True)
