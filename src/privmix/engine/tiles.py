"""Private records, tile by tile: where they come from, and the exact sums that are made of them.

Everything here is pure: a sum depends on the plan, the records and the membership key alone. What is computed again
after a failure, here or on another machine, is therefore the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from privmix.data.store import FeatureStore
from privmix.errors import WITHHELD, InvalidInput
from privmix.mechanisms.membership import RECORD_TILE, ROW_TILE, Membership, tile_length
from privmix.mechanisms.mixing import LatticeRecords, RowSums
from privmix.mechanisms.streams import SecretStreams
from privmix.plans import BasePlan, ReleasePlan
from privmix.publication.dataset import RecordTransform

Tile = tuple[NDArray[Any], NDArray[np.int64]]

_Result = TypeVar("_Result")

# Physical sizes: they set speed and memory and change no bit of the result.
_RECORD_BLOCK = 64
_DRAWS_AT_ONCE = 2**21
_COUNTS_AT_ONCE = 2**22


@dataclass(frozen=True)
class PrivateRecords:
    """Extracted features (n, d) and labels (n,) in 0..K-1. Secret. Memory-mapped arrays stay on disk."""

    features: NDArray[Any]
    labels: NDArray[np.int64]

    def __repr__(self) -> str:
        return "<PrivateRecords>"


class RecordTiles(Protocol):
    """Where an engine gets its records: in tiles of ``RECORD_TILE`` records, the last one shorter. Secret."""

    @property
    def count(self) -> int:
        """How many records there are."""

    @property
    def dim(self) -> int:
        """d."""

    def tile(self, index: int) -> Tile:
        """Return features (b, d), an array or a view of a memory-mapped one, and labels (b,) int64."""


@dataclass(frozen=True)
class ArrayTiles:
    """Tiles of arrays, in memory or memory-mapped.

    Raises:
        InvalidInput: shapes do not fit together, or there is no record.
    """

    features: NDArray[Any]
    labels: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.features.ndim != 2:
            raise InvalidInput("features", f"{self.features.ndim} dimensions", "a 2-d array")
        if self.labels.shape != self.features.shape[:1] or len(self.labels) == 0:
            raise InvalidInput("labels", WITHHELD, "one label a record, and at least one record")

    def __repr__(self) -> str:
        return "<ArrayTiles>"

    @property
    def count(self) -> int:
        return len(self.labels)

    @property
    def dim(self) -> int:
        return int(self.features.shape[1])

    def tile(self, index: int) -> Tile:
        part = slice(index * RECORD_TILE, (index + 1) * RECORD_TILE)
        return self.features[part], np.asarray(self.labels[part])


class StoreTiles(ArrayTiles):
    """Tiles of a feature store. It travels to workers as the store's path, which they must be able to open."""

    def __init__(self, path: str | Path) -> None:
        store = FeatureStore.open(path)
        super().__init__(store.features, store.labels)
        object.__setattr__(self, "path", Path(path).resolve())

    def __repr__(self) -> str:
        return "<StoreTiles>"

    def __reduce__(self) -> tuple[type[StoreTiles], tuple[str]]:
        return StoreTiles, (str(self.path),)  # type: ignore[attr-defined]


RecordSource = RecordTiles | PrivateRecords | FeatureStore


def tiles_of(records: RecordSource) -> RecordTiles:
    """Any form in which records are given, as tiles."""
    if isinstance(records, FeatureStore):
        return StoreTiles(records.path)
    return ArrayTiles(records.features, records.labels) if isinstance(records, PrivateRecords) else records


