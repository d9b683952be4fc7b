"""A plan: what will be done to private records, for which target, and at what price; releases and training alike.

A plan holds its own target. There is no second place where an epsilon, a delta or the meaning of the record count
could be written, so that what a certificate says was asked is what the noise was chosen for.
"""

from __future__ import annotations

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
    """What every plan has: public facts, all of it, made before a private record is read.

    Formal guarantees:
        * One law: ``sampler`` draws what ``event`` prices.
        * One target: ``epsilon`` and ``delta`` are the ones that certificates state; :func:`check_price` refuses a
          plan that costs more, before a record is read.

    Attributes:
        epsilon: what the plan may cost, as it was asked for. None: nobody asked, the noise was given; such a plan can
            be priced, attacked and compared, and neither released nor trained.
        delta: at which ``epsilon`` is meant.
        adjacency: the pairs of datasets that price and target are about.
        records: n, the public figure for the number of records.
        records_declared: that figure was declared in place of the real number, which stays private.
        per_person: None where neighbours differ by one record; K where they differ by one person, of whom ``records``
            is then the number.
        event: all that is done to the records, for accountants.
        charge: what its ledger is charged for it: the event; or, where a private count led to the plan and is charged
            by itself, the rest of the budget, which holds for the plan of any other count, too.
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
        """The same law over so many real records.

        Raises:
            InvalidInput: the law depends on their number, which is another one.
        """

    def cost(self) -> PrivacyCost:
        """The price at ``delta``, an upper bound, computed from ``event``.

        Raises:
            InvalidInput: the plan has no delta.
        """

    def to_dict(self) -> dict[str, Any]:
        """JSON values that make the plan again."""


@dataclass(frozen=True)
class Unit:
    """What neighbours differ by, in words.

    Attributes:
        one: of it, such as "record".
        many: of them.
        per_person: K of persons; None of records.
    """

    one: str
    many: str
    per_person: int | None = None

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
            "contribution, however many records they have."
        )


RECORD: Final = Unit("record", "records")
PERSON: Final = Unit("person", "persons", 1)


def unit_named(one: str) -> Unit:
    """The unit of that name, as ledgers and statements keep it.

    Raises:
        InvalidInput: there is none.

    Example:
        >>> unit_named("person").changed
        'one person with all of their records'
    """
    known = {unit.one: unit for unit in (RECORD, PERSON)}
    return known[check_choice("unit", one, list(known))]


def unit_of(plan: Any) -> Unit:
    """The unit of a plan.

    Example:
        >>> from privmix.planning import ReleaseConfig
        >>> config = ReleaseConfig(records=500, dim=8, classes=("no", "yes"), mixup_degree=16, per_person=1)
        >>> unit_of(config.with_noise(2.0)).changed
        'one person with all of their records'
    """
    return _unit(plan.per_person)


def unit_of_stored(plan: Mapping[str, Any]) -> Unit:
    """The unit of a plan as certificates keep it.

    Example:
        >>> unit_of_stored({"records": 500}).one, unit_of_stored({"per_person": 3}).one
        ('record', 'person')
    """
    return _unit(plan.get("per_person"))


def _unit(per_person: int | None) -> Unit:
    return RECORD if per_person is None else replace(PERSON, per_person=per_person)


def relation_of(adjacency: str, unit: Unit) -> str:
    """An adjacency as it is printed: of persons it says that it is one.

    Example:
        >>> relation_of("add_remove", RECORD), relation_of("add_remove", PERSON)
        ('add_remove', 'add_remove, one person with all of their records')
    """
    return adjacency if unit.per_person is None else f"{adjacency}, {unit.changed}"


def check_of_records(per_person: int | None) -> None:
    """Raise :class:`InvalidInput` where a plan's unit is a person, for attacks that add or guess single records.

    A person's guarantee limits what is told of their being there, with all records. Of one record among several it says
    less: without it they are another person, who takes the place of the first.
    """
    if per_person is not None:
        raise InvalidInput("unit", "a person", "a record, which is what this attack adds or guesses")


MOST_OF_ONE: Final = 65_536
"""Records of one person that count; of a person with more, so many of them at equal distances in the data."""

LONGEST_NAME: Final = 200
"""Characters of a class's name."""


