"""Cover a privacy profile by a Gaussian one, with a probability that everything is revealed."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr, ndtri

from privmix.accounting.events import Adjacency, Event
from privmix.accounting.pld import PldAccountant

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
