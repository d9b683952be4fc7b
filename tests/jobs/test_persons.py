"""Persons as the unit: the same result however they are declared, and nothing of them anywhere else."""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import privmix as pm
from privmix.data import ArraySource, remote
from privmix.data.store import FeatureStore
from privmix.errors import InvalidInput
from privmix.jobs.release import ReleaseJob
from privmix.jobs.training import TrainingJob
from privmix.mechanisms.private_count import RECORD_COUNTS
from tests.jobs.persons_data import BUDGET, CLASSES, KINDS, MOMENTS, PERSONS, RECORDS, SECRET, frame, given, images
from tests.processes import run_in
from tests.refusals import refuses

pytestmark = pytest.mark.filterwarnings("ignore:`seed` makes", "ignore:delta", "ignore:features are plain")
POISSON: dict[str, Any] = {**MOMENTS, "design": pm.designs.Poisson(mixup_degree=8)}
TRAIN: dict[str, Any] = {**BUDGET, "features": "identity", "epochs": 2, "batch_size": 10}
DESIGNS = pytest.mark.parametrize("options", [MOMENTS, POISSON], ids=["moments", "poisson"])


@pytest.fixture
def ward(tmp_path: Path) -> pm.Ledger:
    book = pm.Ledger.create(f"sqlite:///{tmp_path}/ledger.db")
    book.add_dataset("ward", epsilon=60.0, delta=1e-2, unit="person")
    return book


def rows(release: Any) -> np.ndarray:
    return np.concatenate([np.asarray(release.x), np.asarray(release.y)], axis=1)


def released(kind: str, folder: Path, data: pandas.DataFrame, **options: Any) -> Any:
    records, said = given(kind, folder, data)
    return pm.release(records, **{**MOMENTS, **said, **options})


@DESIGNS
def test_the_release_is_the_same_from_every_format(options: dict[str, Any], tmp_path: Path) -> None:
    found = {kind: released(kind, tmp_path / kind, frame(), seed=3, **options) for kind in KINDS}
    first = rows(found["csv"])
    for kind, one in found.items():
        assert np.array_equal(rows(one), first), kind
        assert one.certificate["plan"]["per_person"] == 1
        assert one.certificate["plan"]["records"] == PERSONS


