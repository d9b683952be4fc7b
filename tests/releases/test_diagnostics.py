"""Diagnostics against loops that follow the papers' words, and on data whose answer is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from privmix.errors import InvalidInput
from privmix.mechanisms.streams import SecretStreams
from privmix.releases import ReleaseConfig, ReleasePlan
from privmix.releases.diagnostics import (
    label_collapse,
    minimum_euclidean_distance,
    mixed_labels,
    neural_collapse,
)

NAMES = ("ant", "bee", "cat", "dog")


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


def test_neural_collapse_does_not_depend_on_scale_position_rotation_or_class_numbers() -> None:
    x, labels = blobs()
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]
    assert neural_collapse(x, labels) == pytest.approx(neural_collapse(3 * (x + 7) @ turn, 10 - labels), rel=1e-8)


def test_neural_collapse_in_small_blocks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x, labels = blobs()
    whole = neural_collapse(x, labels)
    monkeypatch.setattr("privmix.releases.diagnostics._BLOCK", 40)
    assert neural_collapse(x, labels) == pytest.approx(whole, rel=1e-10)


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


def test_minimum_distance_in_small_blocks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x, labels = blobs(count=60)
    whole = minimum_euclidean_distance(x, labels, np.random.default_rng(3), mixtures=100)
    monkeypatch.setattr("privmix.releases.diagnostics._BLOCK", 200)
    pieces = minimum_euclidean_distance(x, labels, np.random.default_rng(3), mixtures=100)
    assert whole.mixtures == pieces.mixtures
    assert whole.smallest == pytest.approx(pieces.smallest, rel=1e-9)
    assert whole.mean_per_record == pytest.approx(pieces.mean_per_record, rel=1e-9)


def test_mixtures_of_every_class_have_no_other_class() -> None:
    x, labels = blobs(classes=2)
    found = minimum_euclidean_distance(x, labels, np.random.default_rng(0), mixup_degree=40, alpha=1.0)
    assert (found.smallest, found.mean_per_mixture, found.mean_per_record) == (math.inf,) * 3
    assert found.mixtures == 0


def test_features_on_a_simplex_are_farther_from_mixtures_than_features_on_a_line() -> None:
    """The papers' reason for neural features: on a line, mixtures of the outer classes sit on the middle one."""
    labels = np.repeat([0, 1, 2], 10)
    line = np.array([[-1.0], [0.0], [1.0]])[labels]
    distances = [
        minimum_euclidean_distance(x, labels, np.random.default_rng(0)).smallest for x in (np.eye(3)[labels], line)
    ]
    assert distances[0] > 1.2
    assert distances[1] < 0.2


DESIGNS: list[dict[str, Any]] = [
    {"design": "poisson"},
    {"design": "hierarchical", "expected_classes": 2.0},
    {"design": "fixed"},
    {"design": "classwise"},
]


def make_plan(design: dict[str, Any], noise: float = 1.0, records: int = 400, degree: int = 20) -> ReleasePlan:
    config = ReleaseConfig(records=records, dim=3, classes=NAMES, mixup_degree=degree, rows=2000, **design)
    return config.with_noise(noise, 20.0)


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design["design"])
def test_mixed_labels_follow_the_sampler(design: dict[str, Any]) -> None:
    """Means and second moments of rows as the plan's own sampler draws them; 6 standard errors on 2,000 rows."""
    plan = make_plan(design)
    labels = np.repeat(np.arange(4), [160, 120, 80, 40])
    held = [plan.sampler.draw(SecretStreams.from_seed(0), tile, 0, labels) for tile in range(plan.sampler.row_tiles)]
    onehot = np.eye(4)[labels]
    drawn = [onehot[rows] for part in held for rows in np.split(part.indices, part.offsets[1:-1])]
    real = np.array([rows.sum(axis=0) for rows in drawn]) / plan.divisor
    # A fifth of the records: only shares count.
    clean, noisy = mixed_labels(plan, labels[::5], np.random.default_rng(1), len(real))
    for power in (1, 2):
        spread = np.sqrt(((real**power).var(axis=0) + (clean**power).var(axis=0)) / len(real))
        assert (np.abs((real**power).mean(axis=0) - (clean**power).mean(axis=0)) <= 6 * spread + 1e-12).all()
    joint = [(rows[:, 0] * rows[:, 1]) for rows in (real, clean)]
    assert abs(joint[0].mean() - joint[1].mean()) <= 6 * math.sqrt((joint[0].var() + joint[1].var()) / len(real))
    assert (noisy - clean).std() == pytest.approx(plan.noise_std_y, rel=0.06)


