"""The record count, when it is private: estimated once by a noisy query, on the low side."""

from __future__ import annotations

import math
from typing import Final

from privmix.accounting import Gaussian, calibrate
from privmix.errors import check_integer, check_number
from privmix.mechanisms.noise import gaussian_on_lattice
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.pricing import COUNT_SHARE

_MARGIN: Final = 4.0


def count_noise(epsilon: float, delta: float) -> float:
    """Noise multiplier of the record count: what its share of the budget asks for; some fifty records at epsilon 1.

    Example:
        >>> 30 < count_noise(1.0, 1e-5) < 80
        True
    """
    return calibrate(Gaussian, COUNT_SHARE * epsilon, COUNT_SHARE * delta).noise_multiplier


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
