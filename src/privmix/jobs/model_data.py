"""Labelled data of a model's user, read as the model takes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privmix.data import Source
from privmix.errors import InvalidInput
from privmix.features import Extractor
from privmix.jobs.columns import Columns
from privmix.jobs.dataset import Dataset, open_dataset
from privmix.jobs.models import is_trained

if TYPE_CHECKING:
    from privmix.learning.base import ReleaseFacts
    from privmix.training import ModelFacts


def open_for_model(
    facts: ReleaseFacts | ModelFacts, extractor: Extractor, data: Any, split: str, columns: Columns | None
) -> Dataset:
    """Open data for a model; raises for inputs of another shape, or classes that are others or in another order."""
    # An open source has its own, which are compared below.
    shape, named = tuple(facts.input_shape), None if isinstance(data, Source) else list(facts.classes)
    found = open_dataset(data, extractor, split=split, classes=named, columns=columns, input_shape=shape)
    if tuple(found.schema.input_shape) != shape:
        raise InvalidInput("data", found.schema.input_shape, f"inputs of shape {shape}")
    if tuple(found.schema.classes) != tuple(facts.classes):
        # In another order every label would mean another class, and the score would be of nothing.
        raise InvalidInput("classes", list(found.schema.classes), f"the model's: {', '.join(facts.classes)}")
    return found


def has_splits(data: Any) -> bool:
    """Whether data have parts of different names: those in memory do where they are a mapping of them."""
    return isinstance(data, str | Path | Mapping)


def split_of(data: Any, split: str | None) -> str:
    """Return the part that ``split`` names; by default the test records, where there are several parts."""
    return split or ("test" if has_splits(data) else "train")


def subject_of(classifier: Any) -> dict[str, Any]:
    """Subject of a classifier's figures: the trained model itself, or the release that it was fitted on."""
    if is_trained(classifier):
        return {"kind": "model", "id": classifier.certificate.id}
    return {"kind": "release", "id": classifier.facts_.release_id}
