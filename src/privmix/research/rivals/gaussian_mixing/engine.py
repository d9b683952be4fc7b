"""Run a plan of normal weights: exact integer sums of all records times their weights, then noise as for other rows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privmix.engine.passes import EXACT_FLOAT64, Pass, PassedRows, PassMaker, ThisMachine
from privmix.engine.records import RecordSource
from privmix.engine.tiles import TileReader, largest_step
from privmix.errors import WITHHELD, InvalidInput
from privmix.mechanisms.membership import RECORD_TILE, ROW_TILE
from privmix.mechanisms.mixing import RowSums
from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress, silent
from privmix.publication.dataset import RecordTransform
from privmix.research.rivals.gaussian_mixing.plan import RECORD_BLOCK, WEIGHT_BITS, GaussianMixingPlan, NormalWeights

# Physical size: bytes of sums that are made at once. It sets memory and how often records are read, and no bit.
SUM_BYTES = 2**30
# A weight is at most 2^4 in magnitude, and a record's entry below 2^bits. Plans leave a spare bit: as long as records
# are no more than twice the declared or estimated number, their count decides nothing.
_LARGEST_WEIGHT = 2.0 ** (WEIGHT_BITS + 4)


class GaussianMixingEngine(PassedRows):
    """Sums of all records with normal weights; records are read once for each gigabyte of sums, or half of the memory.

    Formal guarantees (in addition to those of :class:`RowEngine`):
        * weights are drawn by the plan's own sampler, for a block of records and a row tile at a time. How many rows
          are summed at once thus changes no bit;
        * weights and records are integers, and their sums stay below 2^53 in float64: matrix products are exact in
          every order of additions; ``memory_bytes`` changes no bit.
    """

    def __init__(
        self,
        plan: GaussianMixingPlan,
        records: RecordSource,
        streams: SecretStreams,
        *,
        workers: int | None = None,
        memory_bytes: int | None = None,
        cluster: PassMaker | None = None,
    ) -> None:
        super().__init__(plan, records, streams, workers=workers)
        self._passes = (cluster or ThisMachine()).passes(plan, self._records, workers=workers)
        self._sum_bytes = SUM_BYTES if memory_bytes is None else min(SUM_BYTES, memory_bytes // 2)
        self._weights: Callable[[int, int], NDArray[np.float64]] = DrawnWeights(
            plan, self._records.units, self._membership.share()
        )
        if self._records.units * _LARGEST_WEIGHT * 2.0**plan.lattice_bits >= EXACT_FLOAT64:
            raise InvalidInput("lattice sums", WITHHELD, "below 2**53 steps: use fewer lattice bits")

    def draw_by(self, members: Callable[[int, int], NDArray[np.float64]]) -> None:
        """Take the weights of a row tile and a block of records as ``members`` gives them; for audits."""
        self._weights = members

    def _row_sums(
        self, transform: RecordTransform, first: int, progress: Progress | None
    ) -> Iterator[tuple[range, RowSums]]:
        plan = self._plan
        assert isinstance(plan, GaussianMixingPlan)
        total = -(-plan.rows // ROW_TILE)
        step = max(1, self._sum_bytes // (8 * ROW_TILE * plan.dim))
        for start in range(first, total, step):
            tiles = range(start, min(start + step, total))
            one = MixingPass(plan, transform, tiles, largest_step(plan), self._weights)
            yield tiles, self._passes.over(one, progress or silent)


class DrawnWeights:
    """Weights of units in rows, by the plan's sampler; the key is the one of the membership streams. They travel."""

    def __init__(self, plan: GaussianMixingPlan, units: int, key: bytes) -> None:
        self._made_of = plan, units, key
        sampler = plan.sampler_for(units)
        assert isinstance(sampler, NormalWeights)
        self.sampler: Final = sampler
        self._membership = SecretStreams.of_shared(key)

    def __reduce__(self) -> "tuple[type[DrawnWeights], tuple[GaussianMixingPlan, int, bytes]]":
        return DrawnWeights, self._made_of

    def __repr__(self) -> str:
        return "<DrawnWeights>"

    def __call__(self, tile: int, block: int) -> NDArray[np.float64]:
        """(rows of the tile, units of the block), in steps."""
        return self.sampler.block(self._membership, tile, block)


@dataclass(frozen=True, eq=False)
class MixingPass(Pass[RowSums]):
    """Sums of the rows of some row tiles, with normal weights."""

    plan: GaussianMixingPlan
    transform: RecordTransform
    tiles: range
    largest: int
    weights: Callable[[int, int], NDArray[np.float64]]
    stage: ClassVar[str] = "sums"

    def empty(self) -> RowSums:
        plan, tiles = self.plan, self.tiles
        rows = min(tiles.stop * ROW_TILE, plan.rows) - tiles.start * ROW_TILE
        return RowSums(rows, plan.dim, plan.num_classes, largest=self.largest, weight_step=plan.weight_step)

    def add(self, reader: TileReader, index: int, sums: RowSums, done: Callable[[int], None]) -> None:
        for place, steps, labels in self._in_blocks(reader, index):
            block = (index * RECORD_TILE + place) // RECORD_BLOCK
            for tile in self.tiles:
                weights = self.weights(tile, block)
                first = (tile - self.tiles.start) * ROW_TILE
                own = slice(first, first + len(weights))
                sums.x[own] += weights @ steps
                sums.counts[own] += weights @ labels
                sums.totals[own] += weights.sum(axis=1)
            done(place + len(steps))

    def _in_steps(self, reader: TileReader, index: int) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Yield some units of a tile: features on the lattice, and labels, before the offset is taken off."""
        # A person's features are the mean of their records', and so is the label, rounded so that less is no longer.
        plan, transform = self.plan, self.transform
        one, offset = 2**plan.lattice_bits, round(plan.label_offset * 2**plan.lattice_bits)
        for features, labels, weights in reader.blocks(index, RECORD_BLOCK):
            if weights is None:
                yield reader.lattice_steps(transform, np.asarray(features)), np.eye(plan.num_classes)[labels]
                continue
            means = weights.person_means(transform.shares(np.asarray(features)))
            vectors = weights.label_vectors(plan.num_classes, one, offset)
            yield plan.lattice.quantise(means), (vectors + offset) / one

    def _in_blocks(
        self, reader: TileReader, index: int
    ) -> Iterator[tuple[int, NDArray[np.float64], NDArray[np.float64]]]:
        """Yield the same in blocks of as many units as have a stream of weights; each with the place of its first."""
        place, held, waiting = 0, 0, []
        for made in self._in_steps(reader, index):
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
