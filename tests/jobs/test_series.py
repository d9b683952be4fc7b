"""Series of releases: one charge, one key, one set of records a step, and what is refused."""

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import privmix as pm
from privmix.accounting import Gaussian
from privmix.certificate.notes import UNCHECKED, link_of
from privmix.errors import InvalidInput, StorageError
from privmix.ledger.verify import verify_ledger
from privmix.plans.registry import plan_from_dict
from privmix.releases import series as series_file
from privmix.releases.certificate import public_text, read_certificate
from privmix.releases.series import Series, place_of_step, private_place
from privmix.releases.series_chain import linked, verify_series
from tests.cli.helpers import privmix
from tests.cli.training import certificate
from tests.refusals import refuses
from tests.releases.helpers import replant

STEPS = 3
SERIES = Path("visits")
KEPT = private_place(SERIES)
GIVEN: dict[str, Any] = {"classes": 3, "features": "identity", "clip_norm": 2.0, "epsilon": 2, "delta": 1e-4}
GIVEN |= {"progress": False, "steps": STEPS}
REPLACED = {"overwrite": True}
LEDGER = "sqlite:///ledger.db"
pytestmark = pytest.mark.filterwarnings("ignore:`seed`")

Month = tuple[NDArray[np.float64], NDArray[np.int64]]


def month(step: int, seed: int = 0) -> Month:
    rng = np.random.default_rng(100 * seed + step)
    y = rng.integers(0, 3, 80 + step)
    return rng.normal(size=(len(y), 5)) * 0.2 + np.eye(3, 5)[y], y


def make(step: int, data: Month | None = None, **more: Any) -> pm.Release:
    data = month(step) if data is None else data
    if step == 1:
        return pm.series.begin(SERIES, data, **{**GIVEN, **more})
    # The charge's dataset and the seed are the series'.
    more = {name: value for name, value in more.items() if name not in ("dataset", "seed")}
    return pm.series.step(SERIES, data, number=step, **{"progress": False, **more})


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def content(folder: Path) -> dict[str, bytes]:
    """Files of released numbers; others name the release, which each run does anew."""
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.suffix in (".safetensors", ".parquet")}


def killed(*_: object) -> None:
    raise KeyboardInterrupt


def killed_at(stage: str) -> Any:
    return lambda at, *_: killed() if at == stage else None


def ledger(url: str = LEDGER, **budget: float) -> pm.Ledger:
    book = pm.Ledger.create(url)
    book.add_dataset("visits", **{"epsilon": 2, "delta": 1e-4, **budget})
    return book


def bad_month(step: int) -> Month:
    x, y = month(step)
    x[3, 3] = np.nan
    return x, y


def test_a_whole_series_for_one_charge() -> None:
    book, spent = ledger(), []
    for step in range(1, STEPS + 1):
        found = make(step, ledger=LEDGER, dataset="visits")
        spent.append(book.budget("visits").spent)
        assert found.certificate.in_ledger == "planned"
        assert found.certificate.plan["counts"] == [81, 82, 83][:step]
        assert found.certificate.epsilon <= 2
        assert pm.fit(found).score(*month(9)) > 0.5
        # The key is there, for its owner alone, as long as steps are to come.
        assert KEPT.exists() == (step < STEPS)
        if step < STEPS:
            assert stat.S_IMODE(KEPT.stat().st_mode) == 0o700
            assert "not destroyed yet" in found.certificate.warnings[-1]
            assert "not destroyed yet" in (place_of_step(SERIES, step) / "README.md").read_text()
        else:
            assert "the last of 3" in found.certificate.warnings[-1]
    assert len(set(spent)) == 1
    kinds = [entry["kind"] for entry in book.history("visits")]
    assert (kinds.count("reserve"), kinds.count("commit")) == (1, 1)
    checked = pm.verify(SERIES)
    assert checked.to_dict()["series"]["releases"] == checked.to_dict()["series"]["steps"] == STEPS
    with refuses("series"):
        make(4)
    shown = privmix("verify", SERIES)
    assert "3 of 3 releases" in shown.out
    assert sorted(os.listdir()) == ["ledger.db", "visits"]


