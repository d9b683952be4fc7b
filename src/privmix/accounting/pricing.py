"""Costs of releases and trainings: one PLD of all their queries, unless a private record count set the others."""

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
    """Epsilon of ``event`` by PLD, or as pure DP where ``delta`` is 0."""
    # Cached: a plan is priced before it is charged, when its run begins and for its certificate.
    return accounting.epsilon(event, delta, accountant=_accountant(delta), adjacency=adjacency)


@lru_cache(maxsize=16)
def deltas(event: Event, epsilons: tuple[float, ...], delta: float, adjacency: Adjacency) -> tuple[float, ...]:
    """Delta at each of ``epsilons``, by the accountant that :func:`price` takes at ``delta``."""
    # Cached: many releases of one plan, as an attack's reference models need them, have one curve.
    found = accounting.epsilon_delta_curve(event, epsilons, accountant=_accountant(delta), adjacency=adjacency)
    return tuple(float(value) for value in found)


def price_after_count(count_noise: float, rest: Event, delta: float, adjacency: Adjacency) -> accounting.PrivacyCost:
    """Price a private record count and everything that was planned with its answer."""
    # Losses of queries chosen by the answers of others may not be convolved. The (epsilon, delta) of the count and of
    # the rest are added, which holds however the rest is chosen as long as it keeps its own price. The real answer's
    # plan may cost less; the budget is what is guaranteed, since every other answer has its own plan within it.
    count = price(Gaussian(count_noise), COUNT_SHARE * delta, adjacency)
    after = price(rest, (1 - COUNT_SHARE) * delta, adjacency)
    return replace(after, epsilon=count.epsilon + after.epsilon, delta=delta)


def budget_after_count(noise_multiplier: float, epsilon_asked: float, delta: float) -> tuple[float, float]:
    """Return what a private count leaves of a budget: (epsilon, delta), for any answer of the count."""
    count = accounting.epsilon(Gaussian(noise_multiplier), COUNT_SHARE * delta).epsilon
    if count >= epsilon_asked:
        raise InvalidInput("epsilon", epsilon_asked, f"more than {count:.3g}, which the private count already costs")
    return epsilon_asked - count, (1 - COUNT_SHARE) * delta


def _accountant(delta: float) -> str:
    return "pure" if delta == 0 else "pld"


def count_noise(epsilon: float, delta: float) -> float:
    """Return the noise multiplier of the record count from its share of the budget; about 50 at epsilon 1."""
    return accounting.calibrate(Gaussian, COUNT_SHARE * epsilon, COUNT_SHARE * delta).noise_multiplier


def small_query_noise(epsilon: float) -> float:
    """Return the noise multiplier of the mean query: 20 at epsilon 1, at least 4; a few percent of the budget."""
    return float(min(2000.0, max(4.0, 20.0 / epsilon)) if math.isfinite(epsilon) else 4.0)
