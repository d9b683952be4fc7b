"""Design ``classwise``: a row holds records of one class, so that its label is public."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privmix.designs.rows.poisson import DEGREES
from privmix.fields import Switch
from privmix.mechanisms.sampling import ClasswiseSampling, Sampler
from privmix.options import described, option
from privmix.plans.registry import register
from privmix.plans.rows import ReleasePlan, RowDesign
from privmix.plans.setting import AssumedRecords, MomentForecast, Setting

_FULL = "classwise-full"


@register
@described
@dataclass(frozen=True)
class Classwise(RowDesign):
    """Row t draws records of class t mod K alone, each with one probability, or all of them.

    The mixup degree is an expected number, and not used with ``full_batch``.
    """

    name = "classwise"
    persons = True
    worst_case = "privmix.designs.rows.worst_case:classwise_case"
    words = "each row holds records of one class only, so its label is public"
    draws = "each row takes records of one class"
    labels: ClassVar[Mapping[str, str]] = {
        _FULL: "class sums (class-wise, full batch)",
        "classwise": "class-wise Poisson mixup",
    }
    learner = "discriminant"
    mixes_all_classes = False
    public_labels = True

    full_batch: Switch = option(False, "Use all records of a class in its one row.")

    @property
    def weighs_persons(self) -> bool:
        return self.full_batch

    def largest_degree(self, setting: Setting) -> int | None:
        return None if self.full_batch else super().largest_degree(setting)

    def check(self, setting: Setting) -> None:
        if not self.full_batch:
            super().check(setting)

    def rate(self, setting: Setting) -> float:
        return 1.0 if self.full_batch else super().rate(setting) * len(setting.classes)

    def fields(self, setting: Setting) -> dict[str, Any]:
        if not self.full_batch:
            return {}
        classes = len(setting.classes)
        # Sums of whole classes hold about n/K records: the public divisor that makes them means.
        return {"mixup_degree": max(1, round(setting.records / classes)), "rows": setting.rows or classes}

    @classmethod
    def trials(cls, setting: Setting) -> Sequence[tuple[str, Classwise]]:
        least = setting.records / len(setting.classes)
        degrees = [degree for degree in DEGREES if degree <= min(setting.records / 4, least / 2)]
        return [*((cls.name, cls(degree)) for degree in degrees), (_FULL, cls(full_batch=True))]

    @property
    def rows_follow(self) -> bool:
        return self.full_batch

    def settings(self) -> dict[str, Any]:
        return {"design": self.name, "full_batch": True} if self.full_batch else super().settings()

    @classmethod
    def agrees(cls, plan: ReleasePlan, settings: Mapping[str, Any]) -> bool:
        given = dict(settings)
        return bool(given.pop("full_batch", False)) == (plan.record_rate == 1) and super().agrees(plan, given)

    @classmethod
    def rate_of(cls, plan: ReleasePlan) -> float:
        return 1.0 if plan.record_rate == 1 else super().rate_of(plan) * plan.num_classes

    @classmethod
    def sampler(cls, plan: ReleasePlan, records: int) -> Sampler:
        return ClasswiseSampling(records, plan.rows, plan.num_classes, plan.record_rate)

    @classmethod
    def expected_members(cls, plan: ReleasePlan) -> float:
        return super().expected_members(plan) / plan.num_classes

    @classmethod
    def class_share(cls, plan: ReleasePlan) -> float:
        return 1 / plan.num_classes

    @classmethod
    def rows_touched(cls, plan: ReleasePlan) -> int:
        return -(-plan.rows // plan.num_classes)

    @classmethod
    def label_counts(
        cls, plan: ReleasePlan, sizes: NDArray[np.int64], rows: int, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        only = np.arange(rows) % len(sizes)
        counts = np.zeros((rows, len(sizes)), np.int64)
        counts[np.arange(rows), only] = generator.binomial(sizes[only], plan.record_rate)
        return counts

    @classmethod
    def amplified(cls, plan: ReleasePlan) -> float:
        return plan.expected_members

    @classmethod
    def forecast(cls, plan: ReleasePlan, assumed: AssumedRecords) -> MomentForecast:
        if plan.record_rate != 1:
            found = super().forecast(plan, assumed)
            # The number of rows of each class is fixed: differences between classes add nothing to the errors of X'X
            # and X'Y. Learners still see no more than how much rows vary.
            degree = plan.expected_members
            own = assumed.within / degree + (plan.feature_noise_multiplier / degree) ** 2
            less, second = own / (own + cls.amplified(plan) * assumed.between / degree), found.second
            assert second is not None
            return replace(found, second=second * less, cross=found.cross * np.sqrt(less), taken=found.cross)
        # Full-batch class sums: X'Y itself, and nothing about X'X.
        repeats = max(1.0, plan.rows / plan.num_classes)
        return MomentForecast(None, assumed.noise * plan.noise_multiplier / math.sqrt(repeats))
