"""Features of a dataset's records, on one path: a source, its batches, their features, and memory or a store."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privmix.data.dataset import Source
from privmix.data.files import reading
from privmix.data.fingerprint import keep_hashes, recall_hashes
from privmix.data.store import FeatureStore
from privmix.engine.encoding import ClusterEncoder
from privmix.engine.grouping import by_person, store_by_person
from privmix.engine.ray import Cluster
from privmix.engine.rows import PrivateRecords, default_memory
from privmix.errors import InvalidInput
from privmix.features.base import Extractor
from privmix.features.cache import write_features
from privmix.jobs.dataset import Dataset
from privmix.mechanisms.persons import NO_ONE
from privmix.progress import Progress


def features_place(
    dataset: Dataset, extractor: Extractor, store: Path | None, spill: Path, cluster: Cluster | None = None
) -> Path | None:
    """Choose by public facts where features go: memory (None), the owner's ``store``, or else ``spill``."""
    # For a cluster they are always on disk, and their store's path travels: no record is in its object store.
    schema = dataset.schema
    # Half of it, in float32: a pass needs the rest for its sums and blocks of records.
    large = 4 * schema.records * extractor.output_dim(schema.input_shape) > default_memory() / 2
    return spill if store is None and (large or cluster is not None) else store


def records_of(
    dataset: Dataset,
    extractor: Extractor,
    persons: NDArray[np.int64] | None,
    place: Path | None,
    memory_gb: float | None,
    progress: Progress,
    *,
    cluster: Cluster | None = None,
    workers: int | None = None,
) -> PrivateRecords | FeatureStore:
    """Features of a dataset as engines take them: in memory where ``place`` is None, else in a store there."""
    if place is None:
        return replace(features_in_memory(dataset.source, extractor, progress), persons=persons)
    store = features_on_disk(dataset, extractor, place, progress, cluster=cluster, workers=workers)
    return sorted_store(store, persons, by_person(store.path), memory_gb, progress)


def features_in_memory(source: Source | Sequence[Source], extractor: Extractor, progress: Progress) -> PrivateRecords:
    """Features (n, d) and labels (n,) of a source; of several of one input shape, one after the other."""
    sources = [source] if isinstance(source, Source) else source
    for one in sources:
        extractor.check_schema(one.schema)
    total = sum(one.schema.records for one in sources)
    features = np.empty((total, extractor.output_dim(sources[0].schema.input_shape)), np.float32)
    labels = np.empty(total, np.int64)
    done = 0
    for one in sources:
        for x, y in extractor.rows(one):
            end = done + len(y)
            features[done:end], labels[done:end] = x, y
            done = end
            progress(f"features ({extractor.name})", done, total)
    return PrivateRecords(features, labels)


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
    source, notes = dataset.source, store.with_name(f".{store.name}.hashes")
    # A finished store needs no machines, and some data cannot travel to them.
    encoders = None if cluster is None or store.exists() or not source.travels else cluster
    with reading(store.parent, "a folder"):
        # Hashes are kept while the store is made: an interrupted job does not read all data again to hash them.
        recall_hashes(notes)
        made_from = dataset.origin()
        if not store.exists():
            keep_hashes(notes, source.files)
    check = partial(dataset.check_unchanged, made_from)
    try:
        with nullcontext() if encoders is None else ClusterEncoder.on(encoders, source, extractor, workers) as encoder:
            made = write_features(source, extractor, store, made_from, progress, encoder=encoder, check=check)
    except InvalidInput:
        # Hashes of data that were refused or changed must not be recalled by the next attempt.
        notes.unlink(missing_ok=True)
        raise
    notes.unlink(missing_ok=True)
    return made


def sorted_store(
    store: FeatureStore, persons: NDArray[np.int64] | None, place: Path, memory_gb: float | None, progress: Progress
) -> FeatureStore | PrivateRecords:
    """Return the store, by person where persons are the units; another store, at ``place``, then."""
    if persons is None:
        return store
    if (persons == NO_ONE).all():
        # A store holds a record or more: one of no one stands for all.
        return PrivateRecords(store.features[:1], store.labels[:1], persons[:1])
    memory = None if memory_gb is None else int(memory_gb * 2**30)
    return store_by_person(store, persons, place, memory_bytes=memory, progress=progress)
