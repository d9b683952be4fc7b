"""Run a plan in stages: moments, then the counts and scatters of residuals, by maps that follow from earlier stages."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from privmix.designs.moments.engine import MomentsEngine, noisy_symmetric
from privmix.designs.stages.released import (
    ResidualMap,
    ThreeStageMoments,
    TwoStageMoments,
    class_map,
    norm_bins,
    residual_bound,
    residual_map,
)
from privmix.designs.stages.three_plan import ThreeStagePlan
from privmix.designs.stages.two_plan import NORM_EDGES, TwoStagePlan
from privmix.engine.passes import Pass, Room
from privmix.engine.records import RecordSource
from privmix.engine.tiles import TileReader
from privmix.mechanisms.clipping import clip_l2
from privmix.mechanisms.noise import gaussian_on_lattice
from privmix.mechanisms.persons import RecordWeights
from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress
from privmix.publication.dataset import RecordTransform

# Residuals (b, r), classes (b,) and, where persons are the units, what records weigh.
Residual = tuple[NDArray[np.float64], NDArray[np.int64], RecordWeights | None]

_RECORDS_AT_ONCE = 4096
# Bytes of residuals that are kept between the passes over them; more are made twice, to the same bits.
_KEPT = 2**30


class TwoStageEngine(MomentsEngine):
    """Carries out a plan in two stages on private records.

    Formal guarantees (in addition to those of :class:`MomentsEngine`, for the first stage):
        * a record's part in the counts of norms and the scatter within classes depends, to the last bit, on the record
          and on released numbers alone, for any neighbours;
        * a residual is clipped after it was mapped, and rounding to the lattice never makes it longer. For any map it
          adds at most 1 (Frobenius) to the scatter, and 1 to one count;
        * noise is drawn once for each released number, after the sums, from secret streams: running again under the
          same key re-creates the same release;
        * rows are samples made from the first stage's numbers alone: an interrupted run keeps none that show the
          second stage, whose numbers leave once, with the whole release.
    """

    def __init__(self, plan: TwoStagePlan, records: RecordSource, streams: SecretStreams, **machine: Any) -> None:
        super().__init__(plan.first, records, streams, **machine)
        self._whole = plan

    def _released_moments(self, tell: Progress) -> TwoStageMoments:
        plan, first = self._whole, super()._released_moments(tell)
        before: TwoStageMoments | None = None if self._followed is None else self._followed.beside
        # Map and bound follow from released numbers alone.
        mapped = residual_map(plan, first) if before is None else before.mapped(plan)
        residuals = Residuals(self.transform, mapped)
        norms = self._passes.over(NormPass(plan, residuals), tell).released(self._streams)
        bound = residual_bound(plan, norms) if before is None else before.bound
        scatter = self._passes.over(ScatterPass(plan, residuals, bound), tell)
        arrays = {
            **first.arrays,
            "directions": mapped.directions,
            "means": mapped.means,
            "norms": norms,
            "within": scatter.released(self._streams),
        }
        return TwoStageMoments.of(plan, arrays)


class Residuals:
    """Blocks of residuals, with classes and weights of records, after the released numbers are taken off. Secret."""

    # Small ones are kept between two passes on one machine; others are made again, to the same bits. They are never
    # sent.

    def __init__(self, transform: RecordTransform, mapped: ResidualMap) -> None:
        self._transform, self._mapped = transform, mapped
        self._kept: dict[int, list[Residual]] = {}
        self._held = 0

    def __reduce__(self) -> tuple[type[Residuals], tuple[RecordTransform, ResidualMap]]:
        return Residuals, (self._transform, self._mapped)

    def __repr__(self) -> str:
        return "<Residuals>"

    def of_tile(self, reader: TileReader, index: int) -> Iterator[Residual]:
        """Yield the blocks of a tile, in order."""
        if index in self._kept:
            yield from self._kept[index]
            return
        made: list[Residual] = []
        for features, labels, weights in reader.blocks(index, _RECORDS_AT_ONCE):
            steps = reader.lattice_steps(self._transform, np.asarray(features))
            block = self._mapped.residuals(steps, labels), labels, weights
            self._held += block[0].nbytes
            if self._held <= _KEPT:
                made.append(block)
            yield block
        if self._held <= _KEPT:
            self._kept[index] = made


@dataclass(frozen=True, eq=False)
class ResidualPass(Pass[Any]):
    """A pass that sums something of residuals, block by block."""

    plan: Any
    residuals: Residuals

    @abstractmethod
    def add_block(self, sums: Any, block: Residual) -> None:
        """Add a block of residuals."""

    def add(self, reader: TileReader, index: int, sums: Any, done: Callable[[int], None]) -> None:
        passed = 0
        for block in self.residuals.of_tile(reader, index):
            self.add_block(sums, block)
            passed += len(block[1])
            done(passed)


@dataclass(frozen=True, eq=False)
class NormPass(ResidualPass):
    """Counts of residuals by norm."""

    stage: ClassVar[str] = "norms"

    def empty(self) -> NormCounts:
        return NormCounts(self.plan)

    def add_block(self, sums: NormCounts, block: Residual) -> None:
        sums.add(block[0], block[2])


@dataclass(frozen=True, eq=False)
class ScatterPass(ResidualPass):
    """Scatter within classes of residuals, clipped to a bound."""

    bound: float
    stage: ClassVar[str] = "scatter"

    def empty(self) -> WithinScatter:
        return WithinScatter(self.plan)

    def add_block(self, sums: WithinScatter, block: Residual) -> None:
        sums.add(block[0], self.bound, block[2])


class NormCounts:
    """Exact counts of residuals by norm. Secret.

    Formal guarantees:
        * A record adds 1 to one count; a person's records add 1 to all counts together at most, in steps of 2^-20.
    """

    def __init__(self, plan: TwoStagePlan) -> None:
        self._plan = plan
        self._one = 1 / plan.part("norms").unit
        self._counts = np.zeros(len(NORM_EDGES))

    def __repr__(self) -> str:
        return "<NormCounts>"

    def add(self, residuals: NDArray[np.float64], weights: RecordWeights | None = None) -> None:
        """Count (b, r) residuals: each is in one count."""
        steps = None if weights is None else np.floor(weights.records * self._one)
        self._counts += np.bincount(norm_bins(residuals), steps, minlength=len(NORM_EDGES))

    def merge(self, other: NormCounts) -> None:
        self._counts += other._counts

    def released(self, streams: SecretStreams) -> NDArray[np.float32]:
        """Add the noise, once: the only way out."""
        with streams.lent("norm count noise") as generator:
            noise = gaussian_on_lattice(generator, self._counts.shape, self._plan.norm_noise_multiplier * self._one)
        return ((self._counts + noise) / self._one).astype(np.float32)


class WithinScatter:
    """Exact sum of products of clipped residuals on the lattice. Secret.

    Formal guarantees:
        * Bounded: every residual is clipped to ``bound``, divided by it and rounded toward zero, here. Any residual
          therefore adds a matrix of Frobenius norm 1 at most.
        * Exact: every sum is an integer below 2^53; more records than that allows raise.
    """

    def __init__(self, plan: TwoStagePlan) -> None:
        self._plan, self._room = plan, Room(4**plan.lattice_bits)
        self._sums: NDArray[np.float64] = np.zeros((plan.directions, plan.directions), np.float64, order="F")

    def __repr__(self) -> str:
        return "<WithinScatter>"

    def add(self, residuals: NDArray[Any], bound: float, weights: RecordWeights | None = None) -> None:
        """Add (b, r) residuals; for whole persons with the weights of their records."""
        self._room.take(len(residuals) if weights is None else weights.persons)
        clipped = clip_l2(residuals / bound, 1.0)
        steps = self._plan.lattice.quantise(clipped if weights is None else clipped * weights.roots)
        self._sums = dsyrk(1.0, steps.T, beta=1.0, c=self._sums, lower=1, overwrite_c=1)

    def merge(self, other: WithinScatter) -> None:
        self._room.take(other._room.taken)
        self._sums += other._sums

    def released(self, streams: SecretStreams) -> NDArray[np.float32]:
        """Add the noise, once, and scale: the only way out of these sums."""
        part = self._plan.part("within")
        return noisy_symmetric(self._sums, part.noise_std / part.unit, part.unit, streams, "scatter noise")


class ThreeStageEngine(TwoStageEngine):
    """Carries out a plan in three stages on private records.

    Formal guarantees (in addition to those of :class:`TwoStageEngine`):
        * what a record adds to the scatter of its class depends on the record and on released numbers alone, to the
          last bit, and it adds nothing to another class's;
        * a residual is clipped after it was mapped, and rounding to the lattice never makes it longer: it adds at most
          1 (Frobenius), for any map;
        * noise is drawn once for each released number, from streams of its class's own.
    """

    def __init__(self, plan: ThreeStagePlan, records: RecordSource, streams: SecretStreams, **machine: Any) -> None:
        super().__init__(plan, records, streams, **machine)
        self._all = plan

    def _released_moments(self, tell: Progress) -> ThreeStageMoments:
        plan, two = self._all, super()._released_moments(tell)
        # The map follows from released numbers alone.
        mapped = class_map(plan, two) if self._followed is None else self._followed.beside.class_mapped(plan)
        scatter = self._passes.over(ClassPass(plan, Residuals(self.transform, mapped)), tell)
        arrays = {
            **two.arrays,
            "class_directions": mapped.directions,
            "class_means": mapped.means,
            "class_within": scatter.released(self._streams),
        }
        return ThreeStageMoments.of(plan, arrays)


@dataclass(frozen=True, eq=False)
class ClassPass(ResidualPass):
    """The scatter of residuals of each class."""

    stage: ClassVar[str] = "scatter of classes"

    def empty(self) -> ClassScatter:
        return ClassScatter(self.plan)

    def add_block(self, sums: ClassScatter, block: Residual) -> None:
        sums.add(*block)


class ClassScatter:
    """Exact sums of products of clipped residuals on the lattice, for each class. Secret.

    Formal guarantees:
        * Bounded: every residual is clipped to norm 1 and rounded toward zero, here: it adds to the matrix of its class
          one of Frobenius norm 1 at most, and nothing to the others.
        * Exact: every sum is an integer below 2^53; more records than that allows raise.
    """

    def __init__(self, plan: ThreeStagePlan) -> None:
        self._plan, self._room = plan, Room(4**plan.lattice_bits)
        axes = plan.class_directions
        self._sums = [np.zeros((axes, axes), np.float64, order="F") for _ in plan.classes]

    def __repr__(self) -> str:
        return "<ClassScatter>"

    def add(self, residuals: NDArray[Any], labels: NDArray[np.int64], weights: RecordWeights | None = None) -> None:
        """Add (b, q) residuals of classes ``labels`` (b,); for whole persons with the weights of their records."""
        self._room.take(len(residuals) if weights is None else weights.persons)
        clipped = clip_l2(residuals, 1.0)
        steps = self._plan.lattice.quantise(clipped if weights is None else clipped * weights.roots)
        for number in range(self._plan.num_classes):
            own = steps[labels == number]
            self._sums[number] = dsyrk(1.0, own.T, beta=1.0, c=self._sums[number], lower=1, overwrite_c=1)

    def merge(self, other: ClassScatter) -> None:
        self._room.take(other._room.taken)
        for own, more in zip(self._sums, other._sums, strict=True):
            own += more

    def released(self, streams: SecretStreams) -> NDArray[np.float32]:
        """(K, q, q) with noise, added once, and scaled: the only way out of these sums."""
        part = self._plan.part("class_within")
        std, purpose = part.noise_std / part.unit, "class scatter noise"
        noisy = [noisy_symmetric(one, std, part.unit, streams, purpose, at) for at, one in enumerate(self._sums)]
        return np.stack(noisy)
