"""Design ``allocation``: each record is in exactly k of T rows, one of every block of T/k rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privmix.accounting import Adjacency
from privmix.errors import InvalidInput
from privmix.mechanisms.sampling import AllocationSampling, Sampler
from privmix.options import described
from privmix.plans.registry import register
from privmix.plans.rows import AUTO, DrawnMembers, ReleasePlan
from privmix.plans.setting import Setting


@register
@described
@dataclass(frozen=True)
class Allocation(DrawnMembers):
    """Poisson's rows, but each record is in exactly k of T rows, k being m T / n rounded (random allocation).

    No record is left out and none is in more rows than others, so that the same guarantee takes a little less noise
    than Poisson's rows do: too little less for the planner, which does not try it. A row holds n k / T records on
    average, which is m where m T / n is a whole number.

    Example:
        >>> setting = Setting(records=1000, dim=3, classes=("no", "yes"))
        >>> plan = Allocation(mixup_degree=16).plan(setting, 1.2, None)
        >>> plan.record_rate, plan.sampler.event(plan.row_query).events[0].count
        (0.016, 8)
    """

    name = "allocation"
    persons = True
    worst_case = "privmix.designs.rows.worst_case:allocation_case"
    words = "each record is in exactly as many rows as every other"
    draws = "rows are cut into blocks, and each record joins one row of every block, drawn uniformly"
    learner = "discriminant"

    def check(self, setting: Setting) -> None:
        super().check(setting)
        if self.mixup_degree != AUTO and 2 * self.degree * _rows(setting) < setting.records:
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
        return rows_each(plan.mixup_degree, plan.rows, plan.records)

    @classmethod
    def label_counts(
        cls, plan: ReleasePlan, sizes: NDArray[np.int64], rows: int, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        return generator.binomial(sizes, cls.rows_touched(plan) / plan.rows, (rows, len(sizes)))


def rows_each(degree: int, rows: int, records: int) -> int:
    """k: m T / n rounded to a whole number, at least 1 and at most T; made of public numbers only.

    Example:
        >>> rows_each(64, 60_000, 60_000), rows_each(64, 500, 1000), rows_each(1, 10, 1000)
        (64, 32, 1)
    """
    return min(rows, max(1, (2 * degree * rows + records) // (2 * records)))


def _rows(setting: Setting) -> int:
    return setting.rows or setting.records
