"""Rows of a release of a table are such a table."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow.parquet as pq
import pytest

import privmix as pm
from privmix.cli.main import run
from privmix.errors import InvalidInput
from privmix.features.tabular import Tabular
from privmix.learning import table_model
from tests.refusals import refuses

# Thresholds of a random result hold for these keys: no run fails by chance.
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


def released(design: Any, **more: Any) -> pm.Release:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pm.release(
            visits(), features=Tabular(SPEC), label="ill", classes=["no", "yes"], design=design, epsilon=8, delta=1e-5,
            seed=0, **more,
        )  # fmt: skip


@pytest.fixture(scope="module")
def release() -> pm.Release:
    return released(pm.designs.Moments())


@pytest.fixture(scope="module")
def rows(release: pm.Release) -> pm.SampledTable:
    return release.sample_table(label="ill")


def test_rows_have_names_types_and_values_as_declared(rows: pm.SampledTable) -> None:
    frame = rows.to_frame()
    assert list(frame.columns) == ["ward", "age", "smoker", "ill"]
    assert len(frame) == 3000
    assert set(frame["ward"].dropna()) <= {"surgery", "cardiology", "oncology"}
    assert str(frame["age"].dtype) == "Int64"
    assert frame["age"].dropna().between(0, 110).all()
    assert frame["smoker"].dtype == bool
    assert set(frame["ill"]) == {"no", "yes"}
    assert rows.ignored == ("name",)
    assert rows.open_ended == ()


def test_quality_is_said_by_column_and_by_pair_from_the_release_alone() -> None:
    rare = visits().assign(ward=np.where(np.arange(3000) == 7, "oncology", visits()["ward"]))
    spec = {
        "ward": SPEC["ward"], "weight": {"range": [0, 110]}, "stage": {"ordinal": [0, 1, 2]},
        "day": {"date": ["2024-01-01", "2024-12-31"]},
    }  # fmt: skip
    made = pm.release(
        rare.assign(weight=50, stage=1, day="2024-05-01"), features=Tabular(spec), label="ill", classes=["no", "yes"],
        design=pm.designs.Moments(), epsilon=1, delta=1e-5, seed=0, progress=False,
    )  # fmt: skip
    found = made.sample_table(50)
    said = " ".join(found.notes)
    assert found.hidden == ("ward=oncology",)
    assert "1 values are rarer than that, and rows have them by chance: ward=oncology." in said
    assert "Shares of values are released for 1 of 4 columns" in said
    assert "Use bins (weight); categories (stage); parts (day) to release more." in said
    assert {pair["variation"] is None for pair in found.to_dict()["pairs"]} == {True, False}
    few = pm.release(
        visits(200), features=Tabular(SPEC), label="ill", classes=["no", "yes"], design=pm.designs.Moments(),
        epsilon=0.5, delta=1e-3, seed=0, progress=False,
    )  # fmt: skip
    assert "Noise hides a small association" in " ".join(few.sample_table(50).notes)


@pytest.mark.parametrize(("noise", "seed"), [(0, 1), (3, 0)])
def test_small_tables_keep_their_classes(noise: int, seed: int) -> None:
    """400 records whose label follows from the ward: X'Y shows both classes, whatever the few counts say."""
    wards = pandas.DataFrame({"ward": list("abcd") * 100})
    wards["ill"] = np.where(wards["ward"].isin(["a", "c"]), "yes", "no")
    spec = Tabular({"ward": {"categories": list("abcd")}})
    made = pm.release(
        wards, features=spec, label="ill", classes=["no", "yes"], design=pm.designs.Moments(), epsilon=1, delta=1e-4,
        seed=noise, progress=False,
    )  # fmt: skip
    found = made.sample_table(2000, label="ill", seed=seed)
    frame = found.to_frame()
    assert abs((frame["ill"] == "yes").mean() - 0.5) < 0.1
    assert np.abs(frame["ward"].value_counts(normalize=True) - 0.25).max() < 0.1
    assert (frame["ward"].isin(["a", "c"]) == (frame["ill"] == "yes")).mean() > 0.9
    assert found.model.lost == ()
    assert found.met == 1


