"""What worst cases have in common where one record is added or removed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privmix.audits.bounds import Scores
from privmix.audits.worst_case import LONG, Mask, P, WorstCase
from privmix.engine import PrivateRecords
from privmix.engine.rows import Engine
from privmix.plans import Plan
from privmix.publication import RecordTransform

Indices = NDArray[np.int64]


MOST_TRIALS: Final = 64


def label_overlap(plan: Plan) -> float:
    """<label of the last class, label of the first> over the square of a label's norm."""
    offset = plan.label_offset
    return (plan.num_classes * offset**2 - 2 * offset) / plan.label_norm**2


@dataclass(frozen=True)
class AddRemoveCase(WorstCase[P]):
    """Canary j has all its length in coordinate j, more than C, and label j; a bystander is in every dataset."""

    def records(self, present: Mask) -> PrivateRecords:
        others, labels = self._others()
        canaries = np.flatnonzero(present)
        features = np.zeros((len(canaries), self.plan.dim))
        features[np.arange(len(canaries)), self._coordinates[canaries]] = LONG * self.plan.clip_norm
        return PrivateRecords(
            np.concatenate([features, others]), np.concatenate([self._classes[canaries], labels]).astype(np.int64)
        )

    def _others(self) -> tuple[Scores, Indices]:
        return np.zeros((1, self.plan.dim)), np.array([self.plan.num_classes - 1])

    @property
    def _coordinates(self) -> Indices:
        return np.arange(self.trials)

    @property
    def _classes(self) -> Indices:
        return np.arange(self.trials)

    def of_rest(self, engine: Engine) -> Scores:
        """What the released mean shows: a Gaussian query that holds the canary's clipped feature."""
        plan = self.plan
        if plan.centre_noise_multiplier is None or engine.transform.centre is None:
            return np.zeros((2, self.trials))
        own, others = self._in_the_mean
        seen = float(engine.transform.centre[0]) * plan.records / plan.clip_norm - others
        gain = own * (2 * seen - own) / (2 * plan.centre_noise_multiplier**2)
        return np.array([[gain], [0.0]])

    @cached_property
    def _in_the_mean(self) -> tuple[float, float]:
        """What the canary, and what all others, add to the sum behind the released mean: the same in every run."""
        clip = RecordTransform(self.plan.clip_norm)
        own = self.contribution(clip, np.full((1, 1), self.plan.clip_norm))[0, 0]
        return float(own), float(self.contribution(clip, self._others()[0]).sum())

    def _canary(self, transform: RecordTransform) -> float:
        """What a canary adds to its coordinate of a sum; kept for the transform that was asked for last."""
        last: tuple[RecordTransform, float] | None = self.__dict__.get("_last")
        if last is None or last[0] is not transform:
            probe = np.zeros((1, self.plan.dim))
            probe[0, 0] = self.plan.clip_norm
            last = transform, float(self.contribution(transform, probe)[0, 0])
            self.__dict__["_last"] = last
        return last[1]
