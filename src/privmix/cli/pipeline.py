"""Steps that several verbs share: class lists from flags, features from raw inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.data import FeatureStore, Source
from privmix.errors import InvalidInput
from privmix.features.base import Extractor
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
    source: Source, extractor: Extractor, store: Path | None, progress: Progress
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Read raw records and return features (n, d) and labels (n,); with ``store``, on disk and reusable."""
    schema = source.schema
    dim = extractor.output_dim(schema.input_shape)
    if store is not None and store.exists():
        kept = FeatureStore.open(store)
        if kept.extractor != extractor.spec() or kept.features.shape != (schema.records, dim):
            raise InvalidInput("--store", str(store), "a store of this dataset's features from this extractor")
        return kept.features, kept.labels
    if store is not None:
        return _to_store(source, extractor, store, dim, progress)
    features = np.empty((schema.records, dim), np.float32)
    labels = np.empty(schema.records, np.int64)
    done = 0
    for batch in source.batches(_BATCH):
        end = done + len(batch.y)
        features[done:end], labels[done:end] = extractor.transform(batch.x), batch.y
        done = end
        progress(f"features ({extractor.name})", done, schema.records)
    return features, labels


def _to_store(
    source: Source, extractor: Extractor, store: Path, dim: int, progress: Progress
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    records = source.schema.records
    done = 0
    with FeatureStore.create(store, records, dim, schema=source.schema, extractor=extractor.spec()) as writer:
        for batch in source.batches(_BATCH):
            writer.append(extractor.transform(batch.x), batch.y)
            done += len(batch.y)
            progress(f"features ({extractor.name})", done, records)
    kept = FeatureStore.open(store)
    return kept.features, kept.labels
