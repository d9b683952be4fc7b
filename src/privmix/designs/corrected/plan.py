"""Design ``corrected-moments``: noisy second moments, and then noisy sums of what models made from them get wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Final

from privmix.designs.moments.plan import LARGEST_DIM, MOMENTS, Moments, MomentsPlan, lattice_bits
from privmix.fields import Share, Switch, Whole
from privmix.options import described, option
from privmix.plans.parts import Part, ReleasedArray
from privmix.plans.registry import register
from privmix.plans.setting import Setting

CORRECTED: Final = "corrected-moments"
ERROR_BOUND: Final = 0.5
"""Longest error of a record: its one-hot label less the model's probabilities is clipped to this norm."""
CONSTANT: Final = 0.25
"""The number, in clipping bounds, that follows a record's features, for the offsets of the scores."""
# Shares of the moments' budget that a planner tries: errors make up for some of what these lose.
_LABEL_SHARES: Final = (0.35, 0.65, 0.9)
_COUNT_SHARES: Final = (0.01, 0.03)
# A plan lists a query for each: without a limit a stranger's plan would fill the memory.
Times = Annotated[int, Whole(1, 20)]


@dataclass(frozen=True, kw_only=True)
class CorrectedPlan(MomentsPlan):
    """Everything public about a release of corrected moments before it runs.

    1. *Moments*, as in :class:`privmix.designs.MomentsPlan`, with what ``correction_share`` leaves of the budget.
    2. *A model* of the classes' log odds follows from these numbers alone (:mod:`privmix.designs.corrected.released`).
    3. *Its errors.* e is a record's one-hot label less the probabilities of the model, clipped to norm 0.5. The sum of
       z e' is released with Gaussian noise, z the record followed by a constant.
    4. *A better model* follows from them. Steps 3 and 4 are done ``corrections`` times.

    A record that the model gets right adds next to nothing, and so errors need less noise than labels. These are noisy
    steps of Newton's method for logistic regression (compare Avella-Medina, Bradshaw and Loh 2021; Ganesh, Haghifam,
    Steinke and Thakurta 2023). The Hessian costs nothing: it is that of records drawn from the moments.

    All noise is fixed here, before any record is read: errors depend on earlier answers, the noise of their sums does
    not. Such an adaptive composition of Gaussian queries costs as much as the same queries together: the price of
    ``event`` (Dong, Roth, Su 2021, Theorem 3.2 and Corollary 3.3).

    Formal guarantees (in addition to those of :class:`MomentsPlan`):
        * one record changes each sum of errors by at most C sqrt(17/16) / 2, for any model, and the noise of each is
          scaled to that;
        * ``event`` is the composition of all queries, and of the mean's.
    """

    correction_share: Share
    corrections: Times

    made_by: ClassVar[str] = CORRECTED
    needs_labels: ClassVar[bool] = True

    @property
    def first(self) -> MomentsPlan:
        """The moments, mean included, as a plan of their own."""
        own = {
            "design": MOMENTS,
            "noise_multiplier": self.moments_noise_multiplier,
            # The target is that of all queries.
            "epsilon": None,
            "delta": None,
        }
        return MomentsPlan(**{**{one.name: getattr(self, one.name) for one in fields(MomentsPlan)}, **own})

    @property
    def queries(self) -> tuple[float, ...]:
        return self.moments_noise_multiplier, *(self.error_noise_multiplier,) * self.corrections

    @property
    def moments_noise_multiplier(self) -> float:
        return self.noise_multiplier / math.sqrt(1 - self.correction_share)

    @property
    def error_noise_multiplier(self) -> float:
        """Multiplier of each sum of errors."""
        return self.noise_multiplier / math.sqrt(self.correction_share / self.corrections)

    @property
    def arrays(self) -> tuple[ReleasedArray, ...]:
        shape = (self.corrections, self.dim + 1, self.num_classes)
        bound = self.final_clip_norm * ERROR_BOUND * math.hypot(1, CONSTANT)
        return (
            *super().arrays,
            ReleasedArray(
                name="models",
                meaning=f"M_i: log odds of x are M_i' (x / C, {CONSTANT}); from the above and earlier `errors`",
                shape=shape,
            ),
            Part(
                name="errors",
                words="errors",
                meaning=f"sums of (x, {CONSTANT} C) e', e the label less M_i's probabilities, clipped to {ERROR_BOUND}",
                shape=shape,
                # A record is in each of the sums.
                bound=bound * math.sqrt(self.corrections),
                noise_std=bound * self.error_noise_multiplier,
                unit=4.0**-self.lattice_bits * self.final_clip_norm * ERROR_BOUND,
            ),
        )


