"""Run a plan in stages: moments, then the counts and scatters of residuals, by maps that follow from earlier stages."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from privmix.designs.moments.engine import MomentsEngine, noisy_symmetric
from privmix.designs.stages import released as maps
from privmix.designs.stages.released import ThreeStageMoments, TwoStageMoments
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
        self._whole: TwoStagePlan = plan

    def _released_moments(self, tell: Progress) -> TwoStageMoments:
        plan, first = self._whole, super()._released_moments(tell)
        before: TwoStageMoments | None = None if self._followed is None else self._followed.beside
        # Map and bound follow from released numbers alone.
        mapped = maps.residual_map(plan, first) if before is None else before.mapped(plan)
        residuals = Residuals(self.transform, mapped)
        norms = self._passes.over(NormPass(residuals, partial(NormCounts, plan)), tell).released(self._streams)
        bound = maps.residual_bound(plan, norms) if before is None else before.bound
        scatter = self._passes.over(ScatterPass(residuals, partial(Scatter, plan, "within", bound)), tell)
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

    def __init__(self, transform: RecordTransform, mapped: maps.ResidualMap) -> None:
        self._transform, self._mapped = transform, mapped
        self._kept: dict[int, list[Residual]] = {}
        self._held = 0

    def __reduce__(self) -> "tuple[type[Residuals], tuple[RecordTransform, maps.ResidualMap]]":
        return Residuals, (self._transform, self._mapped)

    def __repr__(self) -> str:
        return "<Residuals>"

    def of_tile(self, reader: TileReader, index: int) -> Iterator[Residual]:
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
    """A pass that adds residuals to new ``sums``, block by block."""

    residuals: Residuals
    sums: Callable[[], Any]

    def empty(self) -> Any:
        return self.sums()

    def add(self, reader: TileReader, index: int, sums: Any, done: Callable[[int], None]) -> None:
        passed = 0
        for block in self.residuals.of_tile(reader, index):
            sums.add(*block)
            passed += len(block[1])
            done(passed)


class NormPass(ResidualPass):
    stage: ClassVar[str] = "norms"


class ScatterPass(ResidualPass):
    stage: ClassVar[str] = "scatter"


class ClassPass(ResidualPass):
    stage: ClassVar[str] = "scatter of classes"


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

    def add(
        self, residuals: NDArray[np.float64], labels: NDArray[np.int64], weights: RecordWeights | None = None
    ) -> None:
        """Count (b, r) residuals of any classes: each is in one count."""
        steps = None if weights is None else np.floor(weights.records * self._one)
        self._counts += np.bincount(maps.norm_bins(residuals), steps, minlength=len(NORM_EDGES))

    def merge(self, other: "NormCounts") -> None:
        self._counts += other._counts

    def released(self, streams: SecretStreams) -> NDArray[np.float32]:
        """Add the noise, once: the only way out."""
        with streams.lent("norm count noise") as generator:
            noise = gaussian_on_lattice(generator, self._counts.shape, self._plan.norm_noise_multiplier * self._one)
        return ((self._counts + noise) / self._one).astype(np.float32)


class Scatter:
    """Exact sums of products of clipped residuals on the lattice: of all classes, or of each. Secret.

    Formal guarantees:
        * Bounded: every residual is clipped to ``bound``, divided by it and rounded toward zero, here. Any residual
          therefore adds a matrix of Frobenius norm 1 at most. If each class has its own, the others stay the same.
        * Exact: every sum is an integer below 2^53; more records than that allows raise.
    """

    def __init__(self, plan: TwoStagePlan, part: str, bound: float = 1.0) -> None:
        self._part, self._bound, self._lattice = plan.part(part), bound, plan.lattice
        self._room = Room(4**plan.lattice_bits)
        *classes, axes, _ = self._part.shape
        self._by_class = bool(classes)
        self._sums = [np.zeros((axes, axes), np.float64, order="F") for _ in range(math.prod(classes))]

    def __repr__(self) -> str:
        return "<Scatter>"

    def add(self, residuals: NDArray[Any], labels: NDArray[np.int64], weights: RecordWeights | None = None) -> None:
        """Add (b, r) residuals of classes ``labels`` (b,); for whole persons with the weights of their records."""
        self._room.take(len(residuals) if weights is None else weights.persons)
        clipped = clip_l2(residuals / self._bound, 1.0)
        steps = self._lattice.quantise(clipped if weights is None else clipped * weights.roots)
        for number, sums in enumerate(self._sums):
            own = steps[labels == number] if self._by_class else steps
            self._sums[number] = dsyrk(1.0, own.T, beta=1.0, c=sums, lower=1, overwrite_c=1)

    def merge(self, other: "Scatter") -> None:
        self._room.take(other._room.taken)
        for own, more in zip(self._sums, other._sums, strict=True):
            own += more

    def released(self, streams: SecretStreams) -> NDArray[np.float32]:
        """(r, r) or (K, r, r) with noise, added once, and scaled: the only way out of these sums."""
        std, unit = self._part.noise_std / self._part.unit, self._part.unit
        if not self._by_class:
            return noisy_symmetric(self._sums[0], std, unit, streams, "scatter noise")
        purpose = "class scatter noise"
        return np.stack([noisy_symmetric(one, std, unit, streams, purpose, at) for at, one in enumerate(self._sums)])


class ThreeStageEngine(TwoStageEngine):
    """Carries out a plan in three stages on private records.

    Formal guarantees (in addition to those of :class:`TwoStageEngine`):
        * what a record adds to the scatter of its class depends on the record and on released numbers alone, to the
          last bit, and it adds nothing to another class's;
        * a residual is clipped after it was mapped, and rounding to the lattice never makes it longer: it adds at most
          1 (Frobenius), for any map;
        * noise is drawn once for each released number, from streams of its class's own.
    """

    _whole: ThreeStagePlan

    def _released_moments(self, tell: Progress) -> ThreeStageMoments:
        plan, two = self._whole, super()._released_moments(tell)
        # The map follows from released numbers alone.
        mapped = maps.class_map(plan, two) if self._followed is None else self._followed.beside.class_mapped(plan)
        sums = partial(Scatter, plan, "class_within")
        scatter = self._passes.over(ClassPass(Residuals(self.transform, mapped), sums), tell)
        arrays = {
            **two.arrays,
            "class_directions": mapped.directions,
            "class_means": mapped.means,
            "class_within": scatter.released(self._streams),
        }
        return ThreeStageMoments.of(plan, arrays)
