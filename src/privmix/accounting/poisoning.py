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
    steps = _steps(epsilon, delta, poisoned, adjacency, poisoning)
    check_number("clean_cost", clean_cost, low=0, high=check_number("most_cost", most_cost, low=0))
    slack = most_cost * delta * math.expm1(-steps * epsilon) / _expm1(epsilon)
    return max(0.0, math.exp(-steps * epsilon) * clean_cost + slack)


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
    steps = _steps(epsilon, delta, poisoned, adjacency, poisoning)
    check_number("clean_gain", clean_gain, low=0, high=check_number("most_gain", most_gain, low=0))
    growth = _expm1(steps * epsilon)
    if math.isinf(growth):
        # Nothing that was possible at all stays unlikely after so many steps.
        return float(most_gain if steps and (clean_gain or delta) else clean_gain)
    return min(float(most_gain), clean_gain + growth * (clean_gain + most_gain * delta / _expm1(epsilon)))


def poisoning_success_bound(
    epsilon: float,
    delta: float,
    poisoned: int,
    clean_success: float,
    *,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    poisoning: str = "changed",
) -> float:
    """Upper bound on the probability that an attack by poisoning succeeds: the better of the two bounds.

    Args:
        epsilon, delta, poisoned, adjacency, poisoning: as for :func:`poisoning_cost_bound`.
        clean_success: probability, in [0, 1], that what the attacker wants happens without poisoning.

    Example:
        >>> round(poisoning_success_bound(1.0, 1e-5, 1, clean_success=0.01), 4)
        0.0739
    """
    check_number("clean_success", clean_success, low=0, high=1)
    gain = poisoning_gain_bound(epsilon, delta, poisoned, clean_success, 1.0, adjacency=adjacency, poisoning=poisoning)
    cost = poisoning_cost_bound(
        epsilon, delta, poisoned, 1.0 - clean_success, 1.0, adjacency=adjacency, poisoning=poisoning
    )
    return min(gain, 1.0 - cost)


def _steps(epsilon: float, delta: float, poisoned: int, adjacency: Adjacency, poisoning: str) -> int:
    """Check the arguments; return how many neighbours away the poisoned dataset is from the clean one."""
    check_number("epsilon", epsilon, low=0, low_open=True)
    check_number("delta", delta, low=0, high=1)
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


def _expm1(exponent: float) -> float:
    return math.expm1(exponent) if exponent < 700 else math.inf