@register
@described
@dataclass(frozen=True)
class CorrectedMoments(Moments):
    """Second moments of all records, and then, a few times, the errors of the model that follows from what is known.

    Shares, number of corrections and bound of errors were chosen on public tables. Half to three quarters of the budget
    for moments, and two to six corrections, are within 0.2 points of each other there.
    """

    name = "corrected-moments"
    persons = True
    worst_case = "privmix.designs.corrected.audit:corrected_case"
    labels: ClassVar[Mapping[str, str]] = {"corrected-moments": "corrected moments"}
    learner = "corrected"
    plan_type: ClassVar[type[MomentsPlan]] = CorrectedPlan
    engines: ClassVar[Mapping[str, str]] = dict.fromkeys(
        Moments.engines, "privmix.designs.corrected.engine:CorrectedEngine"
    )
    # Real classes gain more by errors than simulated ones do.
    margins: ClassVar[tuple[float, float]] = (-0.05, -0.05)
    lost = "Means and correlations of features and labels, and errors of linear models, are kept, and nothing beyond."
    statements: ClassVar[tuple[str, ...]] = (
        "The models, whose errors are released, follow from numbers that the release holds.",
        "The rows are samples of a model made from the released moments; they add nothing to what the moments show.",
    )
    released = "second moments and errors of models"
    released_as = "privmix.designs.corrected.released:CorrectedSecondMoments"
    beside_tests = "privmix.designs.corrected.evidence:corrected_tests"
    pure_noises = "privmix.designs.corrected.audit:corrected_noises"

    plain_labels: Switch = option(True, "Release labels as they are: better with few records, worse for table rows.")
    correction_share: Share = option(0.4, "Share of the budget for the errors of models.")
    corrections: Times = option(3, "How often errors are released, and the model corrected.")

    def constants(
        self, setting: Setting, noise_multiplier: float, centre_noise_multiplier: float | None
    ) -> dict[str, Any]:
        own = {"correction_share": float(self.correction_share), "corrections": self.corrections}
        found = super().constants(setting, noise_multiplier, centre_noise_multiplier) | own
        moments = min(1 - found["label_share"], found["label_share"]) * (1 - found["count_share"])
        least = min((1 - self.correction_share) * moments, self.correction_share / self.corrections)
        return found | {"lattice_bits": lattice_bits(setting, noise_multiplier, least)}

    @classmethod
    def trials(cls, setting: Setting) -> Sequence[tuple[str, Moments]]:
        return [] if setting.dim > LARGEST_DIM else [(cls.name, cls())]

    def ranges(self) -> Mapping[str, Sequence[float]]:
        return {"label_share": _LABEL_SHARES, "count_share": _COUNT_SHARES}

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "correction_share": self.correction_share, "corrections": self.corrections}

    @classmethod
    def mechanism(cls, plan: MomentsPlan, multiplier: str) -> str:
        assert isinstance(plan, CorrectedPlan)
        return (
            f"Gaussian noise, {multiplier} times together what adding one record can change: second moments, cross "
            f"moments and label sums of all records; then, {plan.corrections} times, the sums of records times the "
            f"errors on them of a model that follows from noisy answers alone."
        )

    @classmethod
    def card(cls, plan: MomentsPlan, extractor: str) -> str:
        return super().card(plan, extractor) + f"\nC is the clipping bound {plan.final_clip_norm:.6g} of the records.\n"

    @classmethod
    def summary(cls, plan: MomentsPlan, about: str) -> str:
        return f"Noisy second moments and errors of models of {about}, with {plan.rows:,} rows sampled"

    @classmethod
    def shown(cls, plan: MomentsPlan) -> dict[str, str]:
        assert isinstance(plan, CorrectedPlan)
        errors = f"{plan.correction_share:.0%} to errors of {plan.corrections} models; of the rest "
        return {**super().shown(plan), "budget": errors + super().shown(plan)["budget"]}
