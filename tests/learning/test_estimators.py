"""scikit-learn's checks of whatever claims to be one of its estimators, each that is left out with its reason."""

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import privmix as pm

_DECLARED = "classes are declared, and never taken from y"
_SILENT = "no message tells of labels, which are private"
_ANEW = "noise is drawn anew in each fit"
# A private fit: what it costs these checks.
LEFT_OUT: dict[str, str] = {
    "check_classifiers_classes": _DECLARED,
    "check_classifiers_train": _DECLARED,
    "check_dtype_object": _DECLARED,
    "check_classifiers_regression_target": _SILENT,
    "check_complex_data": _SILENT,
    "check_requires_y_none": _SILENT,
    "check_supervised_y_2d": _SILENT,
    "check_estimators_empty_data_messages": "records without features are refused in privmix's own words",
}
# Checks that fail now and then.
BY_CHANCE = {
    "check_classifier_data_not_an_array": _ANEW,
    "check_fit_idempotent": _ANEW,
    "check_classifiers_one_label": "it fits ten records, and noise may call one of them by another class",
}


@pytest.mark.filterwarnings("ignore::privmix.NotPrivateWarning")
@parametrize_with_checks([
    pm.DiscriminantClassifier(),
    pm.SecondMomentsClassifier(),
    pm.NoiseAwareRidgeClassifier(),
    pm.GeneralizedKLClassifier(),
])  # fmt: skip
def test_learners(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.filterwarnings("ignore::privmix.NotPrivateWarning")
@parametrize_with_checks(
    [pm.DPClassifier(epsilon=50, delta=1e-3, classes=[0, 1, 2], epochs=1)], expected_failed_checks=lambda _: LEFT_OUT
)
def test_private_training(estimator: Any, check: Any) -> None:
    if reason := BY_CHANCE.get(check.func.__name__):
        pytest.skip(reason)
    check(estimator)
