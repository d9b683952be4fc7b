"""Design ``poisson``: each record joins each row independently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privmix.mechanisms.sampling import PoissonSampling, Sampler
from privmix.options import described
from privmix.plans.registry import register
from privmix.plans.rows import DrawnMembers, ReleasePlan
from privmix.plans.setting import Setting

DEGREES = (16, 64, 256, 1024)
"""Mixup degrees that a planner tries."""


@register
@described
@dataclass(frozen=True)
class Poisson(DrawnMembers):
    """Each record joins each row independently with probability m/n (DPMix, DPFMix, NeuroMixGDP)."""

    name = "poisson"
    persons = True
    worst_case = "privmix.designs.rows.worst_case:poisson_case"
    words = "each record joins each row independently"
    draws = "each record joins each row independently with probability m/n"
    labels: ClassVar[Mapping[str, str]] = {"poisson": "Poisson mixup"}
    learner = "discriminant"

    @classmethod
    def trials(cls, setting: Setting) -> Sequence[tuple[str, Poisson]]:
        return [(cls.name, cls(degree)) for degree in DEGREES if degree <= setting.records / 4]

    @classmethod
    def sampler(cls, plan: ReleasePlan, records: int) -> Sampler:
        return PoissonSampling(records, plan.rows, plan.record_rate)

    @classmethod
    def label_counts(
        cls, plan: ReleasePlan, sizes: NDArray[np.int64], rows: int, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        return generator.binomial(sizes, plan.record_rate, (rows, len(sizes)))
