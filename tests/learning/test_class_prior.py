"""Public points beside which class means are expected: they help where they are right, and do no harm where not."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from privmix.learning.class_statistics import ClassPrior
from privmix.learning.discriminant import DiscriminantClassifier
from privmix.learning.model_io import load_model, save_model
from privmix.learning.ridge import NoiseAwareRidgeClassifier
from privmix.publication.dataset import ReleasedDataset
from tests.refusals import refuses

from .mixing import mix
from .test_discriminant import Records, accuracy, mixture, moments

KINDS = ("moments", "poisson", "class sums")
CLASSES, DIM = 40, 60


@cache
def made(kind: str) -> tuple[ReleasedDataset, NDArray[np.float64], Records]:
    """A release under so much noise that much is left to be known, the records' true class means, and test records."""
    (x, y), test = mixture(CLASSES, DIM, 6000)
    true = np.stack([x[y == label].mean(axis=0) for label in range(CLASSES)])
    if kind == "moments":
        return moments(x, y, 20.0), true, test
    if kind == "poisson":
        return mix(x, y, rows=3000, degree=16, noise=1.5, centred=True, clip_norm=4.0), true, test
    release = mix(x, y, rows=CLASSES, degree=150, noise=4.0, label_noise=0.0, design="classwise", centred=True)
    return replace(release, y=(np.eye(CLASSES) - release.label_offset).astype(np.float32)), true, test


def points(kind: str, release: ReleasedDataset, true: NDArray[np.float64]) -> ClassPrior:
    rng = np.random.default_rng(5)
    noise = rng.normal(size=true.shape) * np.sqrt(true.var(axis=0))
    found = {"exact": true, "like": 0.7 * true + 0.3 * noise, "noise": noise, "others": rng.permutation(true)}[kind]
    return ClassPrior(release.transform(found))


def told(kind: str, expected: str) -> tuple[float, float, float]:
    """Accuracies without and with points, and their weight."""
    release, true, test = made(kind)
    model = DiscriminantClassifier().fit(release, prior=points(expected, release, true))
    return accuracy(release, test), float((model.predict(test[0]) == test[1]).mean()), model.told_["weight"]


@pytest.mark.parametrize("expected", ["exact", "like"])
@pytest.mark.parametrize("kind", KINDS)
def test_right_points_help(kind: str, expected: str) -> None:
    before, after, weight = told(kind, expected)
    assert after > before + 0.05
    assert weight > 0.3


@pytest.mark.parametrize("expected", ["noise", "others"])
@pytest.mark.parametrize("kind", KINDS)
def test_points_that_say_nothing_are_left_aside(kind: str, expected: str) -> None:
    before, after, weight = told(kind, expected)
    assert after > before - 0.02
    assert abs(weight) < 0.15


@pytest.mark.parametrize("kind", KINDS)
def test_points_all_alike_change_nothing(kind: str) -> None:
    release, true, test = made(kind)
    alike = ClassPrior(np.tile(true[:1], (CLASSES, 1)))
    model = DiscriminantClassifier()
    expected = model.fit(release).decision_function(test[0])
    found = model.fit(release, prior=alike).decision_function(test[0])
    np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize(("classes", "dim"), [(2, 3), (2, 60), (3, 4)])
@pytest.mark.parametrize("noise", [0.0, 1.0, 1e6])
@pytest.mark.parametrize("kind", KINDS)
def test_it_always_answers(kind: str, noise: float, classes: int, dim: int) -> None:
    (x, y), (test_x, _) = mixture(classes, dim, 40)
    y[:classes] = range(classes)
    release = moments(x, y, noise)
    if kind != "moments":
        rows = 60 if kind == "poisson" else classes
        design = "poisson" if kind == "poisson" else "classwise"
        release = mix(x, y, rows=rows, degree=4, noise=noise, label_noise=0.0, design=design)
    for found in (np.eye(classes, dim), np.zeros((classes, dim))):
        model = DiscriminantClassifier().fit(release, prior=ClassPrior(found))
        assert np.isfinite(model.decision_function(test_x)).all()


def test_without_noise_points_hardly_count() -> None:
    train, test = mixture(CLASSES, DIM, 6000)
    release = moments(*train, 0.0)
    wrong = np.random.default_rng(0).normal(size=(CLASSES, DIM))
    model = DiscriminantClassifier().fit(release, prior=ClassPrior(wrong))
    assert abs(float((model.predict(test[0]) == test[1]).mean()) - accuracy(release, test)) < 0.01


def test_points_of_other_classes_are_refused() -> None:
    release, true, _ = made("moments")
    for call, field in (
        (lambda: NoiseAwareRidgeClassifier().fit(release, prior=ClassPrior(true)), "class_descriptions"),
        (lambda: DiscriminantClassifier().fit(release, prior=ClassPrior(true[1:])), "points of a class prior"),
        (lambda: ClassPrior(np.full((2, 2), np.nan)), "points of a class prior"),
        (lambda: ClassPrior(true, {"path": "/x"}), "source of a class prior"),
    ):
        with refuses(field):
            call()


def test_a_model_says_what_it_was_told(tmp_path: Path) -> None:
    release, true, test = made("moments")
    source = {"from": "names", "texts": 240, "sha256": "0" * 64}
    model = DiscriminantClassifier().fit(release, prior=ClassPrior(true, source))
    folder = save_model(model, tmp_path / "model")
    loaded = load_model(folder)
    assert loaded.told_ == model.told_
    np.testing.assert_array_equal(loaded.predict(test[0]), model.predict(test[0]))
    # The next fit was told nothing.
    assert model.fit(release).told_ is None

    found = (folder / "model.json").read_text()
    (folder / "model.json").write_text(found.replace('"texts": 240', '"texts": "240"'))
    with refuses("class_texts"):
        load_model(folder)
