"""Design ``two-stage``: noisy second moments, and with what they show the scatter within classes, measured again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Final

from privmix.designs.moments.plan import LARGEST_DIM, MOMENTS, SAMPLED_ROWS, Moments, MomentsPlan, lattice_bits
from privmix.errors import InvalidInput, check_integer
from privmix.fields import Count, Proportion, Share
from privmix.options import described, option
from privmix.plans.design import BOTH
from privmix.plans.parts import Part, ReleasedArray, SumDesign, SumPlan
from privmix.plans.registry import register
from privmix.plans.setting import AssumedRecords, MomentForecast, Setting, check_channels

TWO_STAGE: Final = "two-stage"
# Norms are counted in quarters of octaves, 1 being what a record has on average where nothing is noise.
NORM_EDGES: Final = tuple(2.0 ** (quarter / 4) for quarter in range(-20, 9))
# Step of the weights of persons' records in counts.
_WEIGHT_STEP: Final = 2.0**-20
# Shares that the planner tries.
_LABEL_SHARES: Final = (0.5, 0.9)
_COUNT_SHARES: Final = (0.01, 0.002)


@dataclass(frozen=True, kw_only=True)
class TwoStagePlan(SumPlan):
    """Everything public about a release in two stages before it runs.

    1. *Moments.* X'X, X'Y and the label sums with Gaussian noise, as in :class:`privmix.designs.MomentsPlan`.
    2. *A map.* From these numbers alone follow r directions, their weights and means of the classes. They send a record
       x of class k to its residual r(x) = A V'x - A V'm_k; directions in which records vary more count less.
    3. *Norms.* A histogram of the residuals' norms, with noise; from it follows the clipping bound c.
    4. *Scatter within classes.* The sum of u u', u = clip_c(r(x)) / c, with noise.

    Residuals are shorter than records, and noise in their scatter is spread evenly over directions that count the same.
    This is CoinPress (Biswas, Dong, Kamath and Ullman 2020), which measures a covariance again where an earlier answer
    has made it round, for scatter within classes.

    Each query's noise is fixed here, before any record is read. With s the joint multiplier, 1/s^2 is the sum of the
    three queries' 1/s_q^2. The queries of steps 3 and 4 depend on earlier answers; the noise of their answers does not.
    Such an adaptive composition of Gaussian queries costs as much as the same queries together: the price of ``event``
    (Dong, Roth, Su 2021, Theorem 3.2 and Corollary 3.3).

    Formal guarantees:
        * every field is a public constant: no value depends on a private row;
        * one record changes X'X by at most C^2 (Frobenius), X'Y by at most C B, Y'1 by at most B and one count of norms
          by 1. The scatter within classes changes by at most 1 (Frobenius). The noise of each is scaled to these
          bounds, which hold for any answers of earlier queries;
        * ``event`` is the composition of the three queries, and of the mean's.
    """

    first_share: Share
    norm_share: Share
    first_label_share: Share
    first_count_share: Share
    directions: int
    whitening: Proportion
    clip_quantile: Share
    channels: int

    made_by: ClassVar[str] = TWO_STAGE

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim > LARGEST_DIM:
            allowed = f"at most {LARGEST_DIM} features for design {TWO_STAGE}: `project` makes fewer of them"
            raise InvalidInput("dim", self.dim, allowed)
        _check_shares(self)
        check_integer("directions", self.directions, low=1, high=self.dim)
        check_channels(self.channels, self.dim)

    @property
    def label_offset(self) -> float:
        """The offset of labels: always 0."""
        return 0.0

    @property
    def first(self) -> MomentsPlan:
        """The first stage, mean included, as a plan of its own."""
        own = {
            "design": MOMENTS,
            "noise_multiplier": self.first_noise_multiplier,
            "label_share": self.first_label_share,
            "count_share": self.first_count_share,
            "plain_labels": True,
            # The target is that of all queries.
            "epsilon": None,
            "delta": None,
        }
        return MomentsPlan(**{**{one.name: getattr(self, one.name) for one in fields(SumPlan)}, **own})

    @property
    def queries(self) -> tuple[float, ...]:
        return self.first_noise_multiplier, self.norm_noise_multiplier, self.within_noise_multiplier

    @property
    def first_noise_multiplier(self) -> float:
        """Multiplier of the first stage's one query."""
        return self.noise_multiplier / math.sqrt(self.first_share)

    @property
    def norm_noise_multiplier(self) -> float:
        """Multiplier of the histogram of norms, and the standard deviation of the noise in each of its counts."""
        return self.noise_multiplier / math.sqrt(self.norm_share)

    @property
    def within_share(self) -> float:
        """Share of the budget of the scatter within classes: what is left."""
        return 1 - self.first_share - self.norm_share

    @property
    def within_noise_multiplier(self) -> float:
        """Multiplier of the scatter within classes."""
        return self.noise_multiplier / math.sqrt(self.within_share)

    @property
    def arrays(self) -> tuple[ReleasedArray, ...]:
        dim, classes, directions = self.dim, self.num_classes, self.directions
        return (
            *self.first.arrays,
            ReleasedArray(name="directions", meaning="M, weighted directions, from the above", shape=(directions, dim)),
            ReleasedArray(
                name="means", meaning="M times the classes' means m_k, from the above", shape=(classes, directions)
            ),
            Part(
                name="norms",
                words="norms",
                meaning="records by norm of their residual M x / C - m_k, in quarters of octaves from 2^-5 to 4",
                shape=(len(NORM_EDGES),),
                bound=1.0,
                noise_std=self.norm_noise_multiplier,
                # Records count 1, those of persons are weighed in finer steps.
                unit=1.0 if self.per_person is None else _WEIGHT_STEP,
            ),
            Part(
                name="within",
                words="scatter within classes",
                meaning="sum of u u', lower triangle by rows, u the residuals clipped to norm c and divided by it",
                shape=(directions, directions),
                bound=1.0,
                noise_std=self.within_noise_multiplier,
                unit=4.0**-self.lattice_bits,
                symmetric=True,
            ),
        )