def test_no_record_and_no_sum_is_kept() -> None:
    """What is private lies in two files, a key and notes; none is larger than its few numbers."""
    make(1)
    assert {path.name for path in KEPT.iterdir()} == {"run.key", "run.json"}
    notes = json.loads((KEPT / "run.json").read_text())
    assert set(notes) == {*series_file.Notes.__dataclass_fields__, "seal"}
    assert set(notes["steps"][0]) == {"records", "fingerprint", "run", "certificate"}


def test_the_same_step_for_other_records_is_refused() -> None:
    """The difference of two releases under one noise is free of noise: also after a kill, and with `overwrite`."""
    make(1)
    with pytest.raises(KeyboardInterrupt):
        make(2, progress=killed_at("rows"))
    for flags in ({"resume": True}, {"overwrite": True}):
        with pytest.raises(InvalidInput, match=r"data|records"):
            make(2, month(2, seed=7), **flags)
    assert not place_of_step(SERIES, 2).exists()
    # Other numbers of records, another order and one changed number are others, too.
    x, y = month(2)
    for other in ((x[:-1], y[:-1]), (x[::-1], y[::-1]), (np.where(x == x[3, 3], 0.0, x), y)):
        with pytest.raises(InvalidInput):
            make(2, other, overwrite=True)
    make(2, overwrite=True)
    pm.verify(SERIES)


@pytest.mark.parametrize("flag", ["resume", "overwrite"])
@pytest.mark.parametrize("stage", ["moments", "rows"])
def test_a_step_that_was_killed_ends_with_the_same_numbers(flag: str, stage: str) -> None:
    make(1, seed=5)
    shutil.copytree(".", "../copy", symlinks=True)
    make(2, seed=5)
    whole = content(place_of_step(SERIES, 2))
    os.chdir("../copy")
    with pytest.raises(KeyboardInterrupt):
        make(2, seed=5, progress=killed_at(stage))
    make(2, seed=5, **{flag: True})
    assert content(place_of_step(SERIES, 2)) == whole
    assert len(whole) == 3


def test_a_kill_between_release_and_notes_is_made_good(monkeypatch: pytest.MonkeyPatch) -> None:
    make(1)
    with monkeypatch.context() as patched:
        patched.setattr(Series, "done", killed)
        with pytest.raises(KeyboardInterrupt):
            make(2)
    assert place_of_step(SERIES, 2).exists()
    assert Series(SERIES).made == 1
    with refuses("number"):
        make(2)
    with monkeypatch.context() as patched:
        patched.setattr(Series, "end", killed)
        with pytest.raises(KeyboardInterrupt):
            make(3)
    # All are there, and the key was left by the kill.
    assert KEPT.exists()
    with refuses("series"):
        pm.series.step(SERIES, month(4))
    assert not KEPT.exists()
    assert len(verify_series(SERIES).releases) == STEPS


def test_steps_are_made_in_order_and_once() -> None:
    for step, field, more in ((2, "series", {}), (1, None, {}), (1, "series", REPLACED), (3, "number", REPLACED)):
        with refuses(field) if field else nullcontext():
            make(step, **more)
    # Left out, it is the next.
    assert pm.series.step(SERIES, month(2)).certificate.plan["counts"] == [81, 82]


def wide(step: int) -> Month:
    x, y = month(step)
    return np.hstack([x, x]), y


@pytest.mark.parametrize(
    ("data", "change", "named"),
    [
        (wide(2), {}, "features|data"),
        ((month(2)[0], month(2)[1] + 1), {}, "label"),
        (None, {"records": 82}, "records"),
        (None, {"ledger": LEDGER}, "ledger"),
        (None, {"columns": pm.Columns(person="who")}, "person"),
    ],
    ids=["features", "classes", "records", "ledger", "person"],
)
def test_a_step_that_is_not_as_the_first_is_refused_by_name(
    data: Month | None, change: dict[str, Any], named: str
) -> None:
    make(1)
    ledger()
    with pytest.raises(InvalidInput, match=named):
        make(2, data, **change)
    assert not place_of_step(SERIES, 2).exists()
    assert Series(SERIES).notes.steps[1:] == ()


