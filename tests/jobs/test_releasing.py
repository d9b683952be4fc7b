"""Releases from Python: the job of the command line, for data that people hold in their hands."""

import gc
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pytest

import privmix as pm
from privmix.data.overlap import PUBLISHED
from privmix.features.tabular import Tabular
from privmix.jobs import job as order
from privmix.jobs.budget import spent_of
from privmix.jobs.canaries import CanaryJob
from privmix.jobs.release import ReleaseJob
from privmix.jobs.training import TrainingJob
from privmix.planning import planner
from tests.cli.helpers import privmix
from tests.cli.training import certificate
from tests.refusals import refuses

pytestmark = pytest.mark.usefixtures("fixed_keys")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 6)) + np.repeat([[0.0], [2.0]], 200, axis=0)
Y = np.repeat([0, 1], 200)
WISHES: dict[str, Any] = {"classes": 2, "features": "identity", "epsilon": 4, "delta": 1e-4}
MOMENTS: dict[str, Any] = {**WISHES, "design": pm.designs.Moments()}


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary files of the release are seen, and nobody else's."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path)


def held() -> list[str]:
    return [path.name for path in Path("tmp").rglob("*") if path.is_file()]


def test_records_of_a_table_are_clipped_nearer_unless_rows_are_drawn() -> None:
    frame = pandas.DataFrame(X[:, :2], columns=["a", "b"]).assign(label=Y)
    numbers, names = (dict.fromkeys("ab", entry) for entry in ({"range": [-5, 7]}, {"categories": list("wxyz")}))
    given: dict[str, Any] = {**WISHES, "label": "label", "design": "moments"}

    def bound(columns: dict[str, Any], **more: Any) -> float:
        asked = {**given, "features": Tabular(columns), **more}
        return ReleaseJob(frame, **{**asked, "out": None}).config.residual_clip_norm

    assert bound(numbers) == pytest.approx(0.3)
    assert bound(names) == bound(numbers, with_rows=10) == 0.55
    assert bound(numbers, design="auto", goal="table") == bound(numbers, label=None, classes=None) == 0.55
    assert bound(numbers, residual_clip_norm=0.4) == 0.4


@pytest.mark.parametrize("design", [pm.designs.Moments(), pm.designs.Poisson(mixup_degree=16)])
def test_one_seed_gives_the_bytes_of_the_command_line(design: Any) -> None:
    np.savez("own.npz", x=X, y=Y)
    named = "moments" if design.name == "moments" else "poisson:mixup_degree=16"
    flags = f"--features=identity --classes=2 --epsilon=4 --delta=1e-4 --design={named} --seed=3"
    privmix("release", "--data=own.npz", "--out=CLI", *flags.split()).passed()
    frame = pandas.DataFrame(X, columns=list("abcdef")).assign(label=Y)
    wishes = {**WISHES, "design": design, "seed": 3}
    made = [((X, Y), {}), ("own.npz", {"out": "OUT"}), (frame, {})]
    with pytest.warns(UserWarning, match="NOT private"):
        found = [pm.release(data, **wishes, **more) for data, more in made]
    for place, one in enumerate(found):
        one.save(f"REL{place}")
    for name in ("REL0", "REL1", "OUT"):
        for path in [*Path("CLI/data").iterdir(), *Path("CLI").glob("*.safetensors")]:
            assert (Path(name) / path.relative_to("CLI")).read_bytes() == path.read_bytes()
        certificates = [certificate(folder) for folder in (name, "CLI")]
        for one in certificates:
            # A name of its own, and the hash of all that.
            del one["id"], one["content_sha256"]
        assert certificates[0] == certificates[1]
    # A frame has names, which its files carry; the numbers in them are the same.
    assert found[2].feature_names == tuple("abcdef")
    assert np.array_equal(found[2].x, found[0].x)
    assert np.array_equal(found[2].y, found[0].y)


def test_nothing_stays_but_what_is_saved() -> None:
    release = pm.release((X, Y), **MOMENTS)
    assert release.folder is None
    # What is public, and nothing of the run: no key, no notes, no features.
    public = {"certificate.json", "README.md", "croissant.json"}
    public |= {Path(item["file"]).name for item in release.certificate["files"]}
    assert {name for name in held() if "lock" not in name} <= public
    assert release.x.shape == (400, 6)
    release.save("REL")
    del release
    gc.collect()
    assert held() == []
    assert pm.load("REL").certificate.epsilon <= 4
    # Nor of what fails.
    with refuses("inputs"):
        pm.release((np.full_like(X, np.nan), Y), **MOMENTS)
    assert held() == []


