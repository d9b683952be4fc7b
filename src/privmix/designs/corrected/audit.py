"""The noise alone of releases of corrected moments, and their worst case; see :mod:`privmix.audits.worst_case`."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from privmix.audits.bounds import Scores
from privmix.audits.empty_runs import SIDE, FreshStreams, PureNoise, part_noises
from privmix.audits.worst_case import EngineFactory, Indices, Mask, label_overlap, real_engine
from privmix.designs.corrected.engine import ErrorSums
from privmix.designs.corrected.plan import CONSTANT, ERROR_BOUND, CorrectedPlan
from privmix.designs.corrected.released import Model
from privmix.designs.moments.audit import MomentsCase, moments_noises, reduced
from privmix.engine.rows import Engine, PrivateRecords
from privmix.engine.tiles import lattice_steps
from privmix.mechanisms.clipping import clip_l2
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.plan import Plan
from privmix.publication.dataset import RecordTransform
from privmix.publication.second_moments import SecondMoments

_BYSTANDERS: Final = 2**14


def corrected_noises(plan: CorrectedPlan, samples: int, keys: FreshStreams, make: EngineFactory) -> Iterator[PureNoise]:
    yield from moments_noises(plan.first, samples, keys, make)
    wide, sums = replace(plan, dim=SIDE), ErrorSums(replace(plan, dim=SIDE))

    def release(streams: SecretStreams) -> list[NDArray[np.float32]]:
        return [np.stack([sums.released(streams, number) for number in range(plan.corrections)])]

    for noise in part_noises(plan, wide, ("errors",), release, samples, keys):
        # A row for each correction: rows are tested for noise that is used again.
        yield replace(noise, values=noise.values.reshape(len(noise.values) * plan.corrections, -1))


@dataclass(frozen=True)
class CorrectedCase(MomentsCase):
    """The canary of :class:`MomentsCase`, and what it adds to the errors of each model."""

    # Bystanders lie on both sides of the origin and are of another class. Every model is then sure of that class, the
    # canary's errors are longer than their bound, and it adds all that a record can. The last errors have a small part
    # of the budget and are also tested by themselves: without noise they would show what all together hide.

    def run(
        self, present: Mask, streams: SecretStreams, make: EngineFactory = real_engine, copies: int | None = None
    ) -> Scores:
        """As every worst case does; instead of repeated noise it returns what the last errors show."""
        made: list[Engine] = []

        def kept(plan: Plan, records: PrivateRecords, streams: SecretStreams) -> Engine:
            made.append(make(plan, records, streams))
            return made[-1]

        scores = super().run(present, streams, kept, copies)
        return np.concatenate([scores[:2], [[self._errors(made[0])[-1][0]]]])

    def of_rest(self, engine: Engine) -> Scores:
        gain, deviation = super().of_rest(engine)[0], self.plan.noise_std["errors"]
        found = self._errors(engine)
        for seen, adds in found:
            gain = gain + adds * (2 * seen - adds) / (2 * deviation**2)
        return np.stack([gain, np.full(self.trials, found[-1][0])])

    def _others(self) -> tuple[Scores, Indices]:
        count = self.plan.records - 1
        sides = np.where(np.arange(count)[:, None] % 2, -1.0, 1.0)
        return sides * self.plan.clip_norm, np.full(count, self.plan.num_classes - 1)

    def _parts(
        self, found: SecondMoments, transform: RecordTransform, others: int = 0
    ) -> list[tuple[Scores, float, float]]:
        z, overlap = self.contribution(transform, self._others()[0]), label_overlap(self.plan)
        taken = float(np.square(z).sum()), float(z.sum()) * overlap, len(z) * overlap
        parts = super()._parts(found, transform, others)
        return [(part - less, adds, noise) for (part, adds, noise), less in zip(parts, taken, strict=True)]

    def _errors(self, engine: Engine) -> list[tuple[float, float]]:
        """For each model its errors along what the canary adds to them, others taken off, and the length of that."""
        plan, records = cast(CorrectedPlan, self.plan), self.records(np.ones(1, bool))
        lattice, unit, beside = plan.lattice, plan.part("errors").unit, engine.beside
        steps = lattice_steps(lattice, engine.transform, records.features)
        steps = np.column_stack([steps, np.full(len(steps), CONSTANT / lattice.step)])
        found = []
        for matrix, released in zip(beside.models, beside.errors, strict=True):
            errors = Model(matrix, plan.lattice_bits).errors(steps, records.labels)
            errors = lattice.quantise(clip_l2(errors / ERROR_BOUND, 1.0))
            # The canary comes first, then who is in every dataset.
            adds = unit * np.outer(steps[0], errors[0])
            seen, length = released - unit * (steps[1:].T @ errors[1:]), float(np.linalg.norm(adds))
            # A model that noise made sure of the canary's class shows nothing of it.
            found.append((float((seen * adds).sum()) / length if length else 0.0, length))
        return found


def corrected_case(plan: CorrectedPlan) -> CorrectedCase:
    # One canary a run: records share the models. Bystanders stand out of the noise of the classes' sizes, as far as
    # sums stay exact.
    names = reduced(plan)[0].classes if plan.centred else ("0", "1")
    count = min(_BYSTANDERS, math.ceil(30 * plan.count_noise_multiplier), 2 ** (51 - 2 * plan.lattice_bits))
    small = replace(plan, dim=1, classes=names, rows=1, records=1 + 2 * max(1, count // 2))
    assert small.event == plan.event, "what runs is not what is audited"
    return CorrectedCase(small, 1)
