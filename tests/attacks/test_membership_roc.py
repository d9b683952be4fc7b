"""AUC, ROC and their intervals: against naive ones, against known answers, and do they cover as often as they say?"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from privmix.accounting import Gaussian, event_to_dict
from privmix.attacks.membership.scores import auc_interval, tpr_at, tpr_bound
from privmix.audits.bounds import clopper_pearson
from tests.refusals import refuses


def naive_auc(members: np.ndarray, nonmembers: np.ndarray) -> float:
    pairs = [(one > other) + (one == other) / 2 for one in members for other in nonmembers]
    return sum(pairs) / len(pairs)


@pytest.mark.parametrize("seed", range(5))
def test_auc_is_the_share_of_pairs_ties_included(seed: int) -> None:
    rng = np.random.default_rng(seed)
    members, nonmembers = rng.integers(0, 8, 30).astype(float) + 1, rng.integers(0, 8, 17).astype(float)
    assert math.isclose(auc_interval(members, nonmembers)[0], naive_auc(members, nonmembers), rel_tol=1e-12)


@pytest.mark.parametrize(
    "shift", [pytest.param(0.0, marks=pytest.mark.thorough), 1.0, pytest.param(2.5, marks=pytest.mark.thorough)]
)
def test_intervals_cover_at_the_stated_rate(shift: float) -> None:
    rng, runs, count, level, rate = np.random.default_rng(1), 400, 200, 0.95, 0.1
    auc = stats.norm.cdf(shift / math.sqrt(2))
    covered_auc = covered_tpr = covered_fpr = 0
    for _ in range(runs):
        members, nonmembers = rng.normal(shift, 1, count), rng.normal(0, 1, count)
        _, low, high = auc_interval(members, nonmembers, level)
        covered_auc += low <= auc <= high
        point = tpr_at(members, nonmembers, rate, level)
        threshold = np.sort(nonmembers)[-int(rate * count) - 1]
        covered_tpr += point.low <= stats.norm.sf(threshold - shift) <= point.high
        covered_fpr += stats.norm.sf(threshold) <= point.fpr_high
    # Clopper-Pearson covers in 95% or more of all runs, exactly; its one-sided end for the false positives uses one
    # record more than are accused, which covers in more than 96%. DeLong's interval is asymptotic: 94% are asked of it.
    # Fewer than so many of 400 come by chance in less than 1e-10; of intervals of two thirds of the width, which cover
    # 81%, in more than 99.9%.
    assert covered_tpr >= stats.binom.ppf(1e-10, runs, 0.95)
    assert covered_fpr >= stats.binom.ppf(1e-10, runs, 0.95)
    assert covered_auc >= stats.binom.ppf(1e-10, runs, 0.94)
    # Nor is it so wide that it says nothing: an interval of twice the width would cover 99.99%.
    assert covered_auc < 398


def test_interval_of_perfect_scores_is_not_a_point() -> None:
    auc, low, high = auc_interval(np.arange(10) + 10.0, np.arange(40.0) - 40, 0.95)
    assert (auc, high) == (1.0, 1.0)
    # Ten independent pairs that all agree: an AUC of less than this gives them in less than 2.5%.
    assert low == pytest.approx(0.025**0.1)
    assert auc_interval(np.arange(40.0) - 40, np.arange(10) + 10.0)[2] == pytest.approx(1 - 0.025**0.1)


def test_interval_of_equal_scores_is_not_a_point() -> None:
    """With ten of each, pairs that differ may be a fourth of all and go unseen in 5% of samples."""
    auc, low, high = auc_interval(np.zeros(10), np.zeros(12), 0.9)
    rest = 1 - 0.05**0.1
    assert (auc, low, high) == (0.5, pytest.approx(0.5 - rest), pytest.approx(0.5 + rest))
    assert auc_interval(np.zeros(2), np.zeros(2)) == (0.5, 0.0, 1.0)


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.05, 0.5, 1.0])
def test_tpr_at_is_that_of_the_lowest_threshold_allowed(rate: float) -> None:
    rng = np.random.default_rng(3)
    # Rounded, so that there are ties.
    members, nonmembers = rng.normal(1, 1, 300).round(1), rng.normal(0, 1, 250).round(1)
    naive = 0.0
    for threshold in [*np.unique(np.concatenate([members, nonmembers])), np.inf]:
        if (nonmembers >= threshold).mean() <= rate:
            naive = max(naive, float((members >= threshold).mean()))
    point = tpr_at(members, nonmembers, rate)
    assert point.tpr == pytest.approx(naive)
    low, high = clopper_pearson(round(naive * 300), 300, 0.025)
    assert (point.low, point.high) == pytest.approx((float(low), float(high)))
    exact = stats.binomtest(round(naive * 300), 300).proportion_ci(0.95, method="exact")
    assert (point.low, point.high) == pytest.approx((exact.low, exact.high))


@pytest.mark.parametrize("wrong", [np.zeros(1), np.zeros((3, 2)), np.array([0.0, np.nan]), np.array([0.0, np.inf])])
def test_wrong_scores_are_refused_without_showing_them(wrong: np.ndarray) -> None:
    with refuses("scores of members"):
        auc_interval(wrong, np.zeros(3))
    with refuses("scores of nonmembers"):
        tpr_at(np.zeros(3), wrong, 0.1)


def gaussian_certificate(mu: float, epsilon: float | None, delta: float) -> dict[str, object]:
    guarantee = {"epsilon": epsilon, "delta": delta, "adjacency": "add_remove"}
    return {"event": event_to_dict(Gaussian(1 / mu)), "guarantee": guarantee}


def test_bound_is_the_best_test_against_a_gaussian_mechanism() -> None:
    rates = np.array([1e-3, 1e-2, 0.1, 0.5])
    bound = tpr_bound(gaussian_certificate(1.0, 4.5, 1e-5), rates)
    best = stats.norm.sf(stats.norm.isf(rates) - 1.0)
    # Never below what the best attacker has; the curve's grid leaves little room above.
    assert (bound >= best - 1e-9).all()
    assert bound == pytest.approx(best, rel=0.01)


def test_bound_is_never_above_what_epsilon_and_delta_leave() -> None:
    rates, epsilon, delta = np.array([0.0, 0.01, 0.3, 0.9, 1.0]), 0.1, 1e-5
    bound = tpr_bound(gaussian_certificate(5.0, epsilon, delta), rates)
    most = np.minimum(np.exp(epsilon) * rates + delta, 1 - np.exp(-epsilon) * (1 - delta - rates))
    assert (bound <= np.maximum(most, rates) + 1e-12).all()
    assert (bound >= rates).all()
    # No finite epsilon: the curve alone.
    assert (tpr_bound(gaussian_certificate(5.0, None, delta), rates) >= bound).all()


def test_bound_of_a_private_count_is_that_of_the_stated_point() -> None:
    """Noise follows the noisy count: what ran for one count has a curve that it hasn't for another."""
    rates, epsilon, delta = np.array([0.01, 0.3]), 4.5, 1e-5
    certificate = {**gaussian_certificate(1.0, epsilon, delta), "plan": {"records_noise_multiplier": 30.0}}
    most = np.minimum(np.exp(epsilon) * rates + delta, 1 - np.exp(-epsilon) * (1 - delta - rates))
    assert tpr_bound(certificate, rates) == pytest.approx(most)
