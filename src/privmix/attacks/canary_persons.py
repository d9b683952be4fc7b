"""Canaries that are persons: how they join a dataset's persons, and what a person adds to released sums on average.

They join before records are grouped by person. So it is the run's own code that finds the records of a canary, draws or
weighs them, and puts the canary into a tile: what goes wrong there shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.engine.records import PersonTiles, RecordTiles, record_tiles
from privmix.errors import WITHHELD, InvalidInput
from privmix.mechanisms.membership import RECORD_TILE
from privmix.mechanisms.persons import numbers_of
from privmix.plans import ReleasePlan

# Few enough to be little memory, enough for fast products; those of one person are never parted.
_BLOCK: Final = 512
# Exponents beyond which a ratio is cut, and the least number above -1 that a logarithm is taken of.
_CERTAIN: Final = 60.0
_LEAST: Final = np.float32(1e-30)


@dataclass(frozen=True, eq=False, repr=False)
class Persons:
    """Whose some records are, as rows know them. Secret.

    Attributes:
        weights: (b,) what each record adds, on average, to a row that its person is in; 1 for each person where rows
            hold one record of a person, at most 1 where they hold weighted means.
        first: (g,) where the records begin which one row may hold of one person: all of theirs, or, in rows by class,
            those of a class.
        mean: whether a row holds the weighted mean of these, and not one of them.
    """

    weights: NDArray[np.float64]
    first: NDArray[np.int64]
    mean: bool = False

    def exponents(self, projected: NDArray[np.float32]) -> NDArray[np.float32]:
        """(b, k) -> (g, k): log of the mean e^z over the records of which a person gives a row one, or their mean z."""
        if self.mean:
            return np.asarray(np.add.reduceat(projected * self.weights.astype(np.float32)[:, None], self.first, axis=0))
        raised = np.expm1(np.clip(projected, -_CERTAIN, _CERTAIN, out=projected), out=projected)
        raised *= self.weights.astype(np.float32)[:, None]
        return np.asarray(np.log1p(np.maximum(np.add.reduceat(raised, self.first, axis=0), _LEAST - 1)))


def standing(plan: ReleasePlan, starts: NDArray[np.int64], labels: NDArray[np.int64], copies: int = 1) -> Persons:
    """How records stand in the rows of a plan.

    Said from the plan alone and not by the engine's weights: an attack that took these over would share their faults.

    Args:
        plan: public; its unit is a person.
        starts: (k + 1,) where the records of each person begin.
        labels: (b,) class numbers, ascending within a person.
        copies: how often each record stands in the data.
    """
    counts, most = np.diff(starts), _most(plan)
    first = starts[:-1]
    if _by_class(plan):
        new = np.ones(len(labels), bool)
        new[1:] = labels[1:] != labels[:-1]
        new[first] = True
        first = np.flatnonzero(new)
    return Persons(np.repeat(copies / np.maximum(copies * counts, most), counts), first, plan.person_mean)


def persons_vectors(
    plan: ReleasePlan,
    made: NDArray[np.float32],
    starts: NDArray[np.int64],
    labels: NDArray[np.int64],
    copies: int,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """(r, d + K) of records -> (k, d + K) of persons: the mean of what they give rows; and (k,) their classes.

    Args:
        plan: public.
        made: what each record would add.
        starts, labels, copies: as :func:`standing` takes them.
    """
    counts = np.diff(starts)
    whose = np.repeat(np.arange(len(counts)), counts)
    held = np.bincount(whose * plan.num_classes + labels, minlength=len(counts) * plan.num_classes)
    classes = held.reshape(len(counts), plan.num_classes).argmax(axis=1)
    own = labels == classes[whose] if _by_class(plan) else np.ones(len(labels), bool)
    total = counts if plan.as_means else np.bincount(whose[own], minlength=len(counts))
    weights = own * (copies / np.maximum(copies * total, _most(plan)))[whose]
    return np.add.reduceat(made * weights.astype(np.float32)[:, None], starts[:-1], axis=0), classes


def _by_class(plan: ReleasePlan) -> bool:
    return plan.as_means or plan.sampler.by_class


def _most(plan: ReleasePlan) -> int:
    """Records of a person that weigh as much as one of somebody with one; where rows hold one of them, all do."""
    assert plan.per_person is not None
    return plan.per_person if plan.as_means or plan.person_mean else 1


def person_blocks(
    plan: ReleasePlan, tiles: RecordTiles, kept: int
) -> Iterator[tuple[NDArray[Any], NDArray[np.int64], Persons]]:
    """The records of the first ``kept`` persons, those of some whole persons at a time."""
    for index in range(record_tiles(tiles)):
        (x, y), starts = tiles.tile(index), tiles.starts(index)
        assert starts is not None
        starts, first = starts[: max(0, kept - index * RECORD_TILE) + 1], 0
        while first < len(starts) - 1:
            last = max(first + 1, int(np.searchsorted(starts, starts[first] + _BLOCK, side="right")) - 1)
            part = slice(starts[first], starts[last])
            own = starts[first : last + 1] - starts[first]
            yield x[part], y[part], standing(plan, own, y[part])
            first = last


class _Appended:
    """Some rows of an array, and behind them those of another, each several times: nothing is copied but what is read.

    The part of NumPy's arrays that :class:`privmix.engine.records.PersonTiles` needs.
    """

    ndim = 2

    def __init__(self, array: Any, rows: NDArray[np.int64], behind: NDArray[np.float32], copies: int) -> None:
        self._array, self._rows, self._behind, self._copies = array, rows, behind, copies
        self.dtype, self.shape = np.dtype(np.float32), (len(rows) + copies * len(behind), behind.shape[1])

    def __getitem__(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        found = np.empty((len(places), self.shape[1]), np.float32)
        real = places < len(self._rows)
        found[real] = self._array[self._rows[places[real]]]
        found[~real] = self._behind[(places[~real] - len(self._rows)) // self._copies]
        return found


def persons_of(tiles: RecordTiles) -> PersonTiles:
    """The same tiles, whose persons are told from one another.

    Raises:
        InvalidInput: they are of another kind, such as a store that is sorted by person, to which none can be added.
    """
    if not isinstance(tiles, PersonTiles):
        allowed = "arrays with one person a record, where the plan's unit is a person"
        raise InvalidInput("persons", WITHHELD, allowed)
    return tiles


def with_persons(
    tiles: PersonTiles,
    kept: int,
    features: NDArray[np.float32],
    labels: NDArray[np.int64],
    whose: NDArray[np.int64],
    copies: int,
) -> PersonTiles:
    """The first ``kept`` persons with all records, and behind them others.

    Args:
        tiles: the persons that are there.
        kept: so many of them, in the order in which their first records stand.
        features: (c, d) records of the others.
        labels: (c,)
        whose: (c,) which of the others has each.
        copies: how often each of their records stands in the data.
    """
    numbers = numbers_of(tiles.persons)
    rows = np.flatnonzero(numbers < kept)
    virtual: Any = _Appended(tiles.features, rows, features, copies)
    behind = np.repeat(labels, copies), kept + np.repeat(whose, copies)
    return PersonTiles(
        virtual, np.concatenate([tiles.labels[rows], behind[0]]), np.concatenate([numbers[rows], behind[1]])
    )
