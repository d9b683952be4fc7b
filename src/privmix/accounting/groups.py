"""What a price for one record means for whoever has several: group privacy."""

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
    """An event that costs at least what ``event`` costs somebody with ``records`` records; None where none is known.

    Their records together move a query by ``records`` times as much as one does at most, so its noise counts for so
    much less. Of a sample that each joins with probability p, one of them at least is in with probability
    1 - (1 - p)^k; however many are, a query that is moved by k can be turned into one that is moved by fewer, without
    the data. A cluster of theirs is selected with probability 1 - (1 - p1)^k at most, wherever they lie; which clusters
    are selected does not depend on records.

    Each of their records may have rows of its own, as those of several classes do: the argument is in
    docs/accounting-designs.md, "Several records at the price of one".

    Args:
        event: as one record sees it; of records that are added or removed.
        records: k.

    Example:
        >>> found = group_event(Repeated(PoissonSampled(0.5, Gaussian(6.0)), 10), 3)
        >>> found.count, round(found.event.sampling_rate, 6), found.event.event
        (10, 0.875, Gaussian(noise_multiplier=2.0))
    """
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
    event: Event,
    delta: float,
    records: int,
    *,
    accountant: str = "pld",
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
) -> PrivacyCost:
    """An upper bound on what ``event`` costs somebody with ``records`` records, at ``delta``.

    The price of :func:`group_event`, where that knows an event; or, where that is less or none is known, what follows
    from the price of one record alone (Dwork and Roth 2014, Theorem 2.2 and after): epsilon(d) at d makes k epsilon(d)
    at d (e^(k epsilon(d)) - 1) / (e^epsilon(d) - 1); at a delta of 0, k epsilon.

    Args:
        event: as one record sees it.
        delta: in [0, 1).
        records: k.
        accountant: whose prices they are; one that gives upper bounds.
        adjacency: of the event.

    Raises:
        InvalidInput: the accountant gives no upper bounds.
        UnsupportedEvent: it has no price for the event.

    Example:
        >>> one = group_epsilon(Gaussian(10.0), 1e-5, 1).epsilon
        >>> [round(group_epsilon(Gaussian(10.0), 1e-5, k).epsilon / one, 1) for k in (2, 5, 20)]
        [2.1, 5.9, 29.3]
    """
    one = epsilon(event, delta, accountant=accountant, adjacency=adjacency)
    if not one.is_upper_bound:
        raise InvalidInput("accountant", accountant, "one that gives an upper bound: several records are bounded by it")
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
