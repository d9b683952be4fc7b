"""A bank of views for fixed features: each image is augmented V times before the extractor sees it."""
# Extracting every view of every step again would cost more than all of the training; a step draws from the bank.

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from privmix.data import Source
from privmix.errors import InvalidInput, check_integer
from privmix.features import Extractor
from privmix.features.identity import unit_range
from privmix.mechanisms.membership import RECORD_TILE
from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress
from privmix.training.facts import ImageLayout
from privmix.training.records import TrainingRecords
from privmix.training.views.augmentation import Augmentation, augment
from privmix.training.views.record_random import RecordRandom

_BATCH: Final = 256


def extract_bank(
    source: Source,
    extractor: Extractor,
    augmentations: Sequence[Augmentation],
    views: int,
    streams: SecretStreams,
    progress: Progress | None = None,
) -> TrainingRecords:
    """Read images and extract the features of ``views`` augmented copies of each: records with x (n, V, d).

    Formal guarantees:
        * Own record only: a record's views depend on that record and its own seed.
        * Secret seeds: a record's seed is drawn from the run's streams, not from its place in the dataset. So the views
          of all other records have one law whether it is there or not.
    """
    check_integer("views in the bank", views, low=1)
    if not augmentations:
        raise InvalidInput("augmentations", "none", "at least one for a bank of views")
    schema = source.schema
    layout = ImageLayout.of_input(schema.input_shape)
    dim = extractor.output_dim(schema.input_shape)
    x = np.empty((schema.records, views, dim), np.float32)
    labels = np.empty(schema.records, np.int64)
    seeds = bank_seeds(streams, schema.records)
    done = 0
    for batch in source.batches(_BATCH):
        end = done + len(batch.y)
        images = torch.from_numpy(unit_range(batch.x)).reshape(len(batch.y), -1)
        copies = layout.to_images(images)[:, None].expand(-1, views, -1, -1, -1)
        changed = augment(copies, tuple(augmentations), RecordRandom(torch.from_numpy(seeds[done:end])))
        inputs = layout.to_vectors(changed).reshape(-1, *schema.input_shape).numpy()
        x[done:end] = extractor.transform(inputs).reshape(len(batch.y), views, dim)
        labels[done:end] = batch.y
        done = end
        if progress is not None:
            progress(f"views ({extractor.name})", done, schema.records)
    return TrainingRecords.of(x, labels, classes=schema.num_classes)


def bank_seeds(streams: SecretStreams, records: int) -> NDArray[np.int64]:
    """(n,) secret seeds of the records' banks."""
    tiles = range(-(-records // RECORD_TILE))
    drawn = [streams.generator("bank seeds", tile).integers(2**63, size=RECORD_TILE) for tile in tiles]
    return np.concatenate(drawn)[:records]
