"""Run a plan of corrected moments: the moments, and then sums of errors of models that follow from earlier answers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privmix.designs.corrected.plan import CONSTANT, ERROR_BOUND, CorrectedPlan
from privmix.designs.corrected.released import CorrectedSecondMoments, Corrections, Model
from privmix.designs.moments.engine import MomentsEngine
from privmix.engine.passes import Pass, Room
from privmix.engine.tiles import TileReader
from privmix.mechanisms.clipping import clip_l2
from privmix.mechanisms.noise import gaussian_on_lattice
from privmix.mechanisms.persons import RecordWeights
from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress
from privmix.publication.dataset import RecordTransform

_RECORDS_AT_ONCE = 4096


class CorrectedEngine(MomentsEngine):
    """Carries out a plan of corrected moments on private records.

    Formal guarantees (in addition to those of :class:`MomentsEngine`):
        * what a record adds to sums of errors depends, to the last bit, on the record and on released numbers alone;
        * errors are clipped after the model made them, and rounding to the lattice never makes them or the record
          longer: what a record adds is bounded for any model;
        * noise is drawn once for each released number, from streams of each correction's own;
        * rows are samples made from the moments alone: an interrupted run keeps none that show errors.
    """

    _plan: CorrectedPlan

    def _released_moments(self, tell: Progress) -> CorrectedSecondMoments:
        plan, moments = self._plan, super()._released_moments(tell)
        # Models follow from released numbers alone.
        facts = plan.final_clip_norm, plan.noise_std["errors"], plan.label_offset, plan.centred
        found = Corrections(moments, *facts) if self._followed is None else None
        models: list[Model] = []
        errors: list[NDArray[np.float32]] = []
        for number in range(plan.corrections):
            if found is None:
                assert self._followed is not None
                models.append(Model(self._followed.beside.models[number], plan.lattice_bits))
            else:
                follows = found.next(models[-1].matrix, errors[-1]) if models else found.first
                models.append(Model.on_grid(follows, plan.lattice_bits))
            sums = self._passes.over(ErrorPass(plan, self.transform, models[-1]), tell)
            errors.append(sums.released(self._streams, number))
        arrays = {"models": np.stack([one.matrix for one in models]), "errors": np.stack(errors)}
        return CorrectedSecondMoments.of(plan, {**moments.arrays, **arrays})


@dataclass(frozen=True, eq=False)
class ErrorPass(Pass["ErrorSums"]):
    """Products of records and the errors of a model on them."""

    plan: CorrectedPlan
    transform: RecordTransform
    model: Model
    stage: ClassVar[str] = "errors"

    def empty(self) -> "ErrorSums":
        return ErrorSums(self.plan)

    def add(self, reader: TileReader, index: int, sums: "ErrorSums", done: Callable[[int], None]) -> None:
        passed = 0
        for features, labels, weights in reader.blocks(index, _RECORDS_AT_ONCE):
            sums.add(self.model, reader.lattice_steps(self.transform, np.asarray(features)), labels, weights)
            passed += len(labels)
            done(passed)


class ErrorSums:
    """Exact sums of products of records and errors on the lattice. Secret.

    Formal guarantees:
        * Bounded: errors are divided by their bound, clipped to norm 1 and rounded toward zero, here. For any model a
          record of norm 1 therefore adds at most the norm of itself with the constant, sqrt(17/16), in units of both
          bounds. So does a person: records and errors have the roots of the records' weights, which sum to 1 at most.
        * Exact: every sum is an integer below 2^53; more records than that allows raise.
    """

    def __init__(self, plan: CorrectedPlan) -> None:
        self._part, self._lattice = plan.part("errors"), plan.lattice
        self._room = Room(4**plan.lattice_bits)
        self._sums = np.zeros(self._part.shape[1:])

    def __repr__(self) -> str:
        return "<ErrorSums>"

    def add(
        self, model: Model, steps: NDArray[np.float64], labels: NDArray[np.int64], weights: RecordWeights | None = None
    ) -> None:
        """Add (b, d) records in lattice steps, of (b,) classes; for whole persons with the weights of their records."""
        self._room.take(len(steps) if weights is None else weights.persons)
        records = np.column_stack([steps, np.full(len(steps), CONSTANT / self._lattice.step)])
        errors = clip_l2(model.errors(records, labels) / ERROR_BOUND, 1.0)
        if weights is not None:
            records = np.trunc(records * weights.roots)
            errors *= weights.roots
        self._sums += records.T @ self._lattice.quantise(errors)

    def merge(self, other: "ErrorSums") -> None:
        self._room.take(other._room.taken)
        self._sums += other._sums

    def released(self, streams: SecretStreams, number: int) -> NDArray[np.float32]:
        """Add the noise, once, and scale: the only way out of these sums."""
        with streams.lent("error noise", number) as generator:
            noise = gaussian_on_lattice(generator, self._sums.shape, self._part.noise_std / self._part.unit)
        return ((self._sums + noise) * self._part.unit).astype(np.float32)
