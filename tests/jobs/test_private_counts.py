"""Private counts of releases and trainings: paid for once, of the same persons throughout, and with words that hold."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import privmix as pm
from privmix.accounting.pricing import count_noise
from privmix.designs import Classwise, Moments, Poisson, ThreeStage
from privmix.errors import InvalidInput
from privmix.jobs.budget import Charge
from privmix.jobs.counting import Counted, check_same_persons
from privmix.jobs.release import ReleaseJob
from privmix.jobs.training import TrainingJob
from privmix.ledger.ledger import Ledger
from privmix.mechanisms.private_count import PrivateCount
from privmix.planning import ReleaseConfig
from privmix.plans.registry import weighs
from privmix.training.mechanisms.base import plan_from_dict
from privmix.training.verify import verify_trained
from privmix.world import World
from tests.refusals import refuses
from tests.training.test_verify import edit

pytestmark = pytest.mark.usefixtures("fixed_keys")

RECORDS, EPSILON, DELTA = 2953, 2.0, 1e-6
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, RECORDS)
X = (np.eye(2, 3)[Y] * 0.6 + RNG.normal(0, 0.1, (RECORDS, 3))).astype(np.float32)
MIXING = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
ASKED: dict[str, Any] = {
    "epsilon": EPSILON,
    "delta": DELTA,
    "classes": 2,
    "features": "identity",
    "private_count": True,
}
# 3,000 persons, of whom each fifth has 8 records.
WHOSE = np.repeat(np.arange(3000), np.where(np.arange(3000) % 5, 1, 8))
JOBS: dict[str, Any] = {
    "release": lambda data=(X, Y), **more: pm.release(data, **{**ASKED, "design": Moments(), **more}),
    "training": lambda data=(X, Y), **more: pm.train(data, **{**ASKED, "epochs": 1, **more}),
}
KINDS = {"release": ReleaseJob, "training": TrainingJob}
every_job = pytest.mark.parametrize("job", JOBS)


class Book(NamedTuple):
    ledger: Ledger
    paid: dict[str, Any]


@pytest.fixture
def book(tmp_path: Path) -> Book:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    ledger = Ledger.create(url)
    ledger.add_dataset("own", epsilon=EPSILON, delta=2 * DELTA)
    return Book(ledger, {"ledger": url, "dataset": "own"})


@every_job
def test_a_job_estimates_the_count_pays_for_it_and_does_not_show_it(job: str, book: Book, tmp_path: Path) -> None:
    made = JOBS[job](out=tmp_path / "OUT", **book.paid)
    plan, sigma = made.certificate["plan"], count_noise(EPSILON, DELTA)
    # Four deviations below the count.
    assert plan["records"] != RECORDS
    assert abs(plan["records"] - (RECORDS - 4 * sigma)) < 6.5 * sigma
    for path in (tmp_path / "OUT").iterdir():
        assert path.is_dir() or not re.search(rb"(?<![\w.])2,?953(?![\w.])", path.read_bytes()), path.name
    assert str(RECORDS) not in repr(made) + str(made.certificate)
    found = [entry["purpose"] for entry in book.ledger.history("own") if entry["kind"] == "reserve"]
    assert found == ["private record count", job]
    assert 0.9 * EPSILON < book.ledger.budget("own").spent <= EPSILON
    assert made.certificate.epsilon <= EPSILON
    assert pm.verify(tmp_path / "OUT").to_dict()["recomputed_epsilon"] <= EPSILON
    assert "is a differentially private estimate" in str(made.certificate["statements"])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"records": 3000}, "private_count"),
        ({"epsilon": 0.0, "scenario": "warm", "ledger": None, "dataset": None}, "private_count"),
        ({"most_per_person": 2}, "most_per_person"),
        ({"model": MIXING}, "BatchNorm"),
        ({"batch_size": 0}, "batch_size"),
    ],
    ids=["records", "nothing", "cap", "mixing", "batch"],
)
def test_what_does_not_go_with_a_trainings_count_costs_nothing(more: dict[str, Any], words: str, book: Book) -> None:
    with pytest.raises(InvalidInput, match=words):
        JOBS["training"](**{**book.paid, **more})
    assert book.ledger.budget("own").reservations == 0


def test_several_processes_ask_no_count() -> None:
    with refuses("private_count"):
        TrainingJob((X, Y), **ASKED).plan(World(0, 2))


@every_job
def test_what_the_budget_does_not_hold_is_refused_before_the_count(
    job: str, book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book.ledger.add_dataset("small", epsilon=0.001, delta=2 * DELTA)
    monkeypatch.setattr("privmix.jobs.counting.private_count", lambda *_: pytest.fail("counted"))
    with pytest.raises(pm.BudgetExceeded) as refused:
        JOBS[job](out=tmp_path / "OUT", **{**book.paid, "dataset": "small"})
    assert str(RECORDS) not in str(refused.value)
    with refuses("private_count"):
        KINDS[job]((X, Y), **ASKED, **book.paid, dry_run=True).plan(*([World()] if job == "training" else []))
    assert [book.ledger.budget(name).reservations for name in ("own", "small")] == [0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.db"]


def test_too_large_a_degree_is_compared_with_the_estimate_only() -> None:
    with refuses("mixup_degree") as refused:
        JOBS["release"](design=Poisson(100_000))
    assert str(RECORDS) not in str(refused.value)


@every_job
def test_records_that_are_dealt_to_persons_in_another_way_are_refused(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Formal guarantee: whose records were counted as many persons' is no single person later."""
    options = {"out": tmp_path / "OUT", "person": np.arange(RECORDS)}
    # Killed after the count, and before a record is bound to the run.
    with monkeypatch.context() as patch:
        patch.setattr(KINDS[job], "compute", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            JOBS[job](**options)
    # A run that does not say whom it counted is not believed.
    with refuses("person"):
        check_same_persons(Counted(PrivateCount(3, 1), Charge()), np.arange(3))
    with refuses("person"):
        JOBS[job](**{**options, "person": np.arange(RECORDS) // 40}, resume=True)
    assert not (tmp_path / "OUT").exists()
    assert JOBS[job](**options, resume=True).certificate["plan"]["per_person"] == 1


def test_a_delta_is_compared_with_the_most_persons_that_there_can_be() -> None:
    """The persons weigh far less together; 1 / what they weigh is no bound."""
    x, y = np.zeros((len(WHOSE), 2), np.float32), np.arange(len(WHOSE)) % 2
    more = {"person": WHOSE, "person_quantile": 0.9, "epsilon": 20.0, "delta": 6e-4}
    with pytest.warns(UserWarning, match="delta 0.0006 is not below 1/persons"):
        release = pm.release((x, y), **{**ASKED, "design": Moments(), **more})
    plan = release.certificate["plan"]
    assert plan["per_person"] == 8
    assert plan["records"] < 1 / 6e-4 < 3000
    assert "is not below 1/persons" in str(release.certificate["warnings"])
    said = str(release.certificate["statements"]) + str(release.certificate["assessment"])
    assert f"All persons together weigh {plan['records']}" in said
    assert f"what they weigh together, {plan['records']}, is a private estimate" in said
    assert f"The person count {plan['records']}" not in said
    assert "persons by weight" in str(release.plan)


@pytest.mark.parametrize("more", [{"per_person": 8}, {"person_quantile": 0.9}], ids=["given", "estimated"])
def test_rows_that_do_not_weigh_persons_take_no_k(more: dict[str, Any], book: Book) -> None:
    for design in (Poisson(16), Classwise(16)):
        with pytest.raises(InvalidInput, match="does not weigh persons by their records"):
            JOBS["release"](design=design, person=np.arange(RECORDS) // 3, **book.paid, **more)
    assert book.ledger.budget("own").reservations == 0
    for kind in (Moments(), ThreeStage(), Poisson(16, person_mean=True), Classwise(full_batch=True)):
        assert weighs(kind, 8, None)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        # Rows that no table gives.
        ({"with_rows": 5}, "with_rows"),
        ({"with_rows": 5, "design": "auto"}, "with_rows"),
        ({"person": np.arange(RECORDS), "per_person": 10**30}, "per_person"),
    ],
    ids=["rows", "rows of a choice", "no K"],
)
def test_what_a_release_can_not_have_is_refused_before_the_count_is_paid_for(
    more: dict[str, Any], field: str, book: Book, tmp_path: Path
) -> None:
    with refuses(field):
        JOBS["release"](out=tmp_path / "OUT", **book.paid, **more)
    assert book.ledger.budget("own").reservations == 0


def test_rows_of_means_are_as_full_as_their_plan_says() -> None:
    """Whatever K is: one's weight is K times less often met, and the labels of a row sum to one in expectation."""
    x, y = np.full((len(WHOSE), 2), 0.5, np.float32), np.arange(len(WHOSE)) % 2
    more = {"person": WHOSE, "person_quantile": 0.9, "epsilon": 500.0, "rows": 400}
    release = pm.release((x, y), **{**ASKED, "design": Poisson(16, person_mean=True), "centre": "none", **more})
    assert release.certificate["plan"]["per_person"] == 8
    # 400 rows of about 16: within seven standard errors.
    assert abs(release.y.sum(axis=1).mean() - 1) < 7 / (4 * 20)


def test_the_planner_tries_what_weighs_persons() -> None:
    """The K that is estimated is above 1 here, and the choice is of designs that use it."""
    whose = np.repeat(np.arange(1500), 2)
    x, y = np.tile(X, (2, 1))[:3000], np.tile(Y, 2)[:3000]
    release = pm.release((x, y), **{**ASKED, "design": "auto", "person": whose, "person_quantile": 0.5})
    assert release.certificate["plan"]["per_person"] == 2
    tried = str(release.certificate["choice"])
    assert "Poisson mixup" not in tried
    assert "moments" in tried


def test_a_number_of_records_that_nothing_estimates_is_no_estimate() -> None:
    given = {"per_person": 7, "records_noise_multiplier": 9.0, "person_quantile": 0.9}
    with refuses("per_person"):
        ReleaseConfig(900, 3, ("a", "b"), Moments(), **given).with_noise(1.0)


def test_a_model_is_not_passed_off_as_cheaper_than_its_budget(tmp_path: Path) -> None:
    """Another answer of the count would have led to a plan that costs all of it."""
    out = tmp_path / "MODEL"
    JOBS["training"](out=out)
    edit(out, lambda content: content["guarantee"].update(epsilon=plan_from_dict(content["plan"]).cost().epsilon))
    with refuses("certificate epsilon"):
        verify_trained(out)
