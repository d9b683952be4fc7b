import json
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from privmix.accounting import Adjacency, Bounded, Composed, Gaussian, PoissonSampled, Repeated, epsilon
from privmix.accounting.pricing import budget_after_count, count_noise
from privmix.errors import InvalidInput
from privmix.training.plan import TrainingPlan, plan_training, steps_of
from tests.refusals import refuses

PLAN = TrainingPlan(1000, 100, 25, 2.0, clip_norm=0.5, delta=1e-5)


def test_one_plan_prices_what_its_sampler_draws() -> None:
    sampler = PLAN.sampler
    assert (sampler.records, sampler.rows, sampler.sampling_rate) == (1000, 25, 0.1)
    assert PLAN.event == sampler.event(Gaussian(2.0)) == Repeated(PoissonSampled(0.1, Gaussian(2.0)), 25)
    assert PLAN.cost().epsilon == epsilon(PLAN.event, 1e-5).epsilon


@pytest.mark.parametrize("adjacency", Adjacency, ids=lambda adjacency: adjacency.value)
def test_one_plan_is_about_one_adjacency(adjacency: Adjacency) -> None:
    plan = replace(PLAN, adjacency=adjacency)
    assert plan.cost().epsilon == epsilon(plan.event, 1e-5, adjacency=adjacency).epsilon
    assert (plan.cost().epsilon > PLAN.cost().epsilon) == (adjacency is Adjacency.REPLACE_ONE)


@pytest.mark.parametrize(("microbatch_size", "sensitivity", "units"), [(1, 0.5, 100), (2, 1.0, 50), (100, 1.0, 1)])
def test_true_sensitivity(microbatch_size: int, sensitivity: float, units: int) -> None:
    """C for records on their own, 2C for groups: their noise is twice as large at the same price."""
    plan = replace(PLAN, microbatch_size=microbatch_size)
    assert (plan.sensitivity, plan.noise_std, plan.units) == (sensitivity, 2.0 * sensitivity, units)
    assert plan.cost().epsilon == PLAN.cost().epsilon


def test_never_miscounted() -> None:
    """Epsilon rises with every step, also within an epoch that is cut short; the last is the whole plan's."""
    costs = [PLAN.cost(step).epsilon for step in range(PLAN.steps + 1)]
    assert costs[0] == 0
    assert all(before < after for before, after in pairwise(costs))
    assert costs[-1] == PLAN.cost().epsilon
    assert costs[13] == replace(PLAN, steps=13).cost().epsilon
    for wrong in (-1, 26, 2.5):
        with refuses("steps"):
            PLAN.cost(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("records", "batch_size", "epochs", "steps"),
    [(1000, 100, 1, 10), (1000, 100, 1.01, 11), (1000, 300, 1, 4), (1000, 100, 0.001, 1), (50_000, 4096, 0.7, 9)],
)
def test_a_started_pass_is_counted_by_its_steps(records: int, batch_size: int, epochs: float, steps: int) -> None:
    assert steps_of(records, batch_size, epochs) == steps
    plan = plan_training(records, epsilon=2.0, delta=1e-5, batch_size=batch_size, epochs=epochs)
    assert plan.steps == steps
    assert plan.epochs >= epochs - 1e-9
    assert plan.event == Repeated(PoissonSampled(batch_size / records, Gaussian(plan.noise_multiplier)), steps)
    assert 0.99 * 2.0 < plan.cost().epsilon <= 2.0


@pytest.mark.parametrize("adjacency", Adjacency, ids=lambda adjacency: adjacency.value)
@pytest.mark.parametrize("target", [1e-3, 0.1, 1.0, 10.0, 200.0])
def test_planned_on_the_safe_side(target: float, adjacency: Adjacency) -> None:
    given = {"epsilon": target, "delta": 1e-6, "adjacency": adjacency, "microbatch_size": 2}
    plan = plan_training(5000, batch_size=250, epochs=3, **given)
    assert 0.99 * target < plan.cost().epsilon <= target
    assert plan.adjacency is adjacency
    assert plan.microbatch_size == 2


def planned(**changes: Any) -> TrainingPlan:
    given = {"records": 60_000, "epsilon": 1.0, "delta": 1e-5, "batch_size": 512, "epochs": 10, **changes}
    return plan_training(given.pop("records"), **given)


