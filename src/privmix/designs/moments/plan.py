"""Designs ``moments`` and ``class-moments``: noisy second moments of all records or each class, in one query."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from privmix.errors import InvalidInput
from privmix.fields import Fraction, Share, Switch, used
from privmix.options import described, option
from privmix.plans.design import BOTH
from privmix.plans.parts import Part, ReleasedArray, SumDesign, SumPlan
from privmix.plans.registry import register
from privmix.plans.setting import AssumedRecords, MomentForecast, Setting

MOMENTS: Final = "moments"
CLASS_MOMENTS: Final = "class-moments"
LARGEST_DIM: Final = 8192
"""Second moments hold dim^2 numbers: beyond this they need more memory and time than a release should."""

# Rows sampled from released moments: enough for any classifier, little enough to carry.
SAMPLED_ROWS: Final = 10_000
# Shares of the budget that a planner tries; if a simulation cannot separate them, the first errs least.
_LABEL_SHARES: Final = (0.35, 0.5, 0.2, 0.65, 0.1, 0.8, 0.9, 0.95, 0.97)
_COUNT_SHARES: Final = (0.01, 0.002, 0.03, 0.05)


@dataclass(frozen=True, kw_only=True)
class MomentsPlan(SumPlan):
    """Everything public about a release of second moments before it runs.

    The release is X'X (d, d), X'Y (d, K) and the label sums Y'1 (K), each with Gaussian noise. A row of X is a clipped
    (and privately centred) record of norm at most C. A row of Y is its one-hot label minus the offset, of norm at most
    B. Rows sampled from a Gaussian mixture with these moments are post-processing.

    The three parts are ONE Gaussian query of noise multiplier s: 1/s^2 = 1/s_xx^2 + 1/s_xy^2 + 1/s_y^2. 1/s_xy^2 is
    ``label_share`` of the part of 1/s^2 that ``count_share`` leaves. One record changes X'X by x x', of Frobenius norm
    at most C^2. X'X is symmetric: its upper triangle with the off-diagonal entries times sqrt(2) is a vector of the
    same norm. So off-diagonal entries need noise of C^2 s_xx / sqrt(2) only, and diagonal ones of C^2 s_xx.

    Records without a label are of one class. Then X'X is all that is released: both shares are 0 and s_xx is s.

    With ``plain_labels`` nothing is subtracted from labels. The columns of X'Y then add up to X'1, which shows how far
    the released mean is off: with few records that may be farther than classes lie apart.

    Formal guarantees:
        * every field is a public constant: no value depends on a private row;
        * one record changes X'X by at most C^2 (Frobenius), X'Y by at most C B and Y'1 by at most B, to which the
          noise of each is scaled;
        * ``event`` is the Gaussian query at the joint multiplier, composed with the mean query.

    Attributes:
        rows: how many rows are sampled from the moments.
        label_share: share of the query's budget (in 1/s^2) that X'Y gets; X'X gets the rest.
        count_share: share that the label sums get.
    """

    label_share: Fraction
    count_share: Fraction
    plain_labels: Switch = used(False)

    made_by: ClassVar[str] = MOMENTS
    needs_labels: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("label_share", "count_share"):
            # A share of 0 would mean infinite noise in a part that is released; without labels there is no such part.
            if (getattr(self, name) == 0) is not (self.num_classes == 1):
                raise InvalidInput(name, getattr(self, name), "above 0, and 0 for records without a label")
        # X'X grows with the square of the features: refuse the plan, before a budget is charged for it.
        if self.dim > LARGEST_DIM:
            allowed = f"at most {LARGEST_DIM} features for design {MOMENTS}: `project` makes fewer of them"
            raise InvalidInput("dim", self.dim, allowed)

    @property
    def label_offset(self) -> float:
        return 0.0 if self.plain_labels else super().label_offset

    @property
    def moments_noise_multiplier(self) -> float:
        """Multiplier of X'X, X'Y and the label sums together."""
        return self.noise_multiplier

    @property
    def second_noise_multiplier(self) -> float:
        return self.moments_noise_multiplier / math.sqrt((1 - self.count_share) * (1 - self.label_share))

    @property
    def cross_noise_multiplier(self) -> float:
        return self.moments_noise_multiplier / math.sqrt((1 - self.count_share) * self.label_share)

    @property
    def count_noise_multiplier(self) -> float:
        return self.moments_noise_multiplier / math.sqrt(self.count_share)

    @property
    def arrays(self) -> tuple[ReleasedArray, ...]:
        bound, label, step, growth = self.final_clip_norm, self.label_norm, 2.0**-self.lattice_bits, self.growth
        second = Part(
            name="second",
            words="second moments",
            meaning="X'X, lower triangle by rows",
            shape=(self.dim, self.dim),
            bound=bound**2,
            noise_std=bound**2 * self.second_noise_multiplier * growth,
            unit=step**2 * bound**2,
            symmetric=True,
        )
        if self.num_classes == 1:
            return (second,)
        cross = Part(
            name="cross",
            words="cross moments",
            meaning="X'Y",
            shape=(self.dim, self.num_classes),
            bound=bound * label,
            noise_std=bound * label * self.cross_noise_multiplier * growth,
            unit=step**2 * bound,
        )
        label_sums = Part(
            name="label_sums",
            key="counts",
            words="label sums",
            meaning="column sums of Y",
            shape=(self.num_classes,),
            bound=label,
            noise_std=label * self.count_noise_multiplier * growth,
            unit=step,
        )
        return (second, cross, label_sums)


def lattice_bits(setting: Setting, noise_multiplier: float, least_share: float) -> int:
    """Return the bits of a lattice on which sums of products are exact, where a part has this share of the budget."""
    # A sum of n products of 2 * bits bits must stay below 2^53; one bit is left for a declared count being low.
    bits = min(setting.lattice_bits, (52 - setting.records.bit_length()) // 2)
    # Much noise needs no fine grid, and must stay within what float64 counts exactly: at most 2^45 steps.
    most = 2.0**45 * math.sqrt(least_share) / noise_multiplier
    return max(8, min(bits, math.floor(math.log(most, 4)) if most > 1 else 0))


@register
@described
@dataclass(frozen=True)
class Moments(SumDesign[MomentsPlan]):
    """Second moments of all records in one noisy query, and rows sampled from them."""

    name = "moments"
    persons = True
    worst_case = "privmix.designs.moments.audit:moments_case"
    labels: ClassVar[Mapping[str, str]] = {"moments": "second moments"}
    learner = "discriminant"
    file = "moments.safetensors"
    plan_type: ClassVar[type[MomentsPlan]] = MomentsPlan
    # Records are read once and in blocks: there is nothing to spread.
    engines: ClassVar[Mapping[str, str]] = dict.fromkeys(BOTH, "privmix.designs.moments.engine:MomentsEngine")
    lost = "Moments hold means and correlations of features and labels, and nothing beyond them."
    statements: ClassVar[tuple[str, ...]] = (
        "The rows are samples of a model made from the released moments; they add nothing to what the moments show.",
    )
    released = "second moments"
    released_as = "privmix.publication.second_moments:SecondMoments"
    row_law = "privmix.audits.evidence:sampled_row_law"
    pure_noises = "privmix.designs.moments.audit:moments_noises"

    label_share: Share = option(0.5, "Share of the budget for X'Y (the rest: X'X).")
    count_share: Share = option(0.002, "Share of the budget for label sums.")
    plain_labels: Switch = option(False, "Release labels as they are: better with few records, worse for table rows.")

    def plan(self, setting: Setting, noise_multiplier: float, centre_noise_multiplier: float | None) -> MomentsPlan:
        return self.plan_type(**self.constants(setting, noise_multiplier, centre_noise_multiplier))

    def constants(
        self, setting: Setting, noise_multiplier: float, centre_noise_multiplier: float | None
    ) -> dict[str, Any]:
        label_share, count_share = float(self.label_share), float(self.count_share)
        if len(setting.classes) == 1:
            if self != type(self)():
                allowed = "no value without a label: X'X has the whole budget"
                raise InvalidInput("label_share, count_share, plain_labels", self.settings(), allowed)
            label_share = count_share = 0.0
        # Between X'X and X'Y, the lesser share has more noise, which limits how fine their grid can be.
        least = min(1 - label_share, label_share or 1) * (1 - count_share)
        return {
            "design": self.name,
            "rows": setting.rows or min(setting.records, SAMPLED_ROWS),
            "noise_multiplier": float(noise_multiplier),
            "lattice_bits": lattice_bits(setting, noise_multiplier, least),
            "label_share": label_share,
            "count_share": count_share,
            "plain_labels": self.plain_labels,
            **setting.shared(centre_noise_multiplier),
        }

    @classmethod
    def trials(cls, setting: Setting) -> Sequence[tuple[str, Moments]]:
        return [] if setting.dim > LARGEST_DIM else [(cls.name, cls(plain_labels=True))]

    def ranges(self) -> Mapping[str, Sequence[float]]:
        return {"label_share": _LABEL_SHARES, "count_share": _COUNT_SHARES}

    def settings(self) -> dict[str, Any]:
        plain = {"plain_labels": True} if self.plain_labels else {}
        return {"design": self.name, "label_share": self.label_share, "count_share": self.count_share, **plain}

    @classmethod
    def mechanism(cls, plan: MomentsPlan, multiplier: str) -> str:
        what = "Second moments, cross moments and label sums" if plan.num_classes > 1 else "Second moments"
        return (
            f"{what} of all records in one query with Gaussian noise, "
            f"{multiplier} times what adding one record can change."
        )

    @classmethod
    def card(cls, plan: MomentsPlan, extractor: str) -> str:
        if plan.num_classes == 1:
            return f"""`moments.safetensors` holds the released second moments of all records' `{extractor}` features X:

