"""Features of a dataset's records: in memory, or in a store on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privmix.data import FeatureStore, Source
from privmix.engine import PrivateRecords
from privmix.features import Extractor, from_spec, write_features
from privmix.jobs.dataset import Dataset
from privmix.progress import Progress
from privmix.releases.folder import read_extractor


def extractor_of(
    release: Path, certificate: Mapping[str, Any], model: str | Path | None = None, trust_model: bool = False
) -> Extractor:
    """The extractor of a release in a folder, with what it carries; errors as :func:`privmix.features.from_spec`."""
    arrays = read_extractor(release, certificate)
    return from_spec(certificate["extractor"], model, trust_model=trust_model, arrays=arrays)


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
        for batch in source.batches(extractor.step):
            end = done + len(batch.y)
            features[done:end], labels[done:end] = extractor.transform(batch.x), batch.y
            done = end
            progress(f"features ({extractor.name})", done, total)
    return PrivateRecords(features, labels)


def features_on_disk(dataset: Dataset, extractor: Extractor, store: Path, progress: Progress) -> FeatureStore:
    """Features in a store, made, continued or reused; only for the very files, split, classes and extractor."""
    return write_features(dataset.source, extractor, store, dataset.origin(), progress)