@DESIGNS
def test_wherever_features_lie_the_release_is_the_same(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = rows(released("csv", tmp_path, frame(), seed=3, **options))
    stored = released("csv", tmp_path, frame(), seed=3, store=tmp_path / "STORE", **options)
    assert np.array_equal(rows(stored), first)
    monkeypatch.setattr("privmix.jobs.features.default_memory", lambda: 1.0)
    opened: list[Any] = []
    real = FeatureStore.open
    monkeypatch.setattr(FeatureStore, "open", lambda path: opened.append(path) or real(path))
    large = released("csv", tmp_path, frame(), seed=3, out=tmp_path / "OUT", **options)
    assert opened
    assert np.array_equal(rows(large), first)


@pytest.mark.parametrize(("ending", "copies"), [("csv", 0), ("parquet", 0), ("npz", 1)])
def test_records_and_persons_at_an_address_are_of_the_same_files(
    ending: str, copies: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec", reason="addresses need privmix[remote]")
    place, said = given(ending, tmp_path, frame())
    system = fsspec.filesystem("memory")
    system.pipe_file(f"/persons/d.{ending}", Path(place).read_bytes())
    copied: list[str] = []
    real = remote._Found.copy
    monkeypatch.setattr(remote._Found, "copy", lambda found, *more: copied.append(found.url) or real(found, *more))
    options = {**MOMENTS, **said, "seed": 3}
    found = pm.release(f"memory://persons/d.{ending}", **options)
    assert len(copied) == copies
    assert np.array_equal(rows(found), rows(pm.release(place, **options)))
    columns = {} if ending == "npz" else {"columns": ["a", "b", "c"]}
    with refuses("person") as caught:
        pm.release(f"memory://persons/d.{ending}", **{**options, "person": "whose", **columns})
    assert str(tmp_path) not in str(caught.value)
    system.rm("/persons", recursive=True)


@pytest.mark.thorough
def test_on_ray_it_is_the_same(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray", reason="the Ray engine needs privmix[ray]")
    first = rows(released("csv", tmp_path, frame(), seed=3, **POISSON))
    try:
        for more in ({}, {"store": tmp_path / "S"}):
            spread = released("csv", tmp_path, frame(), seed=3, engine="ray:workers=1", **more, **POISSON)
            assert np.array_equal(rows(spread), first)
    finally:
        ray.shutdown()


SCANS: dict[str, Any] = {**MOMENTS, "features": "pixels", "columns": pm.Columns(image_size=6, colour="grey"), "seed": 3}


def test_folders_of_images_tell_by_names_or_by_a_list(tmp_path: Path) -> None:
    listed = images(tmp_path / "scans", frame())
    by_name = rows(pm.release(tmp_path / "scans", **SCANS, person=rf"pattern=({SECRET}\d+)_"))
    assert np.array_equal(by_name, rows(pm.release(tmp_path / "scans", **SCANS, person=f"file={listed}")))
    alone = {**SCANS, "records": RECORDS}
    assert not np.array_equal(by_name, rows(pm.release(tmp_path / "scans", **alone)))


# What ends a job before anything is charged: (how, words). Nothing of the records was read.
WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "no such column": ("csv", {"person": "whose"}, "person: got 'whose'"),
    "no such array": ("npz", {"person": "whose"}, "person: got 'whose'"),
    "arrays without names": ("arrays", {"person": "who"}, "no named columns"),
    "the label's": ("csv", {"person": "label"}, "a separate column"),
    "an input's": ("csv", {"person": "a", "columns": ["a", "b"]}, "a separate column"),
    "two ways": ("csv", {"person": np.arange(RECORDS), "columns": pm.Columns(person="who")}, "one of column, pattern"),
    "no pattern": ("csv", {"person": "pattern=(("}, "folders of images"),
    "too few identifiers": ("arrays", {"person": ["x", "y"]}, "one identifier for each record"),
    "weights of nobody": ("csv", {"person": None, "per_person": 2}, "per_person"),
    "no word of it": ("csv", {"person": "who:missing=some"}, "^person: "),
    "nobody says how many": ("csv", {"records": None}, "the number of persons: declare it"),
    "weights that are declared": ("csv", {"per_person": 2}, "per_person"),
    "no weight": ("csv", {"per_person": 0}, "per_person"),
}


@pytest.mark.parametrize("how", WRONG)
def test_what_does_not_go_together_costs_nothing(
    how: str, tmp_path: Path, ward: pm.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, changes, words = WRONG[how]
    records, said = given(kind, tmp_path, frame())
    monkeypatch.setattr("privmix.data.source.Source._silent_chunks", lambda *_: pytest.fail("read"))
    for make, options in ((pm.release, MOMENTS), (pm.train, TRAIN)):
        if make is pm.train and how == "weights that are declared":
            continue
        with pytest.raises(pm.InvalidInput, match=words) as caught:
            make(records, **{**options, **said, **changes, "ledger": ward, "dataset": "ward"})
        assert SECRET not in str(caught.value)
    assert [entry["kind"] for entry in ward.history("ward")] == ["init"]


def test_patterns_and_lists_are_looked_at_before_the_charge(tmp_path: Path) -> None:
    images(tmp_path / "scans", frame())
    (tmp_path / "other.csv").write_text(f"file,person\n{SECRET},1\n")
    for person in ("pattern=((", "pattern=a(b)(c)", f"file={tmp_path / 'other.csv'}"):
        with pytest.raises(pm.InvalidInput) as caught:
            ReleaseJob(tmp_path / "scans", out=tmp_path / "OUT", **SCANS, person=person).plan()
        assert SECRET not in str(caught.value)


def missing_one(data: pandas.DataFrame) -> pandas.DataFrame:
    return data.assign(who=["" if place == 5 else name for place, name in enumerate(data["who"])])


# What only the records show: (format, what becomes of them, what is said).
REFUSED: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "missing": ("csv", missing_one, {}),
    "large floats": ("pandas", lambda data: data.assign(who=np.full(len(data), 2.0**60)), {}),
    "a key that is not there": ("jsonl", lambda data: data, {"person": "whose"}),
}


@pytest.mark.parametrize(("kind", "spoil", "changes"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_after_the_charge_shows_nothing_and_the_run_goes_on(
    kind: str, spoil: Any, changes: dict[str, Any], tmp_path: Path, ward: pm.Ledger
) -> None:
    data, out = frame(), tmp_path / "OUT"
    for make, options in ((pm.release, MOMENTS), (pm.train, TRAIN)):
        records, said = given(kind, tmp_path / "data", spoil(data))
        asked = {**options, **said, "out": out, "ledger": ward, "dataset": "ward"}
        with pytest.raises(pm.InvalidInput) as caught:
            make(records, **{**asked, **changes})
        refuse_secrets("\n".join([str(caught.value), repr(caught.value), *getattr(caught.value, "__notes__", [])]))
        assert not out.exists()
        for path in tmp_path.rglob("*"):
            assert "data" in path.parts or path.is_dir() or SECRET.encode() not in path.read_bytes(), path
        if kind != "csv":
            shutil.rmtree(next(tmp_path.glob(".*.run")))
            continue
        # Mended data are the same columns of the same file.
        records, said = given(kind, tmp_path / "data", data)
        make(records, **{**asked, **said}, resume=True)
        shutil.rmtree(out)
    assert [entry["kind"] for entry in ward.history("ward")].count("reserve") == 2


def refuse_secrets(told: str) -> None:
    """No identifier, and no number of records or persons that was not declared."""
    assert SECRET not in told
    for number in (RECORDS, RECORDS + 1, RECORDS + 50, PERSONS + 1, PERSONS + 3):
        assert not any(word.strip(".,:;()") == str(number) for word in told.split()), told


def test_records_without_an_identifier_may_be_persons_of_their_own(tmp_path: Path) -> None:
    data = missing_one(frame())
    own = data.assign(who=[name or f"{SECRET}alone" for name in data["who"]])
    options = {**MOMENTS, "records": PERSONS + 1, "seed": 3}
    one = released("csv", tmp_path / "one", data, **{**options, "person": "who:missing=own"})
    assert np.array_equal(rows(one), rows(released("csv", tmp_path / "other", own, **options)))


@pytest.mark.parametrize("records", [PERSONS - 1, PERSONS + 1])
def test_designs_of_a_fixed_size_need_the_number_of_persons(records: int, tmp_path: Path) -> None:
    fixed = {**MOMENTS, "design": pm.designs.Fixed(mixup_degree=8)}
    made = released("csv", tmp_path, frame(), **fixed)
    assert f"The person count {PERSONS} is taken as public" in str(made.certificate.to_dict())
    with refuses("records") as caught:
        released("csv", tmp_path, frame(), **{**fixed, "records": records})
    assert str(PERSONS) not in str(caught.value)


@pytest.mark.parametrize("records", [PERSONS - 1, PERSONS, PERSONS + 1])
def test_elsewhere_a_person_more_than_was_declared_decides_nothing(records: int, tmp_path: Path) -> None:
    """Rates are those of the declared number; whether there is a result must not tell that somebody is there."""
    for options in (MOMENTS, POISSON):
        released("csv", tmp_path, frame(), **{**options, "records": records})
    pm.train(given("csv", tmp_path, frame())[0], **{**TRAIN, "records": records, "person": "who"})


COUNTED = {**MOMENTS, "records": None, "private_count": True, "delta": 1e-5, "seed": 1}


def test_a_private_count_is_of_persons_and_of_what_they_weigh(tmp_path: Path) -> None:
    data = frame(persons=800, records=2400)
    one = released("csv", tmp_path, data, **COUNTED).certificate["plan"]
    many = released("csv", tmp_path, data, **COUNTED, per_person=2).certificate["plan"]
    # On the low side of 800 by four deviations, which are a few persons here.
    assert 650 < many["records"] < one["records"] < 800
    assert (one["per_person"], many["per_person"]) == (1, 2)


def test_how_many_records_count_is_estimated_where_that_is_asked(tmp_path: Path) -> None:
    data = frame(persons=800, records=2400)
    made = released("csv", tmp_path, data, **COUNTED, person_quantile=0.9)
    plan = made.certificate["plan"]
    held = data.groupby("who").size()
    # On the low side: the noise of all places together is some tens of persons.
    low, high = (next(number for number in RECORD_COUNTS if (held <= number).mean() >= share) for share in (0.5, 0.9))
    assert 1 < low <= plan["per_person"] <= high
    assert plan["person_quantile"] == 0.9
    said = f"{plan['per_person']} was estimated within the same cost, on the low side and at most 1,000, as what 0.9"
    assert said in str(dict(made.certificate))
    assert pm.verify(made).to_dict()["recomputed_epsilon"] <= made.certificate.epsilon


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"private_count": False, "records": 40}, "private_count"),
        ({"per_person": 2}, "per_person"),
        ({"person": None}, "person_quantile"),
        *(({"person_quantile": wrong}, "person_quantile") for wrong in (1.0, 0, "most")),
    ],
    ids=str,
)
def test_a_quantile_that_nothing_pays_for_is_refused(more: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=words):
        released("csv", tmp_path, frame(), **{**COUNTED, "person_quantile": 0.9, **more})


