"""Private records, tile by tile: where they come from, in memory or on a disk."""

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from privmix.data.store import FeatureStore
from privmix.errors import WITHHELD, InvalidInput
from privmix.mechanisms.membership import RECORD_TILE, Secret, tile_length
from privmix.mechanisms.persons import grouped

Tile = tuple[NDArray[Any], NDArray[np.int64]]

_BEGINS_AT_ONCE = 2**24


@dataclass(frozen=True)
class PrivateRecords(Secret):
    """Extracted features (n, d) and labels (n,) in 0..K-1. Secret. Memory-mapped arrays stay on disk."""

    # persons: (n,) numbers that are equal exactly where the person is; None where each record is a unit of its own.

    features: NDArray[Any]
    labels: NDArray[np.int64]
    persons: NDArray[np.int64] | None = None

    @property
    def units(self) -> int:
        return len(self.labels if self.persons is None else np.unique(self.persons))

    def of_unit(self, position: int) -> NDArray[np.int64]:
        """Positions of the records of a unit; persons are in the order in which their first records stand."""
        if self.persons is None:
            return np.array([position])
        _, first = np.unique(self.persons, return_index=True)
        return np.flatnonzero(self.persons == self.persons[np.sort(first)[position]])


class RecordTiles(Protocol):
    """An engine's records in tiles of ``RECORD_TILE`` units (records or persons), the last one shorter. Secret."""

    @property
    def count(self) -> int:
        """How many records there are."""

    @property
    def units(self) -> int:
        """How many units there are."""

    @property
    def dim(self) -> int:
        """Number of features, d."""

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
class ArrayTiles(RecordUnits, Secret):
    """Tiles of arrays, in memory or memory-mapped."""

    features: NDArray[Any]
    labels: NDArray[np.int64]

    def __post_init__(self) -> None:
        _check_arrays(self.features, self.labels)

    @property
    def count(self) -> int:
        return len(self.labels)

    @property
    def dim(self) -> int:
        return int(self.features.shape[1])

    def tile(self, index: int) -> Tile:
        part = slice(index * RECORD_TILE, (index + 1) * RECORD_TILE)
        return self.features[part], np.asarray(self.labels[part])


def _check_arrays(features: NDArray[Any], labels: NDArray[np.int64]) -> None:
    if features.ndim != 2:
        raise InvalidInput("features", f"{features.ndim} dimensions", "a 2-d array")
    if labels.shape != features.shape[:1] or len(labels) == 0:
        raise InvalidInput("labels", WITHHELD, "one label a record, and at least one record")


class PersonTiles(Secret):
    """Tiles of ``RECORD_TILE`` persons with all of their records, sorted by class. Secret."""

    # Persons are in the order of their first records in the data. Features stay where they are, also on disk.

    def __init__(self, features: NDArray[Any], labels: NDArray[np.int64], persons: NDArray[np.int64]) -> None:
        _check_arrays(features, labels)
        if persons.shape != labels.shape:
            raise InvalidInput("persons", WITHHELD, "one person a record")
        self._features, self._labels = features, labels
        self._order, self._starts = grouped(persons, labels)
        self.count: int = len(self._order)
        self.units: int = len(self._starts) - 1
        self.dim: int = int(features.shape[1])

    def length(self, index: int) -> int:
        return int(self.starts(index)[-1])

    def tile(self, index: int) -> Tile:
        """Features and labels of the records of a tile's persons; features are fetched slice by slice."""
        own = self._places(index)
        rows = self._order[own[0] : own[-1]]
        fetched: Any = _Fetched(self._features, rows)
        return fetched, np.asarray(self._labels[rows])

    def starts(self, index: int) -> NDArray[np.int64]:
        """(persons + 1,) where the records of each person of a tile begin in it."""
        own = self._places(index)
        return np.asarray(own - own[0])

    def _places(self, index: int) -> NDArray[np.int64]:
        """(persons + 1,) where the records of each person of a tile begin in the sorted data."""
        return self._starts[index * RECORD_TILE : (index + 1) * RECORD_TILE + 1]


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

    path: Path

    def __init__(self, path: str | Path) -> None:
        store = FeatureStore.open(path)
        super().__init__(store.features, store.labels)
        object.__setattr__(self, "path", Path(path).resolve())

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickling a memory-mapped array would copy all records; the path is enough on a shared disk.
        return StoreTiles, (str(self.path),)


