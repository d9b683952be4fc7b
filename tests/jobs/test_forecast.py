"""What several budgets buy, and the least budget for an accuracy."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

import privmix as pm
from privmix.accounting.api import right_at_most
from privmix.errors import InvalidInput
from privmix.jobs.forecast import _BUDGETS, Budgets, _until, budgets_of
from tests.refusals import refuses

FACTS: dict[str, Any] = {"records": 2_000, "dim": 8, "classes": 2, "delta": 1e-5, "assume": "attainable=0.9"}


@cache
def forecast(**given: Any) -> Any:
    return pm.forecast(**FACTS, **given)


def test_several_budgets_say_what_each_says_alone() -> None:
    found = forecast(epsilon="4,0.5")
    assert isinstance(found, Budgets)
    alone = pm.forecast(**FACTS, epsilon=4)
    small, large = found.forecasts
    assert [small.choice.epsilon, large.choice.epsilon] == [0.5, 4]
    assert {one.name: one.accuracy for one in large.choice.candidates} == {
        one.name: one.accuracy for one in alone.choice.candidates
    }
    assert small.choice.best.accuracy < large.choice.best.accuracy
    plan = small.choice.best.plan
    assert 0.5 < small.right == right_at_most(plan.event, plan.cost(1e-5)) < large.right < 1
    written = found.to_dict()
    assert [one["right_at_most"] for one in written["budgets"]] == [small.right, large.right]
    assert "least_epsilon" not in written


@pytest.mark.parametrize("needed", [0.0, 0.1, 0.6, 1.0, 9.9])
def test_the_least_budget_reaches_an_accuracy_that_the_next_smaller_one_misses(needed: float) -> None:
    def at(epsilon: float) -> Any:
        accuracy = 0.9 if epsilon >= needed else 0.8
        return SimpleNamespace(choice=SimpleNamespace(epsilon=epsilon, best=SimpleNamespace(accuracy=accuracy)))

    tried = _until(0.85, at)
    found = Budgets(tuple(tried[epsilon] for epsilon in sorted(tried)), 0.85)
    assert found.choice.epsilon == min(epsilon for epsilon in _BUDGETS if epsilon >= needed)
    smaller = [epsilon for epsilon in _BUDGETS if epsilon < found.choice.epsilon]
    assert not smaller or smaller[-1] in tried
    assert len(tried) <= 5
    out_of_reach = replace(found, accuracy=0.95)
    assert out_of_reach.least is None
    assert out_of_reach.choice is found.forecasts[-1].choice


def test_a_picture_goes_through_all_budgets() -> None:
    drawn = forecast(epsilon="4,0.5").drawn()
    assert drawn["epsilons"] == [0.5, 4]
    assert all(len(values) == 2 for values in drawn["curves"].values())


@pytest.mark.parametrize("wrong", ["", "1,", "one", [], "1,-1", float("nan"), [1, None]])
def test_a_budget_is_a_number_above_zero(wrong: Any) -> None:
    with refuses("epsilon"):
        budgets_of(wrong)


def test_a_budget_or_an_accuracy_is_needed() -> None:
    with refuses("epsilon"):
        pm.forecast(**FACTS)
    with pytest.raises(InvalidInput) as refused:
        pm.forecast(**FACTS, accuracy=1.5)
    assert refused.value.field == "accuracy"
