"""Canaries, records or persons: what they look like, and how they stand among a dataset's records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privmix.engine.records import PersonTiles, RecordTiles, RecordUnits, Tile, record_tiles
from privmix.errors import WITHHELD, InvalidInput, check_choice
from privmix.mechanisms.membership import RECORD_TILE
from privmix.mechanisms.persons import numbers_of
from privmix.plans.rows import ReleasePlan
from privmix.publication.dataset import RecordTransform

# Few enough to be little memory, enough for fast products; those of one person are never parted.
_PERSONS_AT_ONCE: Final = 512
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
            last = max(first + 1, int(np.searchsorted(starts, starts[first] + _PERSONS_AT_ONCE, side="right")) - 1)
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


class CanaryBlock(NamedTuple):
    """Records that may be in the data: (b, d) and (b,), the expected share present, and their persons or None."""

    x: NDArray[Any]
    y: NDArray[np.int64]
    share: float
    persons: PersonWeights | None = None

    @property
    def weights(self) -> NDArray[np.float64] | None:
        """(b,) what each record adds, on average, to a row that its unit is in; None: all of itself."""
        return None if self.persons is None else self.persons.weights

    @property
    def units(self) -> float:
        return float(len(self.y) if self.persons is None else self.persons.weights.sum())

    def by_class(self, classes: int) -> NDArray[np.float64]:
        """(b, K) one-hot labels, times what each record adds."""
        found = np.eye(classes)[self.y]
        return found if self.weights is None else found * self.weights[:, None]


Blocks = Callable[[], Iterator[CanaryBlock]]
"""Goes over all records that may be in the data."""


class Side(NamedTuple):
    """k canaries, records side by side: (r, d), (r,) ascending within a person, starts (k + 1,) or None for records."""

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    starts: NDArray[np.int64] | None = None
    copies: int = 1

    def block(self, plan: ReleasePlan) -> CanaryBlock:
        """As they may stand in the data."""
        found = None if self.starts is None else standing(plan, self.starts, self.labels, self.copies)
        return CanaryBlock(self.features, self.labels, CANARY_SHARE, found)


CANARY_SHARE: Final = 0.5
"""Chance of a canary to be put among the records."""

KINDS: Final = ("planted", "mislabelled", "blank")
# Length of a canary in clipping bounds where nothing is centred: a mechanism that does not clip shows at once.
_REACH: Final = 10.0
# Factor that lengthens a centred canary's residual, so that the mean's noise does not leave it short of the bound.
_MARGIN: Final = 1.1
# Records from which the mean is estimated.
_SOME: Final = 4096
# Few enough to be little memory, enough for fast products.
_BLOCK: Final = 512


@dataclass(frozen=True, eq=False, repr=False)
class Canaries:
    """k canaries and, in replace-one audits, their opposites; arrays as in :class:`Side`. Secret."""

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    opposites: tuple[NDArray[np.float32], NDArray[np.int64]] | None = None
    starts: NDArray[np.int64] | None = None
    copies: int = 1

    def __len__(self) -> int:
        return len(self.labels if self.starts is None else self.starts[:-1])

    @property
    def sides(self) -> list[Side]:
        """Units that may stand in the data: the canaries, and their replacements."""
        both = [(self.features, self.labels), *([] if self.opposites is None else [self.opposites])]
        return [Side(*one, self.starts, self.copies) for one in both]

    def chosen(self, coins: NDArray[np.bool_]) -> Tile:
        """Features and labels of what stands in the data, by the coins; ``copies`` of each."""
        coins = coins[self._canary]
        if self.opposites is None:
            return self.features[coins], self.labels[coins]
        features = np.concatenate([self.features[coins], self.opposites[0][~coins]])
        return features, np.concatenate([self.labels[coins], self.opposites[1][~coins]])

    def whose(self, coins: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Index of the canary behind each unit that :meth:`chosen` returns."""
        of = self._canary
        coins = coins[of]
        return of[coins] if self.opposites is None else np.concatenate([of[coins], of[~coins]])

    @property
    def _canary(self) -> NDArray[np.int64]:
        """(r,) of which canary each record is."""
        return np.arange(len(self)) if self.starts is None else np.repeat(np.arange(len(self)), np.diff(self.starts))


@dataclass(frozen=True, eq=False)
class WithCanaries(RecordUnits):
    """The first ``kept`` records of ``others``, then the included canaries; copies the tile with both. Secret."""

    others: RecordTiles
    kept: int
    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    _meeting: list[Tile] = field(default_factory=list, init=False, repr=False)

    def __repr__(self) -> str:
        return "<WithCanaries>"

    @property
    def count(self) -> int:
        return self.kept + len(self.labels)

    @property
    def dim(self) -> int:
        return self.others.dim

    def tile(self, index: int) -> Tile:
        start, end = index * RECORD_TILE, (index + 1) * RECORD_TILE
        own = slice(max(0, start - self.kept), max(0, end - self.kept))
        if start >= self.kept:
            return self.features[own], self.labels[own]
        x, y = self.others.tile(index)
        if end <= self.kept:
            return x, y
        if not self._meeting:
            real = self.kept - start
            features = np.empty((real + len(self.features[own]), self.dim), np.float32)
            features[:real], features[real:] = x[:real], self.features[own]
            self._meeting.append((features, np.concatenate([y[:real], self.labels[own]])))
        return self._meeting[0]