def test_saving_is_whole_and_verified_or_not_at_all() -> None:
    release = pm.release((X, Y), **MOMENTS, out="REL")
    with refuses("folder"):
        release.save("REL")
    shard = next(Path("REL/data").iterdir())
    content = bytearray(shard.read_bytes())
    content[-20] ^= 1
    shard.write_bytes(content)
    with pytest.raises(pm.PrivmixError):
        release.save("COPY")
    Path("REL/extra").touch()
    with refuses("files"):
        release.save("COPY")
    assert sorted(os.listdir()) == ["REL", "tmp"]


def ledger(epsilon: float = 9) -> pm.Ledger:
    book = pm.Ledger.create("sqlite:///ledger.db")
    for name in ("own", "other"):
        book.add_dataset(name, epsilon=epsilon, delta=1e-3)
    return book


def test_a_ledger_is_charged_and_holds_data_in_memory_to_their_name() -> None:
    book = ledger(5)
    release = pm.release((X, Y), **MOMENTS, ledger=book, dataset="own")
    assert "ledger" in json.dumps(release.certificate.to_dict())
    assert 3 < book.budget("own").spent <= 4
    assert book.budget("own").uncommitted == 0
    frame = polars.DataFrame(X, schema=list("abcdef")).with_columns(label=polars.Series(Y))
    for data in ((X.astype(object), list(Y)), frame):
        with refuses("dataset"):
            pm.release(data, **MOMENTS, ledger="sqlite:///ledger.db", dataset="other")
    with pytest.raises(pm.BudgetExceeded):
        pm.release((X, Y), **MOMENTS, ledger=book, dataset="own")
    assert book.budget("other").spent == 0


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "count": ({"private_count": True, "records": 400}, "private_count"),
    "design": ({"design": "magic"}, "design"),
    "fixed": ({"design": "fixed", "records": 300}, "records"),
    "proxy": ({"assume": {"proxy": (X, Y)}}, "design: got 'moments'"),
    "engine": ({"engine": "magic"}, "engine"),
    "epsilon": ({"epsilon": 0}, "epsilon"),
    "no epsilon": ({"epsilon": None}, "epsilon: got None"),
    "resume": ({"resume": True}, "out: got None"),
    "resume nothing": ({"resume": True, "out": "NEW"}, "resume"),
    "classes": ({"classes": None}, "classes: got None"),
    "columns": ({"columns": ["a"]}, "columns"),
    "taken": ({"out": "."}, "out"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_go_together_costs_nothing_and_names_fields(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "charge", lambda *_: pytest.fail("charged"))
    changes, words = WRONG[name]
    with pytest.raises(pm.InvalidInput) as caught:
        pm.release((X, Y), **{**MOMENTS, "ledger": "sqlite:///none.db", "dataset": "own", **changes})
    assert words in str(caught.value)
    assert "--" not in str(caught.value)
    assert held() == []


@pytest.fixture
def quick_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "_DRAWS", 1)
    monkeypatch.setattr(planner, "_CURVE", (1.0,))


@pytest.mark.usefixtures("quick_planner")
def test_a_plan_is_made_of_public_facts_and_carried_out() -> None:
    planned = pm.plan((X, Y), **WISHES, design="auto")
    assert planned.plan.design == planned.choice.best.plan.design
    assert planned.cost.epsilon <= 4
    assert all(words in str(planned) for words in ("design: ", "epsilon 4", "noise in"))
    release = pm.release((X, Y), planned)
    assert release.plan == planned.plan
    assert release.certificate["choice"]["chosen"] == planned.choice.best.name
    others = [(X, Y)] * 3 + [(X[:-1], Y[:-1]), (X[:, 1:], Y)]
    for data, more in zip(others, ({"person": Y}, {"assume": {"proxy": (X, Y)}}, {"epsilon": 1}, {}, {}), strict=True):
        with refuses("plan"):
            pm.release(data, planned, **more)


