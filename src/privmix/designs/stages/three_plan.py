"""Design ``three-stage``: two stages, then the shape of each class's scatter, which the second made round."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from privmix.designs.stages.two_plan import TwoStage, TwoStagePlan
from privmix.errors import InvalidInput
from privmix.fields import Share
from privmix.options import described, option
from privmix.plans.design import BOTH
from privmix.plans.parts import Part, ReleasedArray
from privmix.plans.registry import register
from privmix.plans.setting import Setting

THREE_STAGE: Final = "three-stage"


@dataclass(frozen=True, kw_only=True)
class ThreeStagePlan(TwoStagePlan):
    """Everything public about a release in three stages before it runs.

    The first two are those of :class:`TwoStagePlan`, with less of the budget for the scatter within classes. Then

    5. *A second map.* The released scatter, noise taken out, gives a root that divides the residuals along the first q
       directions: they are then about equally long in all of these, and of length about 1.
    6. *Scatter of each class.* For every class the sum of v v' over its records, v = clip_1(residual), with noise. A
       record is in the matrix of its own class only, so all K of them are one query.

    Clipped to a sphere, residuals show the shape of a class's scatter and not its size (Tyler 1987). The number q
    follows from the plan. Noise in the scatter of a class of average size, scaled like it, has 1 for its spectral
    radius, the average variance itself. So 2 sqrt(q) s_4 q K / (sqrt(2) n) = 1 with s_4 the multiplier.

    Formal guarantees (in addition to those of :class:`TwoStagePlan`, whose queries are four now):
        * one record changes the matrices of step 6 by at most 1 (Frobenius, all of them together), for any answers of
          earlier queries;
        * ``event`` is the composition of the four queries, and of the mean's.
    """

    class_share: Share

    made_by: ClassVar[str] = THREE_STAGE

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_class_share(self)

    @property
    def within_share(self) -> float:
        return 1 - self.first_share - self.norm_share - self.class_share

    @property
    def queries(self) -> tuple[float, ...]:
        return *super().queries, self.class_noise_multiplier

    @property
    def class_noise_multiplier(self) -> float:
        """Multiplier of the scatter of each class: the standard deviation of the noise in a diagonal entry."""
        return self.noise_multiplier / math.sqrt(self.class_share)

    @property
    def class_directions(self) -> int:
        most = self.records / self.num_classes / (math.sqrt(2) * self.class_noise_multiplier)
        return max(1, min(self.directions, math.floor(math.pow(most, 2 / 3))))

    @property
    def arrays(self) -> tuple[ReleasedArray, ...]:
        classes, axes = self.num_classes, self.class_directions
        follows = "D, the first of these directions divided by a root of `within`, from the above"
        return (
            *super().arrays,
            ReleasedArray(name="class_directions", meaning=follows, shape=(axes, self.dim)),
            ReleasedArray(
                name="class_means", meaning="D times the classes' means, from the above", shape=(classes, axes)
            ),
            Part(
                name="class_within",
                words="scatter of each class",
                meaning="for each class the sum of v v' over its records, lower triangle by rows, v the residual "
                "D x / C - mean clipped to norm 1",
                shape=(classes, axes, axes),
                # The product of a residual of norm 1 with itself has Frobenius norm 1.
                bound=1.0,
                noise_std=self.class_noise_multiplier,
                # Entries are sums of products of two numbers on the lattice, so their grid is its square.
                unit=4.0**-self.lattice_bits,
                symmetric=True,
            ),
        )


def _check_class_share(options: ThreeStagePlan | ThreeStage) -> None:
    # The scatter within classes gets the rest: without a share its noise would be infinite.
    if not options.first_share + options.norm_share + options.class_share < 1:
        raise InvalidInput("class_share", options.class_share, "with first_share and norm_share less than 1")


@register
@described
@dataclass(frozen=True)
class ThreeStage(TwoStage):
    """Moments, the scatter within classes where these made it round, and the shape of each class's scatter at last.

    Equal class sizes, the number of directions and the share (0.07 to 0.2 were alike) were chosen on 10,000 training
    records of MNIST, held out from 50,000 others. Test images had no part in it.
    """

    name = "three-stage"
    persons = True
    worst_case = "privmix.designs.stages.audit:three_stage_case"
    labels: ClassVar[Mapping[str, str]] = {"three-stage": "moments in three stages"}
    # The forecast gain of shapes already excludes an error: the margin of two stages is enough.
    margins: ClassVar[tuple[float, float]] = (0.05, 0.1)
    learner = "three-stage"
    stages = "three"
    plan_type: ClassVar[type[TwoStagePlan]] = ThreeStagePlan
    engines: ClassVar[Mapping[str, str]] = dict.fromkeys(BOTH, "privmix.designs.stages.engine:ThreeStageEngine")
    lost = "Means and correlations of features, within each class, are kept, and nothing beyond them."
    statements: ClassVar[tuple[str, ...]] = (
        "The later stages' maps and clipping bounds follow from numbers that were released before, at their own cost.",
        "The rows are samples of a model made from the first stage's moments; they add nothing to what these show.",
    )
    released = "second moments, scatter within classes and of each class"
    released_as = "privmix.designs.stages.released:ThreeStageMoments"
    beside_tests = "privmix.designs.stages.evidence:three_stage_tests"
    pure_noises = "privmix.designs.stages.audit:three_stage_noises"
    first_shares: ClassVar[tuple[float, ...]] = (0.35, 0.6, 0.75)

    class_share: Share = option(0.15, "Share of the budget for the scatter of each class.")

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_class_share(self)

    @property
    def later_shares(self) -> tuple[float, ...]:
        return 1 - self.first_share - self.norm_share - self.class_share, self.class_share

    def plan(self, setting: Setting, noise_multiplier: float, centre_noise_multiplier: float | None) -> ThreeStagePlan:
        found = self.constants(setting, noise_multiplier, centre_noise_multiplier)
        return ThreeStagePlan(**found, class_share=float(self.class_share))

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "class_share": self.class_share}

    @classmethod
    def mechanism(cls, plan: TwoStagePlan, multiplier: str) -> str:
        two = super().mechanism(plan, multiplier).removesuffix(".")
        return f"{two}; then, divided by a root of that answer, the same for each class by itself."

    @classmethod
    def shown(cls, plan: TwoStagePlan) -> dict[str, str]:
        assert isinstance(plan, ThreeStagePlan)
        shares = (plan.first_share, plan.norm_share, plan.within_share, plan.class_share)
        words = ("moments", "norms", "scatter", "scatter of each class")
        budget = ", ".join(f"{share:.1%} to {word}" for share, word in zip(shares, words, strict=True))
        axes = {"directions of each class": str(plan.class_directions)}
        return {**super().shown(plan), **axes, "budget": budget}
