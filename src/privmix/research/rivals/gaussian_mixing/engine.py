"""Run a plan of normal weights: exact integer sums of all records times their weights, then noise as for other rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from privmix.engine.rows import RowEngine
from privmix.engine.tiles import RecordSource, record_tiles
from privmix.errors import WITHHELD, InvalidInput
from privmix.mechanisms.membership import RECORD_TILE, ROW_TILE
from privmix.mechanisms.mixing import RowSums
from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress
from privmix.publication.dataset import RecordTransform
from privmix.research.rivals.gaussian_mixing.plan import RECORD_BLOCK, WEIGHT_BITS, GaussianMixingPlan, NormalWeights

# Physical size: bytes of sums that are made at once. It sets memory and how often records are read, and no bit.
_SUM_BYTES = 2**30
# A weight is at most 2^4 in magnitude, and a record's entry below 2^bits. Plans leave a bit beside: as long as records
# are no more than twice the declared or estimated number, their count decides nothing.
_LARGEST_WEIGHT = 2.0 ** (WEIGHT_BITS + 4)
_EXACT_FLOAT64 = 2.0**53


class GaussianMixingEngine(RowEngine):
    """Sums of all records with normal weights; records are read once for each gigabyte of sums, or half of the memory.

    Formal guarantees (beside those of :class:`RowEngine`):
        * weights are drawn by the plan's own sampler, for a block of records and a row tile at a time, so that how
          many rows are summed at once changes no bit;
        * weights and records are integers, and their sums stay below 2^53 in float64: matrix products are exact in
          whatever order they are formed; ``memory_bytes`` changes no bit.

    Args:
        plan: the public plan.
        records: the private records; read in tiles.
        streams: secret randomness; the caller destroys it afterwards.
        workers: threads that clip records and draw noise; None uses every core.
        memory_bytes: a target: at the least, one record tile and one row tile are in memory.
    """

    def __init__(
        self,
        plan: GaussianMixingPlan,
        records: RecordSource,
        streams: SecretStreams,
        *,
        workers: int | None = None,
        memory_bytes: int | None = None,
    ) -> None:
        super().__init__(plan, records, streams, workers=workers)
        self._sum_bytes = _SUM_BYTES if memory_bytes is None else min(_SUM_BYTES, memory_bytes // 2)
        sampler = plan.sampler_for(self._records.units)
        assert isinstance(sampler, NormalWeights)
        self._sampler = sampler
        if self._records.units * _LARGEST_WEIGHT * 2.0**plan.lattice_bits >= _EXACT_FLOAT64:
            raise InvalidInput("lattice sums", WITHHELD, "below 2**53 steps: use fewer lattice bits")

    def _clipped_sum(self, progress: Progress | None) -> NDArray[np.float64]:
        total, count = np.zeros(self._plan.dim), self._records.units
        for index in range(record_tiles(self._records)):
            total += self._summer.clipped_sum(index)
            if progress:
                progress("mean", min((index + 1) * RECORD_TILE, count), count)
        return total

    def _row_sums(
        self, transform: RecordTransform, first: int, progress: Progress | None
    ) -> Iterator[tuple[range, RowSums]]:
        total = -(-self._plan.rows // ROW_TILE)
        step = max(1, self._sum_bytes // (8 * ROW_TILE * self._plan.dim))
        for start in range(first, total, step):
            tiles = range(start, min(start + step, total))
            yield tiles, self._summed(tiles, transform, progress)

    def _summed(self, tiles: range, transform: RecordTransform, progress: Progress | None) -> RowSums:
        plan, count = self._plan, self._records.units
        rows = min(tiles.stop * ROW_TILE, plan.rows) - tiles.start * ROW_TILE
        sums = RowSums(
            rows,
            plan.dim,
            plan.num_classes,
            largest=self._summer.largest,
            weight_step=plan.weight_step,
            draws_expected=0,
        )
        for index in range(record_tiles(self._records)):
            for place, steps, labels in self._in_blocks(index, transform):
                block = (index * RECORD_TILE + place) // RECORD_BLOCK
                for tile in tiles:
                    weights = self._weights(tile, block)
                    own = slice((tile - tiles.start) * ROW_TILE, (tile - tiles.start) * ROW_TILE + len(weights))
                    sums.x[own] += weights @ steps
                    sums.counts[own] += weights @ labels
                    sums.totals[own] += weights.sum(axis=1)
                if progress:
                    progress("sums", index * RECORD_TILE + place + len(steps), count)
        return sums

    def _in_steps(
        self, index: int, transform: RecordTransform
    ) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Some units of a tile: features on the lattice, and labels, before the offset is taken off.

        A person's features are the mean of their records', and so is the label, rounded so that less is no longer.
        """
        plan, summer = self._plan, self._summer
        one, offset = 2**plan.lattice_bits, round(plan.label_offset * 2**plan.lattice_bits)
        for features, labels, weights in summer.blocks(index, RECORD_BLOCK):
            if weights is None:
                yield summer.lattice_steps(transform, np.asarray(features)), np.eye(plan.num_classes)[labels]
                continue
            means = weights.person_means(transform(np.asarray(features)) / transform.final_clip_norm)
            vectors = weights.label_vectors(plan.num_classes, one, offset)
            yield plan.lattice.quantise(means), (vectors + offset) / one

    def _in_blocks(
        self, index: int, transform: RecordTransform
    ) -> Iterator[tuple[int, NDArray[np.float64], NDArray[np.float64]]]:
        """The same in blocks of so many units as have a stream of weights; each with the place of its first."""
        place, held, waiting = 0, 0, []
        for made in self._in_steps(index, transform):
            waiting.append(made)
            held += len(made[0])
            while held >= RECORD_BLOCK:
                steps, labels = (np.concatenate(parts) for parts in zip(*waiting, strict=True))
                yield place, steps[:RECORD_BLOCK], labels[:RECORD_BLOCK]
                waiting, held = [(steps[RECORD_BLOCK:], labels[RECORD_BLOCK:])], held - RECORD_BLOCK
                place += RECORD_BLOCK
        if held:
            steps, labels = (np.concatenate(parts) for parts in zip(*waiting, strict=True))
            yield place, steps, labels

    def _weights(self, tile: int, block: int) -> NDArray[np.float64]:
        """(rows of the tile, records of the block), in steps."""
        return self._sampler.block(self._membership, tile, block)
