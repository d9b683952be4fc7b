"""What is said of predictions, against scikit-learn and by hand."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import accuracy_score, balanced_accuracy_score, log_loss, r2_score, roc_auc_score

from privmix.jobs.quality import Quality, Reliability, table_quality


def test_figures_are_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    for size in (2, 3, 7):
        labels = rng.integers(0, size, 200)
        scores = rng.normal(size=(200, size)) + np.eye(size)[labels]
        told, predicted, counts = softmax(scores, axis=1), scores.argmax(axis=1), np.bincount(labels)
        found = Quality.of(scores, labels, tuple(map(str, range(size))), told)
        figures = {
            "log_loss": log_loss(labels, told),
            "guessing_log_loss": log_loss(labels, np.tile(counts / 200, (200, 1))),
            "accuracy": accuracy_score(labels, predicted),
            "balanced_accuracy": balanced_accuracy_score(labels, predicted),
            "majority_accuracy": counts.max() / 200,
        }
        if size == 2:
            figures["auc"] = roc_auc_score(labels, scores[:, 1] - scores[:, 0])
        assert {name: getattr(found, name) for name in figures} == pytest.approx(figures)
        assert (found.majority, found.auc is None) == (str(counts.argmax()), size > 2)


def test_a_model_that_says_one_class_is_named() -> None:
    labels = np.array([0] * 84 + [1] * 16)
    found = Quality.of(np.tile([1.0, 0.0], (100, 1)), labels, ("no", "yes"))
    assert found.accuracy == found.majority_accuracy == 0.84
    assert found.balanced_accuracy == found.auc == 0.5
    assert found.recall == {"no": 1.0, "yes": 0.0}
    assert found.warnings == ("the model predicts no for every record", "always predicting no is at least as accurate")
    assert Quality.of(np.eye(2)[labels], labels, ("no", "yes")).warnings == ()


def test_classes_that_are_never_said_or_have_no_record() -> None:
    found = Quality.of(np.eye(3)[[0, 1, 1, 1]], np.array([0, 0, 1, 1]), ("a", "b", "c"))
    assert found.recall == {"a": 0.5, "b": 1.0, "c": None}
    assert found.balanced_accuracy == 0.75
    assert found.warnings == ("the model never predicts 1 of 3 classes",)


def test_probabilities_that_hold_have_no_calibration_error() -> None:
    """1e5 records leave each of 8 bins' shares within 0.04, 9 deviations: false alarm below 1e-15."""
    rng = np.random.default_rng(1)
    right = rng.uniform(0.5, 1, 100_000)
    told = np.stack([right, 1 - right], axis=1)
    labels = (rng.uniform(size=len(right)) > right).astype(np.int64)
    assert Reliability.of(told, labels).error < 0.04
    # Told as surer than they are, by as much as is told.
    surer = np.stack([np.minimum(right + 0.2, 1), np.maximum(0.8 - right, 0)], axis=1)
    expected = (np.minimum(right + 0.2, 1) - right).mean()
    assert Reliability.of(surer, labels).error == pytest.approx(expected, abs=0.04)
    found = Reliability.of(told, labels)
    assert found.counts.sum() == len(labels)
    assert found.counts @ found.accuracy / len(labels) == pytest.approx((labels == 0).mean())


def test_probabilities_worse_than_the_shares_are_named() -> None:
    labels = np.array([0, 1] * 50)
    sure = np.eye(2)[(np.arange(100) // 2) % 2] * 0.98 + 0.01
    found = Quality.of(sure, labels, ("no", "yes"), sure)
    assert found.guessing_log_loss == pytest.approx(np.log(2))
    assert found.log_loss > 2
    assert found.warnings[-1].startswith("its probabilities are worse than the classes' shares: log loss 2.3")
    assert Quality.of(sure, labels, ("no", "yes")).log_loss is None


def test_a_sum_of_effects_in_noise_is_predicted_better_than_by_a_tree() -> None:
    rng = np.random.default_rng(0)
    rows, real = (rng.integers(0, 4, (800, 6)) for _ in range(2))
    numbers = [part @ np.arange(6.0) + rng.normal(0, 20, 800) for part in (rows, real)]
    found = table_quality(rows, real, [4] * 6, list("abcdef"), target=0, numbers=numbers).tree
    tree = HistGradientBoostingRegressor(random_state=0).fit(rows[:, 1:], numbers[0])
    assert vars(found)["r2"] > r2_score(numbers[1], tree.predict(real[:, 1:])) + 0.03
