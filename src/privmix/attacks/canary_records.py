"""Canary records: what they look like, and how they stand among a dataset's records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.engine.records import RecordTiles, RecordUnits, Tile, record_tiles
from privmix.errors import check_choice
from privmix.mechanisms.membership import RECORD_TILE
from privmix.plans import ReleasePlan
from privmix.publication import RecordTransform

Side = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Features (k, d) and labels (k,) of canaries."""

Blocks = Callable[[], Iterator[tuple[NDArray[Any], NDArray[np.int64], float]]]
"""Goes over records in blocks: features (b, d), labels (b,), and the share of them that is expected to be there."""

CANARY_SHARE: Final = 0.5
"""Of the canaries, that is."""

KINDS: Final = ("planted", "mislabelled", "blank")
# Length of a canary in clipping bounds where nothing is centred: a mechanism that does not clip shows at once.
_REACH: Final = 10.0
# What a centred canary's residual is made longer by, so that the mean's noise does not leave it short of the bound.
_MARGIN: Final = 1.1
# Records from which the mean is estimated.
_SOME: Final = 4096
# Few enough to be little memory, enough for fast products.
_BLOCK: Final = 512


@dataclass(frozen=True, eq=False, repr=False)
class Canaries:
    """Canary records (k, d) and (k,), and in replace-one audits the records that may stand in their place. Secret.

    Attributes:
        features: (k, d) float32.
        labels: (k,) class numbers.
        opposites: None, or features and labels of the same shapes.
    """

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    opposites: tuple[NDArray[np.float32], NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def sides(self) -> list[Side]:
        """What may stand in the data: the canaries, and what replaces them."""
        return [(self.features, self.labels), *([] if self.opposites is None else [self.opposites])]

    def chosen(self, coins: NDArray[np.bool_]) -> Side:
        """What stands in the data, by the coins."""
        if self.opposites is None:
            return self.features[coins], self.labels[coins]
        features = np.concatenate([self.features[coins], self.opposites[0][~coins]])
        return features, np.concatenate([self.labels[coins], self.opposites[1][~coins]])


@dataclass(frozen=True, eq=False)
class WithCanaries(RecordUnits):
    """The first ``kept`` records of ``others``, and after them the canaries that stand in. Secret.

    Only the tile in which the two meet is copied.
    """

    others: RecordTiles
    kept: int
    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    _meeting: list[Tile] = field(default_factory=list, init=False, repr=False)

    def __repr__(self) -> str:
        return "<WithCanaries>"

    @property
    def count(self) -> int:
        """How many records there are."""
        return self.kept + len(self.labels)

    @property
    def dim(self) -> int:
        """d."""
        return self.others.dim

    def tile(self, index: int) -> Tile:
        """See :class:`privmix.engine.records.RecordTiles`."""
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
    plan: ReleasePlan, others: RecordTiles, size: int, kind: str, generator: np.random.Generator
) -> Canaries:
    """Canaries that move the sums as far as the plan allows: at the clipping bound, in directions of their own.

    Where the plan centres, directions start from the records' own mean: what is left of a canary then points in its
    direction and not, with all others, against the mean.
    """
    classes = plan.num_classes
    if check_choice("canaries' kind", kind, KINDS[:2]) == "mislabelled":
        # Those whose places they take: see ``privmix.attacks.canaries``.
        features, true = _records_at(others, np.arange(others.count - size, others.count))
        shift = generator.integers(1, classes, size)
        opposites = None
        if plan.kind.fixed_size:
            opposites = -features, true
        return Canaries(features, (true + shift) % classes, opposites)
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
    return Canaries(start + length * directions, labels, opposites)


def _directions(count: int, dim: int, generator: np.random.Generator) -> NDArray[np.float32]:
    """(count, dim) random unit vectors; any ``dim`` in a row are orthogonal, so that they blur one another little."""
    made = np.empty((count, dim), np.float32)
    for start in range(0, count, dim):
        part = made[start : start + dim]
        part[:] = np.linalg.qr(generator.standard_normal((dim, len(part)), dtype=np.float32))[0].T
    return made


def blocks_of(tiles: RecordTiles, kept: int) -> Iterator[Tile]:
    """The first ``kept`` records, some at a time: views, where the tiles are."""
    for index in range(record_tiles(tiles)):
        x, y = tiles.tile(index)
        for start in range(0, len(y), _BLOCK):
            left = kept - index * RECORD_TILE - start
            if left > 0:
                yield x[start : start + min(_BLOCK, left)], y[start : start + min(_BLOCK, left)]


def _mean(plan: ReleasePlan, tiles: RecordTiles, generator: np.random.Generator) -> NDArray[np.float32]:
    """(d,) mean of the clipped records, or of some of them: directions need no more."""
    some = np.sort(generator.choice(tiles.count, min(_SOME, tiles.count), replace=False))
    clipped = RecordTransform(plan.clip_norm, plan.norm).clip(_records_at(tiles, some)[0])
    return np.asarray(clipped.mean(axis=0), np.float32)


def _records_at(tiles: RecordTiles, indices: NDArray[np.int64]) -> Tile:
    """Features and labels of some records."""
    features = np.empty((len(indices), tiles.dim), np.float32)
    labels = np.empty(len(indices), np.int64)
    for index in range(record_tiles(tiles)):
        own = np.flatnonzero(indices // RECORD_TILE == index)
        if len(own):
            x, y = tiles.tile(index)
            features[own], labels[own] = x[indices[own] % RECORD_TILE], y[indices[own] % RECORD_TILE]
    return features, labels