DECLARED = 40


def shown(folder: Path, make: Any, options: dict[str, Any], data: pandas.DataFrame, kind: str) -> list[Any]:
    """Everything that others may see, but for ids, hashes and noise."""
    records, said = given(kind, folder / "data", data)
    out = folder / "OUT"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        made = make(records, **{**options, **said, "records": DECLARED, "out": out})
    content = json.loads((out / ("certificate.json" if make is pm.release else "model.json")).read_text())
    texts = [str(made), repr(made), *map(str, content.values()), *(str(one.message) for one in told)]
    readable = [path for path in out.rglob("*") if path.suffix in (".json", ".md", ".txt", ".html")]
    texts += [path.read_text() for path in readable]
    for text in texts:
        refuse_secrets(text)
    for path in out.rglob("*"):
        assert SECRET not in path.name
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()
    names = sorted(str(path.relative_to(out)) for path in out.rglob("*"))
    fixed = ("plan", "guarantee", "extractor", "classes", "input_shape", "statements")
    # Lines with hashes differ from release to release.
    card = (out / "README.md").read_text().splitlines() if make is pm.release else []
    lines = [line for line in card if not any(len(word) >= 32 for word in line.split())]
    return [names, [content.get(name) for name in fixed], [str(one.message) for one in told], lines]


