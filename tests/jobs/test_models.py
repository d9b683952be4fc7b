"""Models that take raw inputs, whatever folder they are from."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits

import privmix as pm
from privmix.engine.rows import PrivateRecords
from privmix.features.base import get_extractor
from privmix.planning import ReleaseConfig
from tests.refusals import refuses
from tests.releases.helpers import write_release

Digits = tuple[NDArray[np.uint8], NDArray[np.int64]]


@pytest.fixture(scope="module")
def digits() -> Digits:
    x, y = load_digits(return_X_y=True)
    return (x.reshape(-1, 8, 8) * 15).astype(np.uint8), y


@pytest.fixture(scope="module")
def release(digits: Digits, tmp_path_factory: pytest.TempPathFactory) -> Path:
    x, y = digits
    extractor = get_extractor("pixels")
    config = ReleaseConfig(records=len(x), dim=64, classes=tuple("0123456789"), design="moments", rows=200)
    plan, folder = config.calibrate(8.0, 1e-4), tmp_path_factory.mktemp("own") / "REL"
    given = {"extractor": extractor.spec(), "input_shape": (8, 8)}
    write_release(folder, plan, PrivateRecords(extractor.transform(x), y), seed=0, **given)
    return folder


def test_a_model_takes_raw_inputs_before_and_after_saving(digits: Digits, release: Path, tmp_path: Path) -> None:
    x, y = digits
    model = pm.fit(release)
    assert model.classifier.name == "discriminant"
    assert model.score(x, y) > 0.7
    assert model.score(x[:50], [model.classes[label] for label in y[:50]]) == model.score(x[:50], y[:50])
    model.save(tmp_path / "MODEL")
    again = pm.load(tmp_path / "MODEL")
    assert (again.predict(x) == model.predict(x)).all()
    # What the extractor makes of them is what the classifier is asked.
    assert (model.predict(x[:9]) == model.classifier.predict(get_extractor("pixels").transform(x[:9]))).all()


def test_a_folder_is_what_it_is(release: Path, tmp_path: Path) -> None:
    found = pm.load(release)
    assert found.folder == release
    assert found.dataset.x is found.x
    assert pm.verify(release).to_dict()["epsilon"] <= 8
    assert pm.fit(found, learner="noise-aware-ridge", regularisation=0.1).classifier.name == "noise-aware-ridge"
    own = pm.SecondMomentsClassifier(regularisation=0.5)
    assert pm.fit(found, learner=own).classifier is own
    out, options = tmp_path / "MODEL", {"learner": "second-moments", "regularisation": "0.5"}
    assert pm.fit(release, **options, out=out).classifier.summary == "regularisation 0.5"
    assert pm.load(out).classifier.name == "second-moments"
    with refuses("out"):
        pm.fit(release, out=out)
    for field, wrong in (("regularisation", {**options, "regularisation": "much"}), ("learner", {"learner": "magic"})):
        with refuses(field):
            pm.fit(release, **wrong, out=out, overwrite=True)


def test_a_release_goes_wherever_its_folder_goes(digits: Digits) -> None:
    x, y = digits
    given: dict[str, Any] = {"features": "identity", "design": "moments", "epsilon": 4, "delta": 1e-4, "rows": 10}
    release = pm.release((x.reshape(-1, 64) / 240, y), classes=range(10), **given)
    assert release.folder is None
    assert pm.verify(release).to_dict()["epsilon"] == release.certificate.epsilon
    page = pm.report(release).page
    assert release.certificate.id in page
    assert pm.report([release]).page == page
    assert not pm.audit(release, runs=200, seed=0).violated
    assert pm.DiscriminantClassifier().fit(release).facts_.release_id == release.certificate.id


def test_a_trained_model_takes_raw_inputs_too(digits: Digits, tmp_path: Path) -> None:
    x, y = digits
    given = {"features": "pixels", "epsilon": 8.0, "delta": 1e-4, "epochs": 1}
    trained = pm.train((x, y), classes=range(10), out=tmp_path / "MODEL", **given)
    model = pm.load(tmp_path / "MODEL")
    assert (model.predict(x) == trained.predict(x)).all()
    # The network is asked about what the extractor makes of them.
    assert (model.predict(x[:9]) == model.classifier.predict(get_extractor("pixels").transform(x[:9]))).all()
    halves = torch.tensor(x).bfloat16()
    assert (model.predict(halves) == model.predict(halves.float().numpy())).all()
    assert model.score(halves, torch.tensor(y)) == model.score(halves.float().numpy(), y)
    model.save(tmp_path / "COPY")
    assert (tmp_path / "COPY/weights.safetensors").read_bytes() == (tmp_path / "MODEL/weights.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (np.zeros((3, 64)), "shape of a record"),
        (np.full((3, 8, 8), np.nan), "finite"),
        (np.zeros((0, 8, 8)), "at least one"),
        (np.full((3, 8, 8), "a"), "numbers"),
        ("photos", r"privmix\.predict"),
        (Path("photos"), r"privmix\.predict"),
    ],
)
def test_inputs_that_do_not_fit(release: Path, x: NDArray[np.float64], words: str) -> None:
    with pytest.raises(pm.InvalidInput, match=words):
        pm.fit(release).predict(x)


def test_labels_that_do_not_fit(release: Path) -> None:
    model, x = pm.fit(release), np.zeros((3, 8, 8), np.uint8)
    for labels in ([0, 1], [0, 1, 10], ["0", "1", "cat"]):
        with pytest.raises(pm.InvalidInput, match="label"):
            model.score(x, labels)
    with refuses("label"):
        pm.evaluate(model, (x, [0, 1, 10]))
    with refuses("data"):
        pm.evaluate(model, (np.zeros((3, 8, 9), np.uint8), [0, 1, 2]))


def test_membership_of_records_in_memory(digits: Digits, release: Path, tmp_path: Path) -> None:
    """Members and others need no splits where both are at hand; files of their own say the same."""
    x, y = digits
    pm.fit(release, out=tmp_path / "MODEL")
    inside, outside = (x[:900], y[:900]), (x[900:], y[900:])
    found = pm.attack(tmp_path / "MODEL", inside, held_out=outside).to_dict()
    np.savez(tmp_path / "in.npz", x=x[:900], y=y[:900])
    np.savez(tmp_path / "out.npz", x=x[900:], y=y[900:])
    again = pm.attack(tmp_path / "MODEL", tmp_path / "in.npz", held_out=tmp_path / "out.npz").to_dict()
    assert found == again
    assert "attacks" in found
    with refuses("split"):
        pm.attack(tmp_path / "MODEL", inside)


def test_all_doors_take_columns_and_labels_by_the_same_names(tmp_path: Path) -> None:
    columns = {"a": np.random.default_rng(0).normal(size=300), "b": 1.0, "noise": 9.0, "ill": np.arange(300) % 2}
    frame, declared = pandas.DataFrame(columns), {"columns": ["a", "b"], "label": "ill"}
    given = {"features": "identity", "epsilon": 4.0, "delta": 1e-4, "classes": range(2), **declared}
    trained = pm.train(frame, epochs=1, **given)
    assert trained.facts.dim == pm.release(frame, design="moments", rows=30, **given).x.shape[1] == 2
    assert pm.evaluate(trained, frame, figure=tmp_path / "confusion.png", **declared).quality.n == 300
