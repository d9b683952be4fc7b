"""Rows of a release of a table are such a table."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow.parquet as pq
import pytest

import privmix as pm
from privmix.errors import InvalidInput
from privmix.features.tabular import Tabular
from privmix.learning import table_model
from tests.cli.helpers import privmix, refused
from tests.refusals import refuses

pytestmark = pytest.mark.usefixtures("fixed_keys")

SPEC = {
    "ward": {"categories": ["surgery", "cardiology", "oncology"], "missing_token": "?"},
    "age": {"bins": [20, 40, 60], "range": [0, 110], "integer": True, "missing": "indicator"},
    "smoker": {"boolean": True},
    "name": {"ignore": True},
    # The class of the rows.
    "ill": {"ignore": True},
}


def visits(count: int = 3000) -> pandas.DataFrame:
    rng = np.random.default_rng(0)
    old = rng.random(count) < 0.4
    ages: Any = np.where(old, rng.integers(60, 90, count), rng.integers(0, 60, count)).astype(object)
    ages[rng.random(count) < 0.1] = None
    ward = np.where(rng.random(count) < 0.8, np.where(old, "cardiology", "surgery"), "?")
    ill = np.where(rng.random(count) < 0.9, old, ~old)
    return pandas.DataFrame(
        {"ward": ward, "age": ages, "smoker": rng.random(count) < 0.3, "name": "x", "ill": np.where(ill, "yes", "no")}
    )


GIVEN: dict[str, Any] = {"label": "ill", "classes": ["no", "yes"], "seed": 0, "delta": 1e-5, "progress": False}


def released(design: Any = None, data: Any = None, spec: Any = SPEC, **more: Any) -> pm.Release:
    data, design = visits() if data is None else data, design or pm.designs.Moments()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pm.release(data, features=Tabular(spec), design=design, **{"epsilon": 8, **GIVEN, **more})


@pytest.fixture(scope="module")
def release() -> pm.Release:
    return released()


@pytest.fixture(scope="module")
def rows(release: pm.Release) -> pm.SampledTable:
    return release.sample_table(label="ill")


def test_rows_have_names_types_and_values_as_declared(rows: pm.SampledTable) -> None:
    frame = rows.to_frame()
    assert list(frame.columns) == ["ward", "age", "smoker", "ill"]
    assert len(frame) == 3000
    assert set(frame["ward"].dropna()) <= {"surgery", "cardiology", "oncology"}
    assert frame["age"].dropna().between(0, 110).all()
    assert (str(frame["age"].dtype), str(frame["smoker"].dtype)) == ("Int64", "bool")
    assert set(frame["ill"]) == {"no", "yes"}
    assert (rows.ignored, rows.open_ended) == (("name",), ())
    # Stages give the moments of their first.
    found = released(pm.designs.TwoStage()).sample_table(50)
    assert (len(found), found.columns[-1]) == (50, "ill")


def test_quality_is_said_by_column_and_by_pair_from_the_release_alone() -> None:
    rare = visits().assign(ward=np.where(np.arange(3000) == 7, "oncology", visits()["ward"]))
    spec = {
        "ward": SPEC["ward"], "weight": {"range": [0, 110]}, "stage": {"ordinal": [0, 1, 2]},
        "day": {"date": ["2024-01-01", "2024-12-31"]},
    }  # fmt: skip
    found = released(None, rare.assign(weight=50, stage=1, day="2024-05-01"), spec, epsilon=1).sample_table(50)
    said = " ".join(found.notes)
    assert found.hidden == ("ward=oncology",)
    assert "1 values are rarer than that, and rows have them by chance: ward=oncology." in said
    assert "Shares of values are released for 1 of 4 columns" in said
    assert "Use bins (weight); categories (stage); parts (day) to release more." in said
    assert {pair["variation"] is None for pair in found.to_dict()["pairs"]} == {True, False}
    # For learners records are clipped nearer to their mean than rows need.
    numbers = {name: one for name, one in spec.items() if name != "ward"}
    for given, narrow in (({}, True), ({"residual_clip_norm": 0.55}, False)):
        made = released(None, rare.assign(weight=50, stage=1, day="2024-05-01"), numbers, **given).sample_table(50)
        assert made.narrow is narrow
        assert ("clipped for learners" in " ".join(made.notes)) is narrow
    few = released(None, visits(200), epsilon=0.5, delta=1e-3)
    assert "Noise hides a small association" in " ".join(few.sample_table(50).notes)


@pytest.mark.parametrize(("noise", "seed"), [(0, 1), (3, 0)])
def test_small_tables_keep_their_classes(noise: int, seed: int) -> None:
    """400 records whose label follows from the ward: X'Y shows both classes, whatever the few counts say."""
    wards = pandas.DataFrame({"ward": list("abcd") * 100})
    wards["ill"] = np.where(wards["ward"].isin(["a", "c"]), "yes", "no")
    made = released(None, wards, {"ward": {"categories": list("abcd")}}, epsilon=1, delta=1e-4, seed=noise)
    found = made.sample_table(2000, label="ill", seed=seed)
    frame = found.to_frame()
    assert abs((frame["ill"] == "yes").mean() - 0.5) < 0.1
    assert np.abs(frame["ward"].value_counts(normalize=True) - 0.25).max() < 0.1
    assert (frame["ward"].isin(["a", "c"]) == (frame["ill"] == "yes")).mean() > 0.9
    assert (found.model.lost, found.met) == ((), 1)