def test_a_later_step_needs_the_charge_of_the_first() -> None:
    ledger()
    make(1, ledger=LEDGER, dataset="visits")
    with refuses("ledger, dataset"):
        make(2)
    ledger("sqlite:///another.db")
    with refuses("reservation"):
        make(2, ledger="sqlite:///another.db", dataset="visits")
    # A second series of the same data is another charge, which this budget does not hold.
    with pytest.raises(pm.BudgetExceeded):
        pm.series.begin("second", month(1), ledger=LEDGER, dataset="visits", **GIVEN)
    assert not Path("second").exists()
    assert not private_place(Path("second")).exists()
    make(2, ledger=LEDGER, dataset="visits")


def test_refused_records_leave_the_step_to_mended_ones() -> None:
    make(1)
    with pytest.raises(InvalidInput):
        make(2, bad_month(2))
    assert len(Series(SERIES).notes.steps) == 1
    make(2)


def test_a_series_whose_first_records_were_refused_begins_anew() -> None:
    """Nothing was drawn under its key: it may have another plan. What was charged for is that plan's alone."""
    with pytest.raises(InvalidInput):
        make(1, bad_month(1))
    kept = Series(SERIES).notes
    assert kept.steps == ()
    make(1, epsilon=3)
    assert Series(SERIES).notes.id != kept.id
    book = ledger(epsilon=9, delta=1e-3)
    charged = {**GIVEN, "ledger": LEDGER, "dataset": "visits"}
    with pytest.raises(InvalidInput):
        pm.series.begin("paid", bad_month(1), **charged)
    for name, other in {"epsilon": 3.0, "delta": 1e-5, "clip_norm": 1.0, "steps": 4, "label_share": 0.4}.items():
        with pytest.raises(InvalidInput) as refused:
            pm.series.begin("paid", month(1), resume=True, **{**charged, name: other})
        assert refused.value.field == name
    pm.series.begin("paid", month(1), resume=True, **charged)
    assert sum(entry["kind"] == "reserve" for entry in book.history("visits")) == 1


def test_the_release_before_must_be_there_unchanged() -> None:
    make(1)
    place = place_of_step(SERIES, 1)
    moments = place / "moments.safetensors"
    kept = moments.read_bytes()
    moments.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    with refuses("moments.safetensors"):
        make(2)
    moments.write_bytes(kept)
    place.rename("away")
    with pytest.raises((InvalidInput, StorageError)):
        make(2, **REPLACED)
    Path("away").rename(place)
    make(2, **REPLACED)


def restore() -> None:
    """Bring the private folder back from its backup."""
    shutil.rmtree(KEPT)
    shutil.copytree("backup", KEPT)
    KEPT.chmod(0o700)


def test_an_older_copy_of_the_private_folder_is_noticed() -> None:
    """From a backup of before step 2 the noise of step 2 would serve other records."""
    make(1)
    shutil.copytree(KEPT, "backup", symlinks=True)
    make(2)
    restore()
    with refuses("series"):
        make(2, month(2, seed=4))
    with refuses("series"):
        pm.series.end(SERIES)


def test_a_ledger_refuses_other_records_for_a_step_of_a_series_from_a_backup() -> None:
    """Both folders come back from before step 2, whose release others have: the ledger knows its records."""
    book = ledger()
    charged = {"ledger": LEDGER, "dataset": "visits"}
    make(1, **charged)
    shutil.copytree(KEPT, "backup", symlinks=True)
    make(2, **charged)
    first = content(place_of_step(SERIES, 2))
    shutil.rmtree(place_of_step(SERIES, 2))
    restore()
    for flags in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(InvalidInput) as refused:
            make(2, month(2, seed=7), **charged, **flags)
        assert refused.value.field in ("data", "resume")
    assert not place_of_step(SERIES, 2).exists()
    # The same records under the same key are the same numbers.
    make(2, overwrite=True, **charged)
    assert content(place_of_step(SERIES, 2)) == first
    make(3, **charged)
    bound = [entry["step"] for entry in book.history("visits") if "step" in entry]
    assert bound == [1, 2, 3]
    verify_ledger(book)
    assert sum(entry["kind"] == "reserve" for entry in book.history("visits")) == 1


