"""Signals, LiRA and RMIA: against naive ones, and against the loss where records differ in difficulty."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression

from privmix.attacks.membership.references import deal_records
from privmix.attacks.membership.scores import (
    ReferenceModels,
    auc_interval,
    class_scores,
    lira_scores,
    rmia_scores,
    true_class_logits,
)
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


def auc(scores: np.ndarray, members: np.ndarray) -> tuple[float, float, float]:
    return auc_interval(scores[members], scores[~members])


@pytest.mark.parametrize("references", [4, 16, 64])
@pytest.mark.parametrize("online", [True, False])
def test_lira_is_the_ratio_of_two_gaussians(references: int, online: bool) -> None:
    target, found, _ = heterogeneous(references)
    scores = lira_scores(target, found, online=online)
    spreads = {}
    for side, marks in (("in", found.included), ("out", ~found.included)):
        deviations = [found.logits[marks[:, i], i] - found.logits[marks[:, i], i].mean() for i in range(RECORDS)]
        squares, counts = np.array([(d**2).sum() for d in deviations]), marks.sum(axis=0)
        pooled = np.full(RECORDS, math.sqrt(squares.sum() / (counts - 1).sum()))
        spreads[side] = pooled if references < 64 else np.sqrt(squares / (counts - 1))
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
    if attack.startswith("lira"):
        scores = lira_scores(target, references, online=online)
    else:
        scores = rmia_scores(target, references, ~shuffled, online=online)
    # Marks drawn independently of the scores: the AUC has mean 1/2 and variance at most (m + n + 1) / (12 m n); 6
    # standard deviations of that nearly normal figure are exceeded in less than 1e-8 of all runs.
    spread = math.sqrt((RECORDS + 1) / (12 * (RECORDS / 2) ** 2))
    assert abs(auc(scores, shuffled)[0] - 0.5) < 6 * spread


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
    together = np.zeros(10)
    counts = np.zeros(10)
    for _ in range(runs):
        marks = deal_records(10, 7, 3, rng)
        counts += marks[1]
        together += marks[1] & marks[2]
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
    small = np.log(np.array([[0.2, 0.5, 0.3]]))
    assert true_class_logits(small, np.array([2])) == pytest.approx(math.log(0.3 / 0.7))


def test_scores_of_classifiers_of_all_kinds() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(200, 3))
    y = np.where(x[:, 0] > 0, 2, 0)
    model = LogisticRegression().fit(x, y)
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


def test_labels_outside_the_classes_are_refused() -> None:
    for labels in (np.array([0, 3]), np.array([-1, 0]), np.array([0])):
        with refuses("labels"):
            true_class_logits(np.zeros((2, 3)), labels)
