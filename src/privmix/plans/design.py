"""A design: all that privmix knows of one way to release records.

Its options, whom it draws, what that costs, how much noise follows, what a planner may expect of it, and the words for
people. There is one file a design, and :data:`privmix.plans.registry.register` makes it known.

What a design makes of its options, of public facts and of a noise is a :class:`privmix.plans.plan.BasePlan`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, fields
from typing import Any, ClassVar, Generic, TypeVar

from privmix.accounting import Adjacency
from privmix.fields import Checked
from privmix.plans.plan import BasePlan
from privmix.plans.setting import Assumed, Forecast, Setting


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
class Design(Checked, ABC, Generic[P]):
    """One way to release records. The fields of a subclass are its options, each with a ``help`` in its metadata.

    What follows from the options alone is a method; what follows from a plan is a class method, since a plan is read
    back from a certificate, too. What lies in other files is named, ``"module:name"``: :mod:`privmix.plans.registry`.

    Attributes:
        name: in settings, plans and certificates.
        words: what a row is, for the data card.
        draws: how members of a row are drawn, for the assessment.
        labels: what the planner calls it, by the names of its candidates; empty where the planner does not try it.
        learner: the learner that serves it best.
        plan_type: of its plans.
        mixes_all_classes: whether rows mix all classes in the proportions of the records.
        engines: where each engine that carries out its plans is, by the names by which people ask for it.
        margin: the planner takes the design only where the error that it predicts is less than another's by this part:
            what its forecast leaves out, and the other's does not.
        margin_before: that of earlier builds, whose choices are on record; None where it was the same.
        fixed_size: whether all rows hold the same number of records. Such draws depend on the number of records,
            which must then be the real one.
        persons: whether a person with all records can be its unit of privacy: its engine then takes each person's
            records as one contribution. A design says so itself: what another's engine does with them proves nothing.
        lost: what the released form keeps nothing of, for the assessment.
        statements: further sentences of the certificate.
        in_series: whether its releases are steps of a series, which keeps one key for all of them.
        released: what is released, the rows apart; empty where there is nothing else.
        released_as: where the class is as which learners take that
            (:class:`privmix.publication.second_moments.Stored`); empty where they take the arrays of the file.
        row_law: where :data:`privmix.audits.evidence.ROW_LAW` finds what is tested of rows.
        worst_case: where :data:`privmix.audits.worst_case.WORST_CASE` finds its worst pair of neighbours. A design has
            its own: an attack that is made for other rows would find nothing, and look like a proof.
        pure_noises: where :data:`privmix.audits.empty_runs.NOISES` finds what draws its noises alone.
        moved: where :data:`privmix.audits.sensitivity.MOVED` finds what measures how far a record moves its queries.
        beside_tests: where :data:`privmix.audits.evidence.BESIDE_TESTS` finds the tests of what lies beside them.
    """

    name: ClassVar[str]
    words: ClassVar[str] = ""
    draws: ClassVar[str] = ""
    labels: ClassVar[Mapping[str, str]] = {}
    learner: ClassVar[str] = "noise-aware-ridge"
    plan_type: ClassVar[type[BasePlan]]
    mixes_all_classes: ClassVar[bool] = True
    engines: ClassVar[Mapping[str, str]] = {}
    margin: ClassVar[float] = 0.0
    margin_before: ClassVar[float | None] = None
    fixed_size: ClassVar[bool] = False
    persons: ClassVar[bool] = False
    lost: ClassVar[str] = ""
    statements: ClassVar[tuple[str, ...]] = ()
    in_series: ClassVar[bool] = False
    released: ClassVar[str] = ""
    released_as: ClassVar[str] = ""
    row_law: ClassVar[str] = ""
    beside_tests: ClassVar[str] = ""
    worst_case: ClassVar[str] = ""
    pure_noises: ClassVar[str] = ""
    moved: ClassVar[str] = ""

    @property
    def weighs_persons(self) -> bool:
        """Whether a person with up to K records counts in proportion to them, as in sums; else K plays no part."""
        return True

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
    def left_to_theory(self) -> bool:
        """Whether its mixup degree is to be chosen by theory, once there is a target."""
        return False

    def largest_degree(self, setting: Setting) -> int:
        """The largest mixup degree for theory to choose."""
        return setting.records

    @property
    def pure(self) -> bool:
        """Whether its noise gives a guarantee with delta 0."""
        return False

    @property
    def other_adjacency(self) -> Adjacency | None:
        """A relation besides its plans' own under which what their event costs is proven, if there is one."""
        return None

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
