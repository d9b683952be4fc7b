"""The plan that a design makes: public constants from which both the sampler and the price follow."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Self

from privmix.accounting.base import PrivacyCost
from privmix.accounting.events import Adjacency, Bounded, Composed, Event, Gaussian
from privmix.accounting.pricing import budget_after_count, deltas, price, price_after_count
from privmix.errors import InvalidInput, check_number
from privmix.fields import Fraction, Number, PlainCount, Positive, Share, Whole, check_fields, read, stored, used
from privmix.mechanisms.noise import Lattice
from privmix.mechanisms.plan import MOST_OF_ONE, ClassNames, relation_of, unit_of
from privmix.mechanisms.private_count import RECORD_COUNTS, most_units, query_noise
from privmix.mechanisms.sampling import Sampler
from privmix.plans.setting import check_declared, check_quantile, unlabelled
from privmix.rounding import exact
from privmix.shown import Bars, Shown


@dataclass(frozen=True, kw_only=True, repr=False)
class BasePlan(Shown):
    """Public constants that all designs have: a :class:`privmix.mechanisms.plan.Plan` with its setting."""

    records: PlainCount
    dim: PlainCount
    classes: ClassNames
    design: str
    rows: PlainCount
    clip_norm: Annotated[float, Number(1e-9, 1e9)]
    residual_clip_norm: float | None
    noise_multiplier: Annotated[float, Number(1e-6, 1e12)]
    centre_noise_multiplier: float | None
    lattice_bits: Annotated[int, Whole(8, 24, plain=True)]
    records_noise_multiplier: Annotated[float, Number(1e-6, 1e12)] | None = None
    records_declared: bool = False
    epsilon: Positive | None = None
    delta: Fraction | None = None
    per_person: Annotated[int, Whole(1, MOST_OF_ONE, plain=True)] | None = used(None)
    person_quantile: Share | None = used(None)

    needs_labels: ClassVar[bool] = True

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        # A dataclass writes a representation of all fields, unless its class has one.
        if "__repr__" not in vars(cls):
            type.__setattr__(cls, "__repr__", Shown.__repr__)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.num_classes == 1 and self.needs_labels:
            raise unlabelled(self.design)
        if (self.epsilon is None) != (self.delta is None):
            raise InvalidInput("plan epsilon, delta", (self.epsilon, self.delta), "both or neither")
        check_declared(self.records_declared, self.records_noise_multiplier)
        check_quantile(self.person_quantile, self.per_person, self.records_noise_multiplier)
        if self.person_quantile is not None and self.per_person not in RECORD_COUNTS:
            raise InvalidInput("per_person", self.per_person, "a number of records that can be estimated")
        self._check_part("residual_clip_norm", self.centre_noise_multiplier is not None, 0.0, 2 * self.clip_norm)
        self._check_part("centre_noise_multiplier", self.residual_clip_norm is not None, 1e-6, 1e12)

    def _check_part(self, name: str, used: bool, low: float, high: float) -> None:
        """Raise unless exactly the designs that use an optional field give it."""
        value = getattr(self, name)
        if (value is not None) != used:
            raise InvalidInput(name, value, "a number exactly where the design and centring use it")
        if value is not None:
            check_number(name, value, low=low, high=high, low_open=low == 0)

    @property
    def lattice(self) -> Lattice:
        return Lattice(self.lattice_bits)

    @property
    def weighed(self) -> bool:
        """Whether ``records`` is what persons weigh together, who count in proportion to their records."""
        return (self.per_person or 1) > 1

    @property
    def counted(self) -> str:
        """The unit that ``records`` counts, in words."""
        return "persons by weight" if self.weighed else unit_of(self).many

    @property
    def most_units(self) -> int:
        """How many records or persons there are at most, but for a small chance where that was estimated."""
        if self.records_noise_multiplier is None:
            return self.records
        return most_units(self.records, query_noise(self), self.per_person or 1)

    @property
    def adjacency(self) -> Adjacency:
        return self.sampler.adjacency

    @property
    def main_event(self) -> Event:
        """Queries of the private records after those of their count and mean."""
        raise NotImplementedError

    @property
    def event(self) -> Event:
        """All that the release does to the private records, the query of their count included."""
        # The count comes first: the other queries follow from its answer.
        return _composed(self.records_noise_multiplier, self.event_after_count)

    @property
    def charge(self) -> Event:
        """See :class:`privmix.mechanisms.plan.Plan`; raises for a private count without a target."""
        if self.records_noise_multiplier is None:
            return self.event
        if self.epsilon is None or self.delta is None:
            raise InvalidInput("plan epsilon", None, "the epsilon and delta that it was calibrated for")
        # Another answer of the count would have led to another plan: the charge has to hold for each.
        rest = budget_after_count(self.records_noise_multiplier, self.epsilon, self.delta)
        return Bounded(*rest, self.adjacency.value)

    @property
    def event_after_count(self) -> Event:
        """The queries that remain once the record count is known."""
        return _composed(self.centre_noise_multiplier, self.main_event)

    @property
    def sampler(self) -> Sampler:
        return self.sampler_for(self.records)

    def sampler_for(self, records: int) -> Sampler:
        raise NotImplementedError

    def cost(self, delta: float | None = None) -> PrivacyCost:
        """Return the price at ``delta``, or at the plan's own: an upper bound."""
        # All queries are composed by their PLD; the price of a private record count is added
        # (privmix.accounting.pricing.price_after_count).
        at = self.delta if delta is None else delta
        if at is None:
            raise InvalidInput("delta", None, "a delta at which to price a plan that has none")
        if self.records_noise_multiplier is None:
            return price(self.event, at, self.adjacency)
        return price_after_count(self.records_noise_multiplier, self.event_after_count, at, self.adjacency)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Target and noise, for a notebook's card. Public."""
        unit = unit_of(self)
        asked = (
            "nothing" if self.epsilon is None or self.delta is None else f"{exact(self.epsilon)}, {exact(self.delta)}"
        )
        return f"Plan of design {self.design}", {
            f"{self.counted}, features, classes": f"{self.records:,}, {self.dim:,}, {len(self.classes):,}",
            "rows": f"{self.rows:,}",
            "epsilon, delta": asked,
            "adjacency": relation_of(self.adjacency.value, unit),
            "noise multiplier": f"{self.noise_multiplier:.5g}",
        }

    def picture(self) -> Bars | None:
        """Its price; one point of it where that of a private count is added."""
        # Help describes plans, and can't wait for what prices them.
        from privmix.accounting.api import price_picture

        if self.delta is None:
            return None
        return price_picture(None if self.records_noise_multiplier is not None else self.event, self.cost())

    def priced(self, delta: float) -> Self:
        """Return this plan with the price of its noise at ``delta`` as its target."""
        return replace(self, epsilon=self.cost(delta).epsilon, delta=float(delta))

    def curve(self, epsilons: Sequence[float], guarantee: tuple[float, float]) -> list[float]:
        """Return delta at each of ``epsilons``, for a plan whose (epsilon, delta) is ``guarantee``."""
        # With a private count the guarantee is all there is: other answers of the count would have made other plans,
        # which share no more than their budget.
        at, delta = guarantee
        if self.records_noise_multiplier is not None:
            return [delta if value >= at else 1.0 for value in epsilons]
        return list(deltas(self.event, tuple(epsilons), delta, self.adjacency))

    @property
    def noise_std(self) -> dict[str, float]:
        """Standard deviation of the noise in an entry of each released part, by name."""
        raise NotImplementedError

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def centred(self) -> bool:
        return self.centre_noise_multiplier is not None

    @property
    def norm(self) -> str:
        """The norm that records are clipped in: ``"l2"``, or ``"l1"`` for Laplace noise."""
        return "l2"

    @property
    def final_clip_norm(self) -> float:
        """Bound on the norm of the vector that a record contributes."""
        return self.clip_norm if self.residual_clip_norm is None else self.residual_clip_norm

    @property
    def unit_centre(self) -> float:
        """Grid of the released mean: its entries are multiples of it, rounded to float32."""
        return 2.0**-self.lattice_bits * self.clip_norm / self.records

    @property
    def noise_std_centre(self) -> float | None:
        """Standard deviation of the noise in an entry of the released mean, where one is released."""
        if self.centre_noise_multiplier is None:
            return None
        return self.clip_norm * self.centre_noise_multiplier / self.records

    @property
    def label_offset(self) -> float:
        """Subtracted from every entry of a one-hot label: 1/K on the lattice when centred, else 0."""
        # On the grid, so that a label less the offset is a whole number of steps.
        step = 2.0**-self.lattice_bits
        return math.floor(1 / self.num_classes / step) * step if self.centred else 0.0

    @property
    def label_norm(self) -> float:
        """Norm of a one-hot label minus the offset."""
        offset, others = self.label_offset, self.num_classes - 1
        if self.norm == "l1":
            return (1 - offset) + others * offset
        return math.sqrt((1 - offset) ** 2 + others * offset**2)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form; :func:`privmix.plans.registry.plan_from_dict` is its inverse."""
        return stored(self)

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Self:
        """Rebuild a plan; anything but exactly its fields is an :class:`InvalidInput`."""
        plan = read(cls, description, "plan")
        try:
            # These properties check the types and ranges of the fields.
            _ = plan.event, plan.label_norm, plan.noise_std
        except InvalidInput:
            raise
        except (TypeError, ValueError, ArithmeticError, AssertionError):
            raise InvalidInput("plan", "values of other types", "the values that privmix wrote") from None
        return plan


def _composed(noise_multiplier: float | None, event: Event) -> Event:
    if noise_multiplier is None:
        return event
    rest = event.events if isinstance(event, Composed) else (event,)
    return Composed((Gaussian(noise_multiplier), *rest))


Plan = BasePlan
"""Alias of :class:`BasePlan`."""