def test_laplace_noise_on_labels_has_the_plan_s_size() -> None:
    plan = make_plan({"design": "fixed", "noise": "laplace"})
    clean, noisy = mixed_labels(plan, np.arange(4), np.random.default_rng(0), 20_000)
    assert (noisy - clean).std() == pytest.approx(plan.noise_std_y, rel=0.05)


def test_label_collapse_is_that_of_a_loop() -> None:
    plan, labels = make_plan({"design": "poisson"}, noise=1.5), np.arange(4)
    found = label_collapse(plan, labels, np.random.default_rng(5), rows=300)
    clean, noisy = mixed_labels(plan, labels, np.random.default_rng(5), 300)
    tops, sides = 0, {True: [0, 0], False: [0, 0]}
    for before, after in zip(clean, noisy, strict=True):
        tops += int(before[np.argmax(after)] == before.max())
        for a, b in zip(before, after, strict=True):
            # An entry of exactly 1/K has no side to keep.
            sides[bool(a > 0.25)][0] += int(a != 0.25 and (a > 0.25) == (b > 0.25))
            sides[bool(a > 0.25)][1] += int(a != 0.25)
    assert found.top_kept == tops / 300
    assert found.level_kept == pytest.approx(np.mean([kept / total for kept, total in sides.values()]))
    assert found.spread == pytest.approx(math.sqrt(((clean - 0.25) ** 2).mean()))
    assert found.signal_to_noise == pytest.approx((found.spread / found.noise_std) ** 2)


def test_labels_survive_without_noise_and_not_in_much_of_it() -> None:
    """Chance is 1/K for the top entry and 1/2 for a side; ties for the top raise the former a little."""
    clear = label_collapse(make_plan({"design": "poisson"}, 1e-3), np.arange(4), np.random.default_rng(0))
    assert clear.top_kept > 0.999
    assert clear.level_kept > 0.999
    lost = label_collapse(make_plan({"design": "poisson"}, 1e4), np.arange(4), np.random.default_rng(0))
    assert 0.24 < lost.top_kept < 0.36
    assert 0.48 < lost.level_kept < 0.52


def test_hierarchical_labels_stay_apart_where_poisson_labels_collapse() -> None:
    """Li et al. 2024, Figure 2: same degree, same noise."""
    poisson, stratified = (
        label_collapse(make_plan(design, 2.0, 4000, 200), np.arange(4), np.random.default_rng(0))
        for design in ({"design": "poisson"}, {"design": "hierarchical", "expected_classes": 1.0})
    )
    assert stratified.spread > 4 * poisson.spread
    assert stratified.level_kept > 0.99 > 0.98 > poisson.level_kept


def test_public_labels_lose_nothing() -> None:
    found = label_collapse(make_plan({"design": "classwise"}), np.arange(4), np.random.default_rng(0), rows=50)
    assert (found.top_kept, found.level_kept, found.signal_to_noise) == (1.0, 1.0, math.inf)


@pytest.mark.parametrize(
    ("features", "labels", "field"),
    [
        (np.ones(4), np.arange(4), "features"),
        (np.full((4, 2), np.nan), np.arange(4), "features"),
        (np.ones((4, 2)), np.arange(3), "labels"),
        (np.ones((4, 2)), np.ones(4), "labels"),
        (np.ones((4, 2)), np.zeros(4, int), "labels"),
    ],
    ids=["one dimension", "not finite", "too few labels", "labels not integers", "one class"],
)
def test_bad_arrays_are_named(features: np.ndarray, labels: np.ndarray, field: str) -> None:
    for call in (neural_collapse, lambda x, y: minimum_euclidean_distance(x, y, np.random.default_rng(0))):
        with pytest.raises(InvalidInput) as caught:
            call(features, labels)
        assert caught.value.field == field


def test_bad_label_draws_are_named() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidInput, match="labels"):
        mixed_labels(make_plan({"design": "poisson"}), np.array([4]), rng, 5)
    with pytest.raises(InvalidInput, match="design"):
        label_collapse(make_plan({"design": "random-weight"}), np.arange(4), rng, 5)
