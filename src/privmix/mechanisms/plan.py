"""A plan: what will be done to private records, for which target, and at what price; releases and training alike."""
# It holds its own target: the one in a certificate is thus the one that the noise was chosen for.

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import Annotated, Any, Final, Protocol

import numpy as np

from privmix.accounting.base import PrivacyCost
from privmix.accounting.events import Adjacency, Event
from privmix.errors import WITHHELD, InvalidInput, check_choice, check_number
from privmix.fields import By, Words, is_printable, looks
from privmix.mechanisms.sampling import Sampler
from privmix.rounding import exact, rounded_up


class Plan(Protocol):
    """The fields that every plan has: public facts, made before a private record is read.

    Formal guarantees:
        * One law: ``sampler`` draws what ``event`` prices.
        * One target: ``epsilon`` and ``delta`` are the ones that certificates state; :func:`check_price` refuses a
          plan that costs more, before a record is read.

    Attributes:
        epsilon: target, or None if the noise was chosen instead; such a plan can be priced, attacked and compared, and
            neither released nor trained.
        records: n, the public figure for the number of records.
        records_declared: that figure was declared instead of the real number, which stays private.
        per_person: K if neighbours differ by one person, ``records`` being the number of persons; None: by one record.
        event: all that is done to the records, for accountants.
        charge: the ledger's charge: the event. After a private count that is charged by itself, it is the rest of the
            budget, which holds for the plan of any other count, too.
        sampler: draws the members of every row or batch out of ``records`` records.
    """

    @property
    def epsilon(self) -> float | None: ...
    @property
    def delta(self) -> float | None: ...
    @property
    def adjacency(self) -> Adjacency: ...
    @property
    def records(self) -> int: ...
    @property
    def records_declared(self) -> bool: ...
    @property
    def most_units(self) -> int: ...
    @property
    def per_person(self) -> int | None: ...
    @property
    def event(self) -> Event: ...
    @property
    def charge(self) -> Event: ...
    @property
    def sampler(self) -> Sampler: ...

    def sampler_for(self, records: int) -> Sampler:
        """Return the same law over ``records`` real records; raise where the law depends on another number."""

    def cost(self) -> PrivacyCost:
        """Return the price of ``event`` at ``delta``, an upper bound."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values that make the plan again."""


@dataclass(frozen=True)
class Unit:
    """The unit that neighbours differ by, in words: ``one`` ("record"), ``many``; ``per_person``: K persons or None."""

    # where: what a person makes one contribution to.

    one: str
    many: str
    per_person: int | None = None
    where: str = ""

    @property
    def changed(self) -> str:
        """One of it, as the difference between two datasets."""
        return f"one {self.one}" if self.per_person is None else "one person with all of their records"

    @property
    def others(self) -> str:
        """Whom the guarantee does not cover: a sentence."""
        if self.per_person is None:
            return "A person with several records in the data is protected less."
        return (
            "Identifiers say whose a record is: one person under two of them is protected less. A person makes one "
            f"contribution{self.where}, however many records they have."
        )


RECORD: Final = Unit("record", "records")
PERSON: Final = Unit("person", "persons", 1)


def unit_named(one: str) -> Unit:
    known = {unit.one: unit for unit in (RECORD, PERSON)}
    return known[check_choice("unit", one, list(known))]


def unit_of(plan: Any) -> Unit:
    return _unit(plan.per_person, getattr(plan, "steps_per_person", None))


def unit_of_stored(plan: Mapping[str, Any]) -> Unit:
    return _unit(plan.get("per_person"), plan.get("steps_per_person"))


def _unit(per_person: int | None, steps: int | None) -> Unit:
    where = "" if steps is None else " to a step"
    return RECORD if per_person is None else replace(PERSON, per_person=per_person, where=where)


def relation_of(adjacency: str, unit: Unit) -> str:
    """Return an adjacency as it is printed, with the unit where that is a person."""
    return adjacency if unit.per_person is None else f"{adjacency}, {unit.changed}"


def check_of_records(per_person: int | None) -> None:
    """Raise :class:`InvalidInput` where a plan's unit is a person, for attacks that add or guess single records."""
    # A person's guarantee limits what shows of their presence with all records. It states less about one record among
    # several: without it they are another person, who takes the place of the first.
    if per_person is not None:
        raise InvalidInput("unit", "a person", "a record, which is what this attack adds or guesses")


