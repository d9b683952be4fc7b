from dataclasses import replace

import numpy as np
import pytest

from privmix.learning import base
from privmix.learning.base import ReleaseLearner
from privmix.learning.discriminant import DiscriminantClassifier
from privmix.learning.kl import GeneralizedKLClassifier
from privmix.learning.ridge import NoiseAwareRidgeClassifier
from privmix.publication.dataset import ReleasedDataset
from tests.refusals import refuses

from .mixing import digits, mixed_digits

MADE = [DiscriminantClassifier(), NoiseAwareRidgeClassifier(0.01), GeneralizedKLClassifier(epochs=2)]
TEST_X, TEST_Y = digits()[1]


@pytest.fixture(params=[False, True], ids=["plain", "centred"])
def release(request: pytest.FixtureRequest) -> ReleasedDataset:
    return mixed_digits(200, centred=request.param)


@pytest.fixture(params=MADE, ids=str)
def learner(request: pytest.FixtureRequest, release: ReleasedDataset) -> ReleaseLearner:
    return request.param.fit(release)


def test_classifies_raw_features_through_the_transform(learner: ReleaseLearner) -> None:
    # The transform clips records longer than the bound onto it, so twice as long a record is the same record.
    longer = 100 * TEST_X
    np.testing.assert_allclose(
        learner.decision_function(longer), learner.decision_function(2 * longer), rtol=1e-5, atol=1e-5
    )
    expected = learner._scores(learner.facts_.transform(TEST_X).astype(np.float32))
    np.testing.assert_allclose(learner.decision_function(TEST_X), expected, rtol=1e-5, atol=1e-5)


def test_batches_do_not_change_predictions(learner: ReleaseLearner, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = learner.decision_function(TEST_X)
    monkeypatch.setattr(base, "PREDICTION_BATCH", 7)
    np.testing.assert_allclose(learner.decision_function(TEST_X), whole, rtol=1e-4, atol=1e-5)
    assert learner.predict(TEST_X).dtype == np.int64
    assert learner.score(TEST_X, TEST_Y) == np.mean(learner.predict(TEST_X) == TEST_Y)
    assert learner.predict(TEST_X[:0]).shape == (0,)


def test_carries_the_release_facts(learner: ReleaseLearner, release: ReleasedDataset) -> None:
    facts = learner.facts_
    assert (facts.classes, facts.release_id, facts.input_shape) == (release.classes, "test-release", (64,))
    assert facts.extractor == release.extractor
    assert learner.classes_.tolist() == list(range(10))
    assert learner.n_features_in_ == 64


def test_bad_features_and_rows(learner: ReleaseLearner, release: ReleasedDataset) -> None:
    for wrong in (TEST_X[:, :-1], TEST_X[0], TEST_X[None], np.where(np.eye(3, 64) > 0, np.nan, 0.5)):
        with refuses("features"):
            learner.predict(wrong)
    with refuses("released rows"):
        learner.fit(replace(release, x=np.where(np.eye(*release.x.shape) > 0, np.float32(np.inf), release.x)))


def test_a_setting_that_there_is_not_is_refused() -> None:
    with refuses("regularization"):
        NoiseAwareRidgeClassifier().set_params(regularization=1.0)