def test_a_plan_with_a_private_count_is_of_its_own_job() -> None:
    """What was checked and paid for in one job is no other's; a place that is taken by now costs nothing more."""
    book, wishes = ledger(99), {**WISHES, "design": "poisson"}
    paid = {**wishes, "ledger": book, "dataset": "own"}
    dear = ReleaseJob((X, Y), **{**paid, "epsilon": 9}, private_count=True, out=Path("DEAR")).plan()
    job = ReleaseJob((X, Y), **{**paid, "epsilon": 0.5}, private_count=True, out=Path("REL"), overwrite=True)
    planned, before = job.plan(), book.budget("own").reservations
    with refuses("planned"):
        job.carry_out(dear)
    with refuses("plan"):
        pm.release((X, Y), dear)
    job.carry_out(planned)
    waiting = ReleaseJob((X, Y), **paid, private_count=True, out=Path("LATE"))
    late = waiting.plan()
    Path("LATE").mkdir()
    with refuses("out") as caught:
        waiting.carry_out(late)
    told = spent_of(caught.value)
    assert told is not None, "of the count"
    assert told.drawn
    # A count each of three jobs, and one release.
    assert book.budget("own").reservations == before + 2 == 4


def test_jobs_show_neither_record_nor_password() -> None:
    """Notebooks print what a cell ends with."""
    x, book = np.full((400, 6), 98765.4321), "postgresql://ann:Zq7Secret@host/db"
    frame = pandas.DataFrame({"a": x[:, 0], "name": "Zq7Secret", "label": Y})
    for data in ((x, Y), frame, (x.tolist(), ["Zq7Secret"] * 400)):
        jobs = [job(data, epsilon=4, delta=1e-4, ledger=book) for job in (ReleaseJob, TrainingJob)]
        jobs.append(CanaryJob(target="MODEL", data=data, canaries=9, ledger=book))
        for shown in (repr(jobs), str(jobs)):
            assert "98765" not in shown
            assert "Zq7" not in shown
    with refuses("ledger, dataset") as refused:
        pm.release((X, Y), **MOMENTS, ledger=book)
    assert "Zq7" not in str(refused.value)


@pytest.mark.usefixtures("quick_planner")
def test_public_data_in_memory_may_not_be_the_private_data() -> None:
    data, wide = (X, Y), RNG.normal(size=(80, 20))
    other = np.random.default_rng(1).normal(size=(80, 6)) + np.repeat([[0.0], [2.0]], 40, axis=0), np.repeat([0, 1], 40)
    assert PUBLISHED in pm.release(data, **WISHES, assume={"proxy": other}).certificate["statements"]
    with refuses("proxy"):
        pm.plan(data, **WISHES, design="auto", assume={"proxy": data})
    with refuses("proxy"):
        pm.release((wide, Y[160:240]), **WISHES, design="auto", assume={"proxy": (wide.copy(), Y[160:240])})


ODD = [None, 2.5, float("nan"), "Zq7Secret", "", True, 10**400, pandas.Timestamp("2020-01-01")]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
def test_neighbouring_frames_have_one_plan(odd: Any) -> None:
    """A value that changes the type of its column changes neither the plan nor what is said before the price."""
    plain = [{"a": number, "b": 1, "label": number % 2} for number in range(40)]
    plans = set()
    for more in ([], [{"a": odd, "b": 1, "label": 0}], [{"a": 1, "b": 1, "label": odd}]):
        data = pandas.DataFrame([*plain[:20], *more, *plain[20:]])
        plans.add(str(pm.plan(data, **WISHES, design="poisson", records=400).plan.to_dict()))
        for wrong in ({"columns": ["c"]}, {"label": "c"}):
            with pytest.raises(pm.InvalidInput) as caught:
                pm.plan(data, **WISHES, **wrong)
            assert "Zq7Secret" not in str(caught.value)
            assert "41" not in str(caught.value)
    assert len(plans) == 1


def test_plain_numbers_at_the_default_bound_are_warned_of() -> None:
    """Before anything is charged; not where a bound is given, nor of features that lie within it."""
    numbers = np.random.default_rng(0).normal(size=(300, 2)) * (40.0, 1.0), np.arange(300) % 2
    wishes: dict[str, Any] = {"classes": 2, "design": "moments", "epsilon": 4.0, "delta": 1e-4}
    (said,) = pm.plan(numbers, features="identity", **wishes).warnings
    assert "a column of large numbers hides the others" in said
    assert pm.plan(numbers, features="identity", clip_norm=60.0, **wishes).warnings == ()
    assert pm.plan((numbers[0].reshape(-1, 1, 2), numbers[1]), features="pixels", **wishes).warnings == ()
