"""How many units there are, and how many records a person counts for, estimated from the private data and paid for.

Of records or persons the answer is their number. With a quantile it is K, too: how many records that share of the
persons have at most. Both answers together cost what the number alone does: each of two queries gets noise that is
sqrt(2) times as large, and the second may depend on the answer of the first (Dong, Roth and Su 2022, Theorem 4 and
Corollary 3.3: Gaussian queries of any order compose to one, also where they are chosen by earlier answers).
"""

from __future__ import annotations

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
"""What K can be estimated as. Who has more records than the last counts as one who has so many."""

_MARGIN: Final = 4.0
_LOW_SIDE: Final = 2.0
_NUMBER: Final = "record count"
_HISTOGRAM: Final = "records of persons"


@dataclass(frozen=True)
class CountQuery:
    """What is asked of :func:`private_count` where no setting says it.

    Attributes:
        records_noise_multiplier: noise of the number, in records or persons.
        per_person: None where records are the units; K where persons are.
        person_quantile: of how many persons K is to hold the records, where it is to be estimated.
    """

    records_noise_multiplier: float
    per_person: int | None = None
    person_quantile: float | None = None


@dataclass(frozen=True)
class PrivateCount:
    """What was estimated; as private as its price says, and so to be shown.

    Attributes:
        records: how many records or persons there are, on the low side.
        per_person: K, given or estimated; None where records are the units.
    """

    records: int
    per_person: int | None = None


def private_count(asked: Any, held: int | NDArray[np.int64], streams: SecretStreams) -> PrivateCount:
    """Ask the private data what a plan leaves open: how many units there are and, with a quantile, K.

    Formal guarantees:
        * Price: one Gaussian query of sensitivity 1 at ``records_noise_multiplier`` where one unit is added or removed.
          With a quantile two of them at sqrt(2) times that, which compose to it: in the histogram of
          :func:`records_of_persons` a person is counted once, and whatever K is, a person weighs at most 1 in
          :func:`weight_of_persons`.
        * Integers: sums and noise are whole numbers, so no rounding shows a sum.
        * The same key gives the same answer again.

    Args:
        asked: a plan or setting, for ``records_noise_multiplier``, ``per_person`` and ``person_quantile``.
        held: the number of records; of persons (persons,) how many records each has. Secret.
        streams: secret streams; ``record count`` is used, and ``records of persons``.

    Example:
        >>> from privmix.planning import ReleaseConfig
        >>> config = ReleaseConfig(
        ...     9, 2, ("a", "b"), "moments", per_person=1, records_noise_multiplier=9.0, person_quantile=0.9
        ... )
        >>> counts = np.array([3] * 9_000 + [40] * 500)
        >>> found = private_count(config, counts, SecretStreams.from_seed(0))
        >>> found.per_person, 9_300 < found.records <= 9_520
        (3, True)
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
    """Noise multiplier of each query: sqrt(2) times the plan's where there are two.

    Example:
        >>> query_noise(CountQuery(10.0)), round(query_noise(CountQuery(10.0, 1, 0.9)), 3)
        (10.0, 14.142)
    """
    noise: float = asked.records_noise_multiplier
    return noise if getattr(asked, "person_quantile", None) is None else math.sqrt(2) * noise


def most_units(records: int, noise: float, most: int = 1) -> int:
    """At most how many units there are, but for a chance of 3e-5: what a delta should be far below 1 / of.

    Args:
        records: the estimate, which is on the low side.
        noise: of its query, see :func:`query_noise`.
        most: K, where it is of what persons weigh: each weighs 1/K at least.

    Example:
        >>> most_units(9_000, 20.0), most_units(9_000, 20.0, 3)
        (9160, 27482)
    """
    return most * (records + math.ceil(2 * _MARGIN * noise)) + most - 1


def private_record_count(count: int, noise_multiplier: float, streams: SecretStreams) -> int:
    """Estimate a private record count: the count plus Gaussian noise, less four standard deviations, at least 1.

    The estimate is at most the real count but for a chance of 3e-5, and then little more. A delta is to be compared
    with :func:`most_units`. Rates made from the estimate are public constants: they hold whatever the count.

    Formal guarantees:
        * one Gaussian query of sensitivity 1 (add or remove one record) at ``noise_multiplier``; what is made of the
          noisy count is post-processing, and what is planned with it is priced for that
          (:func:`privmix.accounting.pricing.price_after_count`);
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
    check_integer("records", count, low=0)
    check_number("noise_multiplier", noise_multiplier, low=0, low_open=True)
    return max(1, noisy_count(count, noise_multiplier, streams) - math.ceil(_MARGIN * noise_multiplier))


def noisy_count(count: int, noise_multiplier: float, streams: SecretStreams) -> int:
    """The query itself: the count and the noise of the stream "record count"."""
    with streams.lent(_NUMBER) as generator:
        noise = int(gaussian_on_lattice(generator, 1, noise_multiplier)[0])
    return count + noise


def weight_of_persons(counts: NDArray[np.int64], most: int = 1) -> int:
    """How many persons there are, each of whom counts as much as their records weigh, rounded down. Secret.

    Args:
        counts: (persons,) records of each; those without any do not count.
        most: K.

    Example:
        >>> weight_of_persons(np.array([2, 0, 0, 1])), weight_of_persons(np.array([2, 0, 0, 1]), 2)
        (2, 1)
    """
    # In whole numbers: one person moves the sum by at most K, and so its K-th part by at most 1.
    return int(np.minimum(counts, most).sum()) // most


def records_of_persons(counts: NDArray[np.int64], noise_multiplier: float, streams: SecretStreams) -> NDArray[np.int64]:
    """(m,) noisy numbers of persons, by the number of :data:`RECORD_COUNTS` that holds their records.

    Formal guarantee: a Gaussian query of sensitivity 1 at ``noise_multiplier``, since a person is counted in one place.

    Example:
        >>> found = records_of_persons(np.array([1, 1, 5, 9000]), 1e-3, SecretStreams.from_seed(0))
        >>> found[[0, 4, 23]].tolist()
        [2, 1, 1]
    """
    counted = counts[counts > 0]
    places = np.searchsorted(RECORD_COUNTS, np.minimum(counted, RECORD_COUNTS[-1]))
    with streams.lent(_HISTOGRAM) as generator:
        noise = gaussian_on_lattice(generator, len(RECORD_COUNTS), noise_multiplier)
    return np.asarray(np.bincount(places, minlength=len(RECORD_COUNTS)) + noise.astype(np.int64))


def quantile_of(histogram: NDArray[np.int64], share: float, noise_multiplier: float) -> int:
    """K: the least number of records that ``share`` of the persons do not pass, as far as the noise lets see.

    Too large a K costs more than too small a one, since all weights are divided by it. So it is on the low side, by two
    standard deviations of the noise in all places together; where noise is all there is, K is 1.

    Example:
        >>> quantile_of(np.array([50, 40, 5, 5] + [0] * 20), 0.9, 0.01)
        2
    """
    upto = np.cumsum(histogram)
    enough = share * upto[-1] - _LOW_SIDE * noise_multiplier * math.sqrt(len(histogram))
    return RECORD_COUNTS[int(np.argmax(upto >= enough))]