@pytest.mark.parametrize("kind", ["csv", "parquet", "pandas"])
@pytest.mark.parametrize(("make", "options"), [(pm.release, MOMENTS), (pm.train, TRAIN)], ids=["release", "train"])
def test_a_person_more_shows_nowhere(make: Any, options: dict[str, Any], kind: str, tmp_path: Path) -> None:
    found = []
    # Nobody more, one person with one record, and one with fifty.
    for place, more in enumerate(([], [1], [50])):
        (tmp_path / str(place)).mkdir()
        found.append(shown(tmp_path / str(place), make, options, frame(more), kind))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("kind", ["pandas", "arrays"])
def test_jobs_say_nothing_of_persons_by_themselves(kind: str, tmp_path: Path) -> None:
    records, said = given(kind, tmp_path, frame())
    for make, options in ((ReleaseJob, {**MOMENTS, **said}), (TrainingJob, {**TRAIN, **said})):
        job = make(records, **{**options, "out": tmp_path / "OUT"})
        for one in (job, job.opened, job.persons, job.opened.source):
            assert SECRET not in repr(one) + str(one)
            # Every number of records and persons is of two digits.
            assert f" {RECORDS}" not in repr(one)


def test_a_ledger_and_a_store_hold_nobody(tmp_path: Path, ward: pm.Ledger) -> None:
    released("csv", tmp_path / "data", frame(), ledger=ward, dataset="ward", store=tmp_path / "STORE")
    kept = [tmp_path / "ledger.db", *(path for path in (tmp_path / "STORE").rglob("*") if path.is_file())]
    assert len(kept) > 1
    assert not any(SECRET.encode() in path.read_bytes() or SECRET in path.name for path in kept)


