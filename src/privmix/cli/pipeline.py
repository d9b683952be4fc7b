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
    files = sorted(path for path in data.rglob("*") if path.is_file()) if data.is_dir() else [data]
    return [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in files]


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
