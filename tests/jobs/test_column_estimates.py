"""A specification by private estimates: paid for before it is drawn, stated by what depends on it, and silent."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import privmix as pm
from privmix.accounting.events import Bounded, Composed
from privmix.errors import InvalidInput
from privmix.features.tabular import DRAFTED, DraftedColumns, Tabular, estimated_mark
from privmix.jobs import column_estimates
from privmix.jobs.budget import spent_of
from privmix.ledger.ledger import Ledger
from privmix.ledger.pricing import BudgetExceeded
from tests.cli.helpers import SECRET, privmix
from tests.refusals import refuses

# Thresholds of a random result hold for these keys: no run fails by chance.
pytestmark = pytest.mark.usefixtures("fixed_keys")

BUDGET: dict[str, Any] = {"epsilon": 0.5, "delta": 1e-6}
COLUMNS: dict[str, Any] = {"label": None, "number": ["age", "pay=0:9"], "category": ["ward"], "ignore": ["who"]}


def visits(count: int = 4000) -> pandas.DataFrame:
    """A column of numbers, one of wards, and odd cells in both."""
    rng = np.random.default_rng(0)
    age, ward = rng.integers(20, 90, count).astype(object), rng.choice(["a", "b"], count).astype(object)
    age[:4], ward[:4] = ["NA", None, SECRET, "1e999"], [SECRET, "x" * 500, None, "a\nb"]
    return pandas.DataFrame({"age": age, "pay": 1.0, "ward": ward, "who": np.arange(count)})


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'budget.db'}"
    Ledger.create(url).add_dataset("visits", epsilon=2.0, delta=1e-6)
    return url


def test_it_is_charged_and_stated_wherever_it_goes(ledger: str, tmp_path: Path) -> None:
    visits().to_csv(tmp_path / "visits.csv", index=False)
    words = ["--number", "age", "--category", "ward", "--number", "pay=0:9", "--ignore", "who", "--missing", "age=NA"]
    budget = ["--ledger", ledger, "--dataset", "visits"]
    asked = ["spec", str(tmp_path / "visits.csv"), "--out", str(tmp_path / "spec.json"), "--label-column", "none"]
    made = privmix(*asked, *words, "--epsilon", "0.5", "--delta", "1e-6", *budget)
    assert made.code == 0, made.err
    columns = json.loads((tmp_path / "spec.json").read_text())
    assert columns["drafted"] == "by private estimates at epsilon 0.5 and delta 1e-06, for one record added or removed"
    assert columns["ward"] == {"categories": ["a", "b"], "other": True}
    assert columns["age"]["missing_tokens"] == ["NA"]
    assert 15 <= columns["age"]["range"][0] <= 25 < 80 <= columns["age"]["range"][1] <= 100
    assert SECRET not in made.out + made.err + (tmp_path / "spec.json").read_text()
    (entry,) = [one for one in Ledger.open(ledger).history("visits") if one["kind"] == "reserve"]
    assert entry["purpose"] == "table specification"
    assert 0.49 < Ledger.open(ledger).budget("visits").spent <= 0.5
    # A release with it states the cost, and is charged in addition.
    clean = visits().iloc[4:].reset_index(drop=True)
    again = pm.spec(clean, **COLUMNS, **BUDGET, ledger=ledger, dataset="visits")
    assert "in addition" in again.warnings[0]
    release = pm.release(clean, features=again.extractor(), label=None, epsilon=0.5, delta=1e-6)
    release.save(tmp_path / "REL")
    statements = json.loads((tmp_path / "REL" / "certificate.json").read_text())["statements"]
    assert any("private estimates at epsilon 0.5" in text for text in statements)
    assert privmix("verify", str(tmp_path / "REL")).code == 0
    assert Tabular(again.columns).options()["drafted"] == columns["drafted"]


def test_nothing_is_read_that_is_not_paid_for(ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bool] = []
    inside = column_estimates._cells
    monkeypatch.setattr(column_estimates, "_cells", lambda *given: read.append(True) or inside(*given))
    with pytest.raises(BudgetExceeded):
        pm.spec(visits(), **COLUMNS, epsilon=3.0, delta=1e-6, ledger=ledger, dataset="visits")
    for field, change in {
        "delta": {"delta": None},
        "epsilon": {"epsilon": 0.0},
        "ledger, dataset": {"ledger": ledger},
        "person": {"person": "who", "ignore": []},
        "look": {"look": True},
        "category": {"category": ["ward", "ward=a,b"]},
        "ignore": {"ignore": ["ward"]},
        "boolean": {"boolean": ["ward"]},
        "integer": {"integer": ["ward"]},
        "columns of tabular": {"missing": {"age": ["a\u200bb"]}},
        "label column": {"label": "lable"},
    }.items():
        with refuses(field):
            pm.spec(visits(), **{**COLUMNS, **BUDGET, **change})
    with refuses("number"):
        pm.spec(visits(), **COLUMNS)
    for field in ("delta", "ledger", "dataset"):
        with refuses(field):
            pm.spec(visits(), label=None, look=True, **{field: 1e-6 if field == "delta" else ledger})
    with refuses("epsilon"):
        pm.spec(visits(), **{**COLUMNS, "number": None, "category": None}, **BUDGET)
    with refuses("data"):
        pm.spec(visits().rename(columns={"pay": "drafted"}), label=None, number=["age"], **BUDGET)
    Ledger.open(ledger).add_dataset("people", epsilon=2.0, delta=1e-5, unit="person")
    with pytest.raises(InvalidInput, match="unit"):
        pm.spec(visits(), **COLUMNS, **BUDGET, ledger=ledger, dataset="people")
    assert read == []
    assert Ledger.open(ledger).budget("visits").spent == 0


@pytest.mark.parametrize("place", ["privmix.jobs.column_estimates._cells", "privmix.jobs.private_tables.write_table"])
def test_a_failure_stays_charged_and_is_reported(place: str, ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any, **more: Any) -> Any:
        raise InvalidInput("data", "one file", "another")

    monkeypatch.setattr(place, broken)
    with pytest.raises(InvalidInput) as caught:
        pm.spec(visits(), **COLUMNS, **BUDGET, ledger=ledger, dataset="visits")
    assert Ledger.open(ledger).budget("visits").spent > 0.49
    assert spent_of(caught.value).dataset == "visits"  # type: ignore[union-attr]


def test_what_is_charged_is_what_is_drawn(ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call, one key, and the event of the charge has the noise of that call."""
    drawn: list[Any] = []
    inside = column_estimates.estimate_columns
    monkeypatch.setattr(
        column_estimates, "estimate_columns", lambda queries, *given: drawn.append(queries) or inside(queries, *given)
    )
    pm.spec(visits(), **COLUMNS, **BUDGET, ledger=ledger, dataset="visits")
    (queries,) = drawn
    (entry,) = [one for one in Ledger.open(ledger).history("visits") if one["kind"] == "reserve"]
    assert isinstance(queries.event, Composed)
    assert entry["event"]["events"][0]["noise_multiplier"] == queries.noise_multiplier
    assert queries.event.events[1] == Bounded(0.0, 0.1 * 1e-6)


