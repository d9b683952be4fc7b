"""Plans: what a design is, the facts it uses, the plan it makes and its price. No data, no engine."""

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.plans.design import Design
    from privmix.plans.named import averaging_plan, check_plan, plan_from_dict
    from privmix.plans.plan import BasePlan, Plan
    from privmix.plans.registry import all_designs, check_options, design_named, made_by, register
    from privmix.plans.rows import ReleasePlan, RowDesign
    from privmix.plans.setting import Setting
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "BasePlan",
    "Design",
    "Plan",
    "ReleasePlan",
    "RowDesign",
    "Setting",
    "all_designs",
    "averaging_plan",
    "check_options",
    "check_plan",
    "design_named",
    "made_by",
    "plan_from_dict",
    "register",
]
