"""Every design that is known, by its name: nothing else tests a design's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from privmix._registry import Registry
from privmix.errors import InvalidInput
from privmix.plans.design import Design
from privmix.plans.plan import BasePlan

DESIGNS: Final[Registry[type[Design[Any]]]] = Registry("design", "privmix.designs", "privmix.designs", by="register")
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


def made_by(plan: BasePlan) -> type[Design[Any]]:
    """The design that made the plan.

    Raises:
        InvalidInput: it is not known here.
    """
    return DESIGNS[plan.design]


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