{cls.table(plan.arrays)}

The {plan.rows} rows (column `x`, {plan.dim} float32; `y` is a constant) are no records and no averages of them: they
are samples of a Gaussian that has these moments.
"""
        less = "" if plan.plain_labels else f"\nminus {plan.label_offset:.6g}"
        return f"""`moments.safetensors` holds the released second moments of all records' `{extractor}` features X and one-hot labels{less}, Y:

{cls.table(plan.arrays)}

The {plan.rows} rows (columns `x`, {plan.dim} float32, and `y`, {plan.num_classes} float32) are no records and no averages of them: they are samples of a
Gaussian mixture that has these moments, for classifiers that want rows.
"""  # noqa: E501

    @classmethod
    def summary(cls, plan: MomentsPlan, about: str) -> str:
        return f"Noisy second moments of {about}, with {plan.rows:,} rows sampled from them"

    @classmethod
    def shown(cls, plan: MomentsPlan) -> dict[str, str]:
        if plan.num_classes == 1:
            return {"sampled rows": f"{plan.rows:,}", "budget": "all to X'X"}
        shares = f"{(1 - plan.label_share):.0%} to X'X, {plan.label_share:.0%} to X'Y; {plan.count_share:.0%} before"
        return {"sampled rows": f"{plan.rows:,}", "budget": shares + " to label sums"}

    @classmethod
    def forecast(cls, plan: MomentsPlan, assumed: AssumedRecords) -> MomentForecast:
        # The learner makes class sums add up to nothing: their noise is then that of centred labels.
        axes, label = assumed.noise, math.sqrt(1 - 1 / plan.num_classes) if plan.plain_labels else plan.label_norm
        return MomentForecast(
            axes * plan.second_noise_multiplier / math.sqrt(2),
            axes * label * plan.cross_noise_multiplier,
            counts=plan.noise_std["counts"],
        )


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
    needs_labels: ClassVar[bool] = True

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
    worst_case = "privmix.designs.moments.audit:class_moments_case"
    labels: ClassVar[Mapping[str, str]] = {}
    plan_type: ClassVar[type[MomentsPlan]] = ClassMomentsPlan
    engines: ClassVar[Mapping[str, str]] = dict.fromkeys(BOTH, "privmix.designs.moments.engine:ClassMomentsEngine")
    lost = "Means and correlations of features, within each class, are kept, and nothing beyond them."
    released = "second moments of each class"
    released_as = "privmix.publication.second_moments:ClassSecondMoments"
    pure_noises = "privmix.designs.moments.audit:class_moments_noises"

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