def make_canaries(
    plan: ReleasePlan, others: RecordTiles, size: int, kind: str, generator: np.random.Generator, copies: int = 1
) -> Canaries:
    """Make canaries that move the sums as far as the plan allows: at the clipping bound, in separate directions."""
    # Centred plans: directions start from the records' mean, or every canary would point against it. A planted person
    # repeats one record, whose mean is longest. Mislabelled persons keep theirs; all labels shift alike.
    classes = plan.num_classes
    if check_choice("canaries' kind", kind, KINDS[:2]) == "mislabelled":
        # The units that the canaries replace: see ``privmix.attacks.canaries``.
        features, true, starts = _units_at(others, np.arange(others.units - size, others.units))
        shift = generator.integers(1, classes, size)
        opposites = None
        if plan.kind.fixed_size:
            opposites = -features, true
        if starts is None:
            return Canaries(features, (true + shift) % classes, opposites)
        of = np.repeat(np.arange(size), np.diff(starts))
        wrong = (true + shift[of]) % classes
        order = np.lexsort((wrong, of))
        return Canaries(features[order], wrong[order], opposites, starts)
    directions = _directions(size, plan.dim, generator)
    labels = generator.integers(0, classes, size)
    start, length = np.zeros(plan.dim, np.float32), _REACH * plan.clip_norm
    if plan.centred:
        start = _mean(plan, others, generator)
        room = plan.clip_norm**2 - float(start @ start)
        length = max(_MARGIN * plan.final_clip_norm, room**0.5 if room > 0 else 0.0)
    opposites = None
    if plan.kind.fixed_size:
        opposites = start - length * directions, (labels + 1) % classes
    starts = None if plan.per_person is None else np.arange(size + 1)
    return Canaries(start + length * directions, labels, opposites, starts, copies)


def _directions(count: int, dim: int, generator: np.random.Generator) -> NDArray[np.float32]:
    """(count, dim) random unit vectors; any ``dim`` in a row are orthogonal, so that they blur one another little."""
    made = np.empty((count, dim), np.float32)
    for start in range(0, count, dim):
        part = made[start : start + dim]
        part[:] = np.linalg.qr(generator.standard_normal((dim, len(part)), dtype=np.float32))[0].T
    return made


def blocks_of(tiles: RecordTiles, kept: int) -> Iterator[Tile]:
    """Yield the first ``kept`` records, some at a time: views, where the tiles are."""
    for index in range(record_tiles(tiles)):
        x, y = tiles.tile(index)
        for start in range(0, len(y), _BLOCK):
            left = kept - index * RECORD_TILE - start
            if left > 0:
                yield x[start : start + min(_BLOCK, left)], y[start : start + min(_BLOCK, left)]


def _mean(plan: ReleasePlan, tiles: RecordTiles, generator: np.random.Generator) -> NDArray[np.float32]:
    """(d,) mean of the clipped records, or of some of them: directions need no more. Persons add one record each."""
    some = np.sort(generator.choice(tiles.units, min(_SOME, tiles.units), replace=False))
    if plan.per_person is None:
        return np.asarray(_clipped(plan, _units_at(tiles, some)[0]).mean(axis=0), np.float32)
    features, weights = np.empty((len(some), tiles.dim), np.float32), np.empty(len(some))
    for own, index, units in _by_tile(some):
        starts, x = tiles.starts(index), tiles.tile(index)[0]
        assert starts is not None
        counts = np.diff(starts)[units]
        features[own] = x[starts[units] + generator.integers(0, counts)]
        weights[own] = np.minimum(1.0, counts / plan.per_person)
    return np.asarray(weights @ _clipped(plan, features) / weights.sum(), np.float32)


def _clipped(plan: ReleasePlan, x: NDArray[Any]) -> NDArray[Any]:
    return RecordTransform(plan.clip_norm, plan.norm).clip(x)


def _by_tile(indices: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], int, NDArray[np.int64]]]:
    """Which of the units are in each tile, its number, and their places in it."""
    for index in np.unique(indices // RECORD_TILE):
        own = np.flatnonzero(indices // RECORD_TILE == index)
        yield own, int(index), indices[own] % RECORD_TILE


def _units_at(
    tiles: RecordTiles, indices: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64] | None]:
    """Features and labels of the records of some units, ascending, and of persons where those of each begin."""
    found: list[Tile] = [(np.empty((0, tiles.dim), np.float32), np.empty(0, np.int64))]
    counts: list[NDArray[np.int64]] = []
    for _, index, units in _by_tile(indices):
        (x, y), starts = tiles.tile(index), tiles.starts(index)
        rows = units
        if starts is not None:
            sizes = np.diff(starts)[units]
            counts.append(sizes)
            ends = np.cumsum(sizes)
            rows = np.repeat(starts[units] - ends + sizes, sizes) + np.arange(int(ends[-1]))
        found.append((np.asarray(x[rows], np.float32), y[rows]))
    features, labels = (np.concatenate(part) for part in zip(*found, strict=True))
    starts = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64) if counts else None
    return features, labels, starts
