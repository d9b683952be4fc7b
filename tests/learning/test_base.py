from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from privmix.learning import base
from privmix.learning.base import ReleaseLearner
from privmix.learning.discriminant import DiscriminantClassifier
from privmix.learning.kl import GeneralizedKLClassifier
from privmix.learning.ridge import NoiseAwareRidgeClassifier
from tests.refusals import refuses

from .mixing import digits, mix

LEARNER = pytest.mark.parametrize(
    "learner", [DiscriminantClassifier(), NoiseAwareRidgeClassifier(0.01), GeneralizedKLClassifier(epochs=2)]
)


@LEARNER
def test_classifies_raw_features_through_the_transform(learner: ReleaseLearner) -> None:
    (x, y), (test_x, _) = digits()
    learner.fit(mix(x, y, rows=200, centred=True))
    # The transform clips records longer than the bound onto it, so twice as long a record is the same record.
    longer = 100 * test_x
    np.testing.assert_allclose(
        learner.decision_function(longer), learner.decision_function(2 * longer), rtol=1e-5, atol=1e-5
    )
    expected = learner._scores(learner.facts_.transform(test_x).astype(np.float32))
    np.testing.assert_allclose(learner.decision_function(test_x), expected, rtol=1e-5, atol=1e-5)


@LEARNER
def test_batches_do_not_change_predictions(learner: ReleaseLearner, monkeypatch: pytest.MonkeyPatch) -> None:
    (x, y), (test_x, test_y) = digits()
    learner.fit(mix(x, y, rows=200))
    whole = learner.decision_function(test_x)
    monkeypatch.setattr(base, "PREDICTION_BATCH", 7)
    np.testing.assert_allclose(learner.decision_function(test_x), whole, rtol=1e-4, atol=1e-5)
    assert learner.predict(test_x).dtype == np.int64
    assert learner.score(test_x, test_y) == np.mean(learner.predict(test_x) == test_y)
    assert learner.predict(test_x[:0]).shape == (0,)


@LEARNER
def test_carries_the_release_facts(learner: ReleaseLearner) -> None:
    (x, y), _ = digits()
    release = mix(x, y, rows=200)
    facts = learner.fit(release).facts_
    assert (facts.classes, facts.release_id, facts.input_shape) == (release.classes, "test-release", (64,))
    assert facts.extractor == release.extractor
    assert learner.classes_.tolist() == list(range(10))
    assert learner.n_features_in_ == 64


@LEARNER
def test_bad_features(learner: ReleaseLearner) -> None:
    (x, y), (test_x, _) = digits()
    learner.fit(mix(x, y, rows=200))
    for wrong in (test_x[:, :-1], test_x[0], test_x[None]):
        with refuses("features"):
            learner.predict(wrong)
    with refuses("features"):
        learner.predict(np.where(np.eye(3, 64) > 0, np.nan, 0.5))


@LEARNER
def test_bad_released_rows(learner: ReleaseLearner) -> None:
    (x, y), _ = digits()
    release = mix(x, y, rows=20)
    bad = release.x.copy()
    bad[3, 4] = np.inf
    with refuses("released rows"):
        learner.fit(replace(release, x=bad))


def test_a_setting_that_there_is_not_is_refused() -> None:
    with refuses("regularization"):
        NoiseAwareRidgeClassifier().set_params(regularization=1.0)
