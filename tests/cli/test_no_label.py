"""A table without a label, from a CSV file to rows, from the command line."""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from safetensors.numpy import load_file, save_file

import privmix as pm
from privmix.data import embedded_digits
from privmix.errors import InvalidInput
from tests.cli.helpers import SECRET, privmix, refused
from tests.cli.training import certificate
from tests.refusals import refuses
from tests.releases.helpers import replant

pytestmark = pytest.mark.usefixtures("fixed_keys")

COLUMNS = ("--number", "age=0:100:4", "--number", "income=0:80:4", "--category", "ward=a,b,c", "--ignore", "name,who")
NO_LABEL = ("--label-column", "none")
BUDGET = ("--epsilon", "4", "--delta", "1e-5")


def survey(count: int = 1500) -> pandas.DataFrame:
    rng = np.random.default_rng(0)
    age = rng.integers(20, 90, count)
    income = np.clip(age * 0.7 + rng.normal(0, 8, count), 0, 80).round(1)
    columns = {"age": age, "income": income, "ward": rng.choice(list("abc"), count)}
    return pandas.DataFrame({**columns, "name": SECRET, "who": np.arange(count) // 2})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    assert list(json.loads((place / "spec.json").read_text())) == ["age", "income", "ward", "name", "who"]
    found = privmix("check", *data_of(place)[1:]).passed()
    assert ("every record fits" in found.out, "class" in found.out) == (True, False)


def test_the_files_hold_second_moments_and_not_a_word_on_labels(place: Path) -> None:
    found = certificate(place / "REL")
    plan = found["plan"]
    assert (plan["design"], plan["classes"], plan["label_share"]) == ("moments", ["all records"], 0)
    assert (plan["count_share"], list(found["noise_std"])) == (0, ["second"])
    for name in ("README.md", "croissant.json"):
        text = (place / "REL" / name).read_text()
        assert not any(word in text for word in ("label", "classif", "all records`", SECRET))
    release = pm.load(place / "REL")
    assert "classes" not in release.shown()[1]["released"]
    assert not any(name.startswith("y:") for name in release.to_frame().columns)
    assert len(np.unique(release.y)) == 1
    rows = (place / "REL" / "rows.csv").read_text().splitlines()
    assert (rows[0], len(rows)) == ('"age","income","ward"', 61)


@pytest.mark.parametrize(
    "changes",
    [{"label_share": 0.5}, {"classes": ["yes"]}, {"classes": ["all records", "others"]}, None],
    ids=["shares", "another class", "two classes", "label sums"],
)
def test_statistics_of_labels_do_not_enter_a_folder_that_verifies(
    changes: dict[str, Any] | None, place: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "REL"
    shutil.copytree(place / "REL", folder)
    content = certificate(folder)
    content["plan"].update(changes or {})
    if changes is None:
        file = folder / "moments.safetensors"
        save_file({**load_file(file), "label_sums": np.zeros(1, np.float32)}, file)
    replant(folder, content, rehashed=True)
    with pytest.raises(pm.PrivmixError, match=r"classes|label_share|moments\.safetensors"):
        pm.verify(folder)


def test_it_is_verified_inspected_and_audited(place: Path) -> None:
    for verb, *more in (["verify"], ["inspect"], ["audit", "--runs", "200"], ["audit", "--noise"]):
        assert "classes" not in privmix(verb, place / "REL", *more).passed().out


def test_rows_have_the_columns_alone_and_any_is_a_target(place: Path) -> None:
    out = place / "rows.csv"
    privmix("sample", place / "REL", "--out", out, *NO_LABEL).passed()
    rows = pandas.read_csv(out)
    assert (list(rows), len(rows)) == (["age", "income", "ward"], 1500)
    assert np.corrcoef(rows["age"], rows["income"])[0, 1] > 0.6
    told = privmix("evaluate-table", place / "REL", "--data", place / "survey.csv", "--json").json()
    assert told["trees"] == {}
    assert told["total_variation"]["two"]["mean"] < 0.1
    refused(privmix("sample", place / "REL", "--out", place / "more.csv", "--label-column", "ward"), "label")


def test_noise_in_pairs_is_forecast_from_public_facts(place: Path) -> None:
    line = ("plan", "--records", "1500", *BUDGET, "--features", f"tabular:{place / 'spec.json'}", "--classes", "none")
    told = privmix(*line, "--json").json()
    assert [pair["columns"] for pair in told["pairs"]] == [["age", "income"], ["age", "ward"], ["income", "ward"]]
    assert 0 < told["variation"] < 0.1
    refused(privmix(*line, "--assume", "attainable=0.9"), "label")


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


def test_python_says_none() -> None:
    declared = {"number": {"age": [0, 100, 4]}, "category": {"ward": ["a", "b", "c"]}, "ignore": "income,name,who"}
    features = pm.spec(survey(), label=None, **declared).extractor()
    asked: dict[str, Any] = {"features": features, "label": None, "delta": 1e-5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        planned = pm.plan(survey(), **asked, epsilon=1, goal="table")
        persons = pm.release(survey(), **asked, epsilon=8, person="who", records=750, seed=0, progress=False)
    assert (planned.plan.design, planned.plan.num_classes) == ("moments", 1)
    assert planned.plan.second_noise_multiplier == planned.plan.noise_multiplier
    assert planned.to_dict()["published_names"] == {"columns": ["age", "ward"], "classes": []}
    assert [pair.columns for pair in planned.forecast.pairs] == [("age", "ward")]
    assert persons.certificate.unit.per_person == 1
    rows = pm.sample(persons)
    assert (rows.columns, rows.label) == (("age", "ward"), None)
    with refuses("release"):
        pm.fit(persons)
    with refuses("label"):
        pm.plan(embedded_digits("train"), label=None, epsilon=1, delta=1e-5)
    for wrong in (["age"], 3):
        with pytest.raises(InvalidInput):
            pm.plan(survey(), **{**asked, "label": wrong}, epsilon=1)
