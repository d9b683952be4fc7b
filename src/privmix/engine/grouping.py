"""A feature store sorted by person, for data that do not fit in memory: an external sort."""
# Records are written by person to parts that fit in memory; each is sorted by person and class, and appended.

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.files import reading
from privmix.data.store import FeatureStore, FeatureStoreWriter
from privmix.engine.rows import default_memory
from privmix.errors import WITHHELD, InvalidInput
from privmix.folders import PrivateFolder
from privmix.mechanisms.persons import NO_ONE, numbers_of, of_many
from privmix.mechanisms.plan import MOST_OF_ONE
from privmix.progress import Progress, silent

# Files that are open at once; if more data than this many parts have to be sorted, each file takes more memory.
_MOST_PARTS: Final = 256
# A part is in memory as it was read, in its order, and as the store takes it.
_COPIES: Final = 3
_AT_ONCE: Final = 16_384


def store_by_person(
    store: FeatureStore,
    persons: NDArray[np.int64],
    path: str | Path,
    *,
    memory_bytes: int | None = None,
    most: int = MOST_OF_ONE,
    progress: Progress | None = None,
) -> FeatureStore:
    """Return a store at ``path``, each person's records side by side and by class; reuse or continue an earlier one.

    Formal guarantees:
        * Same: records stand in the order that :func:`privmix.mechanisms.persons.grouped` gives in memory, to the bit.
        * Whole: a person's records are side by side, however the data are cut.
        * Bounded: memory holds one part of data of any size, and 4 bytes a person, or 8 where a person has more records
          than count. The numbers of the records' persons, 8 bytes each, may lie on a disk.
        * Private: stores and parts are folders of the owner's alone; parts go when the store is there, and what a kill
          left of them goes with the next attempt. No identifier is in them.
    """
    # An interrupted store's parts on disk are neither written nor sorted again. memory_bytes: of a part; None is a
    # quarter of the machine's. `path` takes as much disk space as `store`; parts take as much meanwhile.
    if persons.shape != store.labels.shape:
        raise InvalidInput("persons", WITHHELD, "one person for each record")
    path, number = Path(path), numbers_of(persons)
    facts = {**store.extractor, "by_person": _fingerprint(store, number)}
    if path.exists():
        return _kept(path, facts)
    counts = _counts(number)
    schema = replace(store.schema, records=sum(int(some.sum()) for _, some in _kept_of(counts, most)))
    writer = FeatureStore.create(
        path, schema.records, store.dim, schema=schema, extractor=facts, resume=True, by_person=True
    )
    with writer:
        memory = default_memory() // 2 if memory_bytes is None else memory_bytes
        size = max(1, memory // (_COPIES * _record_of(store.dim).itemsize), -(-schema.records // _MOST_PARTS))
        sorting = _Sorting(store, number, counts, most, size, writer.rows, progress or silent)
        with _folder_of_parts(path) as folder:
            sorting.deal(folder)
            sorting.write(folder, writer)
        return writer.finish()


def by_person(path: Path) -> Path:
    return path.with_name(f"{path.name}-by-person")


def _fingerprint(store: FeatureStore, number: NDArray[np.int64]) -> str:
    digest = hashlib.sha256(store.fingerprint.encode())
    digest.update(np.ascontiguousarray(number, "<i8").data)
    return digest.hexdigest()


def _kept(path: Path, facts: Mapping[str, Any]) -> FeatureStore:
    kept = FeatureStore.open(path)
    if kept.begins is None or kept.extractor != facts:
        raise InvalidInput("feature store", str(path), "a store of these records and persons")
    kept.verify()
    return kept


@contextmanager
def _folder_of_parts(path: Path) -> Iterator[PrivateFolder]:
    place = path.with_name(f".{path.name}.parts")
    with reading(path.parent, "a folder"):
        if place.exists() or place.is_symlink():
            # The writer's lock is ours: no other process is using them.
            with PrivateFolder(place, place.name) as left:
                left.discard()
        folder = PrivateFolder(place, place.name, create=True)
    try:
        yield folder
    finally:
        with reading(path.parent, "a folder"):
            folder.discard()


def _record_of(dim: int) -> np.dtype[Any]:
    return np.dtype([("person", "<i8"), ("label", "<i8"), ("x", "<f4", (dim,))])


def _counts(number: NDArray[np.int64]) -> NDArray[Any]:
    """(persons,) how many records each has; in 4 bytes where these suffice."""
    persons = 1 + max(int(number[start : start + _AT_ONCE].max()) for start in range(0, len(number), _AT_ONCE))
    counts = np.zeros(persons, np.int32 if len(number) < 2**31 else np.int64)
    # A part at a time: the numbers may lie on a disk.
    for start in range(0, len(number), _AT_ONCE):
        some = number[start : start + _AT_ONCE]
        np.add.at(counts, some[some != NO_ONE], 1)
    return counts


def _kept_of(counts: NDArray[Any], most: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield the first of some persons, and how many records of each count."""
    for start in range(0, len(counts), _AT_ONCE):
        yield start, np.minimum(counts[start : start + _AT_ONCE], most).astype(np.int64)


def _cut(counts: NDArray[Any], most: int, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(parts + 1,) first persons and first records of parts, each begun behind a multiple of ``size``. Secret."""
    cuts, starts, done, last = list[int](), list[int](), 0, -1
    for first, kept in _kept_of(counts, most):
        begins = done + np.cumsum(kept) - kept
        new = np.flatnonzero(np.diff(begins // size, prepend=last))
        cuts += (first + new).tolist()
        starts += begins[new].tolist()
        done, last = int(begins[-1] + kept[-1]), int(begins[-1] // size)
    return np.array([*cuts, len(counts)]), np.array([*starts, done])


class _Sorting:
    """Parts of the records, by person; those of which ``done`` records are written already are left out. Secret."""

    def __init__(
        self,
        store: FeatureStore,
        number: NDArray[np.int64],
        counts: NDArray[Any],
        most: int,
        size: int,
        done: int,
        progress: Progress,
    ) -> None:
        self._store, self._number, self._counts, self._most = store, number, counts, most
        self._record, self._done, self._progress = _record_of(store.dim), done, progress
        self._cuts, self._starts = _cut(counts, most, size)
        # The first part of which not all records are written.
        self._first = int(np.searchsorted(self._starts, done, side="right")) - 1

    def deal(self, folder: PrivateFolder) -> None:
        """Read all records in order, and append each to the part of its person."""
        parts = range(self._first, len(self._cuts) - 1)
        streams: dict[int, IO[bytes]] = {}
        seen = np.zeros_like(self._counts) if self._counts.max() > self._most else None
        try:
            for part in parts:
                streams[part] = folder.create(str(part))
            for start in range(0, len(self._number), _AT_ONCE):
                rows = slice(start, start + _AT_ONCE)
                with reading(folder.path, "a folder"):
                    self._deal_some(rows, streams, seen)
                self._progress("grouping", min(rows.stop, len(self._number)), 2 * len(self._number))
        finally:
            with reading(folder.path, "a folder"):
                for stream in streams.values():
                    stream.close()

    def _deal_some(self, rows: slice, streams: Mapping[int, IO[bytes]], seen: NDArray[np.int64] | None) -> None:
        number = self._number[rows]
        own = number >= self._cuts[self._first]
        if seen is not None:
            known = np.flatnonzero(number != NO_ONE)
            own[known] &= of_many(number[known], self._counts, seen, self._most)
        taken = np.flatnonzero(own)
        dealt = np.empty(len(taken), self._record)
        dealt["person"], dealt["label"] = number[taken], self._store.labels[rows][taken]
        dealt["x"] = np.asarray(self._store.features[rows])[taken]
        part = np.searchsorted(self._cuts, dealt["person"], side="right") - 1
        # Stable: records of a part keep the order that they have in memory.
        order = np.argsort(part, kind="stable")
        dealt, part = dealt[order], part[order]
        for each in np.unique(part).tolist():
            first, last = np.searchsorted(part, [each, each + 1])
            streams[each].write(dealt[first:last].tobytes())

    def write(self, folder: PrivateFolder, writer: FeatureStoreWriter) -> None:
        """Sort each part by person and class, append it to the store, and remove it."""
        for part in range(self._first, len(self._cuts) - 1):
            # By itself, so that one part is gone from memory before the next one is read.
            self._write_part(part, folder, writer)
            folder.remove(str(part))

    def _write_part(self, part: int, folder: PrivateFolder, writer: FeatureStoreWriter) -> None:
        total, classes = len(self._number), self._store.schema.num_classes
        with reading(folder.path, "a folder"), folder.open(str(part)) as stream:
            dealt = np.fromfile(stream, self._record)
        order = np.argsort(dealt["person"] * classes + dealt["label"], kind="stable")
        begins = np.diff(dealt["person"][order], prepend=-1) != 0
        # An interrupted writer may have got into the midst of it.
        for start in range(max(0, self._done - int(self._starts[part])), len(order), _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            block = dealt[order[some]]
            writer.append(block["x"], block["label"], begins[some])
            self._progress("grouping", total + total * writer.rows // int(self._starts[-1]), 2 * total)
