"""Bounds on poisoned records from a privacy guarantee: Ma, Zhu and Hsu 2019, for both neighbouring relations.

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
from typing import Final

from privmix.accounting.events import Adjacency
from privmix.errors import InvalidInput, check_choice, check_integer, check_number

POISONINGS: Final = ("changed", "inserted", "deleted")


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
    # With k steps (see the module) the cost J stays at least e^(-k epsilon) J + most_cost delta (e^(-k epsilon) - 1) /
    # (e^epsilon - 1).
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
