"""Design ``class-moments``: noisy second moments of each class, in one Gaussian query."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from privmix.designs.moments.plan import LARGEST_DIM, Moments, MomentsPlan
from privmix.errors import InvalidInput
from privmix.fields import Share
from privmix.options import described, option
from privmix.plans.design import BOTH
from privmix.plans.parts import Part, ReleasedArray
from privmix.plans.registry import register
from privmix.plans.setting import AssumedRecords, MomentForecast, Setting

CLASS_MOMENTS: Final = "class-moments"


@dataclass(frozen=True, kw_only=True)
class ClassMomentsPlan(MomentsPlan):
    """Everything public about a release of each class's second moments before it runs.

    As :class:`MomentsPlan`, with X'X by class: K matrices, each the sum of x x' over the records of its class. A record
    is in one class, so it changes one of the matrices by x x', as it changes X'X. Noise of X'X in each of the K is
    one Gaussian query of the same price. Their sum has sqrt(K) times that noise.

    Formal guarantees (in addition to those of :class:`MomentsPlan`):
        * one record changes the K matrices together by at most C^2 (Frobenius). A person whose records are in several
          classes does not change them by more: the weights of the records sum to 1 at most;
        * replacing a record is refused, as for moments: two matrices may change then.
    """

    made_by: ClassVar[str] = CLASS_MOMENTS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_classes * self.dim**2 > LARGEST_DIM**2:
            most = math.isqrt(LARGEST_DIM**2 // self.num_classes)
            raise InvalidInput("dim", self.dim, f"at most {most} features for design {CLASS_MOMENTS} of these classes")

    @property
    def arrays(self) -> tuple[ReleasedArray, ...]:
        second, *others = super().arrays
        assert isinstance(second, Part)
        own = replace(
            second,
            name="class_second",
            key="second",
            words="second moments of each class",
            meaning="X'X of the records of each class, lower triangle by rows",
            shape=(self.num_classes, self.dim, self.dim),
        )
        return (own, *others)


@register
@described
@dataclass(frozen=True)
class ClassMoments(Moments):
    """Second moments of the records of each class in one noisy query, and rows sampled from them."""

    name = "class-moments"
    persons = True
    worst_case = "privmix.designs.moments.class_audit:class_moments_case"
    labels: ClassVar[Mapping[str, str]] = {}
    plan_type: ClassVar[type[MomentsPlan]] = ClassMomentsPlan
    engines: ClassVar[Mapping[str, str]] = dict.fromkeys(
        BOTH, "privmix.designs.moments.class_engine:ClassMomentsEngine"
    )
    lost = "Means and correlations of features, within each class, are kept, and nothing beyond them."
    released = "second moments of each class"
    released_as = "privmix.publication.second_moments:ClassSecondMoments"
    pure_noises = "privmix.designs.moments.class_audit:class_moments_noises"

    # The matrices of the classes hold the classes' shares of values, too: X'Y needs little.
    label_share: Share = option(0.05, "Share of the budget for X'Y (the rest: X'X of each class).")

    @classmethod
    def trials(cls, setting: Setting) -> Sequence[tuple[str, Moments]]:
        return []

    @classmethod
    def mechanism(cls, plan: MomentsPlan, multiplier: str) -> str:
        return (
            f"Second moments of the records of each class, cross moments and label sums of all records, in one query "
            f"with Gaussian noise, {multiplier} times what adding one record can change."
        )

    @classmethod
    def summary(cls, plan: MomentsPlan, about: str) -> str:
        return f"Noisy second moments of each class of {about}, with {plan.rows:,} rows sampled from them"

    @classmethod
    def forecast(cls, plan: MomentsPlan, assumed: AssumedRecords) -> MomentForecast:
        # Learners of all records' X'X sum the matrices, and their noise.
        found = super().forecast(plan, assumed)
        assert found.second is not None
        return replace(found, second=found.second * math.sqrt(plan.num_classes))
