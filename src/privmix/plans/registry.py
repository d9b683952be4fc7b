"""Designs by name, the code that their attributes name, and plans of any design: read back, and checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Generic, TypeVar, cast

from privmix._registry import Registry
from privmix.accounting.base import PrivacyCost
from privmix.errors import InvalidInput
from privmix.mechanisms.plan import check_price
from privmix.plans.design import Design
from privmix.plans.plan import BasePlan, Plan

DESIGNS: Final[Registry[type[Design[Any]]]] = Registry("design", "privmix.designs", "privmix.designs", by="register")
register: Final = DESIGNS.register


def all_designs() -> tuple[type[Design[Any]], ...]:
    return DESIGNS.all()


def design_named(name: str) -> type[Design[Any]]:
    return DESIGNS[name]


def made_by(plan: BasePlan) -> type[Design[Any]]:
    return DESIGNS[plan.design]


def check_options(design: type[Design[Any]], names: Mapping[str, Any]) -> None:
    """Raise :class:`InvalidInput` unless ``names`` are options of ``design``: none is ignored without a word."""
    known = [option.name for option in design.options()]
    for name, value in names.items():
        if name not in known:
            owners = [other.name for other in DESIGNS.all() if name in {one.name for one in other.options()}]
            # A name of no design is a mistake in the code, as an unknown keyword is in Python.
            if not owners:
                raise TypeError(f"{name} is no option of any design")
            allowed = f"no value for design {design.name}: it is an option of {' and '.join(owners)}"
            raise InvalidInput(name, value, allowed)


def takes_persons(design: type[Design[Any]]) -> bool:
    # Not inherited: a subclass may have another engine, and has to declare it itself.
    return bool(vars(design).get("persons", False))


def check_unit(design: type[Design[Any]], per_person: int | None) -> None:
    """Raise :class:`InvalidInput` where persons are to be the unit of a design that takes records alone."""
    if per_person is not None and not takes_persons(design):
        able = ", ".join(other.name for other in DESIGNS.all() if takes_persons(other))
        raise InvalidInput("design", design.name, f"one whose unit can be a person: {able}")


def weighs(design: Design[Any], per_person: int | None, person_quantile: float | None) -> bool:
    """Whether K, where it is more than 1 or is estimated, is what the design weighs persons by."""
    return design.weighs_persons or ((per_person or 1) == 1 and person_quantile is None)


def check_weights(name: str, weighs: bool, per_person: int | None, person_quantile: float | None) -> None:
    """Raise :class:`InvalidInput` where K is more than 1 or estimated, and design ``name`` weighs no persons by it."""
    # Its rows would hold every person wholly, at rates that are made for what persons weigh together.
    if weighs or ((per_person or 1) == 1 and person_quantile is None):
        return
    field, value = ("per_person", per_person) if person_quantile is None else ("person_quantile", person_quantile)
    allowed = (
        f"none with design {name}, which does not weigh persons by their records: a design of sums does, such "
        "as moments, and rows of `person_mean` do"
    )
    raise InvalidInput(field, value, allowed)


Behind = TypeVar("Behind")


@dataclass(frozen=True)
class Deferred(Generic[Behind]):
    """An attribute of designs that names a class or a function of another file."""

    # needed: for the message about a design without it. inherited: whether a subclass has its parent's.

    name: str
    needed: str = "a design that declares it"
    inherited: bool = True

    def is_in(self, design: type[Design[Any]]) -> bool:
        return bool(self._said(design))

    def of(self, design: type[Design[Any]]) -> Behind:
        said = self._said(design)
        if not said:
            raise InvalidInput("design", design.name, f"{self.needed} (its {self.name!r})")
        return cast(Behind, behind(design, self.name, said))

    def _said(self, design: type[Design[Any]]) -> str:
        said: str = getattr(design, self.name, "") if self.inherited else vars(design).get(self.name, "")
        return said


def behind(design: type[Design[Any]], door: str, said: str) -> Any:
    module, _, name = said.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInput(
            f"{door} of design {design.name}", said, "module:name of an importable class or function"
        ) from error


def check_plan(plan: Plan) -> PrivacyCost:
    """Return the cost of a plan of a known design, by :func:`privmix.mechanisms.plan.check_price`, or raise."""
    cost = check_price(plan, {design_named(getattr(plan, "design", "")).plan_type})
    check_unit(made_by(plan), plan.per_person)
    return cost


def plan_from_dict(description: Mapping[str, Any]) -> Plan:
    """Rebuild a plan of any known design from its ``to_dict()``; other fields raise :class:`InvalidInput`."""
    if not isinstance(description, Mapping):
        raise InvalidInput("plan", type(description).__name__, "the fields of a release plan")
    design = design_named(description.get("design", ""))
    plan = design.plan_type.from_dict(description)
    # A stranger's plan may name persons with a design that takes records alone.
    check_unit(design, plan.per_person)
    return plan
