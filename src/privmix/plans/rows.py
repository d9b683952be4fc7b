"""Designs whose rows are noisy sums of records: their shared options, and the plan of such rows."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privmix.accounting.events import Event, Gaussian, Laplace
from privmix.errors import InvalidInput, check_integer
from privmix.fields import Choice, Number, PlainCount, used
from privmix.mechanisms.sampling import DirichletWeights, Sampler
from privmix.options import described, option
from privmix.plans.design import Design
from privmix.plans.plan import BasePlan
from privmix.plans.registry import check_weights, design_named
from privmix.plans.setting import AssumedRecords, MomentForecast, Setting

AUTO: Final = "auto"
"""Stands for a mixup degree that theory chooses for a target."""

GAUSSIAN, LAPLACE = "gaussian", "laplace"
NOISES: Final = (GAUSSIAN, LAPLACE)


@dataclass(frozen=True, kw_only=True)
class ReleasePlan(BasePlan):
    """Everything public about a release of rows before it runs: a :class:`privmix.plans.setting.Setting` and these.

    Formal guarantees:
        * every field is a public constant: no value depends on a private row;
        * ``event`` is the sampler's own account of what it draws, with the noise that the engine adds;
        * one record changes a row's feature sum by at most ``feature_bound`` and its label sum by at most
          ``label_bound`` in norm, both of which the noise is scaled to.

    Attributes:
        mixup_degree: expected number m of records in a row, which sums are divided by.
        record_rate: probability that a record joins a row that may hold it.
        class_rate: probability that a row draws a class, where the design draws classes first.
        noise: ``"gaussian"`` or ``"laplace"``.
        label_noise_ratio: lambda = s_y / s_x.
        dirichlet_alpha, max_weight: of the weights, where the design has random ones.
        person_mean: whether a row holds the mean of a person's records, instead of one drawn record.
    """

    mixup_degree: PlainCount
    record_rate: Annotated[float, Number()]
    class_rate: float | None
    noise: Annotated[str, Choice(*NOISES)]
    label_noise_ratio: Annotated[float, Number(1e-3, 1e3)]
    dirichlet_alpha: float | None
    max_weight: float | None
    person_mean: bool = used(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self, self.kind.plan_type):
            raise InvalidInput("design", self.design, "a design whose rows mix records")
        for name, low, high in _PARTS:
            self._check_part(name, name in self.kind.parts, low, high)
        check_person_mean(
            self.person_mean, self.per_person, by_class="class_rate" in self.kind.parts or self.public_labels
        )
        # The planner asks the design; this is for plans of strangers.
        check_weights(self.design, self.weighs_persons, self.per_person, self.person_quantile)
        # The mean has Gaussian noise, with which no guarantee of delta 0 is left.
        if self.noise not in self.kind.noises or (self.noise == LAPLACE and self.centred):
            raise InvalidInput("noise", self.noise, "gaussian, unless the design is fixed and uncentred")
        # The price follows from the rate: a stranger's plan may not state another one.
        expected = self.kind.rate_of(self)
        if not math.isclose(self.record_rate, expected, rel_tol=1e-12):
            raise InvalidInput("record_rate", self.record_rate, f"{expected:.9g}, which follows from the other fields")

    @property
    def kind(self) -> type[RowDesign]:
        kind = design_named(self.design)
        if not issubclass(kind, RowDesign):
            raise InvalidInput("design", self.design, "a design whose rows mix records")
        return kind

    @property
    def public_labels(self) -> bool:
        """Whether a row's label follows from its number alone, so that it needs no noise."""
        return self.kind.public_labels

    @property
    def as_means(self) -> bool:
        """Whether persons are in rows as the means of their records of each class, instead of one of these."""
        # Rows of whole classes hold every person anyway. Rows of one of each class are together one query: a person
        # moves it by the means of their records, each as much as these weigh.
        return self.per_person is not None and self.public_labels and self.record_rate == 1

    @property
    def weighs_persons(self) -> bool:
        """Whether a person with up to K records counts in proportion to them, by the design's own rule."""
        return self.person_mean or self.as_means

    @property
    def label_steps(self) -> int:
        """Number of steps of a whole member in the count of the labels of a row's members."""
        return 2**self.lattice_bits if self.person_mean else 1

    def sampler_for(self, records: int) -> Sampler:
        """Return the same law over ``records`` records: rates stay, so a declared count may differ."""
        # Fixed-size draws are the exception: their law depends on the count, which must then be the declared one.
        return self.kind.sampler(self, records)

    @property
    def row_query(self) -> Event:
        """One row's noisy query: features and labels together are one query with the joint multiplier."""
        return Laplace(self.noise_multiplier) if self.noise == LAPLACE else Gaussian(self.noise_multiplier)

    @property
    def main_event(self) -> Event:
        return self.sampler.event(self.row_query)

    @property
    def norm(self) -> str:
        return "l1" if self.noise == LAPLACE else "l2"

    @property
    def feature_noise_multiplier(self) -> float:
        """s_x, with 1/s^2 = 1/s_x^2 + 1/s_y^2 and s_y = lambda s_x (1/s = 1/s_x + 1/s_y for Laplace noise)."""
        if self.public_labels:
            return self.noise_multiplier
        ratio = self.label_noise_ratio
        return self.noise_multiplier * (1 + 1 / ratio if self.noise == LAPLACE else math.sqrt(1 + ratio**-2))

    @property
    def label_noise_multiplier(self) -> float:
        """s_y = lambda s_x; 0 where labels are public."""
        return 0.0 if self.public_labels else self.label_noise_ratio * self.feature_noise_multiplier

    @property
    def feature_bound(self) -> float:
        """Most that one record adds to a row's feature sum, in the units of the features."""
        return self.final_clip_norm * (1.0 if self.max_weight is None else self.max_weight)

    @property
    def label_bound(self) -> float:
        """Most that one record adds to a row's label sum: the norm of a one-hot label minus the offset."""
        return self.label_norm * (1.0 if self.max_weight is None else self.max_weight)

    @property
    def expected_members(self) -> float:
        return self.kind.expected_members(self)

    @property
    def weight_step(self) -> float:
        """Unit of the weights: sums are integers in units of the lattice step times this."""
        return 1.0 if self.weights is None else 2.0**-self.weights.bits

    @property
    def weights(self) -> DirichletWeights | None:
        """The law of a row's weights; None where each is 1."""
        if self.dirichlet_alpha is None or self.max_weight is None:
            return None
        return DirichletWeights(self.dirichlet_alpha, self.max_weight)

    @property
    def divisor(self) -> float:
        return self.kind.divisor(self)

    @property
    def unit_x(self) -> float:
        """Grid of released features: they are multiples of it, rounded to float32."""
        return 2.0**-self.lattice_bits * self.weight_step * self.final_clip_norm / self.divisor

    @property
    def unit_y(self) -> float:
        """Grid of released labels, where labels are not public."""
        return 2.0**-self.lattice_bits * self.weight_step / self.divisor

    @property
    def noise_std_x(self) -> float:
        """Standard deviation of the noise in a released feature entry."""
        scale = self.feature_bound * self.feature_noise_multiplier / self.divisor
        # The standard deviation of Laplace noise is sqrt(2) times its scale.
        return scale * (math.sqrt(2) if self.noise == LAPLACE else 1.0)

    @property
    def noise_std_y(self) -> float:
        """Standard deviation of the noise in a released label entry."""
        scale = self.label_bound * self.label_noise_multiplier / self.divisor
        return scale * (math.sqrt(2) if self.noise == LAPLACE else 1.0)

    @property
    def noise_std(self) -> dict[str, float]:
        return {"x": self.noise_std_x, "y": self.noise_std_y}


