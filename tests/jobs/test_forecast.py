"""What several budgets buy, and the least budget for an accuracy."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import privmix as pm
from privmix.certificate.guarantee import Guarantee
from privmix.jobs.forecast import _BUDGETS, TRAINED, Budgets, _until, budgets_of
from privmix.planning.choice import check_choice_record, check_choice_settings
from tests.refusals import refuses

FACTS: dict[str, Any] = {"records": 2_000, "dim": 8, "classes": 2, "delta": 1e-5, "assume": "attainable=0.9"}


@cache
def forecast(**given: Any) -> Any:
    return pm.forecast(**FACTS, **given)


def test_several_budgets_say_what_each_says_alone() -> None:
    found = forecast(epsilon="4,0.5")
    alone = pm.forecast(**FACTS, epsilon=4)
    small, large = found.forecasts
    assert [small.choice.epsilon, large.choice.epsilon] == [0.5, 4]
    assert {one.name: one.accuracy for one in large.choice.candidates} == {
        one.name: one.accuracy for one in alone.choice.candidates
    }
    assert small.choice.best.accuracy < large.choice.best.accuracy
    plan = small.choice.best.plan
    assert 0.5 < small.right == Guarantee.of_plan(plan).right < large.right < 1
    written = found.to_dict()
    assert [one["right_at_most"] for one in written["budgets"]] == [small.right, large.right]
    assert "least_epsilon" not in written


@pytest.mark.parametrize("needed", [0.0, 0.1, 0.6, 1.0, 9.9])
def test_the_least_budget_reaches_an_accuracy_that_the_next_smaller_one_misses(needed: float) -> None:
    def at(epsilon: float) -> Any:
        accuracy = 0.9 if epsilon >= needed else 0.8
        return SimpleNamespace(choice=SimpleNamespace(epsilon=epsilon), accuracy=accuracy)

    tried = _until(at, 0.85, None)
    found = Budgets(tuple(tried[epsilon] for epsilon in sorted(tried)), 0.85)
    assert found.choice.epsilon == min(epsilon for epsilon in _BUDGETS if epsilon >= needed)
    smaller = [epsilon for epsilon in _BUDGETS if epsilon < found.choice.epsilon]
    assert not smaller or smaller[-1] in tried
    assert len(tried) <= 5
    out_of_reach = replace(found, accuracy=0.95)
    assert out_of_reach.least is None
    assert out_of_reach.choice is found.forecasts[-1].choice


def test_with_class_shares_a_forecast_has_an_auc_and_no_design_that_ignores_them_is_chosen() -> None:
    shares = FACTS | {"assume": {"class_shares": [0.88, 0.12], "auc": 0.73}}
    found = pm.forecast(**shares, epsilon=(0.1, 2), auc=0.7)
    small, large = (one.choice.best for one in found.forecasts)
    assert small.auc < large.auc == pytest.approx(0.73, abs=0.04)
    # Rows of one class with its label in public have equally many of each class.
    areas = {one.name: (one.auc, one.accuracy) for one in found.forecasts[1].choice.candidates}
    assert abs(areas["classwise"][0] - large.auc) < 0.05
    assert areas["classwise"][1] < 0.8 < 0.86 < min(small.accuracy, large.accuracy)
    assert all(one.auc_range[0] <= one.auc <= one.auc_range[1] for one in found.forecasts[0].choice.candidates)
    assert 0.5 < large.balanced < 0.6
    assert found.least is found.forecasts[1]
    record = found.choice.to_dict()
    check_choice_record(record)
    other = {**record["class_shares"]["auc"], record["chosen"]: [0.01, 0.0, 0.02]}
    known = record["class_shares"]
    for wrong in ({"auc": other}, {"declared": [0.5, 0.4]}, {"declared": [0.88, 0.12, 0.0]}, {"declared": [True, 0.0]}):
        with refuses("certificate choice"):
            shares = {**known, **wrong}
            check_choice_record({**record, "class_shares": shares})
            check_choice_settings({**record, "class_shares": shares}, found.choice.best.plan)


@pytest.mark.parametrize(
    ("assumed", "field"),
    [
        *(
            ({"class_shares": wrong}, "assume class_shares")
            for wrong in ([0.9, 0.2], [1.0], [0.002] * 500, "0.5,x", [0.5, 0.3, 0.2])
        ),
        ({"class_shares": [0.9, 0.1], "auc": 0.4}, "assume auc"),
        ({"class_shares": [0.9, 0.1], "attainable": 0.9}, "assume attainable"),
        ({"auc": 0.8}, "assume auc"),
    ],
)
def test_shares_and_areas_that_do_not_fit_are_refused(assumed: dict[str, Any], field: str) -> None:
    with refuses(field):
        pm.forecast(**FACTS | {"assume": assumed}, epsilon=1)


@pytest.mark.parametrize("wrong", ["", "1,", "one", [], "1,-1", float("nan"), [1, None]])
def test_a_budget_is_a_number_above_zero(wrong: Any) -> None:
    with refuses("epsilon"):
        budgets_of(wrong)


def test_a_budget_or_an_accuracy_is_needed() -> None:
    for field, given in (("epsilon", {}), ("accuracy", {"accuracy": 1.5}), ("auc", {"auc": 0.8})):
        with refuses(field):
            pm.forecast(**FACTS, **given)


def test_for_a_table_the_attack_is_on_the_plan_of_the_table(tmp_path: Path) -> None:
    columns = [{"name": name, "categories": ["a", "b", "c"]} for name in ("one", "two", "three")]
    features = tmp_path / "spec.json"
    features.write_text(json.dumps(columns))
    given = {"records": 20_000, "classes": 2, "delta": 1e-5, "assume": "attainable=0.8", "goal": "table"}
    found = pm.forecast(**given, epsilon=(0.5, 2), features=f"tabular:{features}")
    for one in found.forecasts:
        assert one.plan is one.table.plan
        assert one.right == Guarantee.of_plan(one.table.plan).right
        assert one.plan.design in one.in_a_line()
        assert one.to_dict()["right_at_most"] == one.right


def test_what_is_said_of_a_training_is_what_public_data_showed() -> None:
    place = Path(__file__).parents[2] / "benchmarks" / "results" / "designs.json"
    found = json.loads(place.read_text())["results"]["choice"]
    points = found["points of a training above auto"]
    assert (*points, found["a training is better"], found["budgets"]) == TRAINED
    assert any("privmix train" in one for one in forecast(epsilon=4).details)
