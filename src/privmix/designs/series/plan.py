"""Design ``moments-series``: second moments of all records so far, released again and again for one budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final, Self

from privmix.designs.moments.plan import Moments, MomentsPlan
from privmix.errors import InvalidInput
from privmix.fields import By, Count, Share, Whole, used
from privmix.mechanisms.noise import MOST_STEPS, SquareRoot
from privmix.options import described, option
from privmix.plans.registry import register
from privmix.plans.setting import AssumedRecords, MomentForecast, Setting

MOMENTS_SERIES: Final = "moments-series"
# A later step may hold 2^4 times the records of the first, in bits of an exact sum.
_ROOM_BITS: Final = 4
# Norm of the error in the mean that is aimed at, as a share of the clipping bound: residuals of 0.5 stay within the
# bound of 0.55 with it. On 10,000 training records of MNIST, held out, 0.38 costs 0.3 points and 0.1 nothing.
_CENTRE_ERROR: Final = 0.15

Steps = Annotated[int, Whole(2, MOST_STEPS, plain=True)]
"""T."""


def _check_counts(name: str, counts: Any) -> None:
    if not counts or not all(type(count) is int and count >= 1 for count in counts):
        raise InvalidInput(name, "other values", "the number of records of each step so far, each at least 1")


@dataclass(frozen=True, kw_only=True)
class SeriesPlan(MomentsPlan):
    """Everything public about one step of a series before it runs.

    Released are the moments of :class:`MomentsPlan` of all records so far, with noise B z, centred by the first step's
    mean (:mod:`privmix.mechanisms.noise`). The plans of all steps differ in ``counts`` and ``records`` alone.
    Each states the price of the series: all T steps are one Gaussian query at ``noise_multiplier``.

    Formal guarantees:
        * every field is a public constant: no value depends on a private row;
        * one record in one step, or one person in K, changes C x by at most :attr:`SquareRoot.sensitivity` times its
          bound in a sum: the noise z of each part is scaled to that;
        * ``event`` is the Gaussian query at the joint multiplier, composed with the mean query, for every step.

    Attributes:
        records: public figure for the number of records (persons, once a step) of all steps so far.
        steps: T, the number of releases.
        counts: public figure for the number of records (persons) of each step so far, this one included.
        steps_per_person: K, the number of steps in which a person counts at most; None: records are the units.
    """

    steps: Steps
    counts: Annotated[tuple[int, ...], By(_check_counts, [], [0], ["1"], [1.5])]
    steps_per_person: Annotated[int, Whole(1, MOST_STEPS, plain=True)] | None = used(None)

    made_by: ClassVar[str] = MOMENTS_SERIES
    needs_labels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.counts) > self.steps:
            raise InvalidInput("counts", len(self.counts), f"at most {self.steps} of them, one a step")
        if self.records != sum(self.counts):
            raise InvalidInput("records", self.records, f"{sum(self.counts)}, the sum of all counts")
        if (self.per_person is None) is not (self.steps_per_person is None) or (
            self.steps_per_person or 1
        ) > self.steps:
            raise InvalidInput(
                "steps_per_person", self.steps_per_person, f"1 to {self.steps}, exactly where persons are units"
            )
        if self.records_noise_multiplier is not None:
            raise InvalidInput("records_noise_multiplier", self.records_noise_multiplier, "none of a series")

    @property
    def step(self) -> int:
        return len(self.counts)

    @property
    def is_last(self) -> bool:
        return self.step == self.steps

    def of_first(self) -> Self:
        return replace(self, counts=self.counts[:1], records=self.counts[0])

    def after(self, records: int) -> Self:
        """Return the plan of the next step, with ``records`` new records."""
        return replace(self, counts=(*self.counts, records), records=self.records + records)

    @property
    def summed(self) -> str:
        return "records" if self.steps_per_person is None else "records that count"

    @property
    def factor(self) -> SquareRoot:
        """How noise of one step goes with that of others."""
        return SquareRoot(self.steps, self.steps_per_person or 1)

    @property
    def growth(self) -> float:
        # A record moves row t of C x + z by C_t1 of it: by the norm of that column in all, in noise as much larger.
        return self.factor.growth(self.step)

    @property
    def unit_centre(self) -> float:
        """Grid of the released mean, which is that of the first step's records."""
        return 2.0**-self.lattice_bits * self.clip_norm / self.counts[0]

    @property
    def noise_std_centre(self) -> float | None:
        if self.centre_noise_multiplier is None:
            return None
        return self.clip_norm * self.centre_noise_multiplier / self.counts[0]

    @property
    def independent_std(self) -> dict[str, float]:
        """Standard deviation of z, by part, in lattice steps; ``second`` is that of the diagonal."""
        step, norm = 2.0**-self.lattice_bits, self.factor.sensitivity
        return {
            "second": self.second_noise_multiplier * norm / step**2,
            "cross": self.label_norm * self.cross_noise_multiplier * norm / step**2,
            "counts": self.label_norm * self.count_noise_multiplier * norm / step,
        }


