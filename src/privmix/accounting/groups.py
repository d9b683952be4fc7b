"""Group privacy: the price of several records from that of one."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from typing import Final

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

# Halvings of the range in which the delta of one record is looked for, and the least such delta.
_HALVINGS: Final = 12
_LEAST: Final = 1e-14


def group_event(event: Event, records: int) -> Event | None:
    """Return an event that costs at least what ``event`` costs ``records`` records together; None if none is known."""
    # k records move a query by k times as much as one, so its noise counts for 1/k. Sampling: one of them at least is
    # in with probability 1 - (1 - p)^k; likewise a cluster of theirs. A query moved by k can be turned into one moved
    # by fewer, without the data. Rows of several classes: docs/accounting-designs.md, "Several records at the price of
    # one".
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
