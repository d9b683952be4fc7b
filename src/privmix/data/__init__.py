"""Readers of labelled datasets, and the feature store."""

from privmix.data.dataset import ArraySource, LabelledArray, Schema, Source, open_dataset
from privmix.data.embedded import embedded_digits
from privmix.data.fingerprint import content_hashes, fingerprint
from privmix.data.store import FeatureStore, FeatureStoreWriter

__all__ = [
    "ArraySource",
    "FeatureStore",
    "FeatureStoreWriter",
    "LabelledArray",
    "Schema",
    "Source",
    "content_hashes",
    "embedded_digits",
    "fingerprint",
    "open_dataset",
]