# Fields of a plan that some designs use, and their ranges.
_PARTS: Final = (("class_rate", 0.0, 1.0), ("dirichlet_alpha", 1e-3, 1e6), ("max_weight", 2.0**-16, 1.0))


@described
@dataclass(frozen=True)
class RowDesign(Design[ReleasePlan]):
    """A design whose rows are noisy sums of records.

    Attributes:
        words, draws: what a row is, for the data card; how its members are drawn, for the assessment.
        public_labels: whether a row's label follows from its number alone, so that it needs no noise.
        averages: whether rows are sums of records divided by a constant, so that all members have one weight.
        parts: the plan's fields that it uses, of those that not all designs do.
    """

    words: ClassVar[str]
    draws: ClassVar[str]
    public_labels: ClassVar[bool] = False
    averages: ClassVar[bool] = True
    parts: ClassVar[frozenset[str]] = frozenset()
    noises: ClassVar[tuple[str, ...]] = (GAUSSIAN,)
    lost = "A row mixes many records: rare combinations vanish in it."
    plan_type: ClassVar[type[ReleasePlan]] = ReleasePlan
    engines: ClassVar[Mapping[str, str]] = {
        "local": "privmix.engine.rows:ReleaseEngine",
        "ray": "privmix.engine.ray:RayReleaseEngine",
    }
    row_law = "privmix.audits.evidence:mixed_row_law"
    pure_noises = "privmix.designs.rows.audit:mixed_row_noises"
    moved = "privmix.designs.rows.audit:mixed_row_moved"

    mixup_degree: int | str = option(AUTO, "Records mixed into a row, m: a number, or auto (by theory).")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mixup_degree != AUTO:
            _check_degree(self.mixup_degree)

    @property
    def weighs_persons(self) -> bool:
        return bool(getattr(self, "person_mean", False))

    @property
    def degree(self) -> int:
        """Return the mixup degree; raise where it was left to theory, which needs a target."""
        if isinstance(self.mixup_degree, str):
            raise InvalidInput("mixup_degree", self.mixup_degree, "a number, where there is no target to choose it by")
        return self.mixup_degree

    def largest_degree(self, setting: Setting) -> int | None:
        if self.mixup_degree != AUTO:
            return None
        # Beyond half of those who may join it, rows hardly vary.
        return max(1, math.floor(1 / (2 * replace(self, mixup_degree=1).rate(setting))))

    def check(self, setting: Setting) -> None:
        if self.mixup_degree != AUTO:
            _check_degree(self.mixup_degree, setting.records)
        if setting.records_noise_multiplier is not None and self.fixed_size:
            raise InvalidInput("design", self.name, "one whose sampling needs no exact record count")
        rate = 0.0 if self.mixup_degree == AUTO else self.rate(setting)
        if rate > 1:
            allowed = f"a degree that keeps a record's rate within its class at most 1 (here {rate:.3g})"
            raise InvalidInput("mixup_degree", self.mixup_degree, allowed)

    def rate(self, setting: Setting) -> float:
        """Probability that a record joins a row that may hold it; made of public numbers only."""
        return self.degree / setting.records

    def fields(self, setting: Setting) -> dict[str, Any]:
        """Fields of the plan that are the design's own."""
        return {}

    def plan(self, setting: Setting, noise_multiplier: float, centre_noise_multiplier: float | None) -> ReleasePlan:
        own = self.fields(setting)
        given: dict[str, Any] = {
            "mixup_degree": own.get("mixup_degree") or self.degree,
            "rows": setting.rows or setting.records,
            "record_rate": self.rate(setting),
            "class_rate": None,
            "noise": GAUSSIAN,
            "label_noise_ratio": 1.0,
            "dirichlet_alpha": None,
            "max_weight": None,
            **own,
        }
        assert issubclass(self.plan_type, ReleasePlan)
        return self.plan_type(
            design=self.name,
            noise_multiplier=float(noise_multiplier),
            lattice_bits=setting.lattice_bits,
            **setting.shared(centre_noise_multiplier),
            **given,
        )

    def settings(self) -> dict[str, Any]:
        return {"design": self.name, "mixup_degree": self.degree}

    @classmethod
    def rate_of(cls, plan: ReleasePlan) -> float:
        """Return the only record rate that goes with the plan's other fields."""
        return plan.mixup_degree / plan.records

    @classmethod
    @abstractmethod
    def sampler(cls, plan: ReleasePlan, records: int) -> Sampler:
        """Who is in a row, and what that costs, for ``records`` records."""

    @classmethod
    def expected_members(cls, plan: ReleasePlan) -> float:
        """Return expected number of records in a row, from public numbers (classes taken as equally large)."""
        return plan.records * plan.record_rate

    @classmethod
    def divisor(cls, plan: ReleasePlan) -> float:
        """Divisor of a row's sum."""
        return float(plan.mixup_degree)

    @classmethod
    def class_share(cls, plan: ReleasePlan) -> float:
        """Share of the rows that may hold records of a given class."""
        return 1.0

    @classmethod
    def rows_touched(cls, plan: ReleasePlan) -> int:
        """Most rows that one record can be in."""
        return plan.rows

    @classmethod
    @abstractmethod
    def label_counts(
        cls, plan: ReleasePlan, sizes: NDArray[np.int64], rows: int, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        """(rows, K) how many records of each class rows hold, of ``sizes`` (K,) records in all."""

    @classmethod
    def amplified(cls, plan: ReleasePlan) -> float:
        """How many times larger than among records the scatter between classes is among rows."""
        return 1.0

    @classmethod
    def mechanism(cls, plan: ReleasePlan, multiplier: str) -> str:
        noise = "Laplace" if plan.noise == LAPLACE else "Gaussian"
        return (
            f"{plan.rows} rows of about m = {plan.mixup_degree} of n = {plan.records} records: {cls.draws}. "
            f"Each row has {noise} noise, {multiplier} times what adding one record can change, drawn once."
        )

    @classmethod
    def card(cls, plan: ReleasePlan, extractor: str) -> str:
        return f"""{plan.rows} rows; {cls.words} (mixup degree {plan.mixup_degree}). A row is not a record: it is a noisy
average of many.

| column | type | meaning |
|---|---|---|
| `x` | list of {plan.dim} float32 | mixed `{extractor}` features; noise of standard deviation {plan.noise_std_x:.6g} |
| `y` | list of {plan.num_classes} float32 | mixed one-hot labels minus {plan.label_offset:.6g}; noise {plan.noise_std_y:.6g} |
"""  # noqa: E501

    @classmethod
    def summary(cls, plan: ReleasePlan, about: str) -> str:
        mix = "noisy average" if cls.averages else "noisy sum"
        return f"{plan.rows:,} rows, each a {mix} of about {plan.mixup_degree:,} of {about}"

    @classmethod
    def shown(cls, plan: ReleasePlan) -> dict[str, str]:
        return {"rows, mixup degree": f"{plan.rows}, {plan.mixup_degree}"}

    @classmethod
    def forecast(cls, plan: ReleasePlan, assumed: AssumedRecords) -> MomentForecast:
        """Noise of the sample moments of T rows, times n m / T so that mixing records leaves n times their moments."""
        degree, classes = plan.expected_members, plan.num_classes
        amplified = cls.amplified(plan)
        label_spread = amplified * (1 - 1 / classes) / classes / degree
        labels = label_spread + (plan.label_bound * plan.label_noise_multiplier / degree) ** 2
        bound = plan.feature_bound / plan.final_clip_norm
        noise = (bound * plan.feature_noise_multiplier / degree) ** 2
        features = (assumed.within + amplified * assumed.between) / degree + noise
        scale = plan.records * degree / math.sqrt(plan.rows) * assumed.unseen
        counts = None if plan.noise_std_y == 0 else plan.records * math.sqrt(labels / plan.rows)
        cross, one_class = scale * np.sqrt(features * labels), plan.sampler.by_class
        return MomentForecast(scale * features, cross, amplified, counts, one_class=one_class)


def check_person_mean(asked: bool, per_person: int | None, *, by_class: bool) -> None:
    """Raise :class:`InvalidInput` where rows can't hold means of persons' records."""
    if asked and per_person is None:
        raise InvalidInput("person_mean", asked, "false where records are the unit of privacy")
    if asked and by_class:
        raise InvalidInput("person_mean", asked, "false with rows by class, where a person is in one class")


def _check_degree(value: Any, high: int | None = None) -> None:
    try:
        check_integer("mixup_degree", value, low=1, high=high)
    except InvalidInput as error:
        raise InvalidInput("mixup_degree", value, f"{AUTO}, or {error.allowed}") from None


@described
@dataclass(frozen=True)
class NoisyLabels(RowDesign):
    """A design whose rows have labels of several classes; noise s_y = lambda s_x (Li, Cao, Yao 2022, Lemma C.3)."""

    label_noise_ratio: Annotated[float, Number(1e-3, 1e3)] = option(
        1.0, "Ratio of label noise to feature noise, lambda."
    )

    def fields(self, setting: Setting) -> dict[str, Any]:
        return {"label_noise_ratio": float(self.label_noise_ratio)}


@described
@dataclass(frozen=True)
class DrawnMembers(NoisyLabels):
    """A design whose rows draw their members regardless of class."""

    person_mean: bool = option(False, "Mix the mean of a person's records, instead of one record.")

    def check(self, setting: Setting) -> None:
        super().check(setting)
        check_person_mean(self.person_mean, setting.per_person, by_class=False)

    def fields(self, setting: Setting) -> dict[str, Any]:
        return {**super().fields(setting), "person_mean": self.person_mean}
