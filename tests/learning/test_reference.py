"""What is fitted without privacy is what scikit-learn would fit to the same records."""

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from privmix.learning.kl import GeneralizedKLClassifier
from privmix.learning.records import without_privacy
from privmix.learning.ridge import NoiseAwareRidgeClassifier
from privmix.publication.dataset import RecordTransform

X, Y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)
CLASSES = tuple("0123456789")


@pytest.mark.parametrize("share", [1.0, 0.1])
def test_moments_without_noise_are_discriminant_analysis(share: float) -> None:
    kept = np.flatnonzero((Y != 3) | (np.arange(len(Y)) % 10 < 10 * share))
    train, test = kept[kept % 4 != 0], kept[kept % 4 == 0]
    own = without_privacy(X[train], Y[train], CLASSES).classifier.score(X[test], Y[test])
    peer = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=1e-3).fit(X[train], Y[train]).score(X[test], Y[test])
    assert own == pytest.approx(peer, abs=0.02)


@pytest.mark.parametrize(
    ("learner", "shape", "least"),
    [
        (NoiseAwareRidgeClassifier(), None, 0.88),
        (GeneralizedKLClassifier(epochs=60, batch_size=64, learning_rate=0.05), None, 0.88),
        (GeneralizedKLClassifier(model="cnn", epochs=3, batch_size=64), (8, 8), 0.3),
    ],
)
def test_learners_of_rows_get_single_records(learner: Any, shape: tuple[int, int] | None, least: float) -> None:
    transform = RecordTransform(float(np.linalg.norm(X, axis=1).max()))
    found = without_privacy(X[::2], Y[::2], CLASSES, transform, learner, input_shape=shape)
    assert learner.name in found.words
    assert type(found.classifier) is type(learner)
    assert not hasattr(learner, "facts_")
    assert found.classifier.facts_.input_shape == (shape or (64,))
    assert found.classifier.score(X[1::2], Y[1::2]) > least
