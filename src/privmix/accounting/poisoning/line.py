"""The certified line: a bound on an attack's success with all that it rests on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from privmix.accounting.base import UnsupportedEvent
from privmix.accounting.events import Adjacency, Event
from privmix.accounting.pld import PldAccountant
from privmix.accounting.poisoning.bounds import check_steps, poisoning_success_bound
from privmix.accounting.pure import PureAccountant
from privmix.errors import check_integer, check_number
from privmix.rounding import exact, rounded_up

_POINTS: Final = 129
# The curve is followed up to the epsilon of this delta; what is beyond adds no more than it, a step.
_LEAST_DELTA: Final = 1e-12
_MOST_EPSILON: Final = 60.0
# More than the rounding of one step, relative.
_ROUNDING: Final = 1 + 1e-14
# Steps taken one by one; the rest are bounded together.
_MOST_STEPS: Final = 20_000


@dataclass(frozen=True, eq=False)
class NeighbourCurve:
    """How much one step to a neighbouring dataset may change the probability of any event that an output decides.

    Formal guarantees:
        * each bound is one minus group privacy's trade-off curve at the probability, from above. No attacker who
          controls this number of records makes anything likelier, with any knowledge of the mechanism and the data, if
          the records don't depend on its randomness;
        * every point of the curve gives a valid bound, so a finite number of them does;
        * bounds are concave in the probability without poisoning. They hold for averages over targets and datasets,
          too, of the average probability (Jensen).

    Attributes:
        epsilons: points >= 0, shape (J,); without any nothing is promised.
        by_presence: shape (J,): upper bounds on the hockey-stick divergence, outputs with a record from those without.
        by_absence: the other way round, shape (J,). Under replace-one both are the same.
    """

    adjacency: Adjacency
    epsilons: NDArray[np.float64]
    by_presence: NDArray[np.float64]
    by_absence: NDArray[np.float64]

    @classmethod
    def of_event(cls, event: Event, adjacency: Adjacency, *, points: int = _POINTS) -> Self:
        """Return the curve of ``event`` by its privacy loss distribution; more ``points`` are tighter."""
        check_integer("points", points, low=2)
        return cls(adjacency, *_divergences(event, adjacency, points))

    @classmethod
    def of_point(cls, epsilon: float, delta: float, adjacency: Adjacency) -> Self:
        """Everything that an (epsilon, delta) guarantee implies; an infinite epsilon implies no bound."""
        check_number("delta", delta, low=0, high=1)
        if epsilon == math.inf:
            return cls(adjacency, *(np.empty(0) for _ in range(3)))
        check_number("epsilon", epsilon, low=0)
        return cls(adjacency, np.array([float(epsilon)]), np.array([float(delta)]), np.array([float(delta)]))

    def success(self, clean_success: float, poisoned: int, poisoning: str = "changed") -> float:
        """Upper bound on the probability that an attack succeeds; ``clean_success`` is that without poisoning."""
        check_number("clean_success", clean_success, low=0, high=1)
        check_steps(poisoned, self.adjacency, poisoning)
        orders: list[tuple[bool, ...]] = [(True,)] if poisoning == "inserted" else [(False,)]
        if poisoning == "changed" and self.adjacency is Adjacency.ADD_REMOVE:
            orders = [(True, False), (False, True)]
        return min(self._along(clean_success, poisoned, order) for order in orders)

    def success_by_points(self, clean_success: float, poisoned: int, poisoning: str = "changed") -> float:
        """Return the same by the best single (epsilon, delta) of the curve: never less than :meth:`success`."""
        check_number("clean_success", clean_success, low=0, high=1)
        steps = check_steps(poisoned, self.adjacency, poisoning)
        if steps == 0:
            return clean_success
        both = np.maximum(self.by_presence, self.by_absence)
        found = [
            poisoning_success_bound(
                float(epsilon), float(delta), poisoned, clean_success, adjacency=self.adjacency, poisoning=poisoning
            )
            if epsilon > 0
            else clean_success + steps * float(delta)
            for epsilon, delta in zip(self.epsilons, both, strict=True)
        ]
        return min([1.0, *found]) * _ROUNDING if found and min(found) < 1 else 1.0

    def _along(self, success: float, poisoned: int, order: tuple[bool, ...]) -> float:
        """After ``poisoned`` rounds of the steps in ``order``; True inserts a record."""
        rounds = min(poisoned, _MOST_STEPS)
        for _ in range(rounds):
            for insert in order:
                success = self._step(success, insert)
            if success >= 1:
                return 1.0
        if poisoned > rounds:
            how = "changed" if len(order) == 2 or self.adjacency is Adjacency.REPLACE_ONE else "inserted"
            return self.success_by_points(success, poisoned - rounds, how)
        return success

    def _step(self, success: float, insert: bool) -> float:
        """One minus the trade-off curve at ``success``, from above."""
        if not self.epsilons.size:
            return 1.0
        likelier, rarer = (self.by_presence, self.by_absence) if insert else (self.by_absence, self.by_presence)
        kept = np.exp(-self.epsilons)
        by_gain = success * np.exp(self.epsilons) + likelier
        by_cost = -np.expm1(-self.epsilons) + kept * (success + rarer)
        return min(1.0, float(min(by_gain.min(), by_cost.min())) * _ROUNDING)


# Hundreds of divergences a curve, which depend on the question alone.
@lru_cache(maxsize=32)
def _divergences(event: Event, adjacency: Adjacency, points: int) -> tuple[NDArray[np.float64], ...]:
    """Epsilons, and bounds on the divergences there by a record's presence and by its absence; read-only."""
    loss = PldAccountant().loss(event, adjacency)
    top = min(_MOST_EPSILON, max(loss.epsilon(_LEAST_DELTA), 1e-9))
    # Closer together where epsilon is small: large probabilities have their best epsilon there.
    epsilons = top * np.linspace(0.0, 1.0, points) ** 2
    # "Remove" compares the output with a record to that without it.
    deltas = np.array([[side.delta(float(one)) for one in epsilons] for side in loss.directions])
    deltas = np.minimum.accumulate(np.minimum(deltas, 1.0), axis=1)
    if adjacency is Adjacency.REPLACE_ONE:
        deltas = deltas.max(axis=0, keepdims=True)
    by_presence, by_absence = deltas[0], deltas[-1]
    pure = _pure(event, adjacency)
    if pure < _MOST_EPSILON:
        epsilons = np.append(epsilons, pure)
        by_presence, by_absence = np.append(by_presence, 0.0), np.append(by_absence, 0.0)
    for kept in (epsilons, by_presence, by_absence):
        kept.setflags(write=False)
    return epsilons, by_presence, by_absence


