"""Facts for the assessment of a release: its plan in words."""

from __future__ import annotations

from typing import Literal

from privmix.certificate.assessment import AssessedFacts
from privmix.mechanisms.plan import unit_of
from privmix.plans.plan import Plan
from privmix.plans.registry import made_by
from privmix.rounding import exact, rounded_down

_PERSONS = (
    "Persons are the units: to sums a person adds the mean of what their records would add, and to a mixed row one of "
    "their records, drawn anew; what is said of a record holds for a person."
)


def release_facts(plan: Plan, insecure_seed: bool, in_ledger: str, *, chosen: bool, right: str | None) -> AssessedFacts:
    """Return facts of a release from its plan and the owner's statements; ``chosen``: the planner chose the design."""
    assert plan.epsilon is not None
    assert plan.delta is not None
    private_count = plan.records_noise_multiplier is not None
    settings = "privmix fixes design and settings before it reads a private record"
    settings += ", by a planner that saw what is public or was declared to be." if chosen else "."
    if private_count:
        settings += f" Those that depend on the number of {unit_of(plan).many} used its private estimate."
    if plan.person_quantile is not None:
        settings += " So did the number of records up to which a person weighs by them."
    return AssessedFacts(
        what="release",
        adjacency=plan.adjacency,
        epsilon=plan.epsilon,
        delta=plan.delta,
        records=plan.records,
        count=_count(plan),
        mechanism=_mechanism(plan),
        bias=_bias(plan),
        digits="Sums are whole numbers on a public grid and the noise is rounded to it first, so the digits tell "
        "nothing of the order or size of the sums (Mironov 2012).",
        digits_left="The noise is drawn in float64 and its tails end near 12 standard deviations; the price takes it "
        "for exact.",
        settings=settings,
        in_ledger=in_ledger,
        insecure_seed=insecure_seed,
        unit=unit_of(plan),
        weighed=plan.weighed,
        most=plan.most_units,
        right=right,
    )


def knows_persons(plan: Plan) -> bool:
    """Whether the number of persons is the real one, declared or not: rows of a fixed size depend on it."""
    return plan.per_person is not None and made_by(plan).fixed_size


def _count(plan: Plan) -> Literal["public", "declared", "private"]:
    if plan.records_noise_multiplier is not None:
        return "private"
    return "declared" if plan.records_declared and not knows_persons(plan) else "public"


def _mechanism(plan: Plan) -> str:
    multiplier = rounded_down(plan.noise_multiplier, 4)
    text = made_by(plan).mechanism(plan, multiplier)
    if plan.centred:
        text += " Before that, the mean of all features, with noise of its own."
    if plan.records_noise_multiplier is not None:
        asked = f"the number of {unit_of(plan).many}"
        if plan.person_quantile is not None:
            asked = f"how many records persons have, and then {asked}"
        text += f" Before all, {asked}, with noise of its own."
    if plan.per_person is not None:
        text += f" {_PERSONS}"
    return text


def _bias(plan: Plan) -> list[str]:
    centre = "" if plan.residual_clip_norm is None else f", and to {exact(plan.residual_clip_norm)} around the mean"
    return [
        f"Features longer than {exact(plan.clip_norm)} ({plan.norm}) are scaled down to that{centre}: unusual records "
        "count less.",
        made_by(plan).lost,
    ]
