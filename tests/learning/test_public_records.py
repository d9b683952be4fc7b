"""What public records say of those that are private: their law, and how well a learner of many tells them apart."""

import math

import numpy as np
import pytest

from privmix.learning.data_model import DataModel
from privmix.learning.public_records import (
    along_principal_axes,
    discriminants,
    mixture,
    own_shapes,
    shrunk_covariance,
    unlimited_accuracy,
)
from privmix.publication.dataset import RecordTransform

DIM, CLASSES = 30, 4


def drawn(count: int, rng: np.random.Generator, apart: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Classes that differ where records of one class vary together, as axes of all records do not show."""
    mixing = np.random.default_rng(0).normal(size=(DIM, DIM)) / math.sqrt(DIM)
    means = apart * np.random.default_rng(1).normal(size=(CLASSES, DIM))
    labels = rng.integers(0, CLASSES, count)
    return (means[labels] + rng.normal(size=(count, DIM))) @ mixing, labels


def limit(apart: float) -> float:
    """What discriminants of very many records reach on others."""
    x, labels = drawn(40_000, np.random.default_rng(2), apart)
    weights, offsets = discriminants(x[:20_000], labels[:20_000], CLASSES)
    return float(((x[20_000:] @ weights + offsets).argmax(axis=1) == labels[20_000:]).mean())


@pytest.mark.parametrize("apart", [0.2, 0.5])
def test_few_records_tell_what_many_would_reach(apart: float) -> None:
    """The mean of 60 accuracies has a standard error of at most 0.0047: 0.03 is passed with chance below 1e-9."""
    rng, found, folds = np.random.default_rng(3), [], []
    for _ in range(60):
        x, labels = drawn(120, rng, apart)
        found.append(unlimited_accuracy(x, labels, rng))
        weights, offsets = discriminants(x[:96], labels[:96], CLASSES)
        right = (x @ weights + offsets).argmax(axis=1) == labels
        folds.append((right[:96].mean(), right[96:].mean()))
    seen, unseen = np.mean(folds, axis=0)
    reached = limit(apart)
    assert seen - reached > 0.04
    assert reached - unseen > 0.04
    assert np.mean(found) == pytest.approx(reached, abs=0.03)


def test_a_model_of_public_records_is_as_hard_as_they_are() -> None:
    """Variance within classes has axes of its own: along those of all records these would seem harder."""
    for count in (800, 8000):
        x, labels = drawn(count, np.random.default_rng(4))
        transform = RecordTransform(100.0)
        model, other = (
            DataModel.of_public_data(x.astype(np.float32), labels, classes, transform, np.random.default_rng(0))
            for classes in (CLASSES, 5 * CLASSES)
        )
        reached = limit(0.5)
        # 6.5 standard errors of the measured odds, and of the accuracy by what the odds' logarithm changes it: passed
        # with chance below 1e-9.
        assert abs(model.attainable - reached) < 6.5 * model.doubt * reached * (1 - reached) + 0.01
        assert model.sampled
        assert other.means.shape == (5 * CLASSES, DIM)
        assert other.attainable == pytest.approx(model.attainable, abs=0.05)
        np.testing.assert_allclose(other.between.sum(), model.between.sum(), rtol=0.05)
        assert model.doubt == pytest.approx(1 / math.sqrt(count * reached * (1 - reached)), rel=0.2)


def test_a_mixture_is_found_again() -> None:
    x, labels = drawn(20_000, np.random.default_rng(5))
    within, means, shares = mixture(x - x.mean(axis=0), labels)
    mixing = np.random.default_rng(0).normal(size=(DIM, DIM)) / math.sqrt(DIM)
    np.testing.assert_allclose(within, np.linalg.svd(mixing)[1] ** 2, rtol=0.1, atol=0.01)
    np.testing.assert_allclose(shares, 1 / CLASSES, atol=0.02)
    # Mahalanobis distances of the classes, which no turn changes.
    truth = 0.5 * np.random.default_rng(1).normal(size=(CLASSES, DIM))
    for one in range(CLASSES - 1):
        expected = np.square(truth[one] - truth[one + 1]).sum()
        assert (np.square(means[one] - means[one + 1]) / within).sum() == pytest.approx(expected, rel=0.1)


def test_a_covariance_of_fewer_records_than_features_is_no_less_sound() -> None:
    rng = np.random.default_rng(6)
    few, many = rng.normal(size=(20, 60)), rng.normal(size=(20_000, 60)) * np.linspace(1, 2, 60)
    assert np.linalg.eigvalsh(shrunk_covariance(few, 20)).min() > 0.5
    np.testing.assert_allclose(shrunk_covariance(many, 20_000), np.cov(many.T), atol=0.05)


def test_one_class_or_hardly_a_record_gives_a_model_all_the_same() -> None:
    rng = np.random.default_rng(7)
    for count, labels in ((2, [0, 1]), (3, [0, 0, 0]), (12, [0, 1] * 6)):
        x = rng.normal(size=(count, 5)).astype(np.float32)
        for classes in (2, 3):
            model = DataModel.of_public_data(x, np.array(labels), classes, RecordTransform(1.0), rng)
            assert np.isfinite(model.means).all()
            assert (model.within > 0).all()
            assert 0 <= model.attainable <= 1


@pytest.mark.parametrize("unlike", [0.0, 1.0])
def test_own_shapes_are_found_where_there_are_any(unlike: float) -> None:
    """Two classes, a fifth of the records hard to tell by their means; scatters may differ by class along each axis."""
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 2, 4000)
    widths = np.exp(unlike * np.random.default_rng(6).normal(size=(2, DIM)))
    x = rng.normal(size=(4000, DIM)) * widths[labels] + 0.3 * (2 * labels[:, None] - 1)
    found = own_shapes(along_principal_axes(x, DIM), labels, rng)
    assert found > 0.03 if unlike else found <= 0.0


def test_own_shapes_of_few_records_are_not_counted_on() -> None:
    x, labels = drawn(40, np.random.default_rng(7))
    assert own_shapes(along_principal_axes(x, DIM), labels, np.random.default_rng(0)) == 0.0
