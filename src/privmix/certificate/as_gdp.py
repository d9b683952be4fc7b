"""The mu of Gaussian DP that covers a guarantee's curve, and by how much mu overstates.

Gomez et al. (2025) report mu and the regret: the most by which an attacker's advantage is smaller than mu implies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.accounting.api import epsilon_delta_curve
from privmix.accounting.gdp import gdp_delta, gdp_mu, gdp_tradeoff
from privmix.certificate.guarantee import Guarantee

FAITHFUL: Final = 1e-2
"""Regret below which mu alone suffices (Gomez et al. 2025)."""

_POINTS: Final = 41
_RATES: Final = np.unique(np.concatenate([np.geomspace(1e-5, 0.5, 60), 1 - np.geomspace(1e-5, 0.5, 60), [0.0, 1.0]]))


@dataclass(frozen=True)
class AsGdp:
    """A guarantee as Gaussian DP: mu, the regret (0 to 1) and the delta down to which mu holds.

    Formal guarantees:
        * Bound: for every epsilon, the mechanism's delta is at most the larger of that of mu-GDP and ``least_delta``.
          Condition: between the 41 points that are looked at, nothing is higher than at both of its neighbours.
        * Safe side: mu and the regret are rounded up by what the curve's own bound adds.
    """

    mu: float
    regret: float
    least_delta: float

    @property
    def faithful(self) -> bool:
        """Whether mu can be stated alone."""
        return self.regret < FAITHFUL

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "faithful": self.faithful}


def as_gdp(promise: Guarantee) -> AsGdp | None:
    """Return a promise as Gaussian DP; None where no whole curve is promised, or at delta 0."""
    if not promise.exact or promise.delta <= 0 or not 0 < promise.epsilon < math.inf:
        return None
    epsilons = np.linspace(0.0, promise.epsilon, _POINTS)
    deltas = epsilon_delta_curve(promise.event, epsilons.tolist(), adjacency=promise.adjacency)
    # Points whose delta is smaller than what mu holds for decide nothing.
    told = [(float(at), float(delta)) for at, delta in zip(epsilons, deltas, strict=True) if delta >= promise.delta]
    points = [*told, (promise.epsilon, promise.delta)]
    mu = max(_mu_through(at, delta) for at, delta in points)
    return AsGdp(mu, _regret(mu, promise), promise.delta)


def _mu_through(epsilon: float, delta: float) -> float:
    if delta >= 1:
        return math.inf
    mu = gdp_mu(epsilon, delta)
    # On the safe side of the root's own rounding.
    while gdp_delta(mu, epsilon) < delta:
        mu *= 1 + 1e-9
    return mu


def _regret(mu: float, promise: Guarantee) -> float:
    """Least k with f(a + k) - k <= G_mu(a) for all a, f being the promised curve (Kaissis et al. 2024)."""
    if not math.isfinite(mu):
        return 1.0
    curve = promise.missed(_RATES)
    claimed = gdp_tradeoff(mu, _RATES)

    def holds(shift: float) -> bool:
        # Chords of a convex curve lie above it: what is found is not too small.
        moved: NDArray[np.float64] = np.interp(np.minimum(1.0, _RATES + shift), _RATES, curve)
        return bool((moved - shift <= claimed).all())

    low, high = 0.0, 1.0
    if holds(low):
        return 0.0
    while high - low > 1e-5:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