def unreachable(**changes: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as refused:
        planned(**changes)
    return refused.value


def least(error: InvalidInput) -> float:
    return float(error.allowed.removeprefix("about ").removeprefix("at least ").split(" ")[0])


@pytest.mark.parametrize("target", [1e-3, 1.0, 50.0])
def test_a_delta_that_is_too_small_says_which_would_do(target: float) -> None:
    error = unreachable(epsilon=target, delta=1e-300)
    assert error.field == "delta"
    assert 1e-300 < least(error) < 1e-9
    assert planned(epsilon=target, delta=least(error)).cost().epsilon <= target


@pytest.mark.parametrize("target", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("delta", [1e-13, 3e-13, 1e-12])
def test_deltas_at_the_edge_of_float64_are_reached_or_refused(target: float, delta: float) -> None:
    """Where prices are mostly rounding, the search for a noise ends all the same."""
    try:
        assert planned(records=1000, epsilon=target, delta=delta, batch_size=100).cost().epsilon <= target
    except InvalidInput as refused:
        assert refused.field == "delta"  # noqa: PT017 - either end is right


def test_a_hundred_million_steps_are_priced() -> None:
    plan = planned(epsilon=0.01, delta=1e-8, epochs=8e5)
    assert plan.steps > 9e7
    assert plan.cost().epsilon <= 0.01


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1e-3, 1e-5), (1e-3, 1e-12), (1e-6, 1e-8)], ids=["small", "small-delta", "both"]
)
def test_an_epsilon_that_is_too_small_says_which_would_do(epsilon: float, delta: float) -> None:
    """A hundred million passes cost something at any noise that is of use."""
    settings = {"records": 100, "batch_size": 100, "epochs": 1e8, "delta": delta}
    error = unreachable(**settings, epsilon=epsilon)
    assert error.field in ("epsilon", "delta")
    if error.field == "delta":
        assert delta < least(error) < 1
        return
    for word in ("fewer epochs", "smaller batch", "larger delta"):
        assert word in error.allowed
    assert epsilon < least(error) < 1
    assert planned(**settings, epsilon=1.02 * least(error)).cost().epsilon <= 1.02 * least(error)


def test_wrong_numbers() -> None:
    wrong = {"epsilon": [-1, math.nan], "epochs": [0, 1e7, 1e300, math.inf], "batch_size": [0, 60_001]}
    for field, values in {**wrong, "microbatch_size": [513]}.items():
        for value in values:
            assert unreachable(**{field: value}).field == field


def test_nothing_for_nothing() -> None:
    """Guarantee: a plan for epsilon 0 has no steps, no noise and no price, and no other plan has epsilon 0."""
    plan = planned(epsilon=0.0)
    assert (plan.steps, plan.noise_multiplier, plan.epsilon, plan.epochs) == (0, 0.0, 0.0, 0.0)
    assert plan.cost().epsilon == plan.cost(0).epsilon == 0
    assert epsilon(plan.event, 1e-12, adjacency=plan.adjacency).epsilon == 0
    assert TrainingPlan.from_dict(plan.to_dict()) == plan
    with refuses("plan steps"):
        plan.sampler_for(60_000)
    for changes in ({"epsilon": 1.0}, {"epsilon": None}, {"noise_multiplier": 1.0}):
        with refuses("noise_multiplier, epsilon"):
            replace(plan, **changes)
    for changes in ({"steps": 1}, {"steps": 1, "noise_multiplier": 1.0}, {"steps": 1, "epsilon": 1.0}):
        with pytest.raises(InvalidInput):
            replace(plan, **changes)


def counted(**changes: Any) -> TrainingPlan:
    given = {"epsilon": 2.0, "delta": 1e-5, "batch_size": 100, "epochs": 2.0, "records_declared": True}
    return plan_training(1000, **{**given, "records_noise_multiplier": count_noise(2.0, 1e-5), **changes})


def test_a_private_count_is_added_to_the_price_of_the_steps() -> None:
    plan = counted()
    noise = plan.records_noise_multiplier
    assert plan.event == Composed((Gaussian(noise), plan.event_after_count))
    steps = epsilon(plan.event_after_count, 0.9e-5).epsilon
    assert plan.cost().epsilon == pytest.approx(epsilon(Gaussian(noise), 1e-6).epsilon + steps)
    assert plan.cost().epsilon <= 2.0
    assert plan.charge == Bounded(*budget_after_count(noise, 2.0, 1e-5), "add_remove")
    # Of a run that has begun, the count is spent.
    assert 0 < plan.cost(0).epsilon < 0.2 < plan.cost(3).epsilon < plan.cost().epsilon
    assert TrainingPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    assert plan.most_units == 1000 + math.ceil(8 * noise)
    assert "records_noise_multiplier" not in PLAN.to_dict()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"records_declared": False}, "records_noise_multiplier"),
        ({"adjacency": Adjacency.REPLACE_ONE}, "records_noise_multiplier"),
        ({"epsilon": 0.0}, "records_noise_multiplier"),
        ({"records_noise_multiplier": 0.0}, "records_noise_multiplier"),
        ({"epsilon": 0.5, "records_noise_multiplier": 1.0}, "epsilon"),
    ],
    ids=str,
)
def test_a_count_is_estimated_where_it_is_hidden_and_paid_for(changes: dict[str, Any], field: str) -> None:
    with refuses(field):
        counted(**changes)
