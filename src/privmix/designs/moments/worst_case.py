"""The worst case of second moments; see :mod:`privmix.audits.worst_case`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from privmix.audits.bounds import Scores
from privmix.audits.worst_case import MOST_TRIALS, AddRemoveCase, check_room, label_overlap
from privmix.designs.moments.plan import MomentsPlan
from privmix.engine.rows import Engine, RowBlock
from privmix.publication import RecordTransform


def moments_case(plan: MomentsPlan) -> MomentsCase:
    check_room(plan)
    width = 1 if plan.centred else MOST_TRIALS
    names = plan.classes if plan.centred else tuple(str(number) for number in range(width + 1))
    reduced = replace(plan, dim=width, classes=names, rows=1)
    assert reduced.event == plan.event, "what runs is not what is audited"
    return MomentsCase(reduced, width)


@dataclass(frozen=True)
class MomentsCase(AddRemoveCase[MomentsPlan]):
    """The canary alone: all of one Gaussian query shows it, and so there is nothing that a better attack could use."""

    def of_rows(self, block: RowBlock, transform: RecordTransform) -> Scores:
        """Rows sampled from the released moments add nothing to them."""
        return np.zeros((2, self.trials))

    def of_repeats(self, x: Scores, transform: RecordTransform) -> Scores:
        return np.zeros(self.trials)

    def of_rest(self, engine: Engine) -> Scores:
        plan = self.plan
        found, bound, columns = engine.beside, plan.final_clip_norm, np.arange(self.trials)
        own, other = self._canary(engine.transform), 0.0
        labels = np.eye(plan.num_classes)[: self.trials] - plan.label_offset
        overlap = 0.0
        if plan.centred:
            overlap = label_overlap(plan)
            other = float(self.contribution(engine.transform, self._others()[0])[0, 0])
        seen = (
            found.second[columns, columns] / bound**2 - other**2,
            (found.cross * labels).sum(axis=1) / (bound * plan.label_norm**2) - other * overlap,
            labels @ found.label_sums / plan.label_norm**2 - overlap,
        )
        noises = (plan.second_noise_multiplier, plan.cross_noise_multiplier, plan.count_noise_multiplier)
        gain = super().of_rest(engine)[0]
        for part, adds, noise in zip(seen, (own**2, own, 1.0), noises, strict=True):
            gain = np.asarray(gain + adds * (2 * part - adds) / (2 * noise**2))
        return np.stack([gain, seen[0]])
