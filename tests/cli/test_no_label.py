"""A table without a label, from a CSV file to rows, from the command line."""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from safetensors.numpy import load_file, save_file

import privmix as pm
from privmix.certificate.certificate import Certificate, content_hash
from privmix.data import embedded_digits
from privmix.errors import InvalidInput
from tests.cli.helpers import SECRET, privmix, refused
from tests.refusals import refuses

# Thresholds of a random result hold for these keys: no run fails by chance.
pytestmark = pytest.mark.usefixtures("fixed_keys")

COLUMNS = ("--number", "age=0:100:4", "--number", "income=0:80:4", "--category", "ward=a,b,c", "--ignore", "name,who")
NO_LABEL = ("--label-column", "none")
BUDGET = ("--epsilon", "4", "--delta", "1e-5")


def survey(count: int = 1500) -> pandas.DataFrame:
    rng = np.random.default_rng(0)
    age = rng.integers(20, 90, count)
    income = np.clip(age * 0.7 + rng.normal(0, 8, count), 0, 80).round(1)
    who = np.arange(count) // 2
    return pandas.DataFrame(
        {"age": age, "income": income, "ward": rng.choice(list("abc"), count), "name": SECRET, "who": who}
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the table, its specification and a release."""
    folder = tmp_path_factory.mktemp("survey")
    survey().to_csv(folder / "survey.csv", index=False)
    ledger = ("--ledger", f"sqlite:///{folder / 'budget.db'}", "--dataset", "survey")
    assert privmix("ledger", "init", *ledger, *BUDGET).code == 0
    privmix("spec", folder / "survey.csv", "--out", folder / "spec.json", *NO_LABEL, *COLUMNS).passed()
    made = privmix("release", *data_of(folder), *BUDGET, "--with-rows", "60", "--out", folder / "REL", *ledger).passed()
    assert "privmix fit" not in made.out
    return folder


def data_of(folder: Path) -> tuple[str, ...]:
    return "--data", str(folder / "survey.csv"), "--features", f"tabular:{folder / 'spec.json'}", *NO_LABEL


def test_every_column_is_drafted_and_checked(place: Path) -> None:
    columns = json.loads((place / "spec.json").read_text())
    assert list(columns) == ["age", "income", "ward", "name", "who"]
    found = privmix("check", *data_of(place)[1:]).passed()
    assert "every record fits" in found.out
    assert "class" not in found.out


def test_the_files_hold_second_moments_and_not_a_word_on_labels(place: Path) -> None:
    found = json.loads((place / "REL" / "certificate.json").read_text())
    plan = found["plan"]
    assert plan["design"] == "moments"
    assert (plan["classes"], plan["label_share"], plan["count_share"]) == (["all records"], 0, 0)
    assert list(found["noise_std"]) == ["second"]
    for name in ("README.md", "croissant.json"):
        text = (place / "REL" / name).read_text()
        assert "label" not in text
        assert "classif" not in text
        assert "all records`" not in text
        assert SECRET not in text
    release = pm.load(place / "REL")
    assert "classes" not in release.shown()[1]["released"]  # type: ignore[operator]
    assert not any(name.startswith("y:") for name in release.to_frame().columns)
    assert len(np.unique(release.y)) == 1
    rows = (place / "REL" / "rows.csv").read_text().splitlines()
    assert rows[0] == '"age","income","ward"'
    assert len(rows) == 61


def with_shares(folder: Path, plan: dict[str, Any]) -> None:
    plan["label_share"] = 0.5


def with_other_class(folder: Path, plan: dict[str, Any]) -> None:
    plan["classes"] = ["yes"]


def with_two_classes(folder: Path, plan: dict[str, Any]) -> None:
    plan["classes"] = ["all records", "others"]


def with_label_sums(folder: Path, plan: dict[str, Any]) -> None:
    file = folder / "moments.safetensors"
    save_file({**load_file(file), "label_sums": np.zeros(1, np.float32)}, file)


@pytest.mark.parametrize("tamper", [with_shares, with_other_class, with_two_classes, with_label_sums])
def test_statistics_of_labels_do_not_enter_a_folder_that_verifies(
    tamper: Callable[[Path, dict[str, Any]], None], place: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "REL"
    shutil.copytree(place / "REL", folder)
    content = json.loads((folder / "certificate.json").read_text())
    tamper(folder, content["plan"])
    for item in content["files"]:
        item["sha256"] = hashlib.sha256((folder / item["file"]).read_bytes()).hexdigest()
    content["content_sha256"] = content_hash(content)
    (folder / "certificate.json").write_bytes(Certificate(content).to_bytes())
    with pytest.raises(pm.PrivmixError, match=r"classes|label_share|moments\.safetensors"):
        pm.verify(folder)


def test_it_is_verified_inspected_and_audited(place: Path) -> None:
    for words in (["verify"], ["inspect"], ["audit", "--runs", "200"], ["audit", "--noise"]):
        found = privmix(words[0], place / "REL", *words[1:]).passed()
        assert "classes" not in found.out


def test_rows_have_the_columns_alone_and_any_is_a_target(place: Path) -> None:
    out = place / "rows.csv"
    assert privmix("sample", place / "REL", "--out", out, *NO_LABEL).code == 0
    rows = pandas.read_csv(out)
    assert list(rows) == ["age", "income", "ward"]
    assert len(rows) == 1500
    assert np.corrcoef(rows["age"], rows["income"])[0, 1] > 0.6
    found = privmix("evaluate-table", place / "REL", "--data", place / "survey.csv", "--json").passed()
    told = json.loads(found.out)
    assert told["trees"] == {}
    assert told["total_variation"]["two"]["mean"] < 0.1
    refused(privmix("sample", place / "REL", "--out", place / "more.csv", "--label-column", "ward"), "label")


def test_noise_in_pairs_is_forecast_from_public_facts(place: Path) -> None:
    options = ("--records", "1500", "--epsilon", "4", "--delta", "1e-5", "--features", f"tabular:{place / 'spec.json'}")
    found = privmix("plan", *options, "--classes", "none", "--json").passed()
    told = json.loads(found.out)
    assert [pair["columns"] for pair in told["pairs"]] == [["age", "income"], ["age", "ward"], ["income", "ward"]]
    assert 0 < told["variation"] < 0.1
    refused(privmix("plan", *options, "--classes", "none", "--assume", "attainable=0.9"), "label")


def test_what_needs_a_label_is_refused_with_the_way_out(place: Path, tmp_path: Path) -> None:
    refused(privmix("fit", place / "REL", "--out", tmp_path / "M"), "sample")
    options = (*data_of(place), *BUDGET, "--out", str(tmp_path / "OUT"))
    for more, words in {
        ("--design", "two-stage"): ("design", "moments"),
        ("--design", "hierarchical"): ("design", "moments"),
        ("--design", "moments:label_share=0.2"): ("label_share",),
        ("--classes", "2"): ("classes",),
        ("--assume", "attainable=0.9"): ("assume",),
    }.items():
        refused(privmix("release", *options, *more), *words)
    refused(privmix("train", *options), "label")
    refused(privmix("series", "begin", tmp_path / "S", *data_of(place), *BUDGET, "--steps", "2"), "moments")
    assert not list(tmp_path.iterdir())


def test_python_says_none(place: Path) -> None:
    spec = pm.spec(
        survey(), label=None, number={"age": [0, 100, 4]}, category={"ward": ["a", "b", "c"]}, ignore="income,name,who"
    )
    asked: dict[str, Any] = {"features": spec.extractor(), "label": None, "delta": 1e-5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        planned = pm.plan(survey(), **asked, epsilon=1, goal="table")
        persons = pm.release(survey(), **asked, epsilon=8, person="who", records=750, seed=0, progress=False)
    assert planned.plan.num_classes == 1
    assert planned.plan.second_noise_multiplier == planned.plan.noise_multiplier
    assert planned.to_dict()["published_names"] == {"columns": ["age", "ward"], "classes": []}
    assert [pair.columns for pair in planned.forecast.pairs] == [("age", "ward")]
    assert persons.certificate.unit.per_person == 1
    rows = pm.sample(persons)
    assert rows.columns == ("age", "ward")
    assert rows.label is None
    with refuses("release"):
        pm.fit(persons)
    with refuses("label"):
        pm.plan(embedded_digits("train"), label=None, epsilon=1, delta=1e-5)
    for wrong in (["age"], 3):
        with pytest.raises(InvalidInput):
            pm.plan(survey(), **{**asked, "label": wrong}, epsilon=1)