def test_missing_numbers_in_any_spelling_and_long_lists_are_left_out() -> None:
    frame = pandas.DataFrame({"age": ["-999.0"] * 3000 + ["40"] * 3000, "ward": [f"w{at % 900}" for at in range(6000)]})
    found = pm.spec(
        frame, label=None, number=["age"], category=["ward"], missing={"age": ["-999"]}, epsilon=50, delta=0.1
    )
    assert found.columns["age"]["range"][0] > 0
    assert len(found.columns["ward"]["categories"]) <= 200


def test_a_mark_is_never_lost_or_changed_by_a_union() -> None:
    estimated = DraftedColumns({"age": {"range": [0, 9]}}, estimated_mark(1.0, 1e-6))
    more = {"pay": {"range": [0, 9]}}
    for joined in (estimated | more, more | estimated, estimated.copy()):
        assert Tabular(joined).options()["drafted"] == estimated.mark
    for other in (DraftedColumns(more), DraftedColumns(more, estimated.mark)):
        for join in (DraftedColumns.__or__, DraftedColumns.update):
            with refuses("columns"):
                join(estimated, other)
    with refuses("drafted"):
        Tabular(estimated, drafted=DRAFTED)
    for mark in (5, [], True, estimated_mark(1.0, 5.0), estimated_mark(0.0, 0.1), f"{estimated.mark} and more"):
        with refuses("drafted"):
            Tabular(more, drafted=mark)  # type: ignore[arg-type]
