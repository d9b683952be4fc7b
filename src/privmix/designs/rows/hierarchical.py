"""Design ``hierarchical``: a row draws classes, then records of those classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privmix.errors import check_number
from privmix.mechanisms.sampling import HierarchicalSampling, Sampler
from privmix.options import described, option
from privmix.plans.registry import register
from privmix.plans.rows import NoisyLabels, ReleasePlan
from privmix.plans.setting import Setting

_DEGREE = 64


@register
@described
@dataclass(frozen=True)
class Hierarchical(NoisyLabels):
    """Each row draws each class with one probability, then each of its records with another (NeuroMixGDP-HS)."""

    name = "hierarchical"
    persons = True
    worst_case = "privmix.designs.rows.worst_case:hierarchical_case"
    words = "each row draws a few classes first, then records of those classes"
    draws = "each row draws classes, then records of those classes"
    labels: ClassVar[Mapping[str, str]] = {"hierarchical": "hierarchical mixup, honestly priced"}
    mixes_all_classes = False
    parts: ClassVar[frozenset[str]] = frozenset({"class_rate"})

    expected_classes: float = option(3.0, "Expected number of classes in a row.")

    def check(self, setting: Setting) -> None:
        check_number("expected_classes", self.expected_classes, low=0, high=len(setting.classes), low_open=True)
        super().check(setting)

    def rate(self, setting: Setting) -> float:
        return super().rate(setting) * len(setting.classes) / self.expected_classes

    def fields(self, setting: Setting) -> dict[str, Any]:
        return {**super().fields(setting), "class_rate": self.expected_classes / len(setting.classes)}

    @classmethod
    def trials(cls, setting: Setting) -> Sequence[tuple[str, Hierarchical]]:
        classes = len(setting.classes)
        expected = min(3.0, classes / 2)
        # The rate of a record within a drawn class is this quotient over the records, and cannot exceed 1.
        if _DEGREE * classes / expected > setting.records:
            return []
        return [(cls.name, cls(_DEGREE, expected_classes=expected))]

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "expected_classes": self.expected_classes}

    @classmethod
    def agrees(cls, plan: ReleasePlan, settings: Mapping[str, Any]) -> bool:
        given = dict(settings)
        expected = given.pop("expected_classes", None)
        # A plan keeps the rate and a record the number of classes: their quotients may differ in the last bit.
        same = expected is None or math.isclose(expected / plan.num_classes, cls.class_share(plan))
        return same and super().agrees(plan, given)

    @classmethod
    def rate_of(cls, plan: ReleasePlan) -> float:
        assert plan.class_rate is not None
        return super().rate_of(plan) / plan.class_rate

    @classmethod
    def sampler(cls, plan: ReleasePlan, records: int) -> Sampler:
        assert plan.class_rate is not None
        return HierarchicalSampling(records, plan.rows, plan.num_classes, plan.class_rate, plan.record_rate)

    @classmethod
    def expected_members(cls, plan: ReleasePlan) -> float:
        return super().expected_members(plan) * cls.class_share(plan)

    @classmethod
    def class_share(cls, plan: ReleasePlan) -> float:
        return plan.class_rate or 1.0

    @classmethod
    def label_counts(
        cls, plan: ReleasePlan, sizes: NDArray[np.int64], rows: int, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        chosen = generator.random((rows, len(sizes))) < cls.class_share(plan)
        return generator.binomial(sizes, plan.record_rate, (rows, len(sizes))) * chosen

    @classmethod
    def amplified(cls, plan: ReleasePlan) -> float:
        assert plan.class_rate is not None
        return 1 + plan.expected_members * (1 - plan.class_rate) / (plan.class_rate * plan.num_classes)
