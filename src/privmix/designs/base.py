"""A design, and the plan that it makes.

A :class:`Design` says all that privmix knows of one way to release records: its options, whom it draws, what that
costs, how much noise follows, what a planner may expect of it, and the words for people. There is one file a design,
and ``register`` makes it known: nothing else tests a design's name.

A :class:`BasePlan` is what a design makes of its options, of public facts and of a noise: the constants from which both
the sampler and the price follow.
"""

from __future__ import annotations

import math
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import Field, asdict, dataclass, fields, replace
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

from privmix._registry import Registry
from privmix.accounting import Adjacency, Bounded, Composed, Event, Gaussian, PrivacyCost
from privmix.designs.pricing import budget_after_count, deltas, price, price_after_count
from privmix.designs.setting import Assumed, Forecast, Setting, check_declared
from privmix.errors import InvalidInput, check_integer, check_number
from privmix.mechanisms.noise import Lattice
from privmix.mechanisms.plan import check_target
from privmix.mechanisms.sampling import Sampler

# Control characters and line separators: names stand in lines of text.
_UNSAFE = frozenset({"Cc", "Zl", "Zp"})


@dataclass(frozen=True, kw_only=True)
class BasePlan:
    """Public constants that all designs have; a :class:`privmix.mechanisms.plan.Plan`.

    Attributes:
        epsilon: what the release may cost, as it was asked for; None where the noise was given and nothing was asked.
        delta: at which ``epsilon`` is meant; 0 for pure DP. None exactly where ``epsilon`` is.
        records_noise_multiplier: that of the query which estimated ``records``, or None where the count is public.

    The rest: :class:`privmix.designs.setting.Setting`.
    """

    records: int
    dim: int
    classes: tuple[str, ...]
    design: str
    rows: int
    clip_norm: float
    residual_clip_norm: float | None
    noise_multiplier: float
    centre_noise_multiplier: float | None
    lattice_bits: int
    records_noise_multiplier: float | None = None
    records_declared: bool = False
    epsilon: float | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        check_target(self.epsilon, self.delta, pure=True)
        if (self.epsilon is None) != (self.delta is None):
            raise InvalidInput("plan epsilon, delta", (self.epsilon, self.delta), "both or none of them")
        check_declared(self.records_declared, self.records_noise_multiplier)
        for name in ("records", "dim", "rows", "lattice_bits"):
            check_plan_integer(name, getattr(self, name))
        check_integer("lattice_bits", self.lattice_bits, low=8, high=24)
        if len(self.classes) < 2 or len(set(self.classes)) != len(self.classes):
            raise InvalidInput("classes", len(self.classes), "at least two class names, all different")
        if any("`" in name or any(unicodedata.category(mark) in _UNSAFE for mark in name) for name in self.classes):
            raise InvalidInput("classes", "names with control characters", "printable names without `")
        check_number("clip_norm", self.clip_norm, low=1e-9, high=1e9)
        check_number("noise_multiplier", self.noise_multiplier, low=1e-6, high=1e12)
        self._check_part("residual_clip_norm", self.centre_noise_multiplier is not None, 0.0, 2 * self.clip_norm)
        if self.records_noise_multiplier is not None:
            check_number("records_noise_multiplier", self.records_noise_multiplier, low=1e-6, high=1e12)
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
    def kind(self) -> type[Design[Any]]:
        """The design that made the plan.

        Raises:
            InvalidInput: it is not known here.
        """
        return design_named(self.design)

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
        (:func:`privmix.designs.pricing.price_after_count`).

        Raises:
            InvalidInput: there is no delta.

        Example:
            >>> from privmix.releases import ReleaseConfig
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

    def priced(self, delta: float) -> Self:
        """This plan asking for just what its noise costs at ``delta``: for a noise that was given and not calibrated.

        Example:
            >>> from privmix.releases import ReleaseConfig
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
        return {**asdict(self), "classes": list(self.classes)}

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Self:
        """Rebuild a plan; anything but exactly its fields is an :class:`InvalidInput`."""
        names = {item.name for item in fields(cls)}
        if not isinstance(description, Mapping) or set(description) != names:
            raise InvalidInput("plan", sorted(description), "exactly the fields of a release plan")
        try:
            plan = cls(**{**description, "classes": tuple(str(name) for name in description["classes"])})
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


def check_plan_integer(name: str, value: object) -> None:
    """Raise unless ``value`` is an int of at least 1; a bool or a NumPy number would not survive JSON."""
    check_integer(name, value, low=1)
    if type(value) is not int:
        raise InvalidInput(name, value, "an integer")


@dataclass(frozen=True)
class Beside:
    """A file of float32 arrays that is released beside the rows.

    Attributes:
        file: its name, ``NAME.safetensors``.
        shapes: of the arrays, by name.
        rows: what the certificate's list of files says of it.
    """

    file: str
    shapes: Mapping[str, tuple[int, ...]]
    rows: int


@dataclass(frozen=True)
class RowFacts:
    """What learners are told of rows: their divisor, and the standard deviation of the noise in their entries."""

    mixup_degree: float = 1.0
    noise_std_x: float = 0.0
    noise_std_y: float = 0.0


P = TypeVar("P", bound=BasePlan)


@dataclass(frozen=True)
class Design(ABC, Generic[P]):
    """One way to release records. The fields of a subclass are its options, each with a ``help`` in its metadata.

    What follows from the options alone is a method; what follows from a plan is a class method, since a plan is read
    back from a certificate, too.

    Attributes:
        name: in settings, plans and certificates.
        words: what a row is, for the data card.
        draws: how members of a row are drawn, for the assessment.
        labels: what the planner calls it, by the names of its candidates; empty where the planner does not try it.
        learner: the learner that serves it best.
        plan_type: of its plans.
        mixes_all_classes: whether rows mix all classes in the proportions of the records.
        engines: the engines that it runs on.
        margin: the planner takes the design only where the error that it predicts is less than another's by this part:
            what its forecast leaves out, and the other's does not.
        fixed_size: whether all rows hold the same number of records. Such draws depend on the number of records,
            which must then be the real one.
        lost: what the released form keeps nothing of, for the assessment.
        statements: further sentences of the certificate.
        released: what is released, the rows apart; empty where there is nothing else.
    """

    name: ClassVar[str]
    words: ClassVar[str] = ""
    draws: ClassVar[str] = ""
    labels: ClassVar[Mapping[str, str]] = {}
    learner: ClassVar[str] = "noise-aware-ridge"
    plan_type: ClassVar[type[BasePlan]]
    mixes_all_classes: ClassVar[bool] = True
    engines: ClassVar[tuple[str, ...]] = ("local", "ray")
    margin: ClassVar[float] = 0.0
    fixed_size: ClassVar[bool] = False
    lost: ClassVar[str] = ""
    statements: ClassVar[tuple[str, ...]] = ()
    released: ClassVar[str] = ""

    @abstractmethod
    def check(self, setting: Setting) -> None:
        """Raise :class:`InvalidInput` unless the options go with one another and with the public facts."""

    @abstractmethod
    def plan(self, setting: Setting, noise_multiplier: float, centre_noise_multiplier: float | None) -> P:
        """The plan at a joint noise multiplier and, with private centring, that of the mean query."""

    @property
    def centre(self) -> str:
        """The centring to use where none is asked for."""
        return "private"

    @property
    def pure(self) -> bool:
        """Whether its noise gives a guarantee with delta 0."""
        return False

    @classmethod
    def trials(cls, setting: Setting) -> Sequence[tuple[str, Design[P]]]:
        """Options for the planner to try, with the name of the candidate that each belongs to."""
        return ()

    def ranges(self) -> Mapping[str, Sequence[float]]:
        """Values that the planner tries for options that do not change the price, by name, preferred values first.

        They are tried one option after another, in this order, and again until nothing is gained.
        """
        return {}

    @property
    def rows_follow(self) -> bool:
        """Whether the planner leaves the number of rows to the design."""
        return False

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The options that the planner chooses, for its record."""

    @classmethod
    def agrees(cls, plan: P, settings: Mapping[str, Any]) -> bool:
        """Whether :meth:`settings` of a planner's record are those of ``plan``."""
        return all(getattr(plan, name, None) == value for name, value in settings.items())

    @classmethod
    @abstractmethod
    def forecast(cls, plan: P, assumed: Assumed) -> Forecast:
        """What learners of the release may expect to see."""

    @classmethod
    def beside(cls, plan: P) -> Beside | None:
        """What is released beside the rows."""
        return None

    @classmethod
    def row_facts(cls, plan: P) -> RowFacts:
        """What learners are told of the rows; by default that they stand for single records and bear no noise."""
        return RowFacts()

    @classmethod
    @abstractmethod
    def mechanism(cls, plan: P, multiplier: str) -> str:
        """What is done to the records, for the assessment; ``multiplier`` is the noise multiplier, rounded."""

    @classmethod
    @abstractmethod
    def card(cls, plan: P, extractor: str) -> str:
        """What the rows are, for the data card: Markdown."""

    @classmethod
    @abstractmethod
    def summary(cls, plan: P, about: str) -> str:
        """What is released, in a line; ``about`` says of how many records, features and classes."""

    @classmethod
    @abstractmethod
    def shown(cls, plan: P) -> dict[str, str]:
        """What people want to see of the plan's own fields."""

    @classmethod
    def options(cls) -> tuple[Field[Any], ...]:
        """The options."""
        return fields(cls)


def check_options(design: type[Design[Any]], names: Mapping[str, Any]) -> None:
    """Raise :class:`InvalidInput` unless ``names`` are options of ``design``: none is ignored without a word."""
    known = [option.name for option in design.options()]
    for name, value in names.items():
        if name not in known:
            owners = [other.name for other in DESIGNS.all() if name in {one.name for one in other.options()}]
            if not owners:
                raise TypeError(f"{name} is no option of any design")
            allowed = f"no value for design {design.name}: it is an option of {' and '.join(owners)}"
            raise InvalidInput(name, value, allowed)


DESIGNS: Final[Registry[type[Design[Any]]]] = Registry("design", "privmix.designs", "privmix.designs")
register = DESIGNS.register


def all_designs() -> tuple[type[Design[Any]], ...]:
    """Every design that is known."""
    return DESIGNS.all()


def design_named(name: str) -> type[Design[Any]]:
    """The design of that name.

    Raises:
        InvalidInput: there is none.

    Example:
        >>> design_named("moments").learner
        'discriminant'
    """
    return DESIGNS[name]
