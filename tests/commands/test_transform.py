"""New records in the space of a release's rows; and learners of others, which the card's example reaches `fit` with."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import privmix as pm
from privmix.features.spec import from_spec
from tests.cli.helpers import privmix
from tests.commands.test_predict import records
from tests.refusals import refuses

CLASSES = ["well", "ill"]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> pm.Release:
    place = tmp_path_factory.mktemp("own") / "REL"
    wishes: dict[str, Any] = {"classes": CLASSES, "features": "identity", "design": "moments", "rows": 300}
    return pm.release(records(0, 500), epsilon=20, delta=1e-3, out=place, **wishes)


def test_it_is_what_learners_see(release: pm.Release) -> None:
    x, y = records(1, 200)
    found, dataset = pm.transform(release, x).features, release.dataset
    features = from_spec(dataset.extractor).transform(np.float32(x))
    assert found.dtype == np.float32
    assert np.array_equal(found, dataset.transform(features).astype(np.float32))
    assert np.linalg.norm(found, axis=1).max() <= dataset.transform.final_clip_norm * (1 + 1e-6)
    classifier: Any = pm.fit(release).classifier
    assert np.array_equal(classifier.of_transformed(found), classifier.decision_function(features))
    # Labels are not read, whether they are there or not.
    assert np.array_equal(pm.transform(release, (x, y)).features, found)
    with refuses("data"):
        pm.transform(release, x[:, :3])


@pytest.mark.parametrize("suffix", ["npy", "csv"])
def test_the_command_writes_the_same(suffix: str, release: pm.Release, tmp_path: Path) -> None:
    x, _ = records(2, 30)
    np.save(tmp_path / "new.npy", x)
    out = tmp_path / f"t.{suffix}"
    line = ("transform", release.folder, "--data", tmp_path / "new.npy", "--out")
    assert "30 records" in privmix(*line, out).passed().out
    assert out.stat().st_mode & 0o777 == 0o600
    read = np.load(out) if suffix == "npy" else pandas.read_csv(out).to_numpy()
    assert np.allclose(read, pm.transform(release, x).features, atol=1e-6)
    assert privmix(*line, out).code == privmix(*line, f"{release.folder}/t.npy").code == 2


def test_samples_teach_what_the_release_teaches(release: pm.Release) -> None:
    x, labels = release.sample(2000, seed=1)
    assert x.shape == (2000, 4)
    assert set(labels) == set(CLASSES)
    assert np.linalg.norm(x, axis=1).max() <= release.dataset.transform.final_clip_norm * (1 + 1e-6)
    again, _ = release.sample(2000, seed=1)
    assert np.array_equal(x, again)
    assert not np.array_equal(x, release.sample(2000, seed=2)[0])
    # Labels are the learner's.
    classifier: Any = pm.fit(release).classifier
    assert (np.array(CLASSES)[classifier.of_transformed(x).argmax(axis=1)] == labels).all()
    with refuses("records"):
        release.sample(0)


@pytest.mark.parametrize("design", ["moments", "two-stage", "poisson", "classwise", "merf"])
def test_the_cards_example_works(design: str, tmp_path: Path) -> None:
    """Classes lie six deviations apart, and noise is small: whatever works is right nearly always."""
    wishes: dict[str, Any] = {"classes": CLASSES, "features": "identity", "design": design}
    pm.release(records(3, 600), epsilon=100, delta=1e-3, out=tmp_path / "REL", **wishes)
    code = re.findall(r"```python\n(.*?)```", (tmp_path / "REL" / "README.md").read_text(), re.DOTALL)
    x, y = records(4, 200)
    found: dict[str, Any] = {"YOUR_RECORDS": x}
    assert len(code) == 2, "by privmix, and without it"
    exec(code[0].replace("THIS_FOLDER", str(tmp_path / "REL")), found)
    assert (found["predicted"] == np.array(CLASSES)[y]).mean() > 0.9


def test_commands_of_the_card_work(release: pm.Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    x, y = records(5, 60)
    Path("own").mkdir()
    np.savez("own/test.npz", x=x, y=y)
    block = re.findall(r"```sh\n(.*?)```", (Path(release) / "README.md").read_text(), re.DOTALL)[0]
    for line in block.strip().splitlines():
        said = line.replace("THIS_FOLDER", str(release.folder)).replace("YOUR_TEST_DATA", "own")
        privmix(*said.replace("YOUR_RECORDS", "own").split()[1:]).passed()
