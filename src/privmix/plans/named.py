"""Plans of any design: read back, and checked."""

from collections.abc import Mapping
from typing import Any

from privmix.accounting.base import PrivacyCost
from privmix.errors import InvalidInput
from privmix.mechanisms.plan import check_price
from privmix.plans.plan import Plan
from privmix.plans.registry import check_unit, design_named, made_by


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