@register
@described
@dataclass(frozen=True)
class MomentsSeries(Moments):
    """Second moments of all records so far, again with each step's new records, for one budget."""

    name = "moments-series"
    persons = True
    in_series = True
    worst_case = "privmix.designs.series.audit:series_case"
    labels: ClassVar[Mapping[str, str]] = {}
    plan_type: ClassVar[type[MomentsPlan]] = SeriesPlan
    engines: ClassVar[Mapping[str, str]] = {"local": "privmix.designs.series.engine:SeriesEngine"}
    pure_noises = "privmix.designs.series.audit:series_noises"

    label_share: Share = option(0.5, "Share of the budget for X'Y (the rest: X'X).")
    count_share: Share = option(0.002, "Share of the budget for label sums.")
    steps: Count = option(12, "Number of releases, T.")
    steps_per_person: Count = option(1, "Steps in which a person counts at most, K.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.steps <= MOST_STEPS:
            raise InvalidInput("steps", self.steps, f"2 to {MOST_STEPS} releases")
        if self.steps_per_person > self.steps:
            raise InvalidInput(
                "steps_per_person", self.steps_per_person, f"at most {self.steps}, the steps of the series"
            )

    def check(self, setting: Setting) -> None:
        if setting.records_noise_multiplier is not None:
            raise InvalidInput("private_count", True, "none with design moments-series: declare `records`")
        if setting.per_person is None and self.steps_per_person != 1:
            raise InvalidInput("steps_per_person", self.steps_per_person, "only with `person`")

    def plan(self, setting: Setting, noise_multiplier: float, centre_noise_multiplier: float | None) -> SeriesPlan:
        found = self.constants(setting, noise_multiplier, centre_noise_multiplier)
        if setting.per_person is not None:
            found["steps_per_person"] = self.steps_per_person
        return SeriesPlan(**found, steps=self.steps, counts=(setting.records,))

    def constants(
        self, setting: Setting, noise_multiplier: float, centre_noise_multiplier: float | None
    ) -> dict[str, Any]:
        # Noise of the last step is the largest; later steps may be larger than the first.
        noise = 2 * noise_multiplier * SquareRoot(self.steps, self.steps_per_person).growth(self.steps)
        larger = replace(setting, records=setting.records << _ROOM_BITS)
        bits = super().constants(larger, noise, centre_noise_multiplier)["lattice_bits"]
        if centre_noise_multiplier is not None:
            # The mean of the first step's records alone serves all steps: fewer records, and so a larger error.
            wanted = _CENTRE_ERROR * setting.records / math.sqrt(setting.dim)
            centre_noise_multiplier = max(centre_noise_multiplier / 2, min(centre_noise_multiplier, wanted))
        return {**super().constants(setting, noise_multiplier, centre_noise_multiplier), "lattice_bits": bits}

    @classmethod
    def trials(cls, setting: Setting) -> Sequence[tuple[str, Moments]]:
        return []

    def ranges(self) -> Mapping[str, Sequence[float]]:
        return {}

    def settings(self) -> dict[str, Any]:
        more = {} if self.steps_per_person == 1 else {"steps_per_person": self.steps_per_person}
        return {**super().settings(), "design": self.name, "steps": self.steps, **more}

    @classmethod
    def stated(cls, plan: MomentsPlan) -> tuple[str, ...]:
        assert isinstance(plan, SeriesPlan)
        if plan.steps_per_person is None:
            whom = (
                "for a record that is new in one step of it: whoever has records in k steps is protected as one with k "
                "records. How many records each step brought is in the plan, as public as their number in all."
            )
        else:
            whom = (
                f"for a person with records in any steps: a person counts in {plan.steps_per_person} of the steps that "
                "have records of them, the first ones, and in no later one. The figure for the persons of each step is "
                f"public; {plan.records} is their sum, in which a person is counted in each of their steps."
            )
        return (*super().stated(plan), f"The guarantee is for all releases of the series together, and {whom}")

    @classmethod
    def mechanism(cls, plan: MomentsPlan, multiplier: str) -> str:
        assert isinstance(plan, SeriesPlan)
        return (
            f"Step {plan.step} of {plan.steps}: second moments, cross moments and label sums of the {plan.summed} of "
            f"all steps so far, with Gaussian noise that goes with that of the other steps, so that all {plan.steps} "
            f"releases together are one query with noise {multiplier} times what adding one record can change."
        )

    @classmethod
    def card(cls, plan: MomentsPlan, extractor: str) -> str:
        assert isinstance(plan, SeriesPlan)
        so_far = ", ".join(f"{count:,}" for count in plan.counts)
        series = f"""
This is release {plan.step} of a series of {plan.steps}, of {plan.records:,} {plan.counted}: {so_far}, step by step. The
numbers above are sums over the {plan.summed} of all steps so far, so that the newest release is the one to learn from. Their
noise goes with that of the other steps: do not average releases of one series.
"""  # noqa: E501
        return super().card(plan, extractor) + series

    @classmethod
    def summary(cls, plan: MomentsPlan, about: str) -> str:
        assert isinstance(plan, SeriesPlan)
        return f"{super().summary(plan, about)}; release {plan.step} of a series of {plan.steps}"

    @classmethod
    def shown(cls, plan: MomentsPlan) -> dict[str, str]:
        assert isinstance(plan, SeriesPlan)
        found = {"step": f"{plan.step} of {plan.steps}, which brings {plan.counts[-1]:,} {plan.counted}"}
        if plan.steps_per_person is not None:
            times = (plan.factor.sensitivity / SquareRoot(plan.steps).sensitivity) ** 2
            found["a person counts"] = (
                f"in up to {plan.steps_per_person} steps, at {times:.2f} times the variance for one"
            )
        noise = f"{plan.growth**2:.2f} times the variance of one release of all {plan.counted} at this price"
        return {**found, **super().shown(plan), "noise of this step": noise}

    @classmethod
    def forecast(cls, plan: MomentsPlan, assumed: AssumedRecords) -> MomentForecast:
        assert isinstance(plan, SeriesPlan)
        found = super().forecast(plan, assumed)
        assert found.second is not None
        return replace(found, second=found.second * plan.growth, cross=found.cross * plan.growth)
