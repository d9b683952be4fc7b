"""Private records, tile by tile: where they come from, and the exact sums that are made of them.

Everything here is pure: a sum depends on the plan, the records and the membership key alone. What is computed again
after a failure, here or on another machine, is therefore the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from privmix.data.store import FeatureStore
from privmix.errors import WITHHELD, InvalidInput
from privmix.mechanisms.membership import RECORD_TILE, ROW_TILE, Membership, tile_length
from privmix.mechanisms.mixing import LatticeRecords, RowSums
from privmix.mechanisms.persons import Givers, Groups, Weights, every_of_class, grouped
from privmix.mechanisms.streams import SecretStreams
from privmix.plans import BasePlan, ReleasePlan
from privmix.publication.dataset import RecordTransform

Tile = tuple[NDArray[Any], NDArray[np.int64]]
# Features, labels and, where persons are the units, what the records weigh.
Block = tuple[NDArray[Any], NDArray[np.int64], Weights | None]

_Result = TypeVar("_Result")

# Physical sizes: they set speed and memory and change no bit of the result.
_RECORD_BLOCK = 64
_PERSON_RECORDS = 1024
_DRAWS_AT_ONCE = 2**21
_COUNTS_AT_ONCE = 2**22
_BEGINS_AT_ONCE = 2**24


@dataclass(frozen=True)
class PrivateRecords:
    """Extracted features (n, d) and labels (n,) in 0..K-1. Secret. Memory-mapped arrays stay on disk.

    Attributes:
        persons: (n,) whose each record is, numbers that are equal exactly where the person is; None where each record
            is a unit of its own.
    """

    features: NDArray[Any]
    labels: NDArray[np.int64]
    persons: NDArray[np.int64] | None = None

    def __repr__(self) -> str:
        return "<PrivateRecords>"

    @property
    def units(self) -> int:
        """How many units there are: records, or persons."""
        return len(self.labels if self.persons is None else np.unique(self.persons))

    def of_unit(self, position: int) -> NDArray[np.int64]:
        """Positions of the records of a unit; persons are in the order in which their first records stand."""
        if self.persons is None:
            return np.array([position])
        _, first = np.unique(self.persons, return_index=True)
        return np.flatnonzero(self.persons == self.persons[np.sort(first)[position]])


class RecordTiles(Protocol):
    """Where an engine gets its records: in tiles of ``RECORD_TILE`` units, the last one shorter. Secret.

    A unit is what neighbours differ by: a record, or a person with all records.
    """

    @property
    def count(self) -> int:
        """How many records there are."""

    @property
    def units(self) -> int:
        """How many units there are."""

    @property
    def dim(self) -> int:
        """d."""

    def tile(self, index: int) -> Tile:
        """Return features (b, d), an array or a view of a memory-mapped one, and labels (b,) int64."""

    def length(self, index: int) -> int:
        """How many records a tile has."""

    def starts(self, index: int) -> NDArray[np.int64] | None:
        """(persons + 1,) where the records of each person of a tile begin in it; None where records are the units."""


class RecordUnits:
    """Tiles whose units are records: what follows from ``count``."""

    @property
    def units(self: RecordTiles) -> int:
        return self.count

    def length(self: RecordTiles, index: int) -> int:
        return tile_length(self.count, index, RECORD_TILE)

    def starts(self, index: int) -> None:
        del index


@dataclass(frozen=True)
class ArrayTiles(RecordUnits):
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


@dataclass(frozen=True, eq=False)
class PersonTiles:
    """Tiles of persons, ``RECORD_TILE`` of them in each with all of their records, sorted by class. Secret.

    Persons are in the order in which their first records stand in the data. Features stay where they are, also on disk.

    Raises:
        InvalidInput: shapes do not fit together, or there is no record.
    """

    features: NDArray[Any]
    labels: NDArray[np.int64]
    persons: NDArray[np.int64]
    _order: NDArray[np.int64] = field(init=False)
    _starts: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        if self.features.ndim != 2:
            raise InvalidInput("features", f"{self.features.ndim} dimensions", "a 2-d array")
        if self.labels.shape != self.features.shape[:1] or len(self.labels) == 0:
            raise InvalidInput("labels", WITHHELD, "one label a record, and at least one record")
        if self.persons.shape != self.labels.shape:
            raise InvalidInput("persons", WITHHELD, "one person a record")
        order, starts = grouped(self.persons, self.labels)
        object.__setattr__(self, "_order", order)
        object.__setattr__(self, "_starts", starts)

    def __repr__(self) -> str:
        return "<PersonTiles>"

    @property
    def count(self) -> int:
        """How many records count."""
        return len(self._order)

    @property
    def units(self) -> int:
        """How many persons there are."""
        return len(self._starts) - 1

    @property
    def dim(self) -> int:
        """d."""
        return int(self.features.shape[1])

    def length(self, index: int) -> int:
        """How many records a tile has."""
        first = index * RECORD_TILE
        return int(self._starts[first + tile_length(self.units, index, RECORD_TILE)] - self._starts[first])

    def tile(self, index: int) -> Tile:
        """Features and labels of the records of a tile's persons; features are fetched slice by slice."""
        rows = self._order[self._span(index)]
        fetched: Any = _Fetched(self.features, rows)
        return fetched, np.asarray(self.labels[rows])

    def starts(self, index: int) -> NDArray[np.int64]:
        """(persons + 1,) where the records of each person of a tile begin in it."""
        first = index * RECORD_TILE
        own = self._starts[first : first + tile_length(self.units, index, RECORD_TILE) + 1]
        return np.asarray(own - own[0])

    def _span(self, index: int) -> slice:
        first = index * RECORD_TILE
        return slice(self._starts[first], self._starts[first + tile_length(self.units, index, RECORD_TILE)])


