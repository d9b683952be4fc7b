"""Readers of labelled datasets, and the feature store."""

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.data.dataset import ArraySource, LabelledArray, Schema, Source, open_dataset
    from privmix.data.fingerprint import content_hashes
    from privmix.data.memory import embedded_digits
    from privmix.data.store import FeatureStore, FeatureStoreWriter
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "ArraySource",
    "FeatureStore",
    "FeatureStoreWriter",
    "LabelledArray",
    "Schema",
    "Source",
    "content_hashes",
    "embedded_digits",
    "open_dataset",
]
