"""Poisson batches, and the seeds of their records' views, from secret streams."""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.mechanisms.membership import RECORD_TILE, ROW_TILE
from privmix.mechanisms.streams import SecretStreams
from privmix.training.plan import TrainingPlan

# Seeds are kept as int64, which holds no larger number.
_SEEDS: Final = 2**63


@dataclass(frozen=True, eq=False)
class Batch:
    """Records of one step in a shard (secret): ``indices`` ascending, view ``seeds``, and ``groups`` or None."""

    indices: NDArray[np.int64]
    seeds: NDArray[np.int64]
    groups: NDArray[np.int64] | None = None

    def __repr__(self) -> str:
        return "<Batch>"


@dataclass(eq=False)
class PoissonBatches:
    """Batches of a plan, for all records or the contiguous shard ``first`` to ``last`` (exclusive).

    Formal guarantees:
        * Poisson: at each step each record joins independently with probability ``plan.sampling_rate``; empty batches
          occur and are returned like others.
        * Any shards, one batch: shards that cover the records split the very batch of an unsharded run.
        * Repeatable: a step's batch depends on the key and the step, not on what was drawn before.
        * Own draw: a record's membership, view seed and microbatch do not depend on other records.
    """

    plan: TrainingPlan
    streams: SecretStreams
    records: int
    first: int = 0
    last: int | None = None
    _tile: tuple[int, list[NDArray[np.int64]]] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self._sampler = self.plan.sampler_for(self.records)
        self._end = self.records if self.last is None else self.last
        assert 0 <= self.first <= self._end <= self.records
        self._tiles = range(self.first // RECORD_TILE, (self._end - 1) // RECORD_TILE + 1)

    def draw(self, step: int) -> Batch:
        assert 0 <= step < self.plan.steps
        # With more processes than records some shards are empty, and their processes still take part in each step.
        if self.first == self._end:
            nobody = np.zeros(0, np.int64)
            return Batch(nobody, nobody, None if self.plan.microbatch_size == 1 else nobody)
        indices = self.members(step)
        seeds = np.empty(len(indices), np.int64)
        groups = None if self.plan.microbatch_size == 1 else np.empty(len(indices), np.int64)
        cuts = np.searchsorted(indices, np.arange(self._tiles.start, self._tiles.stop + 1) * RECORD_TILE)
        for tile, start, stop in zip(self._tiles, cuts[:-1], cuts[1:], strict=True):
            if start == stop:
                continue
            # Drawn for every record of the tile, so that one record's draw does not depend on who else was sampled.
            size = min(RECORD_TILE, self.records - tile * RECORD_TILE)
            own = indices[start:stop] - tile * RECORD_TILE
            with self.streams.lent("view seeds", step, tile) as generator:
                seeds[start:stop] = generator.integers(_SEEDS, size=size)[own]
            if groups is not None:
                with self.streams.lent("microbatches", step, tile) as generator:
                    # Each record draws its own group: dealing the batch evenly would make groups depend on the other
                    # members.
                    groups[start:stop] = generator.integers(self.plan.units, size=size)[own]
        return Batch(indices, seeds, groups)

    def members(self, step: int) -> NDArray[np.int64]:
        row_tile, row = divmod(step, ROW_TILE)
        if self._tile is None or self._tile[0] != row_tile:
            rows: list[list[NDArray[np.int64]]] = []
            for tile in self._tiles:
                membership = self._sampler.draw(self.streams, row_tile, tile)
                pieces = np.split(membership.indices + tile * RECORD_TILE, membership.offsets[1:-1])
                # Whole tiles are drawn and then cut, so that the number of processes changes no batch.
                rows.append([piece[(piece >= self.first) & (piece < self._end)] for piece in pieces])
            # Steps that follow are mostly of the same tile.
            self._tile = row_tile, [np.concatenate(parts) for parts in zip(*rows, strict=True)]
        return self._tile[1][row]


def refuse_foreign_loader(data: Any) -> None:
    """Raise :class:`InvalidInput` for a loader that samples by itself: batches come from the plan alone."""
    # Fixed or shuffled batches are not Poisson samples, and pricing them as such understates epsilon.
    if hasattr(data, "batch_sampler") or hasattr(data, "sampler") or hasattr(data, "collate_fn"):
        name = type(getattr(data, "sampler", data)).__name__
        raise InvalidInput(
            "data", f"a loader that samples by {name}", "the dataset itself; Poisson batches are drawn from the plan"
        )
