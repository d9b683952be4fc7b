"""Features of a dataset's records: in memory, or in a store on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.data import FeatureStore, Source
from privmix.data.files import reading
from privmix.data.fingerprint import keep_hashes, recall_hashes
from privmix.data.remote import is_remote
from privmix.engine import PrivateRecords
from privmix.engine.encoding import ClusterEncoder
from privmix.engine.grouping import by_person, store_by_person
from privmix.engine.ray import Cluster
from privmix.engine.rows import default_memory
from privmix.errors import InvalidInput
from privmix.features import Extractor, from_spec, write_features
from privmix.jobs.dataset import Dataset
from privmix.progress import Progress
from privmix.releases.folder import read_extractor


def extractor_of(release: Path, certificate: Mapping[str, Any], model: str | Path | None = None) -> Extractor:
    """Return the extractor of a release in a folder; raise errors as :func:`privmix.features.from_spec` does."""
    arrays = read_extractor(release, certificate)
    return from_spec(certificate["extractor"], model, arrays=arrays)


def features_in_memory(source: Source, extractor: Extractor, progress: Progress) -> PrivateRecords:
    """Read raw records and return their features (n, d) and labels (n,)."""
    return features_of_all([source], extractor, progress)


def features_of_all(sources: Sequence[Source], extractor: Extractor, progress: Progress) -> PrivateRecords:
    """Features and labels of several sources of one input shape, one after the other in one array."""
    for source in sources:
        extractor.check_schema(source.schema)
    total = sum(source.schema.records for source in sources)
    features = np.empty((total, extractor.output_dim(sources[0].schema.input_shape)), np.float32)
    labels = np.empty(total, np.int64)
    done = 0
    for source in sources:
        for x, y in extractor.rows(source):
            end = done + len(y)
            features[done:end], labels[done:end] = x, y
            done = end
            progress(f"features ({extractor.name})", done, total)
    return PrivateRecords(features, labels)


def records_of(
    dataset: Dataset,
    extractor: Extractor,
    whose: NDArray[np.int64] | None,
    store: Path | None,
    place: Callable[[], Path],
    memory_gb: float | None,
    progress: Progress,
    *,
    cluster: Cluster | None = None,
    workers: int | None = None,
) -> PrivateRecords | FeatureStore:
    """Features of a dataset as engines take them: on disk at `store`, or at `place` where memory is too small."""
    # For a cluster they are always on disk, and their store's path travels: no record is in its object store.
    schema = dataset.schema
    large = 4 * schema.records * extractor.output_dim(schema.input_shape) > default_memory() / 2
    if store is None and not large and cluster is None:
        return replace(features_in_memory(dataset.source, extractor, progress), persons=whose)
    kept = features_on_disk(dataset, extractor, store or place(), progress, cluster=cluster, workers=workers)
    return sorted_store(kept, whose, by_person(kept.path), memory_gb, progress)


def sorted_store(
    store: FeatureStore, whose: NDArray[np.int64] | None, place: Path, memory_gb: float | None, progress: Progress
) -> FeatureStore:
    """Return the store, by person where persons are the units; another store, at ``place``, then."""
    if whose is None:
        return store
    memory = None if memory_gb is None else int(memory_gb * 2**30)
    return store_by_person(store, whose, place, memory_bytes=memory, progress=progress)


def features_on_disk(
    dataset: Dataset,
    extractor: Extractor,
    store: Path,
    progress: Progress,
    *,
    cluster: Cluster | None = None,
    workers: int | None = None,
) -> FeatureStore:
    """Features in a store, made, continued or reused, for the same files, split, classes and extractor alone."""
    with _origin(dataset, Path(store)) as made_from:
        check = partial(_check_unchanged, dataset, made_from)
        made = partial(write_features, dataset.source, extractor, store, made_from, progress, check=check)
        if cluster is None or not dataset.source.travels or Path(store).exists():
            return made()
        with ClusterEncoder(cluster, dataset.source, extractor, workers) as encoder:
            return made(encoder=encoder)


def _check_unchanged(dataset: Dataset, made_from: Mapping[str, Any]) -> None:
    """Raise if files differ by now from those that were hashed; untouched files are not hashed again."""
    dataset.source.check_unchanged()
    if dataset.place is None or is_remote(dataset.place):
        return
    if dataset.origin() != made_from:
        raise InvalidInput("data", dataset.place, "files that do not change while they are read")


@contextmanager
def _origin(dataset: Dataset, store: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the origin of features; while they are made, hashes of the files are kept next to the store."""
    # So an interrupted job does not read all data again to hash them.
    notes = store.with_name(f".{store.name}.hashes")
    # A copy of what lies at an address is another one each time.
    copied = dataset.place is not None and is_remote(dataset.place) and not dataset.source.travels
    if dataset.place is None or copied:
        yield dataset.origin()
        return
    with reading(store.parent, "a folder"):
        recall_hashes(notes)
        found = dataset.origin()
        if not store.exists():
            keep_hashes(notes, dataset.source.files)
    try:
        yield found
    except InvalidInput:
        notes.unlink(missing_ok=True)
        raise
    notes.unlink(missing_ok=True)
