"""What poisoned records may do, from the whole trade-off curve of what ran: group privacy of f-DP.

Let f be the least type II error of any test between two neighbouring datasets, at each type I error. What happens with
probability p on one of them happens with at most 1 - f(p) on the other, so after k steps with at most 1 - f applied k
times to p (Dong, Roth, Su 2021, Section 2.5: an f-DP mechanism is [1 - (1 - f)^(o k)]-DP for groups of k; for mu-GDP
that is exactly k mu-GDP).

Under add/remove a step that inserts a record and one that deletes a record have curves of their own, each the other's
inverse: rows that a record seldom joins can become much likelier by its presence, but hardly by its absence. A changed
record is one step of each. A guarantee holds for every dataset, so each order of them is a path of neighbours with a
bound of its own, and the least of these bounds holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from privmix.accounting.base import UnsupportedEvent
from privmix.accounting.events import Adjacency, Event
from privmix.accounting.pld import PldAccountant
from privmix.accounting.poisoning.bounds import check_steps, poisoning_success_bound
from privmix.accounting.pure import PureAccountant
from privmix.errors import check_integer, check_number

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
    """What one step to a neighbouring dataset may do to the probability of anything that a mechanism's output decides.

    Formal guarantees:
        * each bound is one minus group privacy's trade-off curve at the probability, from above: no attacker who
          controls so many records makes anything likelier, whatever they know of the mechanism and of the data, as
          long as the records don't depend on its randomness;
        * every point of the curve gives a valid bound, so a finite number of them does;
        * bounds are concave in the probability without poisoning. They hold for averages over targets and datasets,
          too, of the average probability (Jensen).

    Attributes:
        adjacency: the relation of neighbours.
        epsilons: points >= 0, shape (J,); without any nothing is promised.
        by_presence: shape (J,): at these epsilons an upper bound on the hockey-stick divergence of the output with a
            record from that without it.
        by_absence: the other way round, shape (J,). Under replace-one both are the same.

    Example:
        >>> from privmix.accounting.events import Gaussian
        >>> curve = NeighbourCurve.of_event(Gaussian(4.0), Adjacency.ADD_REMOVE)
        >>> round(curve.success(0.01, poisoned=4, poisoning="inserted"), 4)  # 1-GDP exactly: 0.0924
        0.0924
    """

    adjacency: Adjacency
    epsilons: NDArray[np.float64]
    by_presence: NDArray[np.float64]
    by_absence: NDArray[np.float64]

    @classmethod
    def of_event(cls, event: Event, adjacency: Adjacency, *, points: int = _POINTS) -> Self:
        """The curve of all that ran, by its privacy loss distribution.

        Args:
            event: what ran.
            adjacency: the relation of neighbours.
            points: of the curve; more are tighter.

        Raises:
            UnsupportedEvent: there is no price for this event under this adjacency.
        """
        check_integer("points", points, low=2)
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
        return cls(adjacency, epsilons, by_presence, by_absence)

    @classmethod
    def of_point(cls, epsilon: float, delta: float, adjacency: Adjacency) -> Self:
        """All that an (epsilon, delta) guarantee says; an infinite epsilon says nothing."""
        check_number("delta", delta, low=0, high=1)
        if epsilon == math.inf:
            return cls(adjacency, *(np.empty(0) for _ in range(3)))
        check_number("epsilon", epsilon, low=0)
        return cls(adjacency, np.array([float(epsilon)]), np.array([float(delta)]), np.array([float(delta)]))

    def success(self, clean_success: float, poisoned: int, poisoning: str = "changed") -> float:
        """Upper bound on the probability that an attack by ``poisoned`` records succeeds.

        Args:
            clean_success: probability, in [0, 1], that what the attacker wants happens without poisoning.
            poisoned: number of records that the attacker controls.
            poisoning: what happens to the records: ``"changed"``, ``"inserted"`` or ``"deleted"``.

        Raises:
            InvalidInput: a number out of range, or records inserted or deleted under replace-one.
        """
        check_number("clean_success", clean_success, low=0, high=1)
        check_steps(poisoned, self.adjacency, poisoning)
        orders: list[tuple[bool, ...]] = [(True,)] if poisoning == "inserted" else [(False,)]
        if poisoning == "changed" and self.adjacency is Adjacency.ADD_REMOVE:
            orders = [(True, False), (False, True)]
        return min(self._along(clean_success, poisoned, order) for order in orders)

    def success_by_points(self, clean_success: float, poisoned: int, poisoning: str = "changed") -> float:
        """The same from single points: the least of what each (epsilon, delta) of the curve gives by itself.

        It is never less than :meth:`success`, which may take another point at every step.
        """
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


def _pure(event: Event, adjacency: Adjacency) -> float:
    try:
        return PureAccountant().epsilon(event, 0.0, adjacency)
    except UnsupportedEvent:
        return math.inf
