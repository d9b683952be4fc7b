"""Diagnostics against loops that follow the papers' words, and on data whose answer is known."""

import math

import numpy as np
import pytest

from privmix.research.collapse.diagnostics import minimum_euclidean_distance, neural_collapse
from tests.refusals import refuses


@pytest.fixture(params=[40, 10**7], autouse=True)
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of blocks changes no result."""
    monkeypatch.setattr("privmix.research.collapse.diagnostics._BLOCK", request.param)


def blobs(count: int = 90, dim: int = 6, classes: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.choice(classes, count, p=np.arange(1, classes + 1) / sum(range(classes + 1)))
    return rng.normal(size=(count, dim)) + 2 * rng.normal(size=(classes, dim))[labels] + 5, labels


def naive_neural_collapse(x: np.ndarray, labels: np.ndarray) -> float:
    """Li et al. 2024, Equations 29 and 30, by their words."""
    names = sorted(set(labels.tolist()))
    means = {name: x[labels == name].mean(axis=0) for name in names}
    within = sum(np.outer(row - means[k], row - means[k]) for row, k in zip(x, labels.tolist(), strict=True)) / len(x)
    overall = x.mean(axis=0)
    between = sum(np.outer(means[k] - overall, means[k] - overall) for k in names) / len(names)
    return float(np.trace(within @ np.linalg.pinv(between, rcond=1e-10)) / len(names))


@pytest.mark.parametrize(("dim", "classes"), [(6, 4), (2, 4), (30, 3), (1, 2)])
def test_neural_collapse_is_the_metric_of_the_equations(dim: int, classes: int) -> None:
    x, labels = blobs(dim=dim, classes=classes)
    assert neural_collapse(x, labels) == pytest.approx(naive_neural_collapse(x, labels), rel=1e-6)


def test_neural_collapse_is_zero_at_collapse_and_infinite_without_classes() -> None:
    labels = np.repeat([0, 1, 2], 5)
    assert neural_collapse(np.eye(3)[labels], labels) == pytest.approx(0, abs=1e-20)
    alike = np.tile(np.random.default_rng(0).normal(size=(5, 4)), (3, 1))
    assert neural_collapse(alike, labels) == math.inf
    assert neural_collapse(np.ones((15, 4)), labels) == 0.0


def naive_distances(x: np.ndarray, labels: np.ndarray, seed: int, degree: int, alpha: float) -> tuple[float, ...]:
    """Each mixture against each clean record of a class that is not in it, one pair at a time (Li et al. 2024)."""
    rng = np.random.default_rng(seed)
    partners = rng.integers(0, len(x), (len(x), degree))
    weights = rng.dirichlet(np.full(degree, alpha), size=len(x))
    clipped = x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))
    by_mixture: dict[int, float] = {}
    by_record: dict[int, float] = {}
    for t in range(len(x)):
        members = [t, *partners[t, 1:].tolist()]
        mixed = sum(w * clipped[i] for w, i in zip(weights[t], members, strict=True))
        for i in range(len(x)):
            if labels[i] not in {labels[j] for j in members}:
                distance = float(np.linalg.norm(mixed - clipped[i]))
                by_mixture[t] = min(by_mixture.get(t, math.inf), distance)
                by_record[i] = min(by_record.get(i, math.inf), distance)
    means = [float(np.mean(list(part.values()))) for part in (by_mixture, by_record)]
    return min(by_mixture.values()), *means, len(by_mixture)


@pytest.mark.parametrize(("degree", "alpha"), [(2, 1024.0), (2, 1.0), (3, 8.0)])
def test_minimum_distance_is_that_of_a_loop_over_pairs(degree: int, alpha: float) -> None:
    x, labels = blobs(count=60)
    found = minimum_euclidean_distance(x, labels, np.random.default_rng(3), mixup_degree=degree, alpha=alpha)
    expected = naive_distances(x, labels, 3, degree, alpha)
    measured = (found.smallest, found.mean_per_mixture, found.mean_per_record, found.mixtures)
    assert measured == pytest.approx(expected, rel=1e-6)


def test_mixtures_of_every_class_have_no_other_class() -> None:
    x, labels = blobs(classes=2)
    found = minimum_euclidean_distance(x, labels, np.random.default_rng(0), mixup_degree=40, alpha=1.0)
    assert (found.smallest, found.mean_per_mixture, found.mean_per_record) == (math.inf,) * 3
    assert found.mixtures == 0


@pytest.mark.parametrize(
    ("features", "labels", "field"),
    [
        (np.ones(4), np.arange(4), "features"),
        (np.full((4, 2), np.nan), np.arange(4), "features"),
        (np.ones((4, 2)), np.arange(3), "labels"),
        (np.ones((4, 2)), np.ones(4), "labels"),
        (np.ones((4, 2)), np.zeros(4, int), "labels"),
    ],
)
def test_bad_arrays_are_named(features: np.ndarray, labels: np.ndarray, field: str) -> None:
    for call in (neural_collapse, lambda x, y: minimum_euclidean_distance(x, y, np.random.default_rng(0))):
        with refuses(field):
            call(features, labels)
