"""What is said of predictions, against scikit-learn and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score, roc_auc_score

from privmix.jobs.quality import Quality


def test_figures_are_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    for size in (2, 3, 7):
        labels = rng.integers(0, size, 200)
        scores = rng.normal(size=(200, size)) + np.eye(size)[labels]
        found = Quality.of(scores, labels, tuple(map(str, range(size))))
        predicted = scores.argmax(axis=1)
        assert found.accuracy == pytest.approx(accuracy_score(labels, predicted))
        assert found.balanced_accuracy == pytest.approx(balanced_accuracy_score(labels, predicted))
        assert found.majority_accuracy == pytest.approx(np.bincount(labels).max() / 200)
        assert found.majority == str(np.bincount(labels).argmax())
        assert (found.auc is None) is (size > 2)
        if size == 2:
            assert found.auc == pytest.approx(roc_auc_score(labels, scores[:, 1] - scores[:, 0]))


def test_a_model_that_says_one_class_is_named() -> None:
    labels = np.array([0] * 84 + [1] * 16)
    found = Quality.of(np.tile([1.0, 0.0], (100, 1)), labels, ("no", "yes"))
    assert found.accuracy == found.majority_accuracy == 0.84
    assert found.balanced_accuracy == found.auc == 0.5
    assert found.recall == {"no": 1.0, "yes": 0.0}
    assert found.warnings == ("the model says no to every record", "always saying no is as accurate or more so")
    assert Quality.of(np.eye(2)[labels], labels, ("no", "yes")).warnings == ()


def test_classes_that_are_never_said_or_have_no_record() -> None:
    found = Quality.of(np.eye(3)[[0, 1, 1, 1]], np.array([0, 0, 1, 1]), ("a", "b", "c"))
    assert found.recall == {"a": 0.5, "b": 1.0, "c": None}
    assert found.balanced_accuracy == 0.75
    assert found.warnings == ("the model never says 1 of 3 classes",)
