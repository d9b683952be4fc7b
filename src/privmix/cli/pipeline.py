"""Steps that several verbs share: class lists from flags, features from raw inputs, charges to a ledger."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.accounting import Adjacency, Event
from privmix.data import FeatureStore, Source, fingerprint
from privmix.data.fingerprint import files_of
from privmix.errors import InvalidInput
from privmix.features.base import Extractor
from privmix.ledger import Ledger
from privmix.release.engine import Progress

_BATCH = 2048


def class_list(text: str | None) -> int | list[str] | None:
    """``"10"`` means ten classes "0".."9"; ``"cat,dog"`` names them."""
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        names = [name.strip() for name in text.split(",")]
    if len(names) < 2 or not all(names):
        raise InvalidInput("--classes", text, "a number of classes, or at least two names separated by commas")
    return names


def extract_features(
    source: Source,
    extractor: Extractor,
    store: Path | None,
    progress: Progress,
    data: Path | None = None,
    split: str = "",
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Read raw records and return features (n, d) and labels (n,); with ``store``, on disk and reusable.

    A store is reused only for the very files, split, classes and extractor it was made from.
    """
    schema = source.schema
    dim = extractor.output_dim(schema.input_shape)
    if store is not None:
        made_from = {**extractor.spec(), "source": {"split": split, "files": _identity(data)}}
        if not store.exists():
            return _to_store(source, extractor, made_from, store, dim, progress)
        kept = FeatureStore.open(store)
        if kept.extractor != made_from or kept.schema != schema or kept.dim != dim:
            raise InvalidInput("--store", str(store), "a store made from these files, split, classes and extractor")
        kept.verify()
        return kept.features, kept.labels
    features = np.empty((schema.records, dim), np.float32)
    labels = np.empty(schema.records, np.int64)
    done = 0
    for batch in source.batches(_BATCH):
        end = done + len(batch.y)
        features[done:end], labels[done:end] = extractor.transform(batch.x), batch.y
        done = end
        progress(f"features ({extractor.name})", done, schema.records)
    return features, labels


def _identity(data: Path | None) -> list[list[Any]]:
    """Path, size and time of change of every file of a dataset; private, and kept in the private store only."""
    if data is None:
        return []
    return [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in files_of(data)]


def _to_store(
    source: Source, extractor: Extractor, made_from: dict[str, Any], store: Path, dim: int, progress: Progress
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    records = source.schema.records
    done = 0
    with FeatureStore.create(store, records, dim, schema=source.schema, extractor=made_from) as writer:
        for batch in source.batches(_BATCH):
            writer.append(extractor.transform(batch.x), batch.y)
            done += len(batch.y)
            progress(f"features ({extractor.name})", done, records)
    kept = FeatureStore.open(store)
    return kept.features, kept.labels


def charge(
    ledger: str | None, dataset: str | None, event: Event, adjacency: Adjacency, purpose: str, data: Path
) -> Callable[[str], None]:
    """Take the cost of ``event`` from the dataset's budget, durably; the function returned records what came of it.

    Call it before the first private row is read. Without a ledger it does nothing.
    """
    if ledger is None or dataset is None:
        return lambda result: None
    book = Ledger.open(ledger)
    reservation = book.reserve(dataset, event, adjacency=adjacency, purpose=purpose)
    book.bind(reservation, fingerprint(data))
    return lambda result: book.commit(reservation, result=result)