def test_a_fit_that_misses_the_release_is_loud(
    release: pm.Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
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
    assert run(["sample", str(folder), "--out", str(out), "--label-column", "ill", "--json"]) == 4
    said = capsys.readouterr()
    assert "WARNING" in said.err
    told = json.loads(said.out)
    assert {tuple(pair["columns"]) for pair in told["pairs"] if pair["lost"]} == lost
    assert told["warnings"] == list(found.cautions)
    assert out.exists()


def test_evaluation_beside_real_records_is_marked_as_theirs(release: pm.Release) -> None:
    found = pm.evaluate_table(release, visits(), label="ill")
    assert found.quality.two_way[0] < 0.05
    assert "owner" in repr(found)
    assert found.quality.tree.accuracy > 0.8
    assert found.quality.real_tree is not None
    assert set(found.to_dict()) >= {"total_variation", "trees", "statement"}
    assert found.attacks is None


def test_a_control_adds_attacks_on_the_rows(release: pm.Release) -> None:
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
def test_options_that_a_table_has_no_use_for_are_refused(
    release: pm.Release, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    folder = str(release.save(tmp_path / "REL"))
    assert run(["evaluate-table", folder, "--data", "x.csv", option]) == 2
    assert option.split("=")[0] in capsys.readouterr().err


def test_stages_give_the_moments_of_their_first() -> None:
    found = released(pm.designs.TwoStage()).sample_table(50)
    assert len(found) == 50
    assert found.columns[-1] == "ill"


def test_what_has_no_table_is_refused_with_what_to_do(release: pm.Release) -> None:
    rows = released(pm.designs.Poisson(mixup_degree=64))
    with refuses("design"):
        rows.sample_table()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        numbers = pm.release(
            (np.random.default_rng(0).normal(size=(200, 3)), np.arange(200) % 2), features="identity", classes=2,
            design=pm.designs.Moments(), epsilon=8, delta=1e-3, seed=0,
        )  # fmt: skip
    with refuses("features of the release"):
        pm.sample(numbers)
    with refuses("label"):
        release.sample_table(label="ward")
    with refuses("records"):
        release.sample_table(0)


def test_command_line_makes_the_same_rows(
    release: pm.Release, rows: pm.SampledTable, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = release.save(tmp_path / "REL"), tmp_path / "rows.parquet"
    assert run(["sample", str(folder), "--out", str(out), "--label-column", "ill"]) == 0
    said = capsys.readouterr().out
    assert "pairs of columns are met within their noise" in said
    assert "name" in said
    assert pq.read_table(out).equals(rows.arrow)
    assert run(["sample", str(folder), "--out", str(out)]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert out.stat().st_mode & 0o044, "rows are as public as the release"


def test_rows_in_the_folder_are_those_that_a_recipient_samples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    visits(400).to_csv(tmp_path / "own.csv", index=False)
    (tmp_path / "spec.json").write_text(json.dumps(SPEC))
    asked = {
        "data": tmp_path / "own.csv", "features": f"tabular:{tmp_path / 'spec.json'}", "label-column": "ill",
        "classes": "no,yes", "epsilon": 8, "delta": 1e-5, "out": tmp_path / "REL",
    }  # fmt: skip
    line = ["release", *(f"--{name}={value}" for name, value in asked.items())]
    for design, rows in (("poisson:mixup_degree=8", "5"), ("moments", "0")):
        assert run([*line, "--design", design, "--with-rows", rows]) == 2
        assert "--with-rows" in capsys.readouterr().err
        assert not (tmp_path / "REL").exists()
    assert run([*line, "--design", "moments", "--with-rows", "40"]) == 0
    # The header of the rows is public from here on.
    assert "columns ward, age, smoker, ill; classes" in capsys.readouterr().out
    folder = tmp_path / "REL"
    pm.sample(folder, 40, label="ill", out=tmp_path / "rows.csv")
    assert (folder / "rows.csv").read_bytes() == (tmp_path / "rows.csv").read_bytes()
    assert list(pandas.read_csv(folder / "rows.csv")) == ["ward", "age", "smoker", "ill"]
    assert "`rows.csv` has such rows" in (folder / "README.md").read_text()
    assert any("rows.csv" in text for text in pm.verify(folder).unchecked)
    copy = pm.load(folder).save(tmp_path / "COPY")
    assert pm.verify(copy)
    for break_it in (lambda: (copy / "rows.csv").write_text("ward\n"), (copy / "rows.csv").unlink):
        break_it()
        with pytest.raises(pm.PrivmixError, match=r"rows\.csv"):
            pm.verify(copy)


def test_an_interrupted_release_resumes_with_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    asked: dict[str, Any] = {"with_rows": 30, "out": tmp_path / "REL"}
    with monkeypatch.context() as patch:
        patch.setattr("privmix.jobs.sampling.fit_table", stop)
        with pytest.raises(KeyboardInterrupt):
            released(pm.designs.Moments(), **asked)
    made = released(pm.designs.Moments(), **asked, resume=True)
    assert len(pandas.read_csv(tmp_path / "REL" / "rows.csv")) == 30
    assert pm.verify(made)
