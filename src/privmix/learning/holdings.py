"""How many records persons have, as is publicly known, and how far what is mixed of them errs as a sample does."""

from __future__ import annotations

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
    """Records of persons: equally many persons have each of these numbers, which are quantiles from a public source.

    The records of a person are taken for no more alike than those of different persons. A person with k records adds
    min(1, K / k) / K times each of them to a sum, so the sum of many persons is as noisy as theirs is, and what it errs
    by as a sample is less, the more records there are. With w = min(1, k / K), what the person weighs, and persons
    enough to weigh n together, it errs as that of n E[w] / E[w^2 / k] single records does.

    Attributes:
        counts: k, of each part of the persons.

    Example:
        >>> Holdings((5,)).error(), Holdings((1, 3)).error()
        (0.2, 0.6666666666666666)
        >>> Holdings((1, 3)).error(most=3), Holdings((1, 3)).weight(most=3)
        (0.3333333333333333, 0.6666666666666666)
    """

    counts: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        if not 1 <= len(self.counts) <= _MOST_PARTS:
            raise InvalidInput("records_per_person", f"{len(self.counts)} numbers", _ALLOWED)
        for count in self.counts:
            check_integer("records_per_person", count, low=1, high=2**31)

    @classmethod
    def of(cls, said: Any) -> Holdings:
        """What a user says: a number, several, or a text with several and commas between them.

        Raises:
            InvalidInput: it is nothing of these, or below 1.

        Example:
            >>> Holdings.of("1, 20,5").counts, Holdings.of(3).counts
            ((1, 5, 20), (3,))
        """
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
        """Records of a person, on average."""
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
        """(K,) the same for each class of these shares where a person shows their records of one class alone.

        The class is that of one of their records, drawn, and k - 1 others are of it with its share s each: they are
        1 + B, and E[1 / (1 + B)] = (1 - (1 - s)^k) / (k s).

        Example:
            >>> Holdings((2,)).class_errors(np.array([0.5, 0.5])).tolist()
            [0.75, 0.75]
        """
        counts = np.array(self.counts, float)[:, None]
        return np.asarray((-np.expm1(counts * np.log1p(-np.minimum(shares, 1 - 1e-12))) / (counts * shares)).mean(0))


ONE_EACH: Final = Holdings()
"""Single records, or persons of whom no more is known."""
