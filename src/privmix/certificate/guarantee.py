"""The best attack that a guarantee allows: its curves, figures that people understand, and the mu that covers it.

Gomez et al. (2025) report mu and the regret: the most by which an attacker's advantage is smaller than mu implies.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.accounting.api import epsilon, epsilon_delta_curve, price_picture, right_at_most, tradeoff_curve
from privmix.accounting.base import PrivacyCost, UnsupportedEvent
from privmix.accounting.events import Adjacency, Event, event_from_dict
from privmix.accounting.gdp import gdp_delta, gdp_mu, gdp_tradeoff
from privmix.accounting.poisoning import NeighbourCurve
from privmix.errors import InvalidInput
from privmix.mechanisms.plan import Plan
from privmix.rounding import percent_up
from privmix.shown import Bars

# At these false-alarm rates the trade-off curve is drawn; membership panels need the small ones. 5% is quoted.
_ALPHAS: Final = np.unique(np.concatenate(([0.0, 0.05, 1.0], np.geomspace(1e-5, 0.05, 30), np.linspace(0.05, 1.0, 60))))
_QUOTED: Final = 0.05
# As an assessment prints :attr:`Guarantee.right`.
_RIGHT: Final = re.compile(r"is right at most (\d{2,3}(?:\.\d{1,6})?)% of the time with it")
_CURVE_POINTS: Final = 81


@dataclass(frozen=True)
class Guarantee:
    """A promise, and the event that decides it.

    Formal guarantees:
        * Every figure is a bound on any attack with any computation: catching more would break the promise.
    """

    # epsilon: infinite where nothing is promised; exact: the event's whole curve is promised, not one point alone.

    epsilon: float
    delta: float
    event: Event
    adjacency: Adjacency
    exact: bool

    @classmethod
    def of(cls, certificate: Mapping[str, Any]) -> "Guarantee":
        """Read the guarantee that a certificate states; verification checks it."""
        # For a private count the one point alone is promised: other counts would have led to other plans.
        stated = certificate["guarantee"]
        return cls(
            math.inf if stated["epsilon"] is None else float(stated["epsilon"]),
            float(stated["delta"]),
            event_from_dict(certificate["event"]),
            Adjacency(stated["adjacency"]),
            stated["accountant"] == "pld" and certificate["plan"].get("records_noise_multiplier") is None,
        )

    @classmethod
    def of_plan(cls, plan: Plan) -> "Guarantee":
        cost, counted = plan.cost(), getattr(plan, "records_noise_multiplier", None) is not None
        least = float(plan.epsilon) if counted and plan.epsilon is not None else cost.epsilon
        return cls(least, cost.delta, plan.event, plan.adjacency, cost.accountant == "pld" and not counted)

    def stated_right(self, certificate: Mapping[str, Any]) -> str:
        """Return :attr:`right` as a certificate prints it, or the larger recomputed one where it prints less."""
        # Other numerical libraries may differ in the last digit.
        found = _RIGHT.search(str(certificate["assessment"]))
        if found and float(found[1]) / 100 >= self.right * (1 - 1e-6):
            return f"{found[1]}%"
        return percent_up(self.right)

    def missed(self, alphas: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return least miss rates of present records at false-alarm rates ``alphas``, from epsilon and delta."""
        # Wasserman and Zhou 2010; Kairouz, Oh and Viswanath 2015.
        if self.exact:
            return np.asarray(tradeoff_curve(self.event, alphas, adjacency=self.adjacency))
        # The exponential of 710 overflows float64.
        growth = math.exp(min(self.epsilon, 700.0))
        return np.maximum(0.0, np.maximum(1 - self.delta - growth * alphas, (1 - self.delta - alphas) / growth))

    def caught(self, alpha: float) -> float:
        """Return the most that any attack catches of those present, where it accuses ``alpha`` of those absent."""
        return 1 - float(self.missed(np.array([alpha]))[0])

    @property
    def neighbours(self) -> NeighbourCurve:
        """Return the effect of poisoned records, by the event's curve where promised, else by the one point."""
        # Pure DP promises the point, but its event is fixed too: no pure plan has a private count's Gaussian query.
        if (self.exact or self.delta == 0) and math.isfinite(self.epsilon):
            return NeighbourCurve.of_event(self.event, self.adjacency)
        return NeighbourCurve.of_point(self.epsilon, self.delta, self.adjacency)

    @property
    def right(self) -> float:
        """Return how often the best attack wins an even bet, at most."""
        return right_at_most(self.event if self.exact else None, self._cost)

    @property
    def odds(self) -> str:
        return f"on an even bet the best attack is right at most {percent_up(self.right)} of the time"

    @property
    def _cost(self) -> PrivacyCost:
        return PrivacyCost(self.epsilon, self.delta, self.adjacency, "pld", True)

    def picture(self) -> Bars | None:
        """Picture for a notebook; None where nothing is promised."""
        return price_picture(self.event if self.exact else None, self._cost)

    def curves(self) -> dict[str, Any]:
        """Return the epsilon-delta curve, the trade-off curve and an attacker's gain by the latter, as JSON values."""
        if not math.isfinite(self.epsilon):
            return {"epsilon_delta": None, "tradeoff": None, "power": None}
        betas, curve = self.missed(_ALPHAS), None
        if self.exact:
            # The stated pair is what is promised: rounding in its last digits must not show next to the curve.
            epsilons = np.unique(np.append(np.linspace(0, 2 * self.epsilon, _CURVE_POINTS), self.epsilon)).tolist()
            deltas = epsilon_delta_curve(self.event, epsilons, adjacency=self.adjacency)
            curve = {"epsilon": epsilons, "delta": deltas.tolist()}
        quoted = float(betas[np.flatnonzero(_ALPHAS == _QUOTED)[0]])
        return {
            "epsilon_delta": curve,
            "tradeoff": {"alpha": _ALPHAS.tolist(), "beta": betas.tolist()},
            "power": {"alpha": _QUOTED, "caught": 1 - quoted, "right": self.right},
        }

    def published(self) -> dict[str, Any] | None:
        """Return the papers' figure for the same event, where they have one: a comparison and no bound."""
        try:
            cost = epsilon(self.event, self.delta, accountant="as_published", adjacency=self.adjacency)
        except (UnsupportedEvent, InvalidInput):
            # No formula of the papers', or none at delta 0.
            return None
        return {"epsilon": cost.epsilon if math.isfinite(cost.epsilon) else None, "note": cost.note}


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
    # The upper end: the regret is never understated.
    return high
