"""The noise alone of releases of corrected moments, and their worst case; see :mod:`privmix.audits.worst_case`."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from privmix.audits.bounds import Scores
from privmix.audits.empty_runs import SIDE, FreshStreams, PureNoise, part_noises
from privmix.audits.worst_case import EngineFactory
from privmix.designs.corrected.engine import ErrorSums
from privmix.designs.corrected.plan import CONSTANT, ERROR_BOUND, CorrectedPlan
from privmix.designs.corrected.released import Model
from privmix.designs.moments.audit import MomentsCase, moments_noises, reduced
from privmix.engine.rows import Engine
from privmix.engine.tiles import lattice_steps
from privmix.mechanisms.clipping import clip_l2
from privmix.mechanisms.streams import SecretStreams


def corrected_noises(plan: CorrectedPlan, samples: int, keys: FreshStreams, make: EngineFactory) -> Iterator[PureNoise]:
    yield from moments_noises(plan.first, samples, keys, make)
    wide, sums = replace(plan, dim=SIDE), ErrorSums(replace(plan, dim=SIDE))

    def release(streams: SecretStreams) -> list[NDArray[np.float32]]:
        return [np.stack([sums.released(streams, number) for number in range(plan.corrections)])]

    yield from part_noises(plan, wide, ("errors",), release, samples, keys)


@dataclass(frozen=True)
class CorrectedCase(MomentsCase):
    """The canary of :class:`MomentsCase`, and what it adds to the errors of each model."""

    # Few records against the plan's number leave the models next to nothing to know: the canary's errors are clipped.

    def of_rest(self, engine: Engine) -> Scores:
        gain, deviation = super().of_rest(engine)[0], self.plan.noise_std["errors"]
        seen = 0.0
        for number in range(len(engine.beside.models)):
            seen, adds = self._errors(engine, number)
            gain = gain + adds * (2 * seen - adds) / (2 * deviation**2)
        # The last errors alone: they have a small part of the budget.
        return np.stack([gain, np.full(self.trials, seen)])

    def _errors(self, engine: Engine, number: int) -> tuple[float, float]:
        """Return the errors of a model along what the canary adds to them, others taken off, and its length."""
        plan, records = cast(CorrectedPlan, self.plan), self.records(np.ones(1, bool))
        lattice, unit = plan.lattice, plan.part("errors").unit
        steps = lattice_steps(lattice, engine.transform, records.features)
        steps = np.column_stack([steps, np.full(len(steps), CONSTANT / lattice.step)])
        errors = Model(engine.beside.models[number], plan.lattice_bits).errors(steps, records.labels)
        added = unit * steps[:, :, None] * lattice.quantise(clip_l2(errors / ERROR_BOUND, 1.0))[:, None]
        # The canary comes first, then who is in every dataset.
        length = float(np.linalg.norm(added[0]))
        seen = engine.beside.errors[number] - added[1:].sum(axis=0)
        return float((seen * added[0]).sum()) / length, length


def corrected_case(plan: CorrectedPlan) -> CorrectedCase:
    # One canary a run: records share the models.
    names = reduced(plan)[0].classes if plan.centred else ("0", "1")
    small = replace(plan, dim=1, classes=names, rows=1)
    assert small.event == plan.event, "what runs is not what is audited"
    return CorrectedCase(small, 1)
