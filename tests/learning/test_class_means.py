"""Class means from a release: as far from the truth as they say, and nothing where there is nothing but noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from privmix.learning.class_means import class_means, class_scores
from privmix.learning.rows import as_release
from privmix.publication.dataset import RecordTransform, ReleasedDataset
from tests.refusals import refuses

CLASSES = tuple("abcde")
COUNT, DIM = 500, 24


def released(noise: float, seed: int, apart: float = 0.1, classes: tuple[str, ...] = CLASSES) -> ReleasedDataset:
    """Second moments of records on the unit sphere, with Gaussian noise that a sum of ``noise`` a number has."""
    rng = np.random.default_rng(seed)
    axes = np.geomspace(1, 0.1, DIM)
    centres = apart * rng.normal(size=(len(classes), DIM)) * axes
    labels = np.arange(COUNT) % len(classes)
    x = (centres[labels] + 0.1 * rng.normal(size=(COUNT, DIM)) * axes).astype(np.float32)
    clean = as_release(x, labels, classes, RecordTransform(1.0), rows=False)
    assert clean.moments is not None
    half = np.tril(rng.normal(size=(DIM, DIM)), -1) / np.sqrt(2)
    second = clean.moments.second + noise * (half + half.T + np.diag(rng.normal(size=DIM)))
    moments = replace(
        clean.moments,
        second=second.astype(np.float32),
        cross=(clean.moments.cross + noise * rng.normal(size=clean.moments.cross.shape)).astype(np.float32),
        noise_std_second=noise,
        noise_std_cross=noise,
        noise_std_counts=0.0,
    )
    return replace(clean, beside=moments)


def true_means(seed: int, apart: float = 0.1) -> np.ndarray:
    return class_means(released(0.0, seed, apart)).means


def test_means_are_as_far_from_the_truth_as_they_say() -> None:
    for noise in (1.0, 4.0):
        said, found = 0.0, 0.0
        for seed in range(10):
            true, means = true_means(seed), class_means(released(noise, seed))
            said += float(means.errors.sum())
            found += float(np.square(means.apart - (true - true.mean(axis=0))).sum())
        assert 0.6 < said / found < 1.7, noise


def test_without_noise_they_are_the_means_and_sure() -> None:
    sure = [float(class_means(released(noise, 0)).sure.mean()) for noise in (16.0, 4.0, 1.0, 0.01)]
    assert sure == sorted(sure)
    assert sure[-1] > 0.97


def test_nothing_is_known_where_classes_do_not_differ_or_noise_is_heavy() -> None:
    """A release is a false alarm with chance 1e-6 at most: two of ten are with chance below 5e-11."""
    for noise, apart in ((3.0, 0.0), (1e4, 0.1)):
        found = [class_means(released(noise, seed, apart=apart)) for seed in range(10)]
        unknown = [one for one in found if one.sure.max() == 0]
        assert len(unknown) >= 9
        assert all(np.ptp(one.means, axis=0).max() == 0 for one in unknown)


def test_two_classes_are_enough() -> None:
    """A false alarm has the chance above."""
    assert class_means(released(1.0, 0, classes=("a", "b"))).sure.min() > 0.5
    drowned = [class_means(released(300.0, seed, classes=("a", "b"))) for seed in range(10)]
    assert sum(one.sure.max() > 0 for one in drowned) <= 1


def test_other_means_are_as_likely() -> None:
    means, generator = class_means(released(4.0, 0)), np.random.default_rng(0)
    drawn = np.stack([means.draw(generator) for _ in range(2000)])
    np.testing.assert_allclose(drawn.var(axis=0), means.variances(), rtol=0.25)
    np.testing.assert_allclose(drawn.mean(axis=0), means.means, atol=7.5 * np.sqrt(means.variances().max() / 2000))


def sums(noise: float, seed: int, apart: float) -> ReleasedDataset:
    rng = np.random.default_rng(seed)
    means = apart * rng.normal(size=(len(CLASSES), DIM)) / np.sqrt(DIM)
    return ReleasedDataset(
        x=(means + noise * rng.normal(size=means.shape)).astype(np.float32),
        y=np.eye(len(CLASSES), dtype=np.float32),
        design="classwise",
        mixup_degree=100,
        noise_std_x=noise,
        noise_std_y=0.0,
        label_offset=0.0,
        classes=CLASSES,
        transform=RecordTransform(1.0),
        extractor={"name": "identity"},
        input_shape=(DIM,),
        release_id="test",
    )


def test_class_sums_alone_say_how_sure_they_are() -> None:
    """A false alarm has the chance above, where classes do not differ."""
    said, found, alarms = 0.0, 0.0, 0
    for seed in range(10):
        clean, means = class_means(sums(0.0, seed, 0.3)), class_means(sums(0.05, seed, 0.3))
        said += float(means.errors.sum())
        found += float(np.square(means.apart - clean.apart).sum())
        alarms += class_means(sums(0.05, seed, 0.0)).sure.max() > 0
    assert alarms <= 1
    assert 0.7 < said / found < 1.4
    assert clean.sure.min() == pytest.approx(1)


def test_noise_of_no_known_size_and_odd_numbers_are_refused() -> None:
    release = released(1.0, 0)
    with refuses("design"):
        class_means(replace(release, beside={"embeddings": np.zeros(3)}))
    with refuses("released rows"):
        class_means(replace(release, x=np.full_like(release.x, np.nan)))


def test_records_go_to_the_class_whose_mean_they_are_and_to_none_in_noise() -> None:
    places = true_means(0)
    near, far = class_scores(released(1.0, 0), places), class_scores(released(1e4, 0), places)
    assert (near.log_odds.argmax(axis=1) == np.arange(len(CLASSES))).all()
    np.testing.assert_allclose(near.probabilities.sum(axis=0), 1)
    np.testing.assert_allclose(near.log_odds, np.log(near.probabilities / (1 - near.probabilities)), rtol=1e-6)
    assert np.abs(far.probabilities - 1 / len(CLASSES)).max() < 0.15
