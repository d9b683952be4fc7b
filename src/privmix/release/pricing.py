"""What a plan costs: one PLD of all its queries, unless one query's answer set the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from privmix.accounting import Gaussian, PrivacyCost, epsilon, epsilon_delta_curve
from privmix.accounting import delta as delta_of
from privmix.release.count import COUNT_SHARE
from privmix.release.plan import Plan


def plan_cost(plan: Plan, delta: float) -> PrivacyCost:
    """Price a plan.

    Queries whose settings are fixed beforehand are composed by their privacy loss distributions (PLD). A private
    record count is different: rates, rows and even the design of what follows are made from its answer, and losses of
    queries chosen by the answers of others may not simply be convolved. The count's (epsilon, delta) and that of all
    the rest are added instead, which holds however the rest is chosen as long as its own price is kept.

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


def plan_curve(plan: Plan, epsilons: Sequence[float], delta: float) -> list[float]:
    """Delta at each of ``epsilons``; ``delta`` is that of the guarantee, which splits a private count's part off."""
    accountant = "pure" if delta == 0 else "pld"
    if plan.records_noise_multiplier is None:
        found = epsilon_delta_curve(plan.event, epsilons, accountant=accountant, adjacency=plan.adjacency)
        return [float(value) for value in found]
    share = COUNT_SHARE * delta
    count = epsilon(Gaussian(plan.records_noise_multiplier), share, adjacency=plan.adjacency).epsilon
    return [
        1.0
        if at <= count
        else min(1.0, share + float(delta_of(plan.event_after_count, at - count, adjacency=plan.adjacency).delta))
        for at in epsilons
    ]