def check_classes(names: Sequence[Any]) -> None:
    """Raise :class:`InvalidInput` unless these are two or more names of classes, texts that a line of text can hold.

    Example:
        >>> check_classes(["no", "yes"])
        >>> check_classes(["no", 1])
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: classes: got 'other names'; allowed: texts of at most 200 characters
    """
    if not all(isinstance(name, str) and len(name) <= LONGEST_NAME for name in names):
        raise InvalidInput("classes", "other names", f"texts of at most {LONGEST_NAME} characters")
    if len(names) < 2 or len(set(map(looks, names))) != len(names):
        raise InvalidInput("classes", len(names), "at least two class names, all different")
    if not all("`" not in name and is_printable(name) for name in names):
        raise InvalidInput("classes", "names with characters that do not show", "printable names without `")


ClassNames = Annotated[tuple[Words, ...], By(lambda _, names: check_classes(names), ("no",), ("a", "a"), ("a", 1))]
"""Names of classes, as a field."""


def check_target(epsilon: float | None, delta: float | None, *, pure: bool = False) -> None:
    """Raise :class:`InvalidInput` unless these are an epsilon and delta that can be asked for; None: not asked.

    Args:
        epsilon: > 0, or None.
        delta: in (0, 1), or None.
        pure: delta may be 0.
    """
    if epsilon is not None:
        check_number("epsilon", epsilon, low=0, low_open=True)
    if delta is not None:
        check_number("delta", delta, low=0, high=1, low_open=not pure, high_open=True)


def check_price(plan: Plan, kinds: Collection[type[Any]] | None = None) -> PrivacyCost:
    """The plan's cost, once that is found to be within what the plan was asked for.

    The door of every release and training: nothing is computed for a plan that does not pass.

    Formal guarantees:
        * True to its word: a plan that costs more than its own ``epsilon`` at its ``delta`` is refused, whoever
          changed which of its fields; a price that can't be bounded is more than any epsilon.
        * Plain: what a plan holds are numbers and texts of Python's and NumPy's own types. One that compares or adds in
          ways of its own could be priced as another than the one that is used.
        * Nobody else's: ``kinds``, where given, are the classes of plans; a class made from one of them may say of its
          event what it likes, and is refused.

    Args:
        plan: to be priced.
        kinds: which class it must be of, exactly.

    Raises:
        InvalidInput: the plan costs more than it says was asked, or nothing was asked, or it is not plain.

    Example:
        >>> from dataclasses import replace
        >>> from privmix.planning import ReleaseConfig
        >>> plan = ReleaseConfig(records=500, dim=8, classes=("no", "yes"), mixup_degree=16).calibrate(4.0, 1e-4)
        >>> check_price(plan).epsilon <= 4.0
        True
        >>> check_price(replace(plan, epsilon=0.5))
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: plan epsilon: got 0.5; allowed: at least 4, which its noise costs at delta 0.0001
    """
    if kinds is not None and type(plan) not in kinds:
        raise InvalidInput("plan", type(plan).__name__, "one of " + ", ".join(sorted(kind.__name__ for kind in kinds)))
    _check_plain("plan", plan)
    if plan.epsilon is None or plan.delta is None:
        raise InvalidInput("plan epsilon", None, "the epsilon and delta that it was calibrated for")
    cost = plan.cost()
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
    """Raise :class:`InvalidInput` where the real count differs from a planned one that is taken for the real one.

    The message does not say how many there are.
    """
    if records != plan.records and not plan.records_declared:
        raise InvalidInput("records", WITHHELD, f"{plan.records}, as the plan says")
