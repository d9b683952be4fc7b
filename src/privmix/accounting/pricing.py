"""What releases and trainings cost: one PLD of all their queries, unless a private record count set the others."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Final

from privmix import accounting
from privmix.accounting.events import Adjacency, Event, Gaussian
from privmix.errors import InvalidInput

COUNT_SHARE: Final = 0.1
"""Share of epsilon and of delta that a private record count gets."""


@lru_cache(maxsize=32)
def price(event: Event, delta: float, adjacency: Adjacency) -> accounting.PrivacyCost:
    """Epsilon of ``event`` by PLD, or as pure DP where ``delta`` is 0.

    Kept for a while: a plan is priced before it is charged, when its run begins and for its certificate.
    """
    return accounting.epsilon(event, delta, accountant=_accountant(delta), adjacency=adjacency)


@lru_cache(maxsize=16)
def deltas(event: Event, epsilons: tuple[float, ...], delta: float, adjacency: Adjacency) -> tuple[float, ...]:
    """Delta at each of ``epsilons``, by the accountant that :func:`price` takes at ``delta``.

    Kept for a while: many releases of one plan, as an attack's reference models need them, have one curve.
    """
    found = accounting.epsilon_delta_curve(event, epsilons, accountant=_accountant(delta), adjacency=adjacency)
    return tuple(float(value) for value in found)


def price_after_count(count_noise: float, rest: Event, delta: float, adjacency: Adjacency) -> accounting.PrivacyCost:
    """Price a private record count and all that was planned with its answer.

    Queries whose settings are fixed beforehand are composed by their privacy loss distributions (PLD). A private
    record count is different: rates, rows and even the design of what follows are made from its answer, and losses of
    queries chosen by the answers of others may not simply be convolved. The count's (epsilon, delta) and that of all
    the rest are added instead, which holds however the rest is chosen as long as its own price is kept.

    The price of the plan that the real answer led to may be lower than the budget; what is guaranteed is the budget,
    since every other answer would have led to a plan of its own within it.
    """
    count = price(Gaussian(count_noise), COUNT_SHARE * delta, adjacency)
    after = price(rest, (1 - COUNT_SHARE) * delta, adjacency)
    return replace(after, epsilon=count.epsilon + after.epsilon, delta=delta)


def budget_after_count(noise_multiplier: float, epsilon_asked: float, delta: float) -> tuple[float, float]:
    """What is left of a budget for all that is planned with a private count: (epsilon, delta), whatever its answer.

    Raises:
        InvalidInput: nothing is left.
    """
    count = accounting.epsilon(Gaussian(noise_multiplier), COUNT_SHARE * delta).epsilon
    if count >= epsilon_asked:
        raise InvalidInput("epsilon", epsilon_asked, f"more than {count:.3g}, which the private count already costs")
    return epsilon_asked - count, (1 - COUNT_SHARE) * delta


def _accountant(delta: float) -> str:
    return "pure" if delta == 0 else "pld"


def count_noise(epsilon: float, delta: float) -> float:
    """Noise multiplier of the record count: what its share of the budget asks for; some fifty records at epsilon 1.

    Example:
        >>> 30 < count_noise(1.0, 1e-5) < 80
        True
    """
    return accounting.calibrate(Gaussian, COUNT_SHARE * epsilon, COUNT_SHARE * delta).noise_multiplier


def small_query_noise(epsilon: float) -> float:
    """Noise multiplier of the mean query: 20 at epsilon 1, a few percent of the budget always.

    Below 4 nothing is left to gain.

    Example:
        >>> small_query_noise(1.0), small_query_noise(100.0)
        (20.0, 4.0)
    """
    return float(min(2000.0, max(4.0, 20.0 / epsilon)) if math.isfinite(epsilon) else 4.0)
