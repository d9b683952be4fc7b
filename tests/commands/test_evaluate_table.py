"""What a release's rows are worth for predicting a column of real records."""

import warnings

import numpy as np
import pandas
import pytest

import privmix as pm
from tests.refusals import refuses

# Thresholds of a random result hold for these keys: no run fails by chance.
pytestmark = pytest.mark.usefixtures("fixed_keys")


def survey(count: int, seed: int) -> pandas.DataFrame:
    """Ages with a wage that follows from them, a wage that does not, and a group by age; some ages are missing."""
    rng = np.random.default_rng(seed)
    age = rng.uniform(20, 90, count)
    wage = 0.5 * age + rng.normal(0, 2, count)
    group = np.where(age > 55, "old", "young")
    kept = np.where(rng.random(count) < 0.1, None, age)
    return pandas.DataFrame({"age": kept, "wage": wage, "luck": rng.uniform(0, 50, count), "group": group})


@pytest.fixture(scope="module")
def release() -> pm.Release:
    number = {"age": (0, 100, 20), "wage": (0, 50, 10), "luck": (0, 50, 5)}
    spec = pm.spec(
        survey(10, 0), label=None, number=number, category={"group": ["old", "young"]}, missing={"age": "indicator"}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pm.release(survey(3000, 0), features=spec.extractor(), label=None, epsilon=20, delta=1e-5)


def test_a_number_is_predicted_by_rows_where_it_depends_on_others(release: pm.Release) -> None:
    real = survey(1000, 1)
    wage = pm.evaluate_table(release, real, label=None, target="wage").quality.to_dict()["trees"]
    truth = real["wage"].to_numpy(float)
    # The age that it follows from explains 96%, where it is not missing.
    assert 0.85 < wage["rows"]["r2"] < 0.97
    assert wage["rows"]["mean_rmse"] == pytest.approx(truth.std())
    assert wage["rows"]["rmse"] == pytest.approx(truth.std() * np.sqrt(1 - wage["rows"]["r2"]))
    # A forecast takes the rows alone: other records change nothing.
    other = pm.evaluate_table(release, real[:500], label=None, target="wage").quality.to_dict()["trees"]
    assert other["forecast"] == wage["forecast"]
    assert wage["forecast"]["r2"] == pytest.approx(wage["rows"]["r2"], abs=0.1)
    luck = pm.evaluate_table(release, real, label=None, target="luck").quality.to_dict()["trees"]
    assert luck["rows"]["r2"] < 0.1
    assert luck["real"]["r2"] < 0.1


def test_records_without_the_number_are_left_out(release: pm.Release) -> None:
    real = survey(1000, 1)
    found = pm.evaluate_table(release, real, label=None, target="age").quality.to_dict()["trees"]["rows"]
    assert found["mean_rmse"] == pytest.approx(real["age"].dropna().astype(float).std(ddof=0))
    assert found["r2"] > 0.9


def test_a_state_is_predicted_with_its_accuracy(release: pm.Release) -> None:
    found = pm.evaluate_table(release, survey(1000, 1), label=None, target="group")
    assert found.quality.to_dict()["trees"]["rows"]["auc"] > 0.95
    assert found.to_dict()["target"] == "group"
    with refuses("target"):
        pm.evaluate_table(release, survey(10, 1), label=None, target="wages")


def test_too_few_records_are_refused(release: pm.Release) -> None:
    real = survey(5, 1).assign(age=None)
    for part, target in ((real, "age"), (real.iloc[:1], "wage"), (real.iloc[:1], "group")):
        with refuses("data"):
            pm.evaluate_table(release, part, label=None, target=target)
