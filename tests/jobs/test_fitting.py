"""A release of pixels is one of images: they are put through extractors, flipped and cropped after their release."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.data import embedded_digits
from privmix.features.scattering import Scattering
from privmix.jobs.fitting import encoded
from privmix.jobs.release_folder import Release
from tests.cli.helpers import privmix
from tests.refusals import refuses

pytestmark = pytest.mark.usefixtures("fixed_keys")

TEST = embedded_digits("test").read()


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """Rows of one picture each, on average, nearly without noise."""
    design = pm.designs.Poisson(mixup_degree=1)
    with pytest.warns(UserWarning, match="NOT private"):
        return pm.release(
            embedded_digits("train"), design=design, rows=1500, epsilon=200, delta=1e-4, clip_norm=8, centre="none",
            seed=1, out=tmp_path_factory.mktemp("released") / "REL",
        )  # fmt: skip


def test_a_model_of_encoded_rows_takes_raw_images(release: Release, tmp_path: Path) -> None:
    model = pm.fit(release, features="scattering", epochs=40, out=tmp_path / "MODEL")
    assert (model.classifier.name, model.classifier.rows_) == ("generalized-kl", 1500)
    assert (model.facts.extractor["name"], model.facts.input_shape) == ("scattering", (8, 8))
    # Of 10 classes, in pictures too small for wavelets: guessing finds a tenth.
    assert model.score(TEST.x, TEST.y) > 0.25
    loaded = pm.load(tmp_path / "MODEL")
    np.testing.assert_array_equal(loaded.predict(TEST.x), model.predict(TEST.x))
    found = pm.evaluate(loaded, embedded_digits("test"), reference=embedded_digits("train"))
    assert found.reference.accuracy > found.accuracy == model.score(TEST.x, TEST.y)


def test_rows_are_encoded_as_the_images_that_they_are(release: Release) -> None:
    rows = release.dataset
    found = encoded(rows, Scattering())
    np.testing.assert_array_equal(found.x[:5], Scattering().transform(rows.x[:5].reshape(5, 8, 8)))
    np.testing.assert_array_equal(found.y, rows.y)
    # No learner may correct for noise that it does not know.
    assert np.isnan(found.noise_std_x)
    assert found.release_id == rows.release_id
    # Other releases have no images to encode.
    with refuses("features"):
        encoded(found, Scattering())


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"features": "minilm"}, "columns for minilm"),
        ({"features": "scattering", "learner": "noise-aware-ridge"}, "features"),
        ({"features": "scattering", "learner": "discriminant"}, "features"),
        ({"augment": "flip", "learner": "discriminant"}, "augment"),
        ({"augment": "flip", "features": "scattering"}, "augment"),
        ({"augment": "turn", "epochs": 1}, "augment"),
        ({"validation": (TEST.x, TEST.y), "learner": "discriminant"}, "validation"),
        ({"validation": (TEST.x[:, :4], TEST.y)}, "data"),
        ({"features": "scattering", "model": "cnn"}, "input_shape"),
    ],
)
def test_what_does_not_go_together_is_refused(
    release: Release, tmp_path: Path, asked: dict[str, Any], field: str
) -> None:
    with pytest.raises(pm.InvalidInput, match=rf"^{field}: got "):
        pm.fit(release, **asked, out=tmp_path / "MODEL")
    assert not list(tmp_path.iterdir())


def test_the_command_line_tells_of_the_best_epoch(release: Release, tmp_path: Path) -> None:
    np.savez(tmp_path / "held.npz", x=TEST.x, y=TEST.y)
    line = ["fit", str(release.folder), "--augment", "flip", "--epochs", "5", "--out", str(tmp_path / "MODEL")]
    told = privmix(*line, "--validation", tmp_path / "held.npz", "--validation-split", "train").passed()
    model = pm.fit(release, augment="flip", epochs=5, validation=(TEST.x, TEST.y)).classifier
    epoch, best = model.best_epoch
    assert f"{100 * best:.2f}% at best, epoch {epoch} of 5" in " ".join(told.out.split())
    # Nothing of the watched records goes into what may be handed on.
    kept = json.loads((tmp_path / "MODEL" / "model.json").read_text())
    assert "accuracy" not in json.dumps(kept)
    assert kept["params"]["augment"] == "flip"


def test_no_class_of_many_equal_ones_is_called_frequent() -> None:
    """The largest of 100 noisy shares is beyond their joint error in one run of 20; in over 10 below 1e-9."""
    x, y = np.zeros((1_000, 4), np.float32), np.arange(1_000) % 100
    stated = 0
    for seed in range(20):
        given: dict[str, Any] = {"classes": 100, "epsilon": 1, "delta": 1e-5, "features": "identity", "seed": seed}
        stated += len(pm.fit(pm.release((x, y), design="moments", **given)).details) == 2
    assert stated <= 10