def test_without_a_ledger_the_certificate_says_what_was_not_checked() -> None:
    made = make(1)
    assert UNCHECKED in made.certificate.warnings
    place, content = place_of_step(SERIES, 1), read_certificate(place_of_step(SERIES, 1))
    plan, link = plan_from_dict(content["plan"]), link_of(content)
    for ledger, before, said in (("none", False, True), ("none", True, False), ("planned", False, False)):
        text = public_text(plan, False, ledger, content["extractor"], None, None, link, before=before)
        assert (UNCHECKED in text["warnings"]) is said
    pm.verify(place)


def test_a_step_is_bound_once_to_one_set_of_records() -> None:
    book = ledger()
    taken = book.reserve("visits", Gaussian(9.0), purpose="release")
    a, b, c, d = (letter * 64 for letter in "abcd")
    book.bind(taken, [a])
    book.bind(taken, [a, b])
    for steps in ([c], [a, c], [b, b, d]):
        with refuses("data"):
            book.bind(taken, steps)
    assert verify_ledger(book) == {"visits": 4}


@pytest.mark.parametrize("name", ["run.json", "run.key", None])
def test_a_private_folder_that_was_changed_or_can_be_entered_is_refused(name: str | None) -> None:
    make(1)
    if name is None:
        KEPT.chmod(0o755)
    else:
        kept = bytearray((KEPT / name).read_bytes())
        kept[20] ^= 1
        (KEPT / name).write_bytes(kept)
    with pytest.raises(InvalidInput):
        make(2)


