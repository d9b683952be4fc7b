"""scikit-learn's own tools take what privmix has: searches, cross-validation, pipelines, copies, other processes."""

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import privmix as pm
from privmix.learning.model_io import save_model
from tests.commands.test_predict import records as numbers
from tests.refusals import refuses

pytestmark = pytest.mark.usefixtures("fixed_keys")

CLASSES = ["well", "ill"]


def records(seed: int, count: int) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    x, y = numbers(seed, count)
    return x, np.array(CLASSES)[y]


X, Y = records(1, 120)


@pytest.fixture(scope="module")
def release() -> pm.Release:
    wishes: dict[str, Any] = {"classes": CLASSES, "features": "identity", "design": "moments", "rows": 50}
    return pm.release(records(0, 500), epsilon=50, delta=1e-3, **wishes)


def test_a_release_is_judged_and_searched_on_records_of_ones_own(release: pm.Release) -> None:
    classifier = pm.ReleaseClassifier(release)
    assert (cross_val_score(classifier, X, Y, cv=3) > 0.9).all()
    # Classes were declared unsorted, and these look at columns by their place among sorted ones.
    assert (cross_val_score(classifier, X, Y, cv=3, scoring="roc_auc") > 0.9).all()
    assert (cross_val_score(classifier, X, Y, cv=3, scoring="neg_log_loss") > -0.5).all()
    grid = {"learner": ["discriminant", "second-moments"]}
    found = GridSearchCV(classifier, grid, cv=3, n_jobs=2).fit(X, Y)
    assert found.best_score_ > 0.9
    assert found.best_estimator_.release is release
    steps = make_pipeline(FunctionTransformer(np.asarray), classifier).fit(X, Y)
    assert steps.score(X, Y) > 0.9
    assert pm.ReleaseClassifier().fit(release).score(X, Y) > 0.9
    with pytest.raises(NotFittedError):
        pm.ReleaseClassifier(release).predict(X)
    with refuses("release"):
        pm.ReleaseClassifier().fit(X, Y)


def test_it_is_fitted_to_the_release_alone(release: pm.Release) -> None:
    turned = np.array(CLASSES[::-1])[(Y == "ill").astype(int)]
    found = pm.ReleaseClassifier(release).fit(X, turned)
    assert (found.predict(X) == pm.fit(release).predict(X)).all()
    assert found.classes_.tolist() == sorted(CLASSES)
    assert (found.classes_[found.predict_proba(X).argmax(axis=1)] == found.predict(X)).all()
    given = pm.SecondMomentsClassifier(regularisation=0.01)
    assert pm.ReleaseClassifier(release, learner=given).fit().model_.classifier is not given
    assert not hasattr(given, "coef_")


def test_releases_are_neither_copied_nor_lost(release: pm.Release) -> None:
    assert clone(release, safe=False) is release
    assert np.array_equal(pickle.loads(pickle.dumps(release)).x, release.x)
    # The folder is its first owner's.
    assert pm.verify(release)


@pytest.mark.parametrize("learner", [pm.DiscriminantClassifier(), pm.SecondMomentsClassifier()])
def test_learners_take_records_and_say_that_this_is_not_private(
    learner: Any, release: pm.Release, tmp_path: Any
) -> None:
    with pytest.warns(pm.NotPrivateWarning, match="NOT private"):
        learner.fit(X, Y)
    assert learner.classes_.tolist() == sorted(CLASSES)
    assert (learner.predict(X) == Y).mean() > 0.9
    with refuses("model"):
        save_model(learner, tmp_path / "MODEL")
    with warnings.catch_warnings():
        warnings.simplefilter("error", pm.NotPrivateWarning)
        learner.fit(release)
    assert learner.predict(X).dtype == np.int64
    save_model(learner, tmp_path / "MODEL")
    with refuses("y"):
        learner.fit(release.x, release.y)
    with refuses("release"):
        learner.fit(release.x)
