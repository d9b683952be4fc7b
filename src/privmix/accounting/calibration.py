"""Find the least noise that meets a target, on the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy.optimize import brentq

from privmix.accounting.base import Accountant
from privmix.accounting.events import Adjacency, Event
from privmix.errors import InvalidInput

# Calibration stops when epsilon is this close below its target (relative).
_CLOSE = 1e-4
_LEAST, _MOST = 1e-3, 1e9
_NEWTON_STEPS = 8
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
    make_event: Callable[[float], Event],
    epsilon: float,
    delta: float,
    accountant: Accountant,
    adjacency: Adjacency,
) -> Calibration:
    """Smallest noise multiplier whose event costs at most ``epsilon`` at ``delta``.

    Formal guarantees:
        * the returned event's epsilon, computed once more by the same accountant, is <= ``epsilon``;
        * it is within 0.5% of the target unless less noise than 1e-3 already meets it;
        * if no noise up to 1e9 meets the target, this raises: it never returns an optimistic value.
    """

    def gap(noise: float, by: Accountant) -> float:
        cost = by.epsilon(make_event(noise), delta, adjacency)
        return math.log(cost / epsilon) if 0 < cost < math.inf else (_HOPELESS if cost > 0 else -_HOPELESS)

    rough = accountant.rough()
    noise = _guessed(lambda noise: gap(noise, accountant), lambda noise: gap(noise, rough))
    if noise is None:
        noise = _searched(lambda noise: gap(noise, accountant), lambda noise: gap(noise, rough))
    if noise is None:
        raise InvalidInput(
            "epsilon",
            epsilon,
            "more than what the parts of this plan that do not depend on the noise already cost, or fewer rows: "
            "above 1e9 of them, prices at much noise are lost in rounding",
        )
    event = make_event(noise)
    return Calibration(noise, event, accountant.epsilon(event, delta, adjacency))


def _guessed(price: _Price, rough: _Price) -> float | None:
    """The noise by a few prices, from where the rough price meets the target; None where that is no good guess."""
    decade = _decade(rough)
    if decade is None or decade[0] == decade[1]:
        return None
    start = _root(rough, *decade, 1e-3)
    return _newton(price, start, _slope(rough, start))


def _searched(price: _Price, rough: _Price) -> float | None:
    """The noise by as many prices as it takes; None if there is none.

    The rough price only says where to begin. It may be above the target where the price is not, and below where it is.
    """
    decade = _decade(price)
    if decade is None or decade[0] == decade[1]:
        return decade[0] if decade else None
    low, high = decade
    start = high if rough(high) > 0 else _root(rough, low, high, 1e-3)
    low, high = _bracket(price, start, low, high)
    # Aim a little below the target so that the answer lands between it and the tolerance.
    noise = _root(lambda noise: price(noise) + _CLOSE / 2, low, high, _CLOSE / 8)
    while price(noise) > 0:
        noise = min(noise * (1 + _CLOSE / 2), high)
    return noise


def _decade(price: _Price) -> tuple[float, float] | None:
    """Two noises between which the price meets its target; twice the least noise if that will do; None if none will."""
    low, high = _LEAST, 1.0
    while price(high) > 0:
        low, high = high, high * 10
        if high > _MOST:
            return None
    return (low, low) if low == _LEAST and price(low) <= 0 else (low, high)


def _slope(price: _Price, noise: float) -> float:
    return (price(noise * 1.01) - price(noise)) / math.log(1.01)


def _newton(price: _Price, start: float, slope: float) -> float | None:
    """A noise whose price is within the tolerance below the target, by few expensive steps; None if they wander."""
    noise = start
    for _ in range(_NEWTON_STEPS):
        gap = price(noise) + _CLOSE / 2
        if abs(gap) <= _CLOSE / 2 and price(noise) <= 0:
            return noise
        if not slope < 0 or abs(gap) > 1:
            return None
        noise *= math.exp(-gap / slope)
    return None


def _bracket(price: _Price, start: float, low: float, high: float) -> tuple[float, float]:
    """Two noises around the root, as close as a guess allows; ``low`` costs more than the target, ``high`` does not."""
    widen = 1.002
    while (below := max(low, start / widen)) > low:
        if price(below) > 0:
            low = below
            break
        high, widen = below, widen**2
    widen = 1.002
    while (above := min(high, start * widen)) < high:
        if price(above) <= 0:
            high = above
            break
        low, widen = max(low, above), widen**2
    return low, high


def _root(price: _Price, low: float, high: float, tolerance: float) -> float:
    """Root of a decreasing function of the noise's logarithm; an end where it has the same sign at both."""
    if price(low) <= 0:
        return low
    if price(high) >= 0:
        return high
    # Prices are rounded: at exp(log(low)) the sign could differ from the one that was found at low itself.
    ends = {math.log(low): low, math.log(high): high}
    root = brentq(lambda t: price(ends.get(t, math.exp(t))), *ends, xtol=tolerance, rtol=1e-12)
    return math.exp(float(root))