class _Fetched:
    """Some rows of an array that may lie on a disk, in an order of their own; a slice of them is fetched at a time."""

    def __init__(self, array: NDArray[Any], rows: NDArray[np.int64]) -> None:
        self._array, self._rows = array, rows
        self.dtype, self.shape = array.dtype, (len(rows), *array.shape[1:])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, part: slice) -> NDArray[Any]:
        return np.asarray(self._array[self._rows[part]])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype)


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


class PersonStoreTiles:
    """Tiles of a feature store that is sorted by person: see :func:`privmix.engine.grouping.store_by_person`. Secret.

    They are those that :class:`PersonTiles` makes of the same records in memory. They travel as :class:`StoreTiles` do.
    """

    def __init__(self, path: str | Path) -> None:
        store = FeatureStore.open(path)
        if store.begins is None:
            raise InvalidInput("feature store", str(path), "one that is sorted by person")
        self._path, self._features, self._labels = Path(path).resolve(), store.features, store.labels
        self._begins, self.count, self.dim = store.begins, len(store.labels), store.dim
        self.units, self._cuts = _tiles_in(store.begins)

    def __repr__(self) -> str:
        return "<PersonStoreTiles>"

    def __reduce__(self) -> tuple[type[PersonStoreTiles], tuple[str]]:
        return PersonStoreTiles, (str(self._path),)

    def length(self, index: int) -> int:
        """How many records a tile has."""
        return int(self._cuts[index + 1] - self._cuts[index])

    def tile(self, index: int) -> Tile:
        """Features, a view of the memory-mapped ones, and labels of the records of a tile's persons."""
        part = slice(self._cuts[index], self._cuts[index + 1])
        return self._features[part], np.asarray(self._labels[part])

    def starts(self, index: int) -> NDArray[np.int64]:
        """(persons + 1,) where the records of each person of a tile begin in it."""
        begins = self._begins[self._cuts[index] : self._cuts[index + 1]]
        return np.append(np.flatnonzero(begins), len(begins))


