"""Learners have scikit-learn's interface without its base classes."""

from __future__ import annotations

import pytest
from sklearn.base import clone, is_classifier

import privmix as pm


def test_settings_are_read_written_and_shown() -> None:
    learner = pm.NoiseAwareRidgeClassifier(regularisation=0.5)
    assert learner.get_params()["regularisation"] == 0.5
    assert repr(clone(learner)) == "NoiseAwareRidgeClassifier(regularisation=0.5)"
    assert learner.set_params(regularisation=2.0).regularisation == 2.0
    assert is_classifier(learner)
    with pytest.raises(pm.InvalidInput) as refused:
        learner.set_params(regularization=1.0)
    assert refused.value.field == "regularization"
