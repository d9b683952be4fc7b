"""Bounds on poisoned records from a guarantee: by one (epsilon, delta), and by the whole trade-off curve.

The bounds are by Ma, Zhu and Hsu 2019, for both neighbouring relations.

After k steps from one neighbouring dataset to the next, no event is more than e^(k epsilon) times as likely, plus
delta (e^(k epsilon) - 1) / (e^epsilon - 1). Steps of l poisoned records:

* add/remove: 2 l where records are changed, l where they are inserted or deleted;
* replace-one: l where records are changed, no statement where they are inserted or deleted.

DP-InstaHide (Borgnia et al.) prints l steps in every case (Theorem 1). Its Equation 4 has the signs of a cost that
cannot be negative: at delta 0 a cost of -1 stays above -e^(-l epsilon) without any poisoning.
:func:`poisoning_gain_bound` is the form that follows from group privacy.
"""

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
from privmix.accounting.pure import PureAccountant
from privmix.errors import InvalidInput, check_choice, check_integer, check_number
from privmix.rounding import exact, rounded_up

POISONINGS: Final = ("changed", "inserted", "deleted")
_POINTS: Final = 129
# The curve is followed up to the epsilon of this delta; what is beyond adds no more than it, a step.
_LEAST_DELTA: Final = 1e-12
_MOST_EPSILON: Final = 60.0
# More than the rounding of one step, relative.
_ROUNDING: Final = 1 + 1e-14
# Steps taken one by one; the rest are bounded together.
_MOST_STEPS: Final = 20_000


def poisoning_cost_bound(
    epsilon: float,
    delta: float,
    poisoned: int,
    clean_cost: float,
    most_cost: float,
    *,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    poisoning: str = "changed",
) -> float:
    """Lower bound on an attacker's expected cost after ``poisoned`` records (Ma, Zhu, Hsu 2019, Theorem 3).

    Formal guarantees:
        * no mechanism with the guarantee has a smaller expected cost, and some have no larger one.
    """
    # After k steps the cost J is at least e^(-k epsilon) J + most_cost delta (e^(-k epsilon) - 1) / (e^epsilon - 1).
    steps = check_steps(poisoned, adjacency, poisoning)
    _check_guarantee(epsilon, delta)
    check_number("clean_cost", clean_cost, low=0, high=check_number("most_cost", most_cost, low=0))
    return _cost(epsilon, delta, steps, clean_cost, most_cost)


def poisoning_gain_bound(
    epsilon: float,
    delta: float,
    poisoned: int,
    clean_gain: float,
    most_gain: float,
    *,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    poisoning: str = "changed",
) -> float:
    """Upper bound on an attacker's expected gain after ``poisoned`` records: the bound for costs <= 0.

    Formal guarantees:
        * no mechanism with the guarantee has a larger expected gain, and some have no smaller one.
    """
    # With k steps (see the module) the gain G = -J stays at most most_gain and e^(k epsilon) G + most_gain delta (e^(k
    # epsilon) - 1) / (e^epsilon - 1).
    steps = check_steps(poisoned, adjacency, poisoning)
    _check_guarantee(epsilon, delta)
    check_number("clean_gain", clean_gain, low=0, high=check_number("most_gain", most_gain, low=0))
    return _gain(epsilon, delta, steps, clean_gain, most_gain)


def poisoning_success_bound(
    epsilon: float,
    delta: float,
    poisoned: int,
    clean_success: float,
    *,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    poisoning: str = "changed",
) -> float:
    """Upper bound on the probability that an attack by poisoning succeeds: all that follows from one (epsilon, delta).

    Formal guarantees:
        * no mechanism with the guarantee has a larger probability; one that is as bad as its guarantee has this one.
    """
    # By the trade-off curve (Kairouz, Oh, Viswanath 2015; Wasserman, Zhou 2010) a step raises p to at most
    # min(e^epsilon p + delta, 1 - e^-epsilon (1 - delta - p)). The first is less while p is small, so some of the k
    # steps are by the gain's bound and the rest by the cost's.
    steps = check_steps(poisoned, adjacency, poisoning)
    _check_guarantee(epsilon, delta)
    check_number("clean_success", clean_success, low=0, high=1)

    def after(rising: int) -> float:
        """Take ``rising`` steps by the gain's bound, the rest by the cost's: every ``rising`` gives a valid bound."""
        risen = _gain(epsilon, delta, rising, clean_success, 1.0)
        # One minus the cost's bound on 1 - risen, without the loss of digits.
        lost = -math.expm1(-(steps - rising) * epsilon)
        return min(1.0, lost * (1 + delta / _expm1(epsilon)) + (1 - lost) * risen)

    turn = _turn(epsilon, delta, clean_success)
    return min(after(min(max(near, 0), steps)) for near in (turn - 1, turn, turn + 1))


def check_steps(poisoned: int, adjacency: Adjacency, poisoning: str) -> int:
    """Return how many neighbours away the poisoned dataset is from the clean one."""
    check_integer("poisoned", poisoned, low=0)
    check_choice("poisoning", poisoning, POISONINGS)
    match adjacency:
        case Adjacency.ADD_REMOVE:
            return 2 * poisoned if poisoning == "changed" else poisoned
        case Adjacency.REPLACE_ONE if poisoning == "changed":
            return poisoned
        case Adjacency.REPLACE_ONE:
            raise InvalidInput(
                "poisoning", poisoning, "changed: a guarantee under replace_one does not cover datasets of other sizes"
            )


def _check_guarantee(epsilon: float, delta: float) -> None:
    check_number("epsilon", epsilon, low=0, low_open=True)
    check_number("delta", delta, low=0, high=1)


def _cost(epsilon: float, delta: float, steps: int, clean: float, most: float) -> float:
    slack = most * delta * math.expm1(-steps * epsilon) / _expm1(epsilon)
    return max(0.0, math.exp(-steps * epsilon) * clean + slack)


def _gain(epsilon: float, delta: float, steps: int, clean: float, most: float) -> float:
    growth = _expm1(steps * epsilon)
    if math.isinf(growth):
        # After this many steps every possible outcome may be likely.
        return float(most if steps and (clean or delta) else clean)
    return min(float(most), clean + growth * (clean + most * delta / _expm1(epsilon)))


def _turn(epsilon: float, delta: float, clean: float) -> int:
    """About how many steps it takes until the bound of the cost is the better one."""
    crossing = (1 - delta) / (1 + math.exp(min(epsilon, 700.0)))
    slack = delta / _expm1(epsilon)
    if clean >= crossing or clean + slack <= 0:
        return 0 if clean >= crossing else 10**9
    return math.ceil(math.log((crossing + slack) / (clean + slack)) / epsilon)


def _expm1(exponent: float) -> float:
    return math.expm1(exponent) if exponent < 700 else math.inf


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
