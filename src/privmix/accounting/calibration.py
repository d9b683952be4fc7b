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

    def price(noise: float, by: Accountant) -> float:
        cost = by.epsilon(make_event(noise), delta, adjacency)
        return math.log(cost / epsilon) if 0 < cost < math.inf else (_HOPELESS if cost > 0 else -_HOPELESS)

    low, high = _LEAST, 1.0
    while price(high, accountant) > 0:
        low, high = high, high * 10
        if high > _MOST:
            raise InvalidInput(
                "epsilon",
                epsilon,
                "more than what the parts of this plan that do not depend on the noise already cost, or fewer rows: "
                "above 1e9 of them, prices at much noise are lost in rounding",
            )
    if low == _LEAST and price(low, accountant) <= 0:
        event = make_event(low)
        return Calibration(low, event, accountant.epsilon(event, delta, adjacency))
    rough = accountant.rough()
    if price(high, rough) > 0:
        # Rough prices are a little higher: the noise that they find may lie just above one that really is enough.
        high *= 10
    if price(high, rough) > 0:
        raise InvalidInput("epsilon", epsilon, "one of fewer steps or a larger delta: prices here are mostly rounding")
    start = _root(lambda noise: price(noise, rough), low, high, 1e-3)
    slope = (price(start * 1.01, rough) - price(start, rough)) / math.log(1.01)
    noise = _newton(lambda noise: price(noise, accountant), start, slope)
    if noise is None:
        low, high = _bracket(lambda noise: price(noise, accountant), start)
        # Aim a little below the target so that the answer lands between it and the tolerance.
        noise = _root(lambda noise: price(noise, accountant) + _CLOSE / 2, low, high, _CLOSE / 8)
    while price(noise, accountant) > 0:
        noise *= 1 + _CLOSE / 2
    event = make_event(noise)
    return Calibration(noise, event, accountant.epsilon(event, delta, adjacency))


def _newton(price: Callable[[float], float], start: float, slope: float) -> float | None:
    """A noise whose price is within the tolerance below the target, by few expensive steps; None if they wander."""
    noise = start
    for _ in range(_NEWTON_STEPS):
        gap = price(noise) + _CLOSE / 2
        if abs(gap) <= _CLOSE / 2:
            return noise
        if not slope < 0 or abs(gap) > 1:
            return None
        noise *= math.exp(-gap / slope)
    return None


def _bracket(price: Callable[[float], float], start: float) -> tuple[float, float]:
    """Two noises around the root, from a guess that is already close."""
    low, high, widen = start / 1.002, start * 1.002, 1.004
    while price(low) <= 0:
        low, high, widen = low / widen, low, widen**2
    while price(high) > -_CLOSE / 2:
        low, high, widen = high, high * widen, widen**2
    return low, high


def _root(price: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    """Root of a decreasing function of the noise's logarithm."""
    if price(low) <= 0:
        return low
    # Prices are rounded: at exp(log(low)) the sign could differ from the one that was found at low itself.
    ends = {math.log(low): low, math.log(high): high}
    root = brentq(lambda t: price(ends.get(t, math.exp(t))), *ends, xtol=tolerance, rtol=1e-12)
    return math.exp(float(root))
