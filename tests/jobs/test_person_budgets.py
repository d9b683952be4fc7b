"""Budgets of persons and of records, as jobs are charged to them: refused before anything is charged or read."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.errors import InvalidInput
from privmix.ledger.ledger import Ledger
from tests.refusals import refuses

pytestmark = pytest.mark.filterwarnings("ignore:features are plain numbers")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)
WHO = np.concatenate([np.arange(100), RNG.integers(0, 100, 200)])
TARGET: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-4, "classes": range(2), "features": "identity"}
# Who chooses is no matter here, and choosing takes seconds.
DESIGN: dict[str, Any] = {"design": pm.designs.Moments()}
JOBS: dict[str, Any] = {
    "release": lambda **more: pm.release((X, Y), **TARGET, **DESIGN, **more),
    "private count": lambda **more: pm.release((X, Y), **TARGET, **DESIGN, private_count=True, **more),
    "training": lambda **more: pm.train((X, Y), **TARGET, epochs=1, **more),
}


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    ledger = Ledger.create(f"sqlite:///{tmp_path / 'l.db'}")
    for unit in ("record", "person"):
        ledger.add_dataset(unit, epsilon=4.0, delta=1e-4, unit=unit)
    return ledger


def persons(job: str) -> dict[str, Any]:
    return {"person": WHO, **({} if job == "private count" else {"records": 100})}


@pytest.mark.parametrize("job", JOBS)
def test_a_job_is_charged_to_a_budget_of_its_unit(job: str, book: Ledger) -> None:
    made = JOBS[job](ledger=book, dataset="person", **persons(job)).certificate
    assert (made["plan"]["per_person"], made["in_ledger"]) == (1, "planned")
    assert 0 < book.budget("person").spent <= 2.0
    assert book.budget("person").uncommitted == 0


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("unit", ["record", "person"])
def test_another_unit_is_refused_before_a_charge_and_a_record(
    unit: str, job: str, book: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("dataset.Dataset.contents", "dataset.Dataset.identity", "persons.Persons.read"):
        monkeypatch.setattr(f"privmix.jobs.{name}", lambda *_, **__: pytest.fail("a record was read"))
    given = persons(job) if unit == "record" else {}
    with pytest.raises(InvalidInput, match="^unit: .*" + ("--unit person" if unit == "record" else "`person`")):
        JOBS[job](ledger=book, dataset=unit, **given)
    assert book.budget(unit).reservations == 0


@pytest.mark.parametrize("job", ["release", "training"])
def test_records_are_charged_to_persons_by_a_cap(job: str, book: Ledger) -> None:
    book.add_dataset("capped", epsilon=40.0, delta=1e-4, unit="person")
    made = JOBS[job](ledger=book, dataset="capped", most_per_person=2).certificate
    assert (made.unit.one, made["in_ledger"]) == ("record", "planned")
    assert made["guarantee"]["epsilon"] <= 2.0 < book.budget("capped").spent
    assert book.budget("capped").uncommitted == 0


@pytest.mark.parametrize("job", JOBS)
def test_a_cap_without_a_meaning_is_refused_before_a_charge(job: str, book: Ledger) -> None:
    cases: list[dict[str, Any]] = [
        {"ledger": book, "dataset": "record"},
        {"ledger": book, "dataset": "person", **persons(job)},
        {},
        # A count has no price for groups.
        *([{"ledger": book, "dataset": "person"}] if job == "private count" else []),
    ]
    for given in cases:
        with refuses("most_per_person"):
            JOBS[job](**given, most_per_person=2)
    assert {book.budget(unit).reservations for unit in ("record", "person")} == {0}