def _pure(event: Event, adjacency: Adjacency) -> float:
    try:
        return PureAccountant().epsilon(event, 0.0, adjacency)
    except UnsupportedEvent:
        return math.inf


@dataclass(frozen=True)
class CertifiedLine:
    """The largest success rate of any attack by ``poisoned`` records against anything made under one guarantee.

    The probability is over the mechanism's randomness, for a clean dataset, a target and a meaning of success that were
    fixed before it ran. The attacker may know all of them and the mechanism. If targets or datasets are drawn, the
    bound holds for the average success, since it is concave. A measured ``base`` is an upper confidence limit. It is
    wrong with chance 1 - ``confidence`` at most, over the runs that measured it (Clopper and Pearson 1934).
    """

    poisoned: int
    poisoning: str
    adjacency: Adjacency
    base: float
    success: float
    confidence: float | None = None

    @classmethod
    def of(
        cls,
        curve: NeighbourCurve,
        base: float,
        poisoned: int,
        *,
        poisoning: str = "changed",
        confidence: float | None = None,
    ) -> Self:
        """Return the line of a guarantee; ``base`` is known, or an upper limit at ``confidence``."""
        if confidence is not None:
            check_number("confidence", confidence, low=0, high=1, low_open=True, high_open=True)
        success = curve.success(base, poisoned, poisoning)
        return cls(poisoned, poisoning, curve.adjacency, base, success, confidence)

    def to_dict(self) -> dict[str, Any]:
        return {
            "success_bound": self.success,
            "adjacency": self.adjacency.value,
            "poisoning": self.poisoning,
            "poisoned": self.poisoned,
            "clean_success": self.base,
            "confidence": self.confidence,
            "words": str(self),
        }

    def __str__(self) -> str:
        known = "" if self.confidence is None else f", measured at {exact(100 * self.confidence)}% confidence"
        base = exact(self.base) if self.confidence is None else f"at most {rounded_up(self.base, 4)}"
        return (
            f"with {self.poisoned} record{'s' * (self.poisoned != 1)} {self.poisoning} the attack succeeds with "
            f"probability at most {rounded_up(self.success, 4)} ({base} without{known}), whatever is done with the "
            "result"
        )