def test_a_fit_that_misses_the_release_is_loud(
    release: pm.Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts that may tell next to nothing of a record: pairs of columns that go together can't be met."""
    for name, value in {"_STIFF": (1e9,), "_STEPS": 30, "_TRIAL_STEPS": 10, "_AGAIN_STEPS": 10, "_STARTS": 2}.items():
        monkeypatch.setattr(table_model, name, value)
    with pytest.warns(UserWarning, match="missed"):
        found = release.sample_table(label="ill")
    lost = {pair.columns for pair in found.model.lost}
    assert ("ward", "ill") in lost
    assert found.shown()[1]["WARNING"] == found.cautions[0]
    folder, out = release.save(tmp_path / "REL"), tmp_path / "rows.csv"
    said = privmix("sample", folder, "--out", out, "--label-column", "ill", "--json")
    assert (said.code, "WARNING" in said.err, out.exists()) == (4, True, True)
    told = json.loads(said.out)
    assert {tuple(pair["columns"]) for pair in told["pairs"] if pair["lost"]} == lost
    assert told["warnings"] == list(found.cautions)


def test_evaluation_beside_real_records_is_marked_as_theirs(release: pm.Release) -> None:
    found = pm.evaluate_table(release, visits(), label="ill")
    assert found.quality.two_way[0] < 0.05
    assert "owner" in repr(found)
    assert found.quality.tree.accuracy > 0.8
    assert found.quality.real_tree is not None
    assert set(found.to_dict()) >= {"total_variation", "trees", "statement"}
    assert found.attacks is None
    # A control adds attacks on the rows.
    half = len(visits()) // 2
    found = pm.evaluate_table(release, visits()[:half], label="ill", control=visits()[half:])
    assert len(found.attacks.attacks) == 3
    assert set(found.to_dict()) >= {"attacks", "membership"}
    assert sum(name.startswith("attack") for name in found.shown()[1]) == 4


@pytest.mark.parametrize(
    ("real", "wrong", "field"),
    [
        (visits(), {"label": "sick"}, "sick"),
        (visits(), {"label": "age"}, "label"),
        (visits(), {"records": 0}, "records"),
        (visits(), {"seed": -1}, "seed"),
        (visits().assign(ill="perhaps"), {}, "label"),
        (visits().drop(columns="age"), {}, "age"),
        (visits(), {"control": visits()[:99]}, "control"),
        (visits(), {"control": visits()}, "control"),
    ],
)
def test_what_is_wrong_with_the_real_table_shows_before_any_fit(
    release: pm.Release, monkeypatch: pytest.MonkeyPatch, real: Any, wrong: dict[str, Any], field: str
) -> None:
    monkeypatch.setattr("privmix.jobs.sampling.fit_table", lambda *_, **__: pytest.fail("fitted"))
    with pytest.raises(InvalidInput, match=field):
        pm.evaluate_table(release, real, **{"label": "ill", **wrong})


@pytest.mark.parametrize("option", ["--public-data", "--group-by=ward"])
def test_options_that_a_table_has_no_use_for_are_refused(release: pm.Release, tmp_path: Path, option: str) -> None:
    folder = release.save(tmp_path / "REL")
    refused(privmix("evaluate-table", folder, "--data", "x.csv", option), option.split("=")[0])


def test_what_has_no_table_is_refused_with_what_to_do(release: pm.Release) -> None:
    with refuses("design"):
        released(pm.designs.Poisson(mixup_degree=64)).sample_table()
    numbers = np.random.default_rng(0).normal(size=(200, 3)), np.arange(200) % 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = pm.release(numbers, features="identity", classes=2, design="moments", epsilon=8, delta=1e-3, seed=0)
    with refuses("features of the release"):
        pm.sample(made)
    with refuses("label"):
        release.sample_table(label="ward")
    with refuses("records"):
        release.sample_table(0)


def test_command_line_makes_the_same_rows(release: pm.Release, rows: pm.SampledTable, tmp_path: Path) -> None:
    folder, out = release.save(tmp_path / "REL"), tmp_path / "rows.parquet"
    said = privmix("sample", folder, "--out", out, "--label-column", "ill").passed().out
    assert "pairs of columns are met within their noise" in said
    assert "name" in said
    assert pq.read_table(out).equals(rows.arrow)
    refused(privmix("sample", folder, "--out", out), "--overwrite")
    assert out.stat().st_mode & 0o044, "rows are as public as the release"


@pytest.mark.usefixtures("own_folder")
def test_rows_in_the_folder_are_those_that_a_recipient_samples() -> None:
    visits(400).to_csv("own.csv", index=False)
    Path("spec.json").write_text(json.dumps(SPEC))
    line = "release --data=own.csv --features=tabular:spec.json --label-column=ill --classes=no,yes --epsilon=8"
    line += " --delta=1e-5 --out=REL --design"
    for design in ("poisson:mixup_degree=8 --with-rows 5", "moments --with-rows 0"):
        refused(privmix(*f"{line} {design}".split()), "--with-rows")
        assert not Path("REL").exists()
    # The header of the rows is public from here on.
    made = privmix(*f"{line} moments --with-rows 40".split()).passed()
    assert "columns ward, age, smoker, ill; classes" in made.out
    pm.sample("REL", 40, label="ill", out="rows.csv")
    assert Path("REL/rows.csv").read_bytes() == Path("rows.csv").read_bytes()
    assert list(pandas.read_csv("REL/rows.csv")) == ["ward", "age", "smoker", "ill"]
    assert "`rows.csv` has such rows" in Path("REL/README.md").read_text()
    assert any("rows.csv" in text for text in pm.verify("REL").unchecked)
    copy = pm.load("REL").save("COPY")
    assert pm.verify(copy)
    for break_it in (lambda: (copy / "rows.csv").write_text("ward\n"), (copy / "rows.csv").unlink):
        break_it()
        with pytest.raises(pm.PrivmixError, match=r"rows\.csv"):
            pm.verify(copy)


def test_an_interrupted_release_resumes_with_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {"with_rows": 30, "out": tmp_path / "REL"}
    with monkeypatch.context() as patch:
        patch.setattr("privmix.jobs.sampling.fit_table", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            released(**asked)
    made = released(**asked, resume=True)
    assert len(pandas.read_csv(tmp_path / "REL" / "rows.csv")) == 30
    assert pm.verify(made)