class PersonStoreTiles(Secret):
    """Tiles of a feature store sorted by person (:func:`privmix.engine.grouping.store_by_person`). Secret."""

    # The same tiles that PersonTiles makes of the same records in memory. They travel as StoreTiles do.

    def __init__(self, path: str | Path) -> None:
        store = FeatureStore.open(path)
        if store.begins is None:
            raise InvalidInput("feature store", str(path), "a store sorted by person")
        self._path, self._features = Path(path).resolve(), store.features
        self._labels = store.labels
        self.count: int = len(store.labels)
        self.dim: int = store.dim
        self._begins, (units, self._cuts) = store.begins, _tiles_in(store.begins)
        self.units: int = units

    def __reduce__(self) -> tuple[Any, ...]:
        return PersonStoreTiles, (str(self._path),)

    def length(self, index: int) -> int:
        return int(self._cuts[index + 1] - self._cuts[index])

    def tile(self, index: int) -> Tile:
        """Features, a view of the memory-mapped ones, and labels of the records of a tile's persons."""
        first, stop = int(self._cuts[index]), int(self._cuts[index + 1])
        return self._features[first:stop], np.asarray(self._labels[first:stop])

    def starts(self, index: int) -> NDArray[np.int64]:
        begins = self._begins[self._cuts[index] : self._cuts[index + 1]]
        return np.append(np.flatnonzero(begins), len(begins))


def _tiles_in(begins: NDArray[np.uint8]) -> tuple[int, NDArray[np.int64]]:
    """Return how many persons begin, and (tiles + 1,) the records that tiles of them begin with."""
    units, cuts = 0, []
    for start in range(0, len(begins), _BEGINS_AT_ONCE):
        own = np.flatnonzero(begins[start : start + _BEGINS_AT_ONCE])
        # The first persons of a part may belong to a tile that began before it.
        cuts += (own[-units % RECORD_TILE :: RECORD_TILE] + start).tolist()
        units += len(own)
    return units, np.array([*cuts, len(begins)])


RecordSource = RecordTiles | PrivateRecords | FeatureStore


def tiles_of(records: RecordSource) -> RecordTiles:
    if isinstance(records, FeatureStore):
        return (StoreTiles if records.begins is None else PersonStoreTiles)(records.path)
    if isinstance(records, PrivateRecords):
        if records.persons is None:
            return ArrayTiles(records.features, records.labels)
        return PersonTiles(records.features, records.labels, records.persons)
    return records


def record_tiles(records: RecordTiles) -> int:
    return -(-records.units // RECORD_TILE)


def cores() -> int:
    """Cores that this process may use: those of the machine, or fewer where a scheduler gave it some of them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def mapping(workers: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """``map`` on this many threads, results in order; one thread is this one, since starting another takes a while."""
    if workers == 1:
        yield map
        return
    with ThreadPoolExecutor(workers) as pool:
        yield pool.map


def content_fingerprint(records: RecordTiles, key: bytes, workers: int) -> str:
    """Hash of every feature and label, keyed: without the key it confirms no guess at the data."""

    def digest(index: int) -> bytes:
        features, labels = records.tile(index)
        # Type and shape are hashed first, because arrays of another type can have the same bytes.
        hasher = hashlib.blake2b(f"{features.dtype.str} {features.shape}".encode(), key=key, digest_size=32)
        # A few at a time: rows may be fetched from a disk.
        for start in range(0, len(features), 1024):
            hasher.update(np.ascontiguousarray(features[start : start + 1024]).data)
        hasher.update(np.ascontiguousarray(labels, np.int64).data)
        # The assignment of records to persons decides what is released, so it is hashed too.
        if (starts := records.starts(index)) is not None:
            hasher.update(np.ascontiguousarray(starts).data)
        return hasher.digest()

    whole = hashlib.blake2b(key=key, digest_size=32)
    with mapping(workers) as each:
        # Results come in the order of tiles, so the number of threads does not change the hash.
        for part in each(digest, range(record_tiles(records))):
            whole.update(part)
    return whole.hexdigest()
