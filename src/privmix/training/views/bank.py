"""A bank of views for fixed features: each image is augmented V times before the extractor sees it."""
# Extracting every view of every step again would cost more than all of the training; a step draws from the bank.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from privmix.data.dataset import Source
from privmix.features.base import Extractor
from privmix.features.identity import unit_range
from privmix.features.projected import Continued
from privmix.mechanisms.membership import RECORD_TILE
from privmix.mechanisms.streams import SecretStreams
from privmix.training.facts import ImageLayout
from privmix.training.views.augmentation import Augmentation, augment
from privmix.training.views.record_random import RecordRandom


class ViewBank(Continued):
    """The features of ``views`` augmented copies of each image, one after the other; x (n, V * d).

    Formal guarantees:
        * Own record only: a record's views depend on that record and its own seed.
        * Secret seeds: a record's seed is drawn from the run's streams, not from its place in the dataset. So the views
          of all other records have one law whether it is there or not.
        * Runs that share a store compose: given the seeds, which no record decides, each has its own guarantee.
    """

    step: ClassVar[int] = 256

    def __init__(
        self, inner: Extractor, changes: Sequence[Augmentation], views: int, streams: SecretStreams, seed: int | None
    ) -> None:
        # Not in the class: a name there would register it for `features`.
        vars(self)["name"] = f"views, {inner.name}"
        self._inner, self._augmentations, self._views = inner, tuple(changes), views
        self._streams, self._seed = streams, seed

    def output_dim(self, input_shape: tuple[int, ...]) -> int:
        return self._views * self._inner.output_dim(input_shape)

    def spec(self) -> dict[str, Any]:
        """Identify a store: by the seed too, so that views by a known seed never enter a private run."""
        changes = [one.spec() for one in self._augmentations]
        return {**self._inner.spec(), "bank": {"views": self._views, "augmentations": changes, "seed": self._seed}}

    def rows(self, source: Source, first: int = 0) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
        tiles = range(-(-source.schema.records // RECORD_TILE))
        drawn = [self._streams.generator("bank seeds", tile).integers(2**63, size=RECORD_TILE) for tile in tiles]
        seeds = torch.from_numpy(np.concatenate(drawn)[first:])
        layout, shape = ImageLayout.of_input(source.schema.input_shape), source.schema.input_shape
        for batch in source.batches(self.step, first):
            count = len(batch.y)
            images = torch.from_numpy(unit_range(batch.x)).reshape(count, -1)
            copies = layout.to_images(images)[:, None].expand(-1, self._views, -1, -1, -1)
            changed = augment(copies, self._augmentations, RecordRandom(seeds[:count]))
            inputs = layout.to_vectors(changed).reshape(-1, *shape).numpy()
            yield self._inner.transform(inputs).reshape(count, -1), batch.y
            seeds = seeds[count:]

    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        raise NotImplementedError("views need their seeds: see `rows`")
