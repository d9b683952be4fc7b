"""What a guarantee leaves to the best attack: its curves, and figures that people understand."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.accounting import (
    Adjacency,
    Event,
    NeighbourCurve,
    PrivacyCost,
    UnsupportedEvent,
    epsilon,
    epsilon_delta_curve,
    event_from_dict,
    price_picture,
    tradeoff_curve,
)
from privmix.errors import InvalidInput
from privmix.mechanisms.plan import Plan
from privmix.rounding import percent_up
from privmix.shown import PriceCurve

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
        * Every figure is a bound on any attack, whatever it computes: catching more would break the promise.

    Attributes:
        epsilon: promised; infinity promises nothing.
        delta: promised.
        event: what ran.
        adjacency: of the promise.
        exact: the event's whole curve is promised, and not one point of it alone.

    Example:
        >>> from privmix.accounting import Gaussian
        >>> promise = Guarantee(1.0, 1e-5, Gaussian(4.0), Adjacency.ADD_REMOVE, exact=True)
        >>> round(promise.caught(0.05), 3), round(promise.right, 3)
        (0.082, 0.55)
    """

    epsilon: float
    delta: float
    event: Event
    adjacency: Adjacency
    exact: bool

    @classmethod
    def of(cls, certificate: Mapping[str, Any]) -> Guarantee:
        """What a certificate promises, taken at its word: verification is what checks it.

        With a private record count a single point is promised: other counts would have led to other plans.
        """
        stated = certificate["guarantee"]
        return cls(
            math.inf if stated["epsilon"] is None else float(stated["epsilon"]),
            float(stated["delta"]),
            event_from_dict(certificate["event"]),
            Adjacency(stated["adjacency"]),
            stated["accountant"] == "pld" and certificate["plan"].get("records_noise_multiplier") is None,
        )

    @classmethod
    def of_plan(cls, plan: Plan) -> Guarantee:
        """What the certificate of a plan promises."""
        cost, counted = plan.cost(), getattr(plan, "records_noise_multiplier", None) is not None
        least = float(plan.epsilon) if counted and plan.epsilon is not None else cost.epsilon
        return cls(least, cost.delta, plan.event, plan.adjacency, cost.accountant == "pld" and not counted)

    def stated_right(self, certificate: Mapping[str, Any]) -> str:
        """:attr:`right` as a certificate prints it; where it prints less than is recomputed here, what it should print.

        Another version of the numerical libraries may find another last digit.
        """
        found = _RIGHT.search(str(certificate["assessment"]))
        if found and float(found[1]) / 100 >= self.right * (1 - 1e-6):
            return f"{found[1]}%"
        return percent_up(self.right)

    def missed(self, alphas: NDArray[np.float64]) -> NDArray[np.float64]:
        """Least rates at which present records are missed, at the rates ``alphas`` of absent ones that are accused.

        From one point: Wasserman and Zhou 2010; Kairouz, Oh and Viswanath 2015.
        """
        if self.exact:
            return np.asarray(tradeoff_curve(self.event, alphas, adjacency=self.adjacency))
        growth = math.exp(min(self.epsilon, 700.0))
        return np.maximum(0.0, np.maximum(1 - self.delta - growth * alphas, (1 - self.delta - alphas) / growth))

    def caught(self, alpha: float) -> float:
        """The most that any attack catches of those present, where it accuses ``alpha`` of those absent."""
        return 1 - float(self.missed(np.array([alpha]))[0])

    @property
    def neighbours(self) -> NeighbourCurve:
        """What poisoned records may do: by the whole curve of the event where it is promised, else by the one point.

        Pure DP promises the point, but its event is fixed as well: a private count is a Gaussian query, which no pure
        plan has.
        """
        if (self.exact or self.delta == 0) and math.isfinite(self.epsilon):
            return NeighbourCurve.of_event(self.event, self.adjacency)
        return NeighbourCurve.of_point(self.epsilon, self.delta, self.adjacency)

    @property
    def right(self) -> float:
        """How often the best attack wins an even bet: half of 1 + delta(0), the total variation distance.

        The one figure of this kind: certificates, cards, reports and the studio print it by
        :func:`privmix.rounding.percent_up`.
        """
        if self.exact:
            distance = float(epsilon_delta_curve(self.event, [0.0], adjacency=self.adjacency)[0])
            return min(1.0, (1 + distance) / 2)
        growth = math.exp(-min(self.epsilon, 700.0))
        return (1 + self.delta * growth) / (1 + growth)

    def picture(self) -> PriceCurve | None:
        """What a notebook draws of it; None where nothing is promised."""
        cost = PrivacyCost(self.epsilon, self.delta, self.adjacency, "pld", True)
        return price_picture(self.event if self.exact else None, cost)

    def curves(self) -> dict[str, Any]:
        """The epsilon-delta curve, the trade-off curve, and what an attacker gains by the latter, as JSON values."""
        if not math.isfinite(self.epsilon):
            return {"epsilon_delta": None, "tradeoff": None, "power": None}
        betas, curve = self.missed(_ALPHAS), None
        if self.exact:
            # The stated pair is what is promised: rounding in its last digits must not show beside the curve.
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
        """The papers' figure for the same event, where they have one: a comparison and no bound."""
        try:
            cost = epsilon(self.event, self.delta, accountant="as_published", adjacency=self.adjacency)
        except (UnsupportedEvent, InvalidInput):
            # No formula of the papers', or none at delta 0.
            return None
        return {"epsilon": cost.epsilon if math.isfinite(cost.epsilon) else None, "note": cost.note}
