"""The engine of releases in three stages: those of two, and each class's scatter where they made it round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from privmix.designs.moments.engine import noisy_symmetric
from privmix.designs.stages.three_plan import ThreeStagePlan
from privmix.designs.stages.three_released import ThreeStageMoments, class_map
from privmix.designs.stages.two_engine import Residual, ResidualPass, Residuals, TwoStageEngine
from privmix.engine.passes import Room
from privmix.engine.records import RecordSource
from privmix.mechanisms.clipping import clip_l2
from privmix.mechanisms.persons import RecordWeights
from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress


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
