"""The number of units, and how many records a person counts for, estimated from the private data and paid for.

With a quantile the answer includes K, the number of records that this share of the persons do not exceed. Both answers
together cost what the number alone does. Each of two queries gets noise that is sqrt(2) times as large, and the second
may depend on the answer of the first. Gaussian queries of any order compose to one, also where they are chosen by
earlier answers (Dong, Roth and Su 2021, Theorem 3.2 and Corollary 3.3).
"""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.errors import check_integer, check_number
from privmix.mechanisms.noise import gaussian_on_lattice
from privmix.mechanisms.streams import SecretStreams

# Round numbers, which a study's visits or a form's pages come in; few, since each has noise.
RECORD_COUNTS: Final = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 150, 200, 300, 500, 700, 1000)
"""Possible estimates of K. A person with more records than the last counts as one with exactly that number."""

# Standard deviations of the noise, which it exceeds with a chance of 3e-5.
_MARGIN: Final = 4.0
_LOW_SIDE: Final = 2.0
_NUMBER: Final = "record count"
_HISTOGRAM: Final = "records of persons"


@dataclass(frozen=True)
class CountQuery:
    """A query of :func:`private_count` without a plan or setting."""

    # records_noise_multiplier: in records or persons. per_person: K for persons, None for records. person_quantile:
    # share of persons that K is to cover, where it is to be estimated.

    records_noise_multiplier: float
    per_person: int | None = None
    person_quantile: float | None = None


@dataclass(frozen=True)
class PrivateCount:
    """Estimated number of records or persons, on the low side, and K (None for records); public at its price."""

    records: int
    per_person: int | None = None


def private_count(asked: Any, held: int | NDArray[np.int64], streams: SecretStreams) -> PrivateCount:
    """Estimate from private data what a plan leaves open: how many units there are and, with a quantile, K.

    Formal guarantees:
        * Price: one Gaussian query of sensitivity 1 at ``records_noise_multiplier`` where one unit is added or removed.
          With a quantile two of them at sqrt(2) times that, which compose to it. In the histogram of
          :func:`records_of_persons` a person is counted once. For every K, a person weighs at most 1 in
          :func:`weight_of_persons`.
        * Integers: sums and noise are whole numbers, so no rounding shows a sum.
        * The same key gives the same answer again.
    """
    noise = query_noise(asked)
    if isinstance(held, int):
        return PrivateCount(private_record_count(held, noise, streams))
    most = asked.per_person
    if asked.person_quantile is not None:
        most = quantile_of(records_of_persons(held, noise, streams), asked.person_quantile, noise)
    assert most is not None, "records of persons are held where persons are the units"
    return PrivateCount(private_record_count(weight_of_persons(held, most), noise, streams), most)


def query_noise(asked: Any) -> float:
    """Return the noise multiplier of each query: sqrt(2) times the plan's where there are two."""
    noise: float = asked.records_noise_multiplier
    return noise if getattr(asked, "person_quantile", None) is None else math.sqrt(2) * noise


def most_units(records: int, noise: float, most: int = 1) -> int:
    """Return an upper bound on the number of units, but for a chance of 3e-5: a delta should be far below 1 / it."""
    # records is the estimate, on the low side; noise that of its query; most: K where persons weigh at least 1/K.
    return most * (records + math.ceil(2 * _MARGIN * noise)) + most - 1


def private_record_count(count: int, noise_multiplier: float, streams: SecretStreams) -> int:
    """Estimate a private record count: the count plus Gaussian noise, less four standard deviations, at least 1.

    Formal guarantees:
        * one Gaussian query of sensitivity 1 (add or remove one record) at ``noise_multiplier``. Later uses of the
          noisy count are post-processing, and a plan made with it is priced for that
          (:func:`privmix.accounting.pricing.price_after_count`);
        * noise is an integer and the count is one: no rounding shows the count;
        * drawn from the secret stream "record count": the same key gives the same estimate again.
    """
    # The estimate is at most the real count but for a chance of 3e-5, and then little more. A delta is to be compared
    # with most_units. Rates made from the estimate are public constants: they hold for every count.
    check_integer("records", count, low=0)
    check_number("noise_multiplier", noise_multiplier, low=0, low_open=True)
    return max(1, noisy_count(count, noise_multiplier, streams) - math.ceil(_MARGIN * noise_multiplier))


def noisy_count(count: int, noise_multiplier: float, streams: SecretStreams) -> int:
    """Return the query itself: the count and the noise of the stream "record count"."""
    with streams.lent(_NUMBER) as generator:
        noise = int(gaussian_on_lattice(generator, 1, noise_multiplier)[0])
    return count + noise


def weight_of_persons(counts: NDArray[np.int64], most: int = 1) -> int:
    """Return the number of persons, each weighted like their records up to K (``most``), rounded down. Secret."""
    # In whole numbers: one person moves the sum by at most K, and so its K-th part by at most 1.
    return int(np.minimum(counts, most).sum()) // most


def records_of_persons(counts: NDArray[np.int64], noise_multiplier: float, streams: SecretStreams) -> NDArray[np.int64]:
    """(m,) noisy numbers of persons, by the number of :data:`RECORD_COUNTS` that holds their records.

    Formal guarantee: a Gaussian query of sensitivity 1 at ``noise_multiplier``, since a person is counted in one place.
    """
    counted = counts[counts > 0]
    places = np.searchsorted(RECORD_COUNTS, np.minimum(counted, RECORD_COUNTS[-1]))
    with streams.lent(_HISTOGRAM) as generator:
        noise = gaussian_on_lattice(generator, len(RECORD_COUNTS), noise_multiplier)
    return np.asarray(np.bincount(places, minlength=len(RECORD_COUNTS)) + noise.astype(np.int64))


def quantile_of(histogram: NDArray[np.int64], share: float, noise_multiplier: float) -> int:
    """Return K: the least number of records that ``share`` of the persons do not exceed, on the low side."""
    # Too large a K costs more than too small a one, since all weights are divided by it. So K is lower by two standard
    # deviations of the noise in all places together; where there is only noise, K is 1.
    upto = np.cumsum(histogram)
    enough = share * upto[-1] - _LOW_SIDE * noise_multiplier * math.sqrt(len(histogram))
    return RECORD_COUNTS[int(np.argmax(upto >= enough))]
