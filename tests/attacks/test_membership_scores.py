"""Signals, LiRA, RMIA, AUC and ROC against naive ones; do intervals cover as often as they say?"""

import math

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression

from privmix.accounting import Gaussian, event_to_dict
from privmix.attacks.membership.references import deal_records
from privmix.attacks.membership.scores import (
    ReferenceModels,
    auc_interval,
    class_scores,
    lira_scores,
    rmia_scores,
    tpr_at,
    tpr_bound,
    true_class_logits,
)
from privmix.audits.bounds import clopper_pearson
from tests.refusals import refuses

RECORDS = 3000


def heterogeneous(references: int, seed: int = 0) -> tuple[np.ndarray, ReferenceModels, np.ndarray]:
    """Log-odds of records whose difficulty differs far more than what membership adds."""
    rng = np.random.default_rng(seed)
    difficulty, gain = rng.normal(0, 5, RECORDS), rng.uniform(0.5, 1.5, RECORDS)
    included = deal_records(RECORDS, RECORDS // 2, references, rng)
    members = np.arange(RECORDS) < RECORDS // 2
    draw = rng.normal(0, 0.5, (references + 1, RECORDS))
    logits = difficulty + gain * np.vstack([included, members]) + draw
    return logits[-1], ReferenceModels(logits[:-1], included), members


@pytest.mark.parametrize("references", [4, 16, 64])
@pytest.mark.parametrize("online", [True, False])
def test_lira_is_the_ratio_of_two_gaussians(references: int, online: bool) -> None:
    target, found, _ = heterogeneous(references)
    scores = lira_scores(target, found, online=online)
    spreads = {}
    for side, marks in (("in", found.included), ("out", ~found.included)):
        deviations = [found.logits[marks[:, i], i] - found.logits[marks[:, i], i].mean() for i in range(RECORDS)]
        squares, freedom = np.array([(d**2).sum() for d in deviations]), marks.sum(axis=0) - 1
        pooled = np.full(RECORDS, squares.sum() / freedom.sum())
        spreads[side] = np.sqrt(pooled if references < 64 else squares / freedom)
    for i in range(0, RECORDS, 97):
        inside = found.logits[found.included[:, i], i].mean()
        outside = found.logits[~found.included[:, i], i].mean()
        if online:
            expected = stats.norm(inside, spreads["in"][i]).logpdf(target[i])
            expected -= stats.norm(outside, spreads["out"][i]).logpdf(target[i])
        else:
            expected = (target[i] - outside) / spreads["out"][i]
        assert scores[i] == pytest.approx(expected)


@pytest.mark.parametrize("gamma", [1.0, 2.0])
@pytest.mark.parametrize("online", [True, False])
def test_rmia_counts_pairs(gamma: float, online: bool) -> None:
    target, found, members = heterogeneous(8)
    scores = rmia_scores(target, found, ~members, online=online, gamma=gamma, offline_a=0.4)

    def ratio(i: int) -> float:
        p = 1 / (1 + np.exp(-found.logits[:, i]))
        out, own = p[~found.included[:, i]].mean(), p[found.included[:, i]].mean()
        marginal = (own + out) / 2 if online else (1.4 * out + 0.6) / 2
        return float(1 / (1 + np.exp(-target[i])) / marginal)

    population = np.array([ratio(int(z)) for z in np.flatnonzero(~members)])
    for i in range(0, RECORDS, 211):
        x = ratio(i)
        below, at_most = (population < x / gamma * (1 - 1e-9)).mean(), (population < x / gamma * (1 + 1e-9)).mean()
        assert below <= scores[i] <= at_most


@pytest.mark.parametrize("attack", ["lira", "lira-offline", "rmia", "rmia-offline"])
def test_no_membership_no_success(attack: str) -> None:
    """A target that knows nothing of its members: all attacks guess."""
    target, references, members = heterogeneous(8, seed=3)
    shuffled = np.random.default_rng(4).permutation(members)
    online = not attack.endswith("offline")
    score, own = (lira_scores, ()) if attack.startswith("lira") else (rmia_scores, (~shuffled,))
    scores = score(target, references, *own, online=online)
    # Marks drawn independently of the scores: the AUC has mean 1/2 and variance at most (m + n + 1) / (12 m n); 6
    # standard deviations of that nearly normal figure are exceeded in less than 1e-8 of all runs.
    spread = math.sqrt((RECORDS + 1) / (12 * (RECORDS / 2) ** 2))
    assert abs(auc_interval(scores[shuffled], scores[~shuffled])[0] - 0.5) < 6 * spread


@pytest.mark.parametrize("attack", [lira_scores, lambda *args, **kw: rmia_scores(*args, np.ones(2, bool), **kw)])
def test_too_few_references(attack: object) -> None:
    # Record 1 is left out by one model only.
    included = np.array([[1, 1], [1, 1], [0, 1], [0, 0]], bool)
    few = ReferenceModels(np.zeros((4, 2)), included)
    for online in (True, False):
        with refuses("references"):
            attack(np.zeros(2), few, online=online)  # type: ignore[operator]
    # Record 0 is in no model: enough offline.
    out = ReferenceModels(np.zeros((4, 2)), np.array([[0, 1], [0, 1], [0, 0], [0, 0]], bool))
    attack(np.zeros(2), out, online=False)  # type: ignore[operator]
    with refuses("references"):
        attack(np.zeros(2), out, online=True)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("records", "size", "references"), [(10, 5, 4), (100, 50, 7), (101, 76, 16), (50, 3, 40), (9, 8, 5)]
)
def test_records_are_dealt_evenly(records: int, size: int, references: int) -> None:
    marks = deal_records(records, size, references, np.random.default_rng(0))
    assert marks.shape == (references, records)
    assert (marks.sum(axis=1) == size).all()
    counts = marks.sum(axis=0)
    assert counts.max() - counts.min() <= 1
    assert not (marks[0] == marks[-1]).all()


