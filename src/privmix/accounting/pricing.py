"""Costs of releases and trainings: one PLD of all queries, unless a private count set the others; costs of groups."""

import math
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Final

from privmix import accounting
from privmix.accounting.api import epsilon
from privmix.accounting.base import PrivacyCost, UnsupportedEvent
from privmix.accounting.events import (
    Adjacency,
    ClusterSampled,
    Composed,
    Event,
    Gaussian,
    Laplace,
    PoissonSampled,
    Repeated,
)
from privmix.errors import InvalidInput, check_integer

COUNT_SHARE: Final = 0.1
"""Share of epsilon and of delta that a private record count gets."""
# Halvings of the range in which the delta of one record is looked for, and the least such delta.
_HALVINGS: Final = 12
_LEAST: Final = 1e-14


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


def group_event(event: Event, records: int) -> Event | None:
    """Return an event that costs at least what ``event`` costs ``records`` records together; None if none is known."""
    # k records move a query by k times as much as one, so its noise counts for 1/k. Sampling: one of them at least is
    # in with probability 1 - (1 - p)^k; likewise a cluster of theirs. A query moved by k can be turned into one moved
    # by fewer, without the data. Rows of several classes: see docs/accounting-designs.md.
    k = check_integer("records_per_person", records, low=1)
    match event:
        case Gaussian() | Laplace():
            return type(event)(event.noise_multiplier / k)
        case PoissonSampled():
            inner = group_event(event.event, k)
            return None if inner is None else PoissonSampled(_any(event.sampling_rate, k), inner)
        case ClusterSampled():
            inner = group_event(event.event, k)
            if inner is None:
                return None
            return ClusterSampled(_any(event.cluster_rate, k), _any(event.sampling_rate, k), inner)
        case Repeated():
            inner = group_event(event.event, k)
            return None if inner is None else Repeated(inner, event.count)
        case Composed():
            parts = [group_event(part, k) for part in event.events]
            known = tuple(part for part in parts if part is not None)
            return Composed(known) if len(known) == len(parts) else None
    return None


def group_epsilon(
    event: Event, delta: float, records: int, *, accountant: str = "pld", adjacency: Adjacency = Adjacency.ADD_REMOVE
) -> PrivacyCost:
    """Return an upper bound on what ``event`` costs a person with ``records`` records, at ``delta``."""
    # The lesser of two prices: group_event's, and one by Theorem 2.2 and after of Dwork, Roth 2014. One record's
    # epsilon(d) at d makes k epsilon(d) at d (e^(k epsilon(d)) - 1) / (e^epsilon(d) - 1); at delta 0, k epsilon.
    one = epsilon(event, delta, accountant=accountant, adjacency=adjacency)
    if not one.is_upper_bound:
        raise InvalidInput(
            "accountant", accountant, "an accountant with upper bounds, which bounds of several records need"
        )
    if check_integer("records_per_person", records, low=1) == 1:
        return one
    if delta == 0:
        return replace(one, epsilon=records * one.epsilon)
    together = group_event(event, records) if adjacency is Adjacency.ADD_REMOVE else None
    low, high, found = math.log(_LEAST), math.log(delta), math.inf
    if together is not None:
        with suppress(UnsupportedEvent):
            found = epsilon(together, delta, accountant=accountant, adjacency=adjacency).epsilon
        if isinstance(event, Gaussian | Laplace):
            # One query: nothing is nearer.
            return replace(one, epsilon=found)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        price = epsilon(event, math.exp(middle), accountant=accountant, adjacency=adjacency).epsilon
        if middle + _log_sum(price, records) <= math.log(delta):
            found, low = min(found, records * price), middle
        else:
            high = middle
    return replace(one, epsilon=found)


def _any(rate: float, k: int) -> float:
    """Probability that one of ``k`` at least is in, rounded up."""
    return min(1.0, -math.expm1(k * math.log1p(-rate)) * (1 + 1e-12)) if rate < 1 else 1.0


def _log_sum(price: float, k: int) -> float:
    """log(1 + e^price + ... + e^((k - 1) price))."""
    if not math.isfinite(price):
        return math.inf
    if price == 0:
        return math.log(k)
    return (k - 1) * price + math.log(-math.expm1(-k * price)) - math.log(-math.expm1(-price))
