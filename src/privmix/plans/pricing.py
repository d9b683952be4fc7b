"""What releases cost: one PLD of all their queries, unless a private record count set the others."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Final

from privmix import accounting
from privmix.accounting.events import Adjacency, Event, Gaussian
from privmix.errors import InvalidInput, check_integer, check_number
from privmix.mechanisms.noise import gaussian_on_lattice
from privmix.mechanisms.streams import SecretStreams

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


_MARGIN: Final = 4.0


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


def private_record_count(count: int, noise_multiplier: float, streams: SecretStreams) -> int:
    """Estimate a private record count: the count plus Gaussian noise, less four standard deviations, at least 1.

    The estimate is at most the real count but for a chance of 3e-5, and then little more: a delta chosen below
    1/estimate is not thereby above 1/count. Rates made from it are public constants: they hold whatever the count.

    Formal guarantees:
        * one Gaussian query of sensitivity 1 (add or remove one record) at ``noise_multiplier``; what is made of the
          noisy count is post-processing, and what is planned with it is priced for that
          (:func:`privmix.plans.pricing.price_after_count`);
        * noise is an integer and the count is one: no rounding shows the count;
        * drawn from the secret stream "record count": the same key gives the same estimate again.

    Args:
        count: the real number of records. Secret.
        noise_multiplier: standard deviation of the noise, in records.
        streams: secret streams, used for this alone.

    Example:
        >>> 9_800 < private_record_count(10_000, 20.0, SecretStreams.from_seed(0)) <= 10_050
        True
    """
    check_integer("records", count, low=1)
    check_number("noise_multiplier", noise_multiplier, low=0, low_open=True)
    with streams.lent("record count") as generator:
        noise = int(gaussian_on_lattice(generator, 1, noise_multiplier)[0])
    return max(1, count + noise - math.ceil(_MARGIN * noise_multiplier))
