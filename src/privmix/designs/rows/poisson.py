"""Designs ``poisson`` and ``allocation``: a record joins each row independently, or exactly k of T rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privmix.accounting.events import Adjacency
from privmix.errors import InvalidInput
from privmix.mechanisms.sampling import AllocationSampling, PoissonSampling, Sampler
from privmix.options import described
from privmix.plans.registry import register
from privmix.plans.rows import AUTO, DrawnMembers, ReleasePlan
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


@register
@described
@dataclass(frozen=True)
class Allocation(DrawnMembers):
    """Poisson's rows, but each record is in exactly k of T rows, k being m T / n rounded (random allocation).

    Every record is in an equal number of rows, so that the same guarantee takes a little less noise than Poisson's rows
    do. The planner does not try the design: the gain is too small. A row holds n k / T records on average, which is m
    where m T / n is a whole number.
    """

    name = "allocation"
    persons = True
    worst_case = "privmix.designs.rows.worst_case:allocation_case"
    words = "each record is in exactly as many rows as every other"
    draws = "rows are cut into blocks, and each record joins one row of every block, drawn uniformly"
    learner = "discriminant"

    def check(self, setting: Setting) -> None:
        super().check(setting)
        if self.mixup_degree != AUTO and 2 * self.degree * (setting.rows or setting.records) < setting.records:
            allowed = "a degree of half n/T at least: each record is in one row or more"
            raise InvalidInput("mixup_degree", self.mixup_degree, allowed)

    @property
    def other_adjacency(self) -> Adjacency:
        # In two steps, by way of the dataset without the record.
        return Adjacency.REPLACE_ONE

    @classmethod
    def sampler(cls, plan: ReleasePlan, records: int) -> Sampler:
        return AllocationSampling(records, plan.rows, cls.rows_touched(plan))

    @classmethod
    def expected_members(cls, plan: ReleasePlan) -> float:
        return plan.records * cls.rows_touched(plan) / plan.rows

    @classmethod
    def rows_touched(cls, plan: ReleasePlan) -> int:
        # k: m T / n rounded to a whole number from 1 to T, from public numbers only.
        rounded = (2 * plan.mixup_degree * plan.rows + plan.records) // (2 * plan.records)
        return min(plan.rows, max(1, rounded))

    @classmethod
    def label_counts(
        cls, plan: ReleasePlan, sizes: NDArray[np.int64], rows: int, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        return generator.binomial(sizes, cls.rows_touched(plan) / plan.rows, (rows, len(sizes)))
