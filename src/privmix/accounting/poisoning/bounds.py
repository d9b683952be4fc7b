"""What a privacy guarantee says about poisoned records: Ma, Zhu and Hsu 2019, stated for both relations of neighbours.

Group privacy carries a guarantee from one record to several: after k steps from one neighbouring dataset to the next,
no event is more than e^(k epsilon) times as likely, plus delta (e^(k epsilon) - 1) / (e^epsilon - 1). How many steps l
poisoned records are depends on the guarantee's relation and on what the attacker does:

=============  =================  ====================
adjacency      records changed    inserted or deleted
=============  =================  ====================
add/remove     2 l                l
replace-one    l                  no statement
=============  =================  ====================

DP-InstaHide (Borgnia et al.) prints the bounds as its Theorem 1 with l steps in every case, and its Equation 4 with the
signs of a cost that can't be negative: at delta 0 it says that a cost of -1 stays above -e^(-l epsilon) without any
poisoning. :func:`poisoning_gain_bound` is the form that follows from group privacy.
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
    """Lower bound on an attacker's expected cost after poisoning (Ma, Zhu, Hsu 2019, Theorem 3).

    The cost J is what the attacker wants to be small, as 1 - [the target is misclassified]. With k steps (see the
    module) it stays at least e^(-k epsilon) J + most_cost delta (e^(-k epsilon) - 1) / (e^epsilon - 1).

    Args:
        epsilon, delta: the guarantee of the release or the model.
        poisoned: number l of records the attacker controls.
        clean_cost: the attacker's expected cost without poisoning, in [0, ``most_cost``].
        most_cost: the largest possible cost.
        adjacency: the relation the guarantee is stated for.
        poisoning: what happens to the records: ``"changed"``, ``"inserted"`` or ``"deleted"``.

    Returns:
        Expected cost that no such attacker gets below, >= 0.

    Raises:
        InvalidInput: a number out of range, or records inserted or deleted under replace-one, which says nothing
            about datasets of another size.

    Formal guarantees:
        * no mechanism with the guarantee has a smaller expected cost, and some have no larger one.

    Example:
        >>> round(poisoning_cost_bound(0.1, 0.0, 5, clean_cost=1.0, most_cost=1.0, poisoning="inserted"), 4)
        0.6065
        >>> round(poisoning_cost_bound(0.1, 0.0, 5, clean_cost=1.0, most_cost=1.0), 4)
        0.3679
    """
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
    """Upper bound on an attacker's expected gain after poisoning: the bound for costs that are never positive.

    The gain G = -J is what the attacker wants to be large. With k steps (see the module) it stays at most
    e^(k epsilon) G + most_gain delta (e^(k epsilon) - 1) / (e^epsilon - 1), and at most ``most_gain``: DP-InstaHide's
    Equation 4 with the factor that group privacy gives.

    Args:
        epsilon, delta, poisoned, adjacency, poisoning: as for :func:`poisoning_cost_bound`.
        clean_gain: the attacker's expected gain without poisoning, in [0, ``most_gain``].
        most_gain: the largest possible gain.

    Returns:
        Expected gain that no such attacker gets above, <= ``most_gain``.

    Raises:
        InvalidInput: as for :func:`poisoning_cost_bound`.

    Formal guarantees:
        * no mechanism with the guarantee has a larger expected gain, and some have no smaller one.

    Example:
        >>> round(poisoning_gain_bound(0.1, 0.0, 5, clean_gain=0.1, most_gain=1.0, poisoning="inserted"), 4)
        0.1649
    """
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

    In one step a probability p becomes at most min(e^epsilon p + delta, 1 - e^-epsilon (1 - delta - p)), one minus the
    trade-off curve of (epsilon, delta) (Kairouz, Oh, Viswanath 2015; Wasserman, Zhou 2010). The first is less while p
    is small, so k steps are some by the gain's bound and the rest by the cost's: never more than either alone.

    Args:
        epsilon, delta, poisoned, adjacency, poisoning: as for :func:`poisoning_cost_bound`.
        clean_success: probability, in [0, 1], that what the attacker wants happens without poisoning.

    Formal guarantees:
        * no mechanism with the guarantee has a larger probability; one that is as bad as its guarantee has this one.

    Example:
        >>> round(poisoning_success_bound(1.0, 1e-5, 1, clean_success=0.01), 4)
        0.0739
    """
    steps = check_steps(poisoned, adjacency, poisoning)
    _check_guarantee(epsilon, delta)
    check_number("clean_success", clean_success, low=0, high=1)

    def after(rising: int) -> float:
        """So many steps by the gain's bound, the rest by the cost's: each number of them gives a valid bound."""
        risen = _gain(epsilon, delta, rising, clean_success, 1.0)
        # One minus the cost's bound on 1 - risen, without the loss of digits.
        lost = -math.expm1(-(steps - rising) * epsilon)
        return min(1.0, lost * (1 + delta / _expm1(epsilon)) + (1 - lost) * risen)

    turn = _turn(epsilon, delta, clean_success)
    return min(after(min(max(near, 0), steps)) for near in (turn - 1, turn, turn + 1))


def check_steps(poisoned: int, adjacency: Adjacency, poisoning: str) -> int:
    """How many neighbours away the poisoned dataset is from the clean one.

    Raises:
        InvalidInput: a number out of range, or records inserted or deleted under replace-one.
    """
    check_integer("poisoned", poisoned, low=0)
    check_choice("poisoning", poisoning, POISONINGS)
    match adjacency:
        case Adjacency.ADD_REMOVE:
            return 2 * poisoned if poisoning == "changed" else poisoned
        case Adjacency.REPLACE_ONE if poisoning == "changed":
            return poisoned
        case Adjacency.REPLACE_ONE:
            raise InvalidInput(
                "poisoning", poisoning, "changed: a guarantee under replace_one says nothing of datasets of other sizes"
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
        # Nothing that was possible at all stays unlikely after so many steps.
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