SCRIPT = """
import os, signal, sys, warnings
from pathlib import Path
import torch
torch.set_num_threads(1)
warnings.simplefilter("ignore")
import privmix as pm
from privmix.jobs.release import ReleaseJob
from privmix.jobs.training import TrainingJob
from tests.jobs.persons_data import MOMENTS, frame, given
from tests.jobs.test_persons import CASES

def dies(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

for name, (make, options) in CASES.items():
    for paid in (False, True):
        pid = os.fork()
        if pid == 0:
            place = Path(name + (" paid" if paid else ""))
            place.mkdir()
            os.chdir(place)
            records, said = given("csv", Path("data"), frame())
            more = {"seed": 3}
            if paid:
                book = pm.Ledger.create("sqlite:///ledger.db")
                book.add_dataset("ward", epsilon=60.0, delta=1e-2, unit="person")
                more = {"ledger": "sqlite:///ledger.db", "dataset": "ward"}
            from privmix.mechanisms.run import Run
            Run.publish = dies
            getattr(pm, make)(records, **options, **said, **more, out="OUT")
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code == -signal.SIGKILL, (name, code)
"""
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "moments": ("release", MOMENTS),
    "poisson": ("release", POISSON),
    "training": ("train", TRAIN),
}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("killed")
    done = run_in(root, SCRIPT, timeout=120)
    assert SECRET not in done.stdout + done.stderr
    return root


@pytest.mark.parametrize("name", CASES)
def test_a_killed_run_goes_on_to_the_same_bytes_and_is_charged_once(
    name: str, killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, options = getattr(pm, CASES[name][0]), CASES[name][1]
    for paid in ("", " paid"):
        shutil.copytree(killed / (name + paid), tmp_path / (name + paid))
    monkeypatch.chdir(tmp_path / name)
    for path in Path().rglob("*"):
        if "data" not in path.parts:
            assert SECRET not in str(path)
            assert path.is_dir() or SECRET.encode() not in path.read_bytes(), path
    said: dict[str, Any] = {**options, "person": "who"}
    make("data/d.csv", **said, seed=3, out="OUT", resume=True)
    make("data/d.csv", **said, seed=3, out="AGAIN")
    assert arrays_of("OUT") == arrays_of("AGAIN") != {}
    monkeypatch.chdir(tmp_path / f"{name} paid")
    paid_for = {"ledger": "sqlite:///ledger.db", "dataset": "ward", "out": "OUT", "resume": True}
    # Persons that are others are other data, under the same key.
    swapped = frame()["who"].to_numpy()[::-1]
    with pytest.raises(pm.InvalidInput) as caught:
        make("data/d.csv", **{**said, "person": swapped}, **paid_for)
    refuse_secrets(str(caught.value))
    make("data/d.csv", **said, **paid_for)
    kinds = [entry["kind"] for entry in pm.Ledger.open("sqlite:///ledger.db").history("ward")]
    assert (kinds.count("reserve"), kinds.count("commit")) == (1, 1)


def arrays_of(out: str) -> dict[str, bytes]:
    """Everything that is no text about it."""
    return {path.name: path.read_bytes() for path in Path(out).rglob("*") if path.suffix not in ("", ".json", ".md")}


def test_an_open_source_has_no_columns_to_name(tmp_path: Path) -> None:
    (x, _), said = given("arrays", tmp_path, frame())
    source = ArraySource(x, np.arange(len(x)) % 2, tuple(CLASSES))
    options = {name: value for name, value in MOMENTS.items() if name != "classes"}
    with refuses("person"):
        pm.release(source, **options, person="who")
    pm.release(source, **options, **said)