def _check_shares(options: TwoStagePlan | TwoStage) -> None:
    if not options.first_share + options.norm_share < 1:
        raise InvalidInput("first_share", options.first_share, "with norm_share less than 1")


@register
@described
@dataclass(frozen=True)
class TwoStage(SumDesign[TwoStagePlan]):
    """Second moments of all records, and then their scatter within classes where the first answer made it round.

    The shares are between those that simulated Gaussian mixtures like best.
    ``directions``, ``whitening`` and ``clip_quantile`` come from a prototype whose accuracy on MNIST's test images was
    seen. Simulations are flat in the quantile. They like more directions, and less whitening if features are white
    already.
    """

    name = "two-stage"
    persons = True
    worst_case = "privmix.designs.stages.audit:two_stage_case"
    labels: ClassVar[Mapping[str, str]] = {"two-stage": "moments in two stages"}
    learner = "two-stage"
    file = "moments.safetensors"
    stages: ClassVar[str] = "two"
    plan_type: ClassVar[type[TwoStagePlan]] = TwoStagePlan
    # Records are read in blocks, twice: there is nothing to spread.
    engines: ClassVar[Mapping[str, str]] = dict.fromkeys(BOTH, "privmix.designs.stages.engine:TwoStageEngine")
    # If a second stage can help only a little, it can harm by more: its map follows noise. Predicted 0.2 points better
    # than moments, it was 10 worse (benchmarks/results/ended.md).
    margins: ClassVar[tuple[float, float]] = (0.05, 0.05)
    lost = "Moments hold means and correlations of features and labels, and nothing beyond them."
    statements: ClassVar[tuple[str, ...]] = (
        "The second stage's map and clipping bound follow from numbers that were released before, at their own cost.",
        "The rows are samples of a model made from the first stage's moments; they add nothing to what these show.",
    )
    released = "second moments and scatter within classes"
    released_as = "privmix.designs.stages.released:TwoStageMoments"
    row_law = "privmix.audits.evidence:sampled_row_law"
    pure_noises = "privmix.designs.stages.audit:two_stage_noises"
    beside_tests = "privmix.designs.stages.evidence:two_stage_tests"
    # Shares that the planner tries: simulated mixtures like large first stages if noise hides the classes' means.
    first_shares: ClassVar[tuple[float, ...]] = (0.35, 0.6, 0.85)

    first_share: Share = option(0.35, "Share of the budget for the first stage's moments.")
    norm_share: Share = option(0.005, "Share of the budget for noisy counts of feature norms.")
    first_label_share: Share = option(0.5, "Share of the first stage for X'Y (the rest: X'X).")
    first_count_share: Share = option(0.002, "Share of the first stage for label sums.")
    directions: Count = option(1000, "Upper limit on directions measured again.")
    whitening: Proportion = option(0.75, "Whitening from 0 (none) to 1 (full).")
    clip_quantile: Share = option(0.4, "Share of records that the second clipping leaves unchanged.")

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_shares(self)

    @property
    def later_shares(self) -> tuple[float, ...]:
        """Shares of the budget of the scatters that are measured after the norms."""
        return (1 - self.first_share - self.norm_share,)

    def plan(self, setting: Setting, noise_multiplier: float, centre_noise_multiplier: float | None) -> TwoStagePlan:
        return TwoStagePlan(**self.constants(setting, noise_multiplier, centre_noise_multiplier))

    def constants(
        self, setting: Setting, noise_multiplier: float, centre_noise_multiplier: float | None
    ) -> dict[str, Any]:
        moments = self.first_share * (1 - self.first_count_share)
        least = min(moments * self.first_label_share, moments * (1 - self.first_label_share), *self.later_shares)
        return {
            "design": self.name,
            "rows": setting.rows or min(setting.records, SAMPLED_ROWS),
            "noise_multiplier": float(noise_multiplier),
            "lattice_bits": lattice_bits(setting, noise_multiplier, least),
            "first_share": float(self.first_share),
            "norm_share": float(self.norm_share),
            "first_label_share": float(self.first_label_share),
            "first_count_share": float(self.first_count_share),
            "directions": min(self.directions, setting.dim),
            "whitening": float(self.whitening),
            "clip_quantile": float(self.clip_quantile),
            "channels": setting.channels,
            **setting.shared(centre_noise_multiplier),
        }

    @classmethod
    def trials(cls, setting: Setting) -> Sequence[tuple[str, TwoStage]]:
        # Each is a noise of its own: rounding the queries' multipliers moves the price by its last bits.
        return [] if setting.dim > LARGEST_DIM else [(cls.name, cls(first_share=share)) for share in cls.first_shares]

    def settings(self) -> dict[str, Any]:
        names = ("first_share", "first_label_share", "first_count_share")
        return {"design": self.name, **{name: getattr(self, name) for name in names}}

    def ranges(self) -> Mapping[str, Sequence[float]]:
        return {"first_label_share": _LABEL_SHARES, "first_count_share": _COUNT_SHARES}

    @classmethod
    def mechanism(cls, plan: TwoStagePlan, multiplier: str) -> str:
        return (
            f"{cls.stages.capitalize()} stages with Gaussian noise, {multiplier} times together what adding one record "
            f"can change: second moments, cross moments and label sums of all records; then, with directions, class "
            f"means and a clipping bound that follow from noisy answers alone, the scatter of records about the means "
            f"of their classes."
        )

    @classmethod
    def card(cls, plan: TwoStagePlan, extractor: str) -> str:
        return f"""`{cls.file}` holds what was released of all records' `{extractor}` features X and one-hot labels
Y, in {cls.stages} stages:

{cls.table(plan.arrays)}

C is the clipping bound {plan.final_clip_norm:.6g} of the records, c the least edge that `norms` has {plan.clip_quantile:.6g} of {plan.records} records below.

The {plan.rows} rows (columns `x`, {plan.dim} float32, and `y`, {plan.num_classes} float32) are no records and no averages of them: they are samples of a
Gaussian mixture that has the first stage's moments, for classifiers that want rows.
"""  # noqa: E501

    @classmethod
    def summary(cls, plan: TwoStagePlan, about: str) -> str:
        return f"Noisy second moments and scatter within classes of {about}, with {plan.rows:,} rows sampled"

    @classmethod
    def shown(cls, plan: TwoStagePlan) -> dict[str, str]:
        rest = 1 - plan.first_share - plan.norm_share
        shares = f"{plan.first_share:.1%} to moments, {plan.norm_share:.1%} to norms, {rest:.1%} to scatter"
        shown = {"sampled rows": f"{plan.rows:,}", "directions": str(plan.directions), "budget": shares}
        return shown if plan.channels == 1 else {**shown, "features": f"{plan.channels} channels"}

    @classmethod
    def forecast(cls, plan: TwoStagePlan, assumed: AssumedRecords) -> MomentForecast:
        # Forecast of the first stage; the learner knows what the second one adds. The map takes class sums as they are.
        found = Moments.forecast(plan.first, assumed)
        return replace(found, cross=found.cross / math.sqrt(1 - 1 / plan.num_classes))