MOST_OF_ONE: Final = 65_536
"""Records of one person that count; of a person with more, so many of them at equal distances in the data."""

ALL_RECORDS: Final = ("all records",)
"""The one class of records without a label."""

LONGEST_NAME: Final = 200
"""Characters of a class's name."""


def check_classes(names: Sequence[Any]) -> None:
    """Raise :class:`InvalidInput` unless these are two or more class names, a line each, or :data:`ALL_RECORDS`."""
    if not all(isinstance(name, str) and len(name) <= LONGEST_NAME for name in names):
        raise InvalidInput("classes", "other names", f"texts of at most {LONGEST_NAME} characters")
    if (len(names) < 2 and tuple(names) != ALL_RECORDS) or len(set(map(looks, names))) != len(names):
        raise InvalidInput("classes", len(names), "at least two class names, all different")
    if not all("`" not in name and is_printable(name) for name in names):
        raise InvalidInput("classes", "names with characters that do not show", "printable names without `")


ClassNames = Annotated[tuple[Words, ...], By(lambda _, names: check_classes(names), ("no",), ("a", "a"), ("a", 1))]
"""Names of classes, as a field."""


def check_target(epsilon: float | None, delta: float | None, *, pure: bool = False) -> None:
    """Raise :class:`InvalidInput` unless epsilon > 0 and delta in (0, 1), or 0 where ``pure``; both may be None."""
    if epsilon is not None:
        check_number("epsilon", epsilon, low=0, low_open=True)
    if delta is not None:
        check_number("delta", delta, low=0, high=1, low_open=not pure, high_open=True)


def check_price(plan: Plan, kinds: Collection[type[Any]] | None = None) -> PrivacyCost:
    """Return the plan's cost, or raise where it exceeds the plan's target: the check before every release and training.

    Formal guarantees:
        * True to its word: a plan that costs more than its own ``epsilon`` at its ``delta`` is refused, after any
          change of its fields. A price that can't be bounded is more than any epsilon.
        * Plain: what a plan holds are numbers and texts of Python's and NumPy's own types. One that compares or adds in
          ways of its own could be priced as another than the one that is used.
        * Known classes: ``kinds``, where given, are the classes of plans. A class made from one of them could state any
          event, and is refused.
    """
    # The exact class is compared: a subclass could override the event that is priced.
    if kinds is not None and type(plan) not in kinds:
        raise InvalidInput("plan", type(plan).__name__, "one of " + ", ".join(sorted(kind.__name__ for kind in kinds)))
    # Values come before the price: a number with its own comparison would pass every check below.
    _check_plain("plan", plan)
    if plan.epsilon is None or plan.delta is None:
        raise InvalidInput("plan epsilon", None, "the epsilon and delta that it was calibrated for")
    cost = plan.cost()
    # With `not`, a price that is NaN is refused as well.
    if not cost.epsilon <= plan.epsilon:
        allowed = f"at least {rounded_up(cost.epsilon)}, which its noise costs at delta {exact(plan.delta)}"
        raise InvalidInput("plan epsilon", plan.epsilon, allowed)
    return cost


def _check_plain(name: str, value: Any) -> None:
    """Raise :class:`InvalidInput` where ``value``, or what it holds, is a number or text of a class of its own."""
    kind = type(value)
    if is_dataclass(value):
        for item in fields(value):
            _check_plain(f"{name} {item.name}", getattr(value, item.name))
    elif kind in (tuple, list):
        for one in value:
            _check_plain(name, one)
    elif isinstance(value, int | float | str | tuple | list) and not (
        kind in (bool, int, float, str) or issubclass(kind, Enum) or kind.__module__ == np.float64.__module__
    ):
        raise InvalidInput(name, kind.__name__, "a plain number, text or list of these")


def check_count(plan: Plan, records: int) -> None:
    """Raise :class:`InvalidInput` where the real count differs from a planned one that is taken for the real one."""
    # The message does not show the real count.
    if records != plan.records and not plan.records_declared:
        raise InvalidInput("records", WITHHELD, f"{plan.records}, as in the plan")
