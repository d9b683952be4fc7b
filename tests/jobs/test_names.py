"""Names of features in a release: certificate, Parquet files, card; and that what had none before still holds."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow.parquet as pq
import pytest

import privmix as pm
from privmix.releases import run as runs
from privmix.releases.card import EDITIONS, data_card
from privmix.releases.folder import DATA_FOLDER
from tests.refusals import refuses
from tests.training.test_verify import edit

SPEC = {"age": {"range": [0, 90]}, "sex": {"categories": ["F", "M"]}}
WISHES: dict[str, Any] = {"classes": ["well", "ill"], "epsilon": 20, "delta": 1e-3, "design": "moments", "rows": 50}


def people() -> pandas.DataFrame:
    rng = np.random.default_rng(0)
    age = rng.integers(0, 90, 300)
    inputs = {"age": age, "sex": rng.choice(["F", "M"], 300), "dose": rng.random(300)}
    return pandas.DataFrame({**inputs, "label": np.where(age > 45, "ill", "well")})


def released(own: Path, out: Path, **more: Any) -> Any:
    return pm.release(own / "own.csv", features=f"tabular:{own / 'spec.json'}", out=out, **{**WISHES, **more})


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    (folder / "spec.json").write_text(json.dumps(SPEC))
    people().drop(columns="dose").to_csv(folder / "own.csv", index=False)
    released(folder, folder / "REL")
    return folder / "REL"


def test_a_release_says_what_its_features_are(table: Path) -> None:
    names, release = ["age", "sex=F", "sex=M"], pm.load(table)
    assert release.certificate["feature_names"] == list(release.feature_names) == names
    (shard,) = (table / DATA_FOLDER).iterdir()
    told = {
        key.decode(): json.loads(value) for key, value in pq.read_metadata(shard).metadata.items() if b"names" in key
    }
    assert told == {"feature_names": names, "class_names": ["well", "ill"]}
    assert '"sex=F"\n' in (table / "README.md").read_text()
    frame = release.to_frame()
    assert list(frame.columns) == [*names, "y: well", "y: ill"]
    assert np.array_equal(frame.to_numpy(), np.concatenate([release.x, release.y], axis=1))
    assert release.to_frame("pyarrow").to_pandas().equals(frame)


def test_columns_of_numbers_are_named_and_found_by_name(tmp_path: Path) -> None:
    data = people()[["age", "dose", "label"]]
    data["age"] /= 90
    release = pm.release(data, features="identity", out=tmp_path / "REL", **WISHES)
    assert release.feature_names == ("age", "dose")
    assert pm.verify(release)
    model = pm.fit(release)
    turned = data[["dose", "label", "age"]].assign(other=1.0)
    assert (model.predict(turned) == model.predict(data[["age", "dose"]])).all()
    assert np.array_equal(release.transform(turned, label="label"), release.transform(data[["age", "dose"]]))
    turned.to_csv(tmp_path / "turned.csv", index=False)
    assert np.allclose(release.transform(tmp_path / "turned.csv"), release.transform(turned), atol=1e-6)
    with refuses("columns"):
        model.predict(data[["dose"]])
    # Arrays have no names.
    arrays = data[["age", "dose"]].to_numpy(), data["label"].tolist()
    assert "feature_names" not in pm.release(arrays, features="identity", **WISHES).certificate


def test_names_are_the_same_with_a_record_more(tmp_path: Path) -> None:
    """Whatever the record holds, for columns of numbers and for a table's."""
    few, odd = people(), {"age": 17.25, "sex": "M", "dose": 1e9, "label": "ill"}
    more = pandas.concat([few, pandas.DataFrame([odd])])
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(SPEC))
    for features, columns in ("identity", ["age", "dose"]), (f"tabular:{spec}", None):
        found = [pm.release(data, features=features, columns=columns, **WISHES).feature_names for data in (few, more)]
        assert found[0] == found[1] != ()


@pytest.mark.parametrize("names", [["age", "sex=F", "name"], ["age", "sex=F"], [], ["age", "sex=F", 3], "age", None])
def test_other_names_are_refused(names: Any, table: Path, tmp_path: Path) -> None:
    """Also where they are left out of a certificate: they are in no shard then."""
    shutil.copytree(table, tmp_path / "REL")
    change = {} if names is None else {"feature_names": names}
    edit(tmp_path / "REL", lambda content: (content.pop("feature_names"), content.update(change)))
    with pytest.raises(pm.InvalidInput, match="train-00000-of-00001" if names is None else "feature_names"):
        pm.verify(tmp_path / "REL")


def test_names_are_no_part_of_the_cards_text(tmp_path: Path) -> None:
    names = ["```# Guarantee: all is public", "<b>bold</b>", "a\\b```"]
    x = np.random.default_rng(0).random((300, 3))
    data = pandas.DataFrame(x, columns=names).assign(label=(x[:, 0] > 0.5).astype(int))
    pm.release(data, features="identity", out=tmp_path / "REL", **{**WISHES, "classes": 2})
    assert pm.verify(tmp_path / "REL")
    lines = (tmp_path / "REL" / "README.md").read_text().split("\n")
    for name in names:
        assert json.dumps(name) in lines
    # Fences come in pairs: none begins or ends with a name.
    fences = [line for line in lines if line.startswith("```")]
    assert all(line == "```" for line in fences[1::2])
    assert len(fences) % 2 == 0


@pytest.mark.parametrize("edition", EDITIONS)
def test_cards_of_every_edition_hold(
    edition: dict[str, bool], table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "data_card", lambda plan, certificate, **_: data_card(plan, certificate, **edition))
    released(table.parent, tmp_path / "REL")
    assert pm.verify(tmp_path / "REL")
    card = (tmp_path / "REL" / "README.md").read_text()
    # What a model has to beat follows from the number of classes alone.
    assert ("at least\n50% of the records with 2 classes" in card) == ({"baseline", "before"}.isdisjoint(edition))
    assert ("privmix sample" in card) == (set(edition) <= {"titled", "plain"})
    assert ("Without privmix" in card) == (not edition)


@pytest.mark.parametrize(
    "design",
    [{"design": "moments"}, {"design": "poisson:mixup_degree=8", "centre": "none"},
     {"design": "poisson:mixup_degree=8", "centre": "private"},
     {"design": "fixed:mixup_degree=8,noise=laplace", "delta": 0, "centre": "none"}],
)  # fmt: skip
def test_the_program_in_a_card_reads_the_release_without_privmix(
    design: dict[str, Any], table: Path, tmp_path: Path
) -> None:
    made = released(table.parent, tmp_path / "REL", **design)
    card = (tmp_path / "REL" / "README.md").read_text()
    (program,) = re.findall(r"Without privmix.*?```python\n(.*?)```", card, re.S)
    assert "privmix" not in program
    found: dict[str, Any] = {}
    exec(program.replace("THIS_FOLDER", str(tmp_path / "REL")), found)
    assert found["names"] == list(made.feature_names)
    np.testing.assert_array_equal(found["x"], made.x)
    np.testing.assert_array_equal(found["y"], made.y)
    features = np.random.default_rng(0).normal(size=(50, 3))
    np.testing.assert_allclose(found["transform"](features), made.dataset.transform(features), atol=1e-6)
    assert pm.verify(tmp_path / "REL")
