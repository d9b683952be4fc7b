"""How many records persons have, as is publicly known, and how far what is mixed of them errs as a sample does."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput, check_integer

Reals = NDArray[np.float64]

_MOST_PARTS: Final = 100
_ALLOWED: Final = f"a number of records from 1, or up to {_MOST_PARTS} of them, each of equally many persons"


@dataclass(frozen=True)
class Holdings:
    """Records of persons: equally many persons have each of these ``counts``, quantiles from a public source."""

    # Records of a person are taken for no more alike than others. A person with k records adds min(1, K / k) / K times
    # each to a sum. Let w = min(1, k / K) be a person's weight. With persons that weigh n together, the sum errs as
    # that of n E[w] / E[w^2 / k] single records does.

    counts: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        if not 1 <= len(self.counts) <= _MOST_PARTS:
            raise InvalidInput("records_per_person", f"{len(self.counts)} numbers", _ALLOWED)
        for count in self.counts:
            check_integer("records_per_person", count, low=1, high=2**31)

    @classmethod
    def of(cls, said: Any) -> "Holdings":
        """Parse a number, several, or a text with commas between; below 1 is an error."""
        parts: list[Any]
        if isinstance(said, str):
            try:
                parts = [int(part) for part in said.split(",")]
            except ValueError:
                raise InvalidInput("records_per_person", said, _ALLOWED) from None
        else:
            parts = list(said) if isinstance(said, Iterable) else [said]
        return cls(tuple(sorted(cls(tuple(parts)).counts)))

    @property
    def mean(self) -> float:
        return float(np.mean(self.counts))

    def weight(self, most: int = 1) -> float:
        """E[min(1, k / K)]: what a person weighs, on average, with K = ``most``."""
        return float(np.minimum(1.0, np.array(self.counts) / most).mean())

    def error(self, most: int = 1) -> float:
        """Variance of the mean record that persons make, times what they weigh together; 1 of single records."""
        counts = np.array(self.counts, float)
        weights = np.minimum(1.0, counts / most)
        return float((weights**2 / counts).mean() / weights.mean())

    def class_errors(self, shares: Reals) -> Reals:
        """(K,) :meth:`error` of classes of these shares, where a person shows records of one class alone."""
        # The class is that of one drawn record; each of the other k - 1 is of it with probability s. So it has k s
        # records on average, and E[1 / (1 + B)] = (1 - (1 - s)^k) / (k s).
        counts = np.array(self.counts, float)[:, None]
        return np.asarray((-np.expm1(counts * np.log1p(-np.minimum(shares, 1 - 1e-12))) / (counts * shares)).mean(0))


ONE_EACH: Final = Holdings()
"""Single records, or persons with unknown numbers of records."""