def record_tiles(records: RecordTiles) -> int:
    """How many tiles the records fill."""
    return -(-records.count // RECORD_TILE)


@contextmanager
def mapping(workers: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """``map`` on so many threads, results in order; one thread is this one, since starting another takes a while."""
    if workers == 1:
        yield map
        return
    with ThreadPoolExecutor(workers) as pool:
        yield pool.map


def content_fingerprint(records: RecordTiles, key: bytes, workers: int) -> str:
    """Hash of every feature and label, keyed: without the key it confirms no guess at the data."""

    def digest(index: int) -> bytes:
        features, labels = records.tile(index)
        hasher = hashlib.blake2b(f"{features.dtype.str} {features.shape}".encode(), key=key, digest_size=32)
        for start in range(0, len(features), 1024):
            hasher.update(np.ascontiguousarray(features[start : start + 1024]).data)
        hasher.update(np.ascontiguousarray(labels, np.int64).data)
        return hasher.digest()

    whole = hashlib.blake2b(key=key, digest_size=32)
    with mapping(workers) as each:
        for part in each(digest, range(record_tiles(records))):
            whole.update(part)
    return whole.hexdigest()


def _ignore(done: int) -> None:
    """Nobody asked for progress."""


class TileReader:
    """Reads private records tile by tile, checked, clipped and rounded to the lattice.

    Formal guarantees:
        * every record is clipped, and rounding to the lattice never makes it longer;
        * labels outside the plan's classes and features that are not finite raise, and are not shown.

    Args:
        plan: the public plan.
        records: the private records.
        workers: threads that clip and round.

    Raises:
        InvalidInput: the records have another dimension than the plan.
    """

    def __init__(self, plan: BasePlan, records: RecordTiles, *, workers: int = 1) -> None:
        if records.dim != plan.dim:
            raise InvalidInput("features", f"{records.dim} columns", f"a 2-d array with {plan.dim} columns")
        self.records, self.workers = records, workers
        self._dim, self._clip_norm, self._classes = plan.dim, plan.clip_norm, plan.num_classes
        self._lattice = plan.lattice

    def clipped_sum(self, index: int, done: Callable[[int], None] = _ignore) -> NDArray[np.float64]:
        """(d,) sum of a tile's clipped records, before centring, in lattice steps of ``clip_norm``.

        ``done`` is called, as work proceeds, with the number of records it is done with.
        """
        total = np.zeros(self._dim)
        transform = RecordTransform(self._clip_norm)
        features, _ = self.read(index)
        for part in self._blocks(features, lambda _, block: self.lattice_steps(transform, block).sum(axis=0), done):
            total += part
        return total

    def check_labels(self) -> None:
        """Raise :class:`InvalidInput` unless every label is one of the plan's classes."""
        for index in range(record_tiles(self.records)):
            self.read(index)

    def read(self, index: int) -> Tile:
        """Features (b, d) and labels (b,) of a tile, its labels checked."""
        features, labels = self.records.tile(index)
        if labels.min() < 0 or labels.max() >= self._classes:
            raise InvalidInput("labels", WITHHELD, f"class numbers from 0 to {self._classes - 1}")
        return features, labels

    def lattice_steps(self, transform: RecordTransform, block: NDArray[Any]) -> NDArray[np.float64]:
        """Transformed records as integers, in lattice steps of their clipping bound."""
        return self._lattice.quantise(transform(block) / transform.final_clip_norm)

    def _blocks(
        self, features: NDArray[Any], work: Callable[[int, NDArray[Any]], _Result], done: Callable[[int], None]
    ) -> Iterator[_Result]:
        """Apply ``work`` to blocks of records, which fit the cache, on every core; results come in order."""

        def one(start: int) -> _Result:
            return work(start, np.asarray(features[start : start + _RECORD_BLOCK]))

        starts = range(0, len(features), _RECORD_BLOCK)
        with mapping(self.workers) as each:
            for start, result in zip(starts, each(one, starts), strict=True):
                yield result
                done(min(start + _RECORD_BLOCK, len(features)))


class TileSummer(TileReader):
    """Makes the sums that a release adds noise to. Whoever holds one holds private records, and no key to the noise.

    Formal guarantees:
        * the sampler that draws is the plan's, so what runs is what was priced;
        * every record is clipped, centred with the released mean and clipped again before it is summed, and rounding
          to the lattice never makes it longer;
        * sums are exact integers: cuts, threads and order change no bit of them;
        * labels outside the plan's classes and features that are not finite raise, and are not shown.

    Args:
        plan: the public plan.
        records: the private records.
        membership: the streams that membership is drawn from; see :meth:`SecretStreams.share`.
        workers: threads that clip and round.
    """

    def __init__(self, plan: ReleasePlan, records: RecordTiles, membership: SecretStreams, *, workers: int = 1) -> None:
        super().__init__(plan, records, workers=workers)
        self.plan, self._membership, self._sampler = plan, membership, plan.sampler_for(records.count)

    def quantise(
        self, index: int, transform: RecordTransform, into: LatticeRecords, done: Callable[[int], None] = _ignore
    ) -> LatticeRecords:
        """A tile's transformed records on the lattice, in the first entries of ``into``; returns those."""
        features, _ = self.read(index)
        for _ in self._blocks(
            features, lambda start, block: into.fill(start, self.lattice_steps(transform, block)), done
        ):
            pass
        return into.part(slice(0, len(features)))

    def empty_tile(self, index: int) -> LatticeRecords:
        """Room for quantised tile ``index``."""
        return LatticeRecords.empty(tile_length(self.records.count, index, RECORD_TILE), self.plan.dim, self.largest)

    @property
    def record_bytes(self) -> int:
        """Memory of one quantised record."""
        return self.empty_tile(0).blocks[:, :1].nbytes

    @property
    def row_bytes(self) -> int:
        """Memory that a row takes while it is summed: its sums, its labels, and one block of columns, twice."""
        sums = self._empty(1)
        return sums.x.nbytes + sums.counts.nbytes + sums.totals.nbytes + 2 * 64 * sums.x.itemsize

    @property
    def largest(self) -> int:
        """No lattice entry is larger: clipping leaves a hair below the bound, and rounding goes toward zero."""
        return int(2**self.plan.lattice_bits - 1)

    def empty_sums(self, tiles: range) -> RowSums:
        """Sums of no record, for the rows of the row tiles ``tiles``."""
        return self._empty(min(tiles.stop * ROW_TILE, self.plan.rows) - tiles.start * ROW_TILE)

    def _empty(self, rows: int) -> RowSums:
        expected = self.plan.expected_members
        return RowSums(
            rows,
            self.plan.dim,
            self.plan.num_classes,
            largest=self.largest,
            weight_step=None if self.plan.max_weight is None else self.plan.weight_step,
            # Nine standard deviations of a Poisson variable and some more: hardly ever is there more.
            draws_expected=expected + 9 * expected**0.5 + 9,
        )

    def add(self, sums: RowSums, rows: range, index: int, on_lattice: LatticeRecords) -> None:
        """Add a tile's members of the row tiles ``rows`` to ``sums``, a bounded number of draws at a time."""
        _, labels = self.read(index)
        draws = max(1.0, self.plan.expected_members * ROW_TILE * len(labels) / self.records.count)
        step = max(1, int(min(_DRAWS_AT_ONCE / draws, _COUNTS_AT_ONCE / (ROW_TILE * self.plan.num_classes))))
        for first in range(rows.start, rows.stop, step):
            group = range(first, min(first + step, rows.stop))
            members = [self._sampler.draw(self._membership, row_tile, index, labels) for row_tile in group]
            sums.add((first - rows.start) * ROW_TILE, on_lattice, labels, Membership.stack(members))
