"""Predictions for records without labels: the model's own, in the order of the data, in a file of their owner's."""

from pathlib import Path

import numpy as np
import pandas
import pytest
from numpy.typing import NDArray

import privmix as pm
from tests.cli.helpers import privmix
from tests.refusals import refuses

CLASSES = ["well", "=ill, or so"]


def records(seed: int, count: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, count)
    return np.eye(2, 4)[y] * 0.7 + rng.normal(0, 0.1, (count, 4)), y


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    release = pm.release(
        records(0, 300), classes=CLASSES, features="identity", design="moments", rows=20, epsilon=20, delta=1e-3
    )  # fmt: skip
    return pm.fit(release).save(tmp_path_factory.mktemp("own") / "MODEL")


def test_names_and_probabilities_in_the_order_of_the_data(model: Path) -> None:
    x, y = records(1, 100)
    loaded, found = pm.load(model), pm.predict(model, x)
    assert (found.predicted == np.array(CLASSES)[y]).mean() > 0.95
    assert (loaded.predict(x) == found.predicted).all()
    assert np.array_equal(loaded.predict_proba(x), found.probabilities)
    assert np.allclose(found.probabilities.sum(axis=1), 1, atol=1e-5)
    assert (found.probabilities.argmax(axis=1) == found.places).all()
    assert sum(found.counts.values()) == len(found) == 100
    assert pm.predict(loaded, (x, y), probabilities=False).probabilities is None


def test_files_hold_one_row_a_record(model: Path, tmp_path: Path) -> None:
    x, _ = records(2, 50)
    out = tmp_path / "made" / "p.csv"
    found = pm.predict(model, x, out=out)
    assert out.stat().st_mode & 0o777 == 0o600
    read = pandas.read_csv(out)
    assert f"'{CLASSES[1]}" in set(read["prediction"])
    read["prediction"] = read["prediction"].str.removeprefix("'")
    assert list(read.columns) == ["record", "prediction", *(f"p_{name}" for name in CLASSES)]
    assert read["record"].tolist() == list(range(50))
    assert read["prediction"].tolist() == found.predicted.tolist()
    assert np.allclose(read[f"p_{CLASSES[1]}"], found.probabilities[:, 1], atol=1e-6)  # type: ignore[index]


def test_nothing_is_replaced_or_published(model: Path, tmp_path: Path) -> None:
    x, _ = records(3, 5)
    out = tmp_path / "p.csv"
    out.write_text("mine")
    for place in (out, model / "p.csv", tmp_path / "p.txt", tmp_path / "folder.csv"):
        (tmp_path / "folder.csv").mkdir(exist_ok=True)
        with refuses("out"):
            pm.predict(model, x, out=place, overwrite=place.is_dir())
    assert out.read_text() == "mine"
    pm.predict(model, x, out=out, overwrite=True)
    assert out.read_text().startswith('"record"')
    # Data that don't fit leave nothing.
    with refuses("data"):
        pm.predict(model, x[:, :3], out=tmp_path / "q.csv")
    with refuses("inputs"):
        pm.predict(model, np.where(x > 0.5, np.nan, x), out=tmp_path / "q.csv")
    assert not (tmp_path / "q.csv").exists()


def test_the_command_says_the_same(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    x, y = records(4, 40)
    frame = pandas.DataFrame(x, columns=list("abcd"))
    frame.to_csv("new.csv", index=False)
    frame.assign(state=y).to_csv("known.csv", index=False)
    outcome = privmix("predict", model, "--data", "new.csv", "--out", "p.csv").passed()
    assert "40 records" in outcome.out
    found = pandas.read_csv("p.csv")["prediction"]
    assert found.str.removeprefix("'").tolist() == pm.predict(model, x).predicted.tolist()
    # The labels' column, where it is named, is none of the inputs.
    known = ["--data", "known.csv", "--out", "q.csv", "--no-probabilities", "--label-column", "state"]
    privmix("predict", model, *known).passed()
    assert list(pandas.read_csv("q.csv").columns) == ["record", "prediction"]
    assert (pandas.read_csv("q.csv")["prediction"] == found).all()


def test_parts_are_found(model: Path, tmp_path: Path) -> None:
    for name, count in (("parted/train", 9), ("parted/test", 5), ("plain/new", 7)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        np.savez(tmp_path / f"{name}.npz", x=records(5, count)[0])
    assert len(pm.predict(model, tmp_path / "parted")) == 5
    assert len(pm.predict(model, tmp_path / "parted", split="train")) == 9
    assert len(pm.predict(model, tmp_path / "plain")) == 7
    with refuses("split"):
        pm.predict(model, tmp_path / "parted", split="val")