def test_dealing_favours_no_record() -> None:
    rng, runs = np.random.default_rng(1), 2000
    marks = np.stack([deal_records(10, 7, 3, rng) for _ in range(runs)])
    counts, together = marks[:, 1].sum(axis=0), (marks[:, 1] & marks[:, 2]).sum(axis=0)
    # Each record is in the second model with probability 0.7, and the records are alike: by Hoeffding, a share over
    # 2000 runs is off by 0.07 in less than 2 exp(-2 * 2000 * 0.07^2) < 1e-8.
    assert np.abs(counts / runs - 0.7).max() < 0.07
    assert np.ptp(together / runs) < 0.14


def test_logits_keep_what_probabilities_round_away() -> None:
    scores = np.array([[40.0, 0.0, -1.0], [50.0, 0.0, -1.0]])
    logits = true_class_logits(scores, np.array([0, 0]))
    assert logits == pytest.approx(scores[:, 0] - np.log(1 + np.exp(-1)))
    # From any shift of the scores the same.
    assert true_class_logits(scores + 7, np.array([0, 0])) == pytest.approx(logits)
    for labels in ([0, 3], [-1, 0], [0]):
        with refuses("labels"):
            true_class_logits(np.zeros((2, 3)), np.array(labels))
    small = np.log(np.array([[0.2, 0.5, 0.3]]))
    assert true_class_logits(small, np.array([2])) == pytest.approx(math.log(0.3 / 0.7))


def test_scores_of_classifiers_of_all_kinds() -> None:
    x = np.random.default_rng(5).normal(size=(200, 3))
    model = LogisticRegression().fit(x, np.where(x[:, 0] > 0, 2, 0))
    scores = class_scores(model, x, 3)
    # Class 1 was never seen: it has the least probability.
    assert scores.shape == (200, 3)
    assert (scores[:, 1] < -80).all()
    assert np.exp(scores[:, [0, 2]]) == pytest.approx(model.predict_proba(x))

    class OneScore:
        def decision_function(self, features: np.ndarray) -> np.ndarray:
            return features[:, 0]

    assert class_scores(OneScore(), x, 2)[:, 1] == pytest.approx(x[:, 0])
    with refuses("model"):
        class_scores(object(), x, 2)
    with refuses("model output"):
        class_scores(OneScore(), x, 3)


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
    rest = pytest.approx(1 - 0.05**0.1)
    auc, low, high = auc_interval(np.zeros(10), np.zeros(12), 0.9)
    assert (auc, auc - low, high - auc) == (0.5, rest, rest)
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
    certificate = gaussian_certificate(5.0, epsilon, delta)
    bound = tpr_bound(certificate, rates)
    most = np.minimum(np.exp(epsilon) * rates + delta, 1 - np.exp(-epsilon) * (1 - delta - rates))
    assert (bound <= np.maximum(most, rates) + 1e-12).all()
    assert (bound >= rates).all()
    # No finite epsilon: the curve alone.
    assert (tpr_bound(gaussian_certificate(5.0, None, delta), rates) >= bound).all()
    # Noise follows the noisy count: what ran for one count has a curve that it hasn't for another.
    counted = {**gaussian_certificate(0.01, epsilon, delta), "plan": {"records_noise_multiplier": 30.0}}
    assert tpr_bound(counted, rates[1:3]) == pytest.approx(most[1:3])
