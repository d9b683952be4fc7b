"""Plans of whichever design: read back, checked, and of rows that are averages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privmix.accounting import PrivacyCost
from privmix.errors import InvalidInput
from privmix.mechanisms.plan import check_price
from privmix.plans.plan import Plan
from privmix.plans.registry import all_designs, check_unit, design_named, made_by
from privmix.plans.rows import ReleasePlan, RowDesign


def averaging_designs() -> list[str]:
    """Names of the designs whose rows are averages of records."""
    return [design.name for design in all_designs() if issubclass(design, RowDesign) and design.averages]


def averaging_plan(plan: Plan, which: str) -> ReleasePlan:
    """The plan, if its rows are sums of records divided by a constant.

    Args:
        plan: of whichever design.
        which: what is asked of its design, for the message.

    Raises:
        InvalidInput: they are not: random weights, or rows that are samples of a model.
    """
    if not isinstance(plan, ReleasePlan) or not plan.kind.averages:
        raise InvalidInput("design", plan.design, f"{which}: {', '.join(averaging_designs())}")
    return plan


def check_plan(plan: Plan) -> PrivacyCost:
    """The plan's cost, once it is found to be a plan of a known design that costs no more than was asked.

    See :func:`privmix.mechanisms.plan.check_price`, which says what is refused.

    Raises:
        InvalidInput: it is not.
    """
    cost = check_price(plan, {design.plan_type for design in all_designs()})
    check_unit(made_by(plan), plan.per_person)
    return cost


def plan_from_dict(description: Mapping[str, Any]) -> Plan:
    """Rebuild a plan of whichever design from its ``to_dict()``.

    Raises:
        InvalidInput: anything but exactly the fields of a plan, or a design that is not known here.
    """
    if not isinstance(description, Mapping):
        raise InvalidInput("plan", type(description).__name__, "the fields of a release plan")
    design = design_named(description.get("design", ""))
    plan = design.plan_type.from_dict(description)
    check_unit(design, plan.per_person)
    return plan