def test_draws_of_another_version_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise of the step before could not be made again."""
    make(1)
    monkeypatch.setattr(series_file, "_PROBED", series_file._PROBED - 1)
    with refuses("versions of numpy and randomgen"):
        make(2)
    assert len(Series(SERIES).notes.steps) == 1


def test_the_key_alone_makes_noise_and_fingerprints() -> None:
    """Two series of the same records have nothing in common: neither fingerprints nor noise."""
    first, second = (pm.series.begin(name, month(1), **GIVEN) for name in ("one", "two"))
    notes = [Series(Path(name)).notes for name in ("one", "two")]
    assert notes[0].steps[0].fingerprint != notes[1].steps[0].fingerprint
    assert notes[0].draws != notes[1].draws
    assert not np.array_equal(first.dataset.beside.second, second.dataset.beside.second)


def test_ending_a_series_destroys_the_key() -> None:
    make(1)
    with pytest.raises(KeyboardInterrupt):
        make(2, progress=killed_at("rows"))
    with refuses("series"):
        pm.series.end(SERIES)
    make(2, resume=True)
    assert privmix("series", "end", SERIES, "--json").json()["made"] == 2
    assert not KEPT.exists()
    with refuses("series"):
        make(3)
    with pytest.raises(InvalidInput):
        pm.series.end(SERIES)
    assert verify_series(SERIES).to_dict()["releases"] == 2


def test_a_chain_that_does_not_hold_is_refused() -> None:
    for step in (1, 2, 3):
        make(step)
    pm.series.begin("other", month(1, seed=3), **GIVEN)
    pm.series.step("other", month(2, seed=3))
    verify_series(SERIES)
    with refuses("key"):
        pm.verify(SERIES, key="some.pub.pem")
    second = place_of_step(SERIES, 2)
    second.rename("second")
    with refuses("series"):
        verify_series(SERIES)
    # Each verifies by itself; together they are no series.
    for wrong in (Path("other/step-002"), Path("other/step-001"), place_of_step(SERIES, 1)):
        shutil.copytree(wrong, second)
        pm.verify(second)
        with refuses("step-002: certificate series"):
            verify_series(SERIES)
        shutil.rmtree(second)


def test_no_step_comes_after_the_last() -> None:
    """Not even one whose certificate repeats the last plan and names the certificate before it."""
    for step in range(1, STEPS + 1):
        make(step)
    last, extra = place_of_step(SERIES, STEPS), place_of_step(SERIES, STEPS + 1)
    shutil.copytree(last, extra)
    forged = certificate(extra)
    forged["series"]["previous"] = hashlib.sha256((last / "certificate.json").read_bytes()).hexdigest()
    replant(extra, forged)
    with refuses(f"{extra.name}: certificate plan"):
        linked(SERIES)


def test_a_design_of_a_series_is_for_series_alone() -> None:
    """It can be planned, and so compared; nothing is released of it."""
    given = {name: value for name, value in GIVEN.items() if name != "steps"}
    given["design"] = pm.designs.MomentsSeries(steps=STEPS)
    with refuses("design"):
        pm.release(month(1), **given)
    planned = pm.plan(month(1), **given)
    assert os.listdir() == []
    with refuses("design"):
        pm.release(month(1), planned)
    assert make(1).certificate.plan == planned.plan.to_dict()


def test_a_series_shows_how_far_it_is() -> None:
    with pytest.raises(InvalidInput):
        pm.series.show(SERIES)
    make(1)
    with pytest.raises(KeyboardInterrupt):
        make(2, progress=killed_at("rows"))
    state = {"made": 1, "steps": STEPS, "records": [81], "epsilon": 2.0, "delta": 1e-4, "key": True}
    assert pm.series.show(SERIES).to_dict() == state | {"interrupted": True}
    make(2, resume=True)
    make(3)
    state |= {"made": 3, "records": [81, 82, 83], "key": False, "interrupted": False}
    assert privmix("series", "show", SERIES, "--json").json() == state
    assert "3 of 3 steps" in privmix("series", "show", SERIES).out


def test_the_command_line_makes_steps() -> None:
    given = ["--steps=3", "--classes=3", "--features=identity", "--clip-norm=2", "--epsilon=2", "--delta=1e-4"]
    for step, verb, more in ((1, "begin", given), (2, "step", [])):
        x, y = month(step)
        np.savez(f"{step}.npz", x=x.astype(np.float32), y=y)
        assert f"step-00{step}" in privmix("series", verb, SERIES, f"--data={step}.npz", *more).passed().out
    assert verify_series(SERIES).to_dict()["releases"] == 2


VISITS: dict[str, Any] = {"person": "who", "records": 40, "label": "y", "columns": ["a", "b"]}


def visits(step: int, people: Sequence[str]) -> dict[str, Any]:
    """Two records of each, as columns."""
    rng = np.random.default_rng(step)
    y = rng.integers(0, 3, 2 * len(people))
    return {"who": np.repeat(people, 2), "a": rng.normal(size=len(y)), "b": y + rng.normal(size=len(y)), "y": y}


def frame(columns: dict[str, Any]) -> Any:
    return pa.table({name: pa.array(values.tolist()) for name, values in columns.items()})


def kept(columns: dict[str, Any], people: Sequence[str]) -> dict[str, Any]:
    own = np.isin(columns["who"], people)
    return {name: values[own] for name, values in columns.items()}


def test_a_person_counts_in_k_steps_and_in_no_later_one() -> None:
    """The releases are, to the bit, those of data in which persons who came K times before have no records."""
    people = ("ann", "bob", "cy", "17")
    months = [visits(1, people), visits(2, people[:2]), visits(3, people[1:])]
    for folder, last in (("whole", months[2]), ("left out", kept(months[2], ("cy", "17")))):
        more = {**GIVEN, **VISITS, "steps_per_person": 2, "seed": 3}
        pm.series.begin(folder, frame(months[0]), **more)
        private = private_place(Path(folder))
        assert {path.name for path in private.iterdir()} == {"run.key", "run.json", "persons-001"}
        assert not any(b"ann" in path.read_bytes() for path in private.iterdir())
        for month in (months[1], last):
            pm.series.step(folder, frame(month), progress=False, **VISITS)
        assert not private.exists()
    for step in range(1, STEPS + 1):
        found, other = (place_of_step(Path(folder), step) for folder in ("whole", "left out"))
        assert content(found) == content(other)
    pm.verify("whole")
    last = read_certificate(place_of_step(Path("whole"), STEPS))
    plan = last["plan"]
    assert last.relation.endswith("one person with all of their records")
    assert (plan["steps_per_person"], plan["per_person"], plan["counts"]) == (2, 1, [40, 40, 40])


@pytest.mark.parametrize("store", [None, "kept"])
def test_a_step_in_which_no_one_counts_is_noise_alone(store: str | None) -> None:
    months = [visits(step, ("ann", "bob")) for step in range(1, STEPS + 1)]
    pm.series.begin("twice", frame(months[0]), **GIVEN, **VISITS, seed=3)
    for step, month in enumerate(months[1:]):
        place = None if store is None else f"{store}-{step}"
        pm.series.step("twice", frame(month), progress=False, store=place, **VISITS)
    pm.series.begin("other", frame(months[0]), **GIVEN, **VISITS, seed=3)
    pm.series.step("other", frame(visits(8, ("bob", "ann"))), progress=False, **VISITS)
    assert content(Path("twice/step-002")) == content(Path("other/step-002"))
    pm.verify("twice")


def test_records_without_an_identifier_are_persons_of_one_step() -> None:
    given = {**VISITS, "person": "who:missing=own"}
    months = [{**visits(step, ("ann", "bob")), "who": np.array([None, None, "bob", "bob"])} for step in (1, 2)]
    pm.series.begin("all", frame(months[0]), **GIVEN, **given, seed=3)
    pm.series.begin("own", frame(months[0]), **GIVEN, **given, seed=3)
    pm.series.step("all", frame(months[1]), progress=False, **given)
    pm.series.step("own", frame({name: values[:2] for name, values in months[1].items()}), progress=False, **given)
    # Bob came before; the two without a name are others than those of the first step.
    assert content(Path("all/step-002")) == content(Path("own/step-002"))
    assert content(Path("all/step-002")) != content(Path("all/step-001"))


def test_persons_of_a_step_are_bound_to_it() -> None:
    """Also after a kill: others would count who gave their records to the steps before."""
    pm.series.begin("bound", frame(visits(1, ("ann", "bob"))), **GIVEN, **VISITS)
    with pytest.raises(KeyboardInterrupt):
        pm.series.step("bound", frame(visits(2, ("cy", "dee"))), **VISITS, progress=killed_at("rows"))
    with refuses("person"):
        pm.series.step("bound", frame(visits(2, ("cy", "eve"))), **VISITS, progress=False, overwrite=True)
    pm.series.step("bound", frame(visits(2, ("cy", "dee"))), **VISITS, progress=False, overwrite=True)
    noted = private_place(Path("bound")) / "persons-001"
    noted.write_bytes(noted.read_bytes()[:16])
    with refuses("persons of step 1"):
        pm.series.step("bound", frame(visits(3, ("ann",))), **VISITS, progress=False)


def test_persons_are_the_units_of_all_steps_or_of_none() -> None:
    pm.series.begin("of persons", frame(visits(1, ("ann", "bob"))), **GIVEN, **VISITS)
    with refuses("person"):
        pm.series.step("of persons", frame(visits(2, ("cy",))), progress=False, **{**VISITS, "person": None})
    of_records = {**VISITS, "person": None}
    pm.series.begin("of records", frame(visits(1, ("ann", "bob"))), **GIVEN, **of_records)
    with refuses("person"):
        pm.series.step("of records", frame(visits(2, ("cy",))), progress=False, **VISITS)
    for steps_per_person in (0, STEPS + 1):
        with refuses("steps_per_person"):
            pm.series.begin("new", frame(visits(1, ("ann",))), **GIVEN, **VISITS, steps_per_person=steps_per_person)


def test_a_series_of_persons_is_charged_to_a_budget_of_persons() -> None:
    book = pm.Ledger.create(LEDGER)
    book.add_dataset("records", epsilon=4, delta=1e-3)
    book.add_dataset("persons", epsilon=4, delta=1e-3, unit="person")
    with refuses("unit"):
        pm.series.begin("visits", frame(visits(1, ("ann",))), **GIVEN, **VISITS, ledger=LEDGER, dataset="records")
    pm.series.begin("visits", frame(visits(1, ("ann",))), **GIVEN, **VISITS, ledger=LEDGER, dataset="persons")
    spent = book.budget("persons").spent
    pm.series.step("visits", frame(visits(2, ("ann",))), progress=False, ledger=LEDGER, **VISITS)
    assert 0 < spent == book.budget("persons").spent


def test_persons_are_named_alike_in_all_steps() -> None:
    """Other columns, another order of these, and 17.0 for 17 would make others of the same persons."""
    both = {name: [*people] for name, people in (("f", "aabb"), ("g", "ccdd"))}
    given = {name: value for name, value in VISITS.items() if name != "person"}
    month = {**visits(1, ("ann", "bob")), **{name: np.array(people) for name, people in both.items()}}
    pm.series.begin("two", frame(month), **GIVEN, **given, person=["f", "g"])
    for person in (["g", "f"], "f", "who", ["f", "g", "who"]):
        with refuses("person"):
            pm.series.step("two", frame(month), progress=False, person=person, **given)
    for odd in ("18.0", "+18", "1.8e+05"):
        numbers = {**visits(1, ("ann", "bob")), "who": np.array(["17", "17", odd, odd])}
        for person in ("who", ["who", "y"]):
            with refuses("person"):
                pm.series.begin("numbers", frame(numbers), **{**GIVEN, **VISITS, "person": person})


def test_an_interrupted_first_step_may_name_persons_anew_until_it_is_bound() -> None:
    month = visits(1, ("ann", "bob"))
    month["Ärztin (é)"] = month["who"][::-1]
    for stage, accepted in (("moments", False), ("features (identity)", True)):
        folder = f"accepted {accepted}"
        given = {**GIVEN, **VISITS, "progress": killed_at(stage)}
        with pytest.raises(KeyboardInterrupt):
            pm.series.begin(folder, frame(month), **given)
        again = {**GIVEN, **VISITS, "person": "Ärztin (é)", "overwrite": True}
        with nullcontext() if accepted else refuses("person"):
            pm.series.begin(folder, frame(month), **again)
        named = {} if not accepted else {"person": "Ärztin (é)"}
        if not accepted:
            pm.series.begin(folder, frame(month), **GIVEN, **VISITS, overwrite=True)
        pm.series.step(folder, frame(visits(2, ("ann", "cy")) | {"Ärztin (é)": month["who"]}), **{**VISITS, **named})


def test_a_ledger_refuses_other_persons_for_a_step_of_a_series_from_a_backup() -> None:
    book = pm.Ledger.create(LEDGER)
    book.add_dataset("visits", epsilon=4, delta=1e-3, unit="person")
    ledger = {"ledger": LEDGER}
    pm.series.begin(SERIES, frame(visits(1, ("ann", "bob"))), **GIVEN, **VISITS, **ledger, dataset="visits")
    shutil.copytree(KEPT, "backup")
    step = visits(2, ("cy", "dee"))
    pm.series.step(SERIES, frame(step), progress=False, **VISITS, **ledger)
    shutil.move(place_of_step(SERIES, 2), "away")
    shutil.rmtree(KEPT)
    shutil.copytree("backup", KEPT)
    KEPT.chmod(0o700)
    renamed = {**step, "who": np.where(step["who"] == "cy", "eve", step["who"])}
    with refuses("data"):
        pm.series.step(SERIES, frame(renamed), progress=False, **VISITS, **ledger)


@pytest.mark.parametrize("left", ["no key", "zeros", "no notes"])
def test_what_a_kill_leaves_of_an_ending_series_goes_with_its_end(left: str) -> None:
    pm.series.begin(SERIES, frame(visits(1, ("ann",))), **GIVEN, **VISITS)
    if left == "zeros":
        (KEPT / "run.key").write_bytes(bytes(33))
    else:
        (KEPT / ("run.key" if left == "no key" else "run.json")).unlink()
    assert not pm.series.show(SERIES).key
    assert not pm.series.end(SERIES).key
    assert not KEPT.exists()
