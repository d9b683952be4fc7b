"""A design: one way to release records, with its options, sampling, price, noise, forecast and texts; one file each."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, fields
from typing import Any, ClassVar, Final, Generic, TypeVar

from privmix.accounting.events import Adjacency
from privmix.fields import Checked
from privmix.plans.plan import BasePlan
from privmix.plans.setting import AssumedRecords, MomentForecast, Setting


@dataclass(frozen=True)
class Beside:
    """A released file of float32 arrays, ``NAME.safetensors``: shapes by name, and its line in the certificate."""

    file: str
    shapes: Mapping[str, tuple[int, ...]]
    rows: int


P = TypeVar("P", bound=BasePlan)
# Machines of an engine, where one class serves both.
BOTH: Final = ("local", "ray")


class PlannerFacts(ABC, Generic[P]):
    """Facts that the planner asks a design for.

    Attributes:
        labels: the planner's names of its candidates; empty where the planner does not try it.
        margins: the planner takes it only where the predicted error is less by the first share: what its forecast
            leaves out. The second is that of earlier builds, whose choices are on record.
    """

    labels: ClassVar[Mapping[str, str]] = {}
    margins: ClassVar[tuple[float, float]] = (0.0, 0.0)

    @classmethod
    def trials(cls, setting: Setting) -> "Sequence[tuple[str, Design[P]]]":
        """Options for the planner to try, with the name of the candidate that each belongs to."""
        return ()

    def ranges(self) -> Mapping[str, Sequence[float]]:
        """Values that the planner tries for options that do not change the price, by name, preferred values first."""
        # They are tried one option after another, in this order, and again until nothing is gained.
        return {}

    @property
    def rows_follow(self) -> bool:
        """Whether the planner leaves the number of rows to the design."""
        return False

    def largest_degree(self, setting: Setting) -> int | None:
        """Return the largest mixup degree for theory to choose, once there is a target; None: it chooses none."""
        return None

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return the options that the planner chooses, for its record."""

    @classmethod
    def agrees(cls, plan: P, settings: Mapping[str, Any]) -> bool:
        """Whether :meth:`settings` of a planner's record are those of ``plan``."""
        return all(getattr(plan, name, None) == value for name, value in settings.items())

    @classmethod
    @abstractmethod
    def forecast(cls, plan: P, assumed: AssumedRecords) -> MomentForecast:
        """Forecast for learners of the release."""


class DesignTexts(ABC, Generic[P]):
    """Statements on a design and its plans, for certificates, data cards and terminals.

    Attributes:
        lost: what the released form does not keep, for the assessment.
        released: what is released in addition to rows; empty where there is nothing else.
    """

    lost: ClassVar[str] = ""
    released: ClassVar[str] = ""
    statements: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def stated(cls, plan: P) -> tuple[str, ...]:
        """Return ``statements``, with what they add for this plan."""
        return cls.statements

    @classmethod
    @abstractmethod
    def mechanism(cls, plan: P, multiplier: str) -> str:
        """Return the treatment of the records, for the assessment; ``multiplier`` is the noise multiplier, rounded."""

    @classmethod
    @abstractmethod
    def card(cls, plan: P, extractor: str) -> str:
        """Return the description of the rows, for the data card: Markdown."""

    @classmethod
    @abstractmethod
    def summary(cls, plan: P, about: str) -> str:
        """One line on the release; ``about`` has the numbers of records, features and classes."""

    @classmethod
    @abstractmethod
    def shown(cls, plan: P) -> dict[str, str]:
        """Return the plan's own fields for people."""


@dataclass(frozen=True)
class Design(Checked, PlannerFacts[P], DesignTexts[P]):
    """One way to release records. The fields of a subclass are its options, each with a ``help`` in its metadata.

    Facts that follow from the options alone are methods. Facts that follow from a plan are class methods, since a plan
    is read back from a certificate, too. Code in other files is named, as :mod:`privmix.plans.registry` reads it.

    Attributes:
        engines: where each engine for its plans is, by option name.
        persons: whether its engine takes each person's records as one contribution; not inherited.
        fixed_size: whether all rows hold the same number of records, which then must be drawn from the real number.
        in_series: whether its releases are steps of a series, which keeps one key for all of them.
        mixes_all_classes: whether rows mix all classes in the proportions of the records.
        released_as: class for learners (:class:`privmix.publication.second_moments.Released`); empty: the arrays.
        row_law: of :data:`privmix.audits.evidence.ROW_LAW`, the tests of rows.
        beside_tests: of :data:`privmix.audits.evidence.BESIDE_TESTS`, the tests of arrays in addition to rows.
        worst_case: of :data:`privmix.audits.worst_case.WORST_CASE`, its own worst pair of neighbours: an attack on
            other rows would find nothing, and look like a proof.
        pure_noises: of :data:`privmix.audits.empty_runs.NOISES`, which draws its noises alone.
        moved: of :data:`privmix.audits.sensitivity.MOVED`, which measures how far a record moves its queries.
    """

    name: ClassVar[str]
    plan_type: ClassVar[type[BasePlan]]
    engines: ClassVar[Mapping[str, str]] = {}
    persons: ClassVar[bool] = False
    fixed_size: ClassVar[bool] = False
    in_series: ClassVar[bool] = False
    mixes_all_classes: ClassVar[bool] = True
    learner: ClassVar[str] = "noise-aware-ridge"
    released_as: ClassVar[str] = ""
    row_law: ClassVar[str] = ""
    beside_tests: ClassVar[str] = ""
    worst_case: ClassVar[str] = ""
    pure_noises: ClassVar[str] = ""
    moved: ClassVar[str] = ""

    @classmethod
    def options(cls) -> tuple[Field[Any], ...]:
        return fields(cls)

    @abstractmethod
    def check(self, setting: Setting) -> None:
        """Raise :class:`InvalidInput` unless the options go with one another and with the public facts."""

    @abstractmethod
    def plan(self, setting: Setting, noise_multiplier: float, centre_noise_multiplier: float | None) -> P:
        """Return the plan at a joint noise multiplier and, with private centring, that of the mean query."""

    @property
    def centre(self) -> str:
        """The centring to use where none is asked for."""
        return "private"

    @property
    def weighs_persons(self) -> bool:
        """Whether a person with up to K records counts in proportion to them, as in sums; else K plays no part."""
        return True

    @property
    def pure(self) -> bool:
        """Whether its noise gives a guarantee with delta 0."""
        return False

    @property
    def other_adjacency(self) -> Adjacency | None:
        """A second relation under which the price of its plans' event is proven, if there is one."""
        return None

    @classmethod
    def beside(cls, plan: P) -> Beside | None:
        """Return the file that is released in addition to the rows."""
        return None
