"""What a plan costs: one PLD of all its queries, unless one query's answer set the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from privmix.accounting import Adjacency, Event, Gaussian, PrivacyCost, epsilon, epsilon_delta_curve
from privmix.designs import Plan
from privmix.errors import InvalidInput
from privmix.release.count import COUNT_SHARE


def plan_cost(plan: Plan, delta: float) -> PrivacyCost:
    """Price a plan.

    Queries whose settings are fixed beforehand are composed by their privacy loss distributions (PLD). A private
    record count is different: rates, rows and even the design of what follows are made from its answer, and losses of
    queries chosen by the answers of others may not simply be convolved. The count's (epsilon, delta) and that of all
    the rest are added instead, which holds however the rest is chosen as long as its own price is kept.

    The price of the plan that the real answer led to may be lower than the budget; what is guaranteed is the budget,
    since every other answer would have led to a plan of its own within it.

    Args:
        plan: what runs.
        delta: > 0, or 0 for Laplace noise.

    Example:
        >>> from privmix.release.config import ReleaseConfig
        >>> plan = ReleaseConfig(records=5000, dim=8, classes=("no", "yes")).calibrate(1.0, 1e-5)
        >>> 0.99 < plan_cost(plan, 1e-5).epsilon <= 1.0
        True
    """
    accountant = "pure" if delta == 0 else "pld"
    if plan.records_noise_multiplier is None:
        return epsilon(plan.event, delta, accountant=accountant, adjacency=plan.adjacency)
    count = epsilon(Gaussian(plan.records_noise_multiplier), COUNT_SHARE * delta, adjacency=plan.adjacency)
    rest = epsilon(plan.event_after_count, (1 - COUNT_SHARE) * delta, adjacency=plan.adjacency)
    return replace(rest, epsilon=count.epsilon + rest.epsilon, delta=delta)


def budget_after_count(noise_multiplier: float, epsilon_asked: float, delta: float) -> tuple[float, float]:
    """What is left of a budget for all that is planned with a private count: (epsilon, delta), whatever its answer.

    Raises:
        InvalidInput: nothing is left.
    """
    count = epsilon(Gaussian(noise_multiplier), COUNT_SHARE * delta).epsilon
    if count >= epsilon_asked:
        raise InvalidInput("epsilon", epsilon_asked, f"more than {count:.3g}, which the private count already costs")
    return epsilon_asked - count, (1 - COUNT_SHARE) * delta


def plan_curve(plan: Plan, epsilons: Sequence[float], guarantee: tuple[float, float]) -> list[float]:
    """Delta at each of ``epsilons``, for a plan whose (epsilon, delta) is ``guarantee``.

    With a private count the guarantee is all there is: other answers of the count would have made other plans, which
    share no more than their budget.
    """
    at, delta = guarantee
    if plan.records_noise_multiplier is not None:
        return [delta if value >= at else 1.0 for value in epsilons]
    return list(_deltas(plan.event, tuple(epsilons), "pure" if delta == 0 else "pld", plan.adjacency))


@lru_cache(maxsize=16)
def _deltas(event: Event, epsilons: tuple[float, ...], accountant: str, adjacency: Adjacency) -> tuple[float, ...]:
    # Many releases of one plan, as an attack's reference models need them, have one curve.
    found = epsilon_delta_curve(event, epsilons, accountant=accountant, adjacency=adjacency)
    return tuple(float(value) for value in found)
