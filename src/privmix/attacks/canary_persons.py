"""Canaries that are persons. They join before records are grouped, so that audits exercise the run's own grouping."""

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
from privmix.plans.rows import ReleasePlan

# Few enough to be little memory, enough for fast products; those of one person are never parted.
_BLOCK: Final = 512
# Exponents beyond which a ratio is cut, and the least number above -1 that a logarithm is taken of.
_CERTAIN: Final = 60.0
_LEAST: Final = np.float32(1e-30)


@dataclass(frozen=True, eq=False, repr=False)
class PersonWeights:
    """The persons of some records, as rows use them. Secret."""

    # weights: (b,) mean contribution of each record to a row of its person: 1 for each person where a row holds one
    # record, at most 1 for weighted means (mean=True). first: (g,) starts of the records that one row may hold of one
    # person.

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


def standing(plan: ReleasePlan, starts: NDArray[np.int64], labels: NDArray[np.int64], copies: int = 1) -> PersonWeights:
    """Return the weights of (b,) labels in a plan's rows; ``starts``: (k + 1,), ``copies``: copies of each record."""
    # From the plan alone: an attack that took the engine's weights would share their faults.
    counts, most = np.diff(starts), _most(plan)
    first = starts[:-1]
    if _by_class(plan):
        new = np.ones(len(labels), bool)
        new[1:] = labels[1:] != labels[:-1]
        new[first] = True
        first = np.flatnonzero(new)
    return PersonWeights(np.repeat(copies / np.maximum(copies * counts, most), counts), first, plan.person_mean)


def persons_vectors(
    plan: ReleasePlan, made: NDArray[np.float32], starts: NDArray[np.int64], labels: NDArray[np.int64], copies: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Average (r, d + K) record vectors into (k, d + K) person vectors; return these and their (k,) classes."""
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
    """Return how many records weigh as much as a person's only record; 1 where rows hold one of them."""
    assert plan.per_person is not None
    return plan.per_person if plan.as_means or plan.person_mean else 1


def person_blocks(
    plan: ReleasePlan, tiles: RecordTiles, kept: int
) -> Iterator[tuple[NDArray[Any], NDArray[np.int64], PersonWeights]]:
    """Yield the records of the first ``kept`` persons, those of some whole persons at a time."""
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
    """Some rows of an array and then those of another, repeated; copies only what is read. For ``PersonTiles``."""

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
    """Return the same tiles with distinguishable persons; raise InvalidInput for a store sorted by person."""
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
    """Return the first ``kept`` persons and then others: (c, d) features, (c,) labels and (c,) person numbers."""
    numbers = numbers_of(tiles.persons)
    rows = np.flatnonzero(numbers < kept)
    virtual: Any = _Appended(tiles.features, rows, features, copies)
    behind = np.repeat(labels, copies), kept + np.repeat(whose, copies)
    return PersonTiles(
        virtual, np.concatenate([tiles.labels[rows], behind[0]]), np.concatenate([numbers[rows], behind[1]])
    )
