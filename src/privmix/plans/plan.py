"""The plan that a design makes: public constants from which both the sampler and the price follow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

from privmix.accounting import Adjacency, Bounded, Composed, Event, Gaussian, PrivacyCost
from privmix.accounting.pricing import budget_after_count, deltas, price, price_after_count
from privmix.errors import InvalidInput, check_number
from privmix.fields import Fraction, Number, PlainCount, Positive, Share, Whole, check_fields, read, stored, used
from privmix.mechanisms.noise import Lattice
from privmix.mechanisms.plan import MOST_OF_ONE, ClassNames, relation_of, unit_of
from privmix.mechanisms.private_count import RECORD_COUNTS, most_units, query_noise
from privmix.mechanisms.sampling import Sampler
from privmix.plans.setting import check_declared, check_quantile
from privmix.rounding import exact
from privmix.shown import PriceCurve, Shown


@dataclass(frozen=True, kw_only=True, repr=False)
class BasePlan(Shown):
    """Public constants that all designs have; a :class:`privmix.mechanisms.plan.Plan`.

    Attributes:
        epsilon: what the release may cost, as it was asked for; None where the noise was given and nothing was asked.
        delta: at which ``epsilon`` is meant; 0 for pure DP. None exactly where ``epsilon`` is.
        records_noise_multiplier: that of the query which estimated ``records``, or None where the count is public.
        per_person: None: neighbours differ by one record. K: they differ by one person with all records, ``records``
            is how many persons there are, and a person with up to K records weighs as much as they have, see
            :mod:`privmix.mechanisms.persons`.
        person_quantile: where K was estimated with ``records``, by the same query's budget: the share of persons that
            were to have at most K records; see :mod:`privmix.mechanisms.private_count`.

    The rest: :class:`privmix.plans.setting.Setting`.
    """

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

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        # A dataclass writes a representation of all fields, unless its class has one.
        if "__repr__" not in vars(cls):
            cls.__repr__ = Shown.__repr__  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        check_fields(self)
        if (self.epsilon is None) != (self.delta is None):
            raise InvalidInput("plan epsilon, delta", (self.epsilon, self.delta), "both or none of them")
        check_declared(self.records_declared, self.records_noise_multiplier)
        check_quantile(self.person_quantile, self.per_person, self.records_noise_multiplier)
        if self.person_quantile is not None and self.per_person not in RECORD_COUNTS:
            raise InvalidInput("per_person", self.per_person, "a number of records that can be estimated")
        self._check_part("residual_clip_norm", self.centre_noise_multiplier is not None, 0.0, 2 * self.clip_norm)
        self._check_part("centre_noise_multiplier", self.residual_clip_norm is not None, 1e-6, 1e12)

    def _check_part(self, name: str, used: bool, low: float, high: float) -> None:
        """An optional field is given exactly by the designs that use it: none is half in force."""
        value = getattr(self, name)
        if (value is not None) != used:
            raise InvalidInput(name, value, "a number exactly where the design and centring use it")
        if value is not None:
            check_number(name, value, low=low, high=high, low_open=low == 0)

    @property
    def lattice(self) -> Lattice:
        """The grid on which records are summed."""
        return Lattice(self.lattice_bits)

    @property
    def weighed(self) -> bool:
        """Whether ``records`` is what persons weigh together, who count in proportion to their records."""
        return (self.per_person or 1) > 1

    @property
    def counted(self) -> str:
        """What ``records`` is a number of, in words."""
        return "persons by weight" if self.weighed else unit_of(self).many

    @property
    def most_units(self) -> int:
        """How many records or persons there are at most, but for a small chance where that was estimated."""
        if self.records_noise_multiplier is None:
            return self.records
        return most_units(self.records, query_noise(self), self.per_person or 1)

    @property
    def adjacency(self) -> Adjacency:
        """The relation the guarantee is stated for."""
        raise NotImplementedError

    @property
    def main_event(self) -> Event:
        """What the release does to the private records after the queries of their count and mean."""
        raise NotImplementedError

    @property
    def event(self) -> Event:
        """All that the release does to the private records, the query of their count included."""
        return _composed(self.records_noise_multiplier, self.event_after_count)

    @property
    def charge(self) -> Event:
        """See :class:`privmix.mechanisms.plan.Plan`.

        Raises:
            InvalidInput: a private count led to the plan, and it does not say what was asked.
        """
        if self.records_noise_multiplier is None:
            return self.event
        if self.epsilon is None or self.delta is None:
            raise InvalidInput("plan epsilon", None, "the epsilon and delta that it was calibrated for")
        rest = budget_after_count(self.records_noise_multiplier, self.epsilon, self.delta)
        return Bounded(*rest, self.adjacency.value)

    @property
    def event_after_count(self) -> Event:
        """What is left to do once the record count is known."""
        return _composed(self.centre_noise_multiplier, self.main_event)

    @property
    def sampler(self) -> Sampler:
        """How the members of rows are drawn."""
        return self.sampler_for(self.records)

    def sampler_for(self, records: int) -> Sampler:
        """The same law over ``records`` records."""
        raise NotImplementedError

    def cost(self, delta: float | None = None) -> PrivacyCost:
        """The price at ``delta``, or at the plan's own: an upper bound.

        All queries are composed by their PLD, but for a private record count, whose price is added
        (:func:`privmix.accounting.pricing.price_after_count`).

        Raises:
            InvalidInput: there is no delta.

        Example:
            >>> from privmix.planning import ReleaseConfig
            >>> plan = ReleaseConfig(records=5000, dim=8, classes=("no", "yes")).calibrate(1.0, 1e-5)
            >>> 0.99 < plan.cost().epsilon <= plan.epsilon == 1.0
            True
        """
        at = self.delta if delta is None else delta
        if at is None:
            raise InvalidInput("delta", None, "a delta at which to price a plan that has none")
        if self.records_noise_multiplier is None:
            return price(self.event, at, self.adjacency)
        return price_after_count(self.records_noise_multiplier, self.event_after_count, at, self.adjacency)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """What it asks for and with which noise; a notebook's card. Public."""
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

    def picture(self) -> PriceCurve | None:
        """Its price; one point of it where that of a private count is added."""
        # Help describes plans, and can't wait for what prices them.
        from privmix.accounting import price_picture

        if self.delta is None:
            return None
        return price_picture(None if self.records_noise_multiplier is not None else self.event, self.cost())

    def priced(self, delta: float) -> Self:
        """This plan asking for just what its noise costs at ``delta``: for a noise that was given and not calibrated.

        Example:
            >>> from privmix.planning import ReleaseConfig
            >>> plan = ReleaseConfig(records=500, dim=8, classes=("no", "yes"), mixup_degree=8).with_noise(2.0)
            >>> plan.epsilon, plan.priced(1e-3).epsilon == plan.cost(1e-3).epsilon
            (None, True)
        """
        return replace(self, epsilon=self.cost(delta).epsilon, delta=float(delta))

    def curve(self, epsilons: Sequence[float], guarantee: tuple[float, float]) -> list[float]:
        """Delta at each of ``epsilons``, for a plan whose (epsilon, delta) is ``guarantee``.

        With a private count the guarantee is all there is: other answers of the count would have made other plans,
        which share no more than their budget.
        """
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
        """K."""
        return len(self.classes)

    @property
    def centred(self) -> bool:
        """Whether the mean is released first and subtracted."""
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
        """JSON-ready form; :func:`privmix.designs.plan_from_dict` is its inverse."""
        return stored(self)

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Self:
        """Rebuild a plan; anything but exactly its fields is an :class:`InvalidInput`."""
        plan = read(cls, description, "plan")
        try:
            plan.check_properties()
        except InvalidInput:
            raise
        except (TypeError, ValueError, ArithmeticError, AssertionError):
            raise InvalidInput("plan", "values of other types", "the values that privmix wrote") from None
        return plan

    def check_properties(self) -> None:
        """Ask for what follows from the fields: that checks their types and ranges."""
        _ = self.event, self.label_norm, self.noise_std


def _composed(noise_multiplier: float | None, event: Event) -> Event:
    if noise_multiplier is None:
        return event
    rest = event.events if isinstance(event, Composed) else (event,)
    return Composed((Gaussian(noise_multiplier), *rest))


Plan = BasePlan
"""What most of the house calls it."""
