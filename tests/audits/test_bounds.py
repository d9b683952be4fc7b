"""Lower bounds: they cover, they are nearly reached where the truth is known, and looking at thresholds is safe."""

import numpy as np
import pytest
from scipy import stats

from privmix.accounting import gdp_epsilon
from privmix.audits.bounds import (
    best_rates,
    check_runs,
    clopper_pearson,
    epsilon_of_rates,
    largest_provable,
    proven_epsilon,
    rates_at,
)
from privmix.errors import InvalidInput
from tests.refusals import refuses


def test_clopper_pearson_covers() -> None:
    """Exact values at the ends, and coverage by simulation."""
    low, high = clopper_pearson(0, 100, 0.05)
    assert low == 0
    assert high == pytest.approx(1 - 0.05 ** (1 / 100))
    low, high = clopper_pearson(100, 100, 0.05)
    assert high == 1
    assert low == pytest.approx(0.05 ** (1 / 100))
    rng = np.random.default_rng(0)
    bounds = [clopper_pearson(int(count), 50, 0.1) for count in rng.binomial(50, 0.3, 2000)]
    # Each end misses at most one in ten: 2000 trials show more than this with chance 1e-10.
    misses = [sum(low > 0.3 for low, _ in bounds), sum(high < 0.3 for _, high in bounds)]
    assert max(misses) <= stats.binom.isf(1e-10, 2000, 0.1)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_proofs_hold_for_randomised_response(epsilon: float) -> None:
    """The mechanism whose epsilon is exactly known: the proof comes close to it and stays below."""
    rng = np.random.default_rng(0)
    truth = 1 / (1 + np.exp(-epsilon))
    without, present = rng.random(40_000) > truth, rng.random(40_000) < truth
    found = proven_epsilon(without.astype(float), present.astype(float), np.array([0.5]), 0.0, 1e-10)
    assert 0.8 * epsilon < found <= epsilon
    assert proven_epsilon(without.astype(float), without.astype(float), np.array([0.5]), 0.0, 1e-10) == 0


def test_chosen_thresholds_prove_no_more_than_the_truth() -> None:
    """Scores that say nothing: whatever threshold looks best, the proof is above 0 at most as often as it may be."""
    rng = np.random.default_rng(0)
    alpha, trials, wrong = 0.1, 1500, 0
    for _ in range(trials):
        found = best_rates(rng.normal(size=90), rng.normal(size=90), lambda a, b: epsilon_of_rates(a, b, 0.0), alpha)
        wrong += epsilon_of_rates(np.array([found.false_alarm_high]), np.array([found.miss_high]), 0.0)[0] > 0
    # More than this has chance 1e-10 at the most that is allowed.
    assert wrong <= stats.binom.isf(1e-10, trials, alpha)


def test_rates_agree_with_counting() -> None:
    rng = np.random.default_rng(2)
    without, present = rng.normal(0, 1, 300), rng.normal(1, 1, 200)
    for rate in rates_at(without, present, np.array([-9.0, 0.1, 0.7, 9.0]), 0.1):
        alarms, misses = int((without > rate.threshold).sum()), int((present <= rate.threshold).sum())
        assert (rate.false_alarm, rate.miss) == (alarms / 300, misses / 200)
        assert rate.false_alarm_high == pytest.approx(clopper_pearson(alarms, 300, 0.05)[1])
        assert rate.miss_high == pytest.approx(clopper_pearson(misses, 200, 0.05)[1])


@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.1])
def test_any_mechanism_of_that_epsilon_keeps_the_bound(delta: float) -> None:
    """Exact rates of Gaussian tests lie on the bound's right side, and on it where the test is the best one."""
    at = np.linspace(-4, 5, 2001)
    proven = epsilon_of_rates(stats.norm.sf(at), stats.norm.cdf(at - 1), max(delta, 1e-12)).max()
    assert proven <= gdp_epsilon(1.0, max(delta, 1e-12)) + 1e-9
    if delta == 0.1:
        assert proven > gdp_epsilon(1.0, delta) - 1e-3


@pytest.mark.parametrize("confidence", [0.9, 0.95, 1 - 1e-6])
def test_too_few_runs_say_how_many_are_needed(confidence: float) -> None:
    alpha = (1 - confidence) / 2
    with refuses("runs") as error:
        check_runs(2, 1e-5, confidence, alpha)
    needed = int(str(error.value).split("at least ")[1].split()[0])
    check_runs(needed, 1e-5, confidence, alpha)
    with pytest.raises(InvalidInput, match=f"at least {needed}"):
        check_runs(needed - 2, 1e-5, confidence, alpha)
    assert largest_provable(needed // 2, 1e-5, alpha) > 0