def _tiles_in(begins: NDArray[np.uint8]) -> tuple[int, NDArray[np.int64]]:
    """How many persons begin, and (tiles + 1,) the records that tiles of them begin with.

    Example:
        >>> _tiles_in(np.array([1, 0, 1], np.uint8))
        (2, array([0, 3]))
    """
    units, cuts = 0, []
    for start in range(0, len(begins), _BEGINS_AT_ONCE):
        own = np.flatnonzero(begins[start : start + _BEGINS_AT_ONCE])
        cuts += (own[-units % RECORD_TILE :: RECORD_TILE] + start).tolist()
        units += len(own)
    return units, np.array([*cuts, len(begins)])


RecordSource = RecordTiles | PrivateRecords | FeatureStore


def tiles_of(records: RecordSource) -> RecordTiles:
    """Any form in which records are given, as tiles."""
    if isinstance(records, FeatureStore):
        return StoreTiles(records.path) if records.begins is None else PersonStoreTiles(records.path)
    if isinstance(records, PrivateRecords):
        if records.persons is None:
            return ArrayTiles(records.features, records.labels)
        return PersonTiles(records.features, records.labels, records.persons)
    return records


def record_tiles(records: RecordTiles) -> int:
    """How many tiles the units fill."""
    return -(-records.units // RECORD_TILE)


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
        if (starts := records.starts(index)) is not None:
            hasher.update(np.ascontiguousarray(starts).data)
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
        if (records.starts(0) is None) is not (plan.per_person is None):
            raise InvalidInput("persons", WITHHELD, "persons of records exactly where the plan's unit is a person")
        self.records, self.workers, self._most = records, workers, plan.per_person
        self._dim, self._clip_norm, self._classes = plan.dim, plan.clip_norm, plan.num_classes
        self._lattice = plan.lattice

    def clipped_sum(self, index: int, done: Callable[[int], None] = _ignore) -> NDArray[np.float64]:
        """(d,) sum of a tile's clipped records, before centring, in lattice steps of ``clip_norm``.

        ``done`` is called, as work proceeds, with the number of records it is done with.
        """
        total = np.zeros(self._dim)
        transform = RecordTransform(self._clip_norm)
        if self._most is not None:
            for features, _, weights in self.blocks(index, _PERSON_RECORDS):
                assert weights is not None
                means = weights.person_means(transform(np.asarray(features)) / transform.final_clip_norm)
                total += self._lattice.quantise(means).sum(axis=0)
                done(int(weights.starts[-1]))
            return total
        features, _ = self.read(index)
        for part in self._blocks(features, lambda _, block: self.lattice_steps(transform, block).sum(axis=0), done):
            total += part
        return total

    def check_labels(self) -> None:
        """Raise :class:`InvalidInput` unless every label is one of the plan's classes."""
        for index in range(record_tiles(self.records)):
            self._read(index)

    def read(self, index: int) -> Tile:
        """Features (b, d) and labels (b,) of a tile, its labels checked, of an engine that takes records as units.

        Raises:
            InvalidInput: persons are, of whom :meth:`blocks` says what their records weigh.
        """
        if self._most is not None:
            raise InvalidInput("persons", WITHHELD, "none: the design takes records as units")
        return self._read(index)

    def _read(self, index: int) -> Tile:
        features, labels = self.records.tile(index)
        if labels.min() < 0 or labels.max() >= self._classes:
            raise InvalidInput("labels", WITHHELD, f"class numbers from 0 to {self._classes - 1}")
        return features, labels

    def blocks(self, index: int, at_once: int) -> Iterator[Block]:
        """About ``at_once`` records of a tile at a time, with what they weigh; those of one person are never parted."""
        features, labels = self._read(index)
        starts, first = self.records.starts(index), 0
        if starts is None:
            for start in range(0, len(labels), at_once):
                yield features[start : start + at_once], labels[start : start + at_once], None
            return
        while first < len(starts) - 1:
            last = max(first + 1, int(np.searchsorted(starts, starts[first] + at_once, side="right")) - 1)
            part, own = slice(starts[first], starts[last]), starts[first : last + 1] - starts[first]
            yield features[part], labels[part], Weights(own, labels[part], self._most or 1)
            first = last

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
        self.plan, self._membership, self._sampler = plan, membership, plan.sampler_for(records.units)
        self._last: dict[str, Any] = {}

    def quantise(
        self, index: int, transform: RecordTransform, into: LatticeRecords, done: Callable[[int], None] = _ignore
    ) -> LatticeRecords:
        """A tile's transformed records on the lattice, in the first entries of ``into``; returns those."""
        if self.plan.as_means:
            return self._means(index, transform, into, done)
        features, _ = self._read(index)
        for _ in self._blocks(
            features, lambda start, block: into.fill(start, self.lattice_steps(transform, block)), done
        ):
            pass
        return into.part(slice(0, len(features)))

    def _means(
        self, index: int, transform: RecordTransform, into: LatticeRecords, done: Callable[[int], None]
    ) -> LatticeRecords:
        """The means of each person's records of each class on the lattice, as much as they weigh."""
        filled = 0
        for features, _, weights in self.blocks(index, _PERSON_RECORDS):
            assert weights is not None
            means = weights.class_means(transform(np.asarray(features)) / transform.final_clip_norm)
            into.fill(filled, self._lattice.quantise(means))
            filled += len(means)
            done(filled)
        return into.part(slice(0, filled))

    def empty_tile(self, *tiles: int) -> LatticeRecords:
        """Room for any of these tiles, quantised."""
        return LatticeRecords.empty(max(map(self.records.length, tiles)), self.plan.dim, self.largest)

    @property
    def record_bytes(self) -> int:
        """Memory of one quantised record."""
        return LatticeRecords.empty(1, self.plan.dim, self.largest).blocks.nbytes

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
        units = min(RECORD_TILE, self.records.units - index * RECORD_TILE)
        draws = max(1.0, self.plan.expected_members * ROW_TILE * units / self.records.units)
        step = max(1, int(min(_DRAWS_AT_ONCE / draws, _COUNTS_AT_ONCE / (ROW_TILE * self.plan.num_classes))))
        labels = self._labels(index)
        for first in range(rows.start, rows.stop, step):
            group = range(first, min(first + step, rows.stop))
            members = [self.members(row_tile, index) for row_tile in group]
            sums.add((first - rows.start) * ROW_TILE, on_lattice, labels, Membership.stack(members))

    def members(self, row_tile: int, index: int) -> Membership:
        """Which of what :meth:`quantise` made of a tile is in which rows of a row tile."""
        if self._most is None:
            return self._sampler.draw(self._membership, row_tile, index, self._labels(index))
        if self.plan.as_means:
            return every_of_class(self.plan.rows, row_tile, self._labels(index), self.plan.num_classes)
        givers = self._givers(index)
        units = givers.classes if givers.by_class else givers.starts[:-1]
        return givers.given(self._sampler.draw(self._membership, row_tile, index, units), row_tile)

    def spans(self, index: int) -> NDArray[np.int64]:
        """(units + 1,) where what :meth:`quantise` makes of each unit of a tile begins."""
        if (starts := self.records.starts(index)) is None:
            return np.arange(self.records.length(index) + 1)
        return np.searchsorted(self._groups(index).starts, starts) if self.plan.as_means else starts

    def _labels(self, index: int) -> NDArray[np.int64]:
        """The class of each of those that :meth:`quantise` makes."""
        return self._groups(index).labels if self.plan.as_means else self._read(index)[1]

    def _groups(self, index: int) -> Groups:
        return self._kept(index, "groups", lambda starts, labels: Weights(starts, labels, self._most or 1).groups)

    def _givers(self, index: int) -> Givers:
        by_class, streams = self._sampler.by_class, self._membership
        return self._kept(index, "givers", lambda starts, labels: Givers(starts, labels, streams, index, by_class))

    def _kept(self, index: int, name: str, make: Callable[[NDArray[np.int64], NDArray[np.int64]], _Result]) -> _Result:
        """What is made of a tile's persons, kept while the tile is the one that is summed."""
        if self._last.get("index") != index:
            self._last = {"index": index}
        if name not in self._last:
            starts = self.records.starts(index)
            assert starts is not None
            self._last[name] = make(starts, self._read(index)[1])
        found: _Result = self._last[name]
        return found
