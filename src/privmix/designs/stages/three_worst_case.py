"""The worst case of releases in three stages; see :mod:`privmix.audits.worst_case`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from privmix.audits.bounds import Scores
from privmix.designs.stages.three_plan import ThreeStagePlan
from privmix.designs.stages.two_released import ResidualMap
from privmix.designs.stages.two_worst_case import TwoStageCase, one_feature
from privmix.engine.rows import Engine
from privmix.engine.tiles import lattice_steps
from privmix.mechanisms.clipping import clip_l2


@dataclass(frozen=True)
class ThreeStageCase(TwoStageCase):
    """The canary of :class:`TwoStageCase`, and what it adds to the scatter of its class.

    Records are few beside those that the plan is made for, so that the released scatter, which divides residuals, is
    small: the canary's is longer than 1 again, and adds all that a record can.
    """

    def of_rest(self, engine: Engine) -> Scores:
        scores, (scatter, adds) = super().of_rest(engine), self._own_class(engine)
        scores[0] += adds * (2 * scatter - adds) / (2 * cast(ThreeStagePlan, self.plan).class_noise_multiplier ** 2)
        return scores

    def alone(self, engine: Engine) -> np.float64:
        """The scatter of the canary's class; the count of norms is what the linear attack reads."""
        return self._own_class(engine)[0]

    def _own_class(self, engine: Engine) -> tuple[np.float64, np.float64]:
        """The scatter of the canary's class along its residual, others taken off, and what it adds to that."""
        lattice, found, transform = self.plan.lattice, engine.beside, engine.transform
        records = self.records(np.ones(1, bool))
        mapped = ResidualMap(found.class_directions, found.class_means, self.plan.lattice_bits)
        steps = lattice_steps(lattice, transform, records.features)
        residuals = mapped.residuals(steps, records.labels)
        v = (lattice.quantise(clip_l2(residuals, 1.0)) * lattice.step)[:, 0]
        # The canary comes first, then who is in every dataset.
        own = records.labels == records.labels[0]
        return found.class_within[records.labels[0]][0, 0] - np.square(v[own])[1:].sum(), np.square(v[0])


def three_stage_case(plan: ThreeStagePlan) -> ThreeStageCase:
    """Of plans of that design; see :func:`privmix.audits.worst_case.worst_case_of`."""
    return ThreeStageCase(one_feature(plan), 1)
