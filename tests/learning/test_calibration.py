"""Probabilities of every learner mean what they say, by the release alone."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import log_softmax

from privmix.engine.rows import PrivateRecords
from privmix.learning.base import LEARNERS
from privmix.learning.model_io import load_model, save_model
from privmix.planning import ReleaseConfig
from privmix.publication.dataset import ReleasedDataset
from tests.releases.helpers import release as made

CLASSES = ("ape", "bear", "cat")
MEANS = 0.3 * np.eye(3, 6)


def records(count: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, count)
    return (MEANS[y] + rng.normal(0, 0.15, (count, 6))).astype(np.float32), y


def release(design: str, seed: int = 0, epsilon: float = 2.0, data: tuple[Any, Any] | None = None) -> ReleasedDataset:
    x, y = records(6000, seed) if data is None else data
    config = ReleaseConfig(len(x), 6, CLASSES, design, rows=1500 if design == "poisson" else 20)
    # The noise is part of the claim: a release is drawn under a seed, so that the test says the same every time.
    return made(config.calibrate(epsilon, 1e-5), PrivateRecords(x, y), seed)


def log_loss(scores: NDArray[Any], y: NDArray[np.int64], temperature: float) -> float:
    return -float(log_softmax(temperature * scores.astype(np.float64), axis=1)[np.arange(len(y)), y].mean())


@pytest.mark.parametrize(
    ("design", "name"),
    [
        ("moments", "discriminant"),
        ("moments", "second-moments"),
        ("two-stage", "two-stage"),
        ("poisson", "noise-aware-ridge"),
    ],
)
def test_no_temperature_from_labels_is_much_better(design: str, name: str) -> None:
    found = release(design)
    x, y = records(4000, 99)
    learner = LEARNERS[name]().fit(found)
    scores = learner.decision_function(x)
    best = min(log_loss(scores, y, float(one)) for one in np.geomspace(1e-2, 1e3, 200))
    reached = -float(np.log(learner.predict_proba(x)[np.arange(len(y)), y]).mean())
    assert reached == pytest.approx(log_loss(scores, y, learner.temperature_), rel=1e-4)
    assert reached < 1.1 * best
    assert best < 0.6 * np.log(3)


def test_the_temperature_is_the_scores_own(tmp_path: Path) -> None:
    """Scores ten times as large are no surer; and a model keeps what its release said."""
    found = release("moments")
    learner, other, fresh = (LEARNERS["second-moments"]().fit(found) for _ in range(3))
    x, _ = records(50, 3)
    expected = learner.predict_proba(x)
    other.coef_, other.intercept_ = 10 * other.coef_, 10 * other.intercept_
    assert np.allclose(other.predict_proba(x), expected, atol=1e-4)
    save_model(learner, tmp_path / "M")
    assert np.array_equal(load_model(tmp_path / "M").predict_proba(x), expected)
    # No release goes along.
    assert len(pickle.dumps(fresh)) < 10_000
    assert np.array_equal(pickle.loads(pickle.dumps(fresh)).predict_proba(x), expected)


def test_what_tells_nothing_is_not_sure() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(0, 0.2, (3000, 6)).astype(np.float32), rng.integers(0, 3, 3000)
    found = release("moments", 1, 0.5, (x, y))
    for name in ("discriminant", "second-moments"):
        assert LEARNERS[name]().fit(found).predict_proba(x[:500]).max() < 0.75
