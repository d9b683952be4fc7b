"""Bounds by the means of scores: they cover, they are sharp, they withdraw, and they find too little noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from privmix.accounting import Adjacency, FixedSizeSampled, Gaussian, PoissonSampled, Repeated, epsilon, gdp_mu
from privmix.accounting.overlap import log_overlap
from privmix.audits.audit import audit_plan
from privmix.audits.score_means import (
    AssumedBounds,
    gaussian_doubt,
    gaussian_mu,
    log_overlap_high,
    overlap_refutes,
    own_noise,
)
from privmix.audits.worst_case import real_engine
from privmix.engine.rows import Engine, PrivateRecords
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.plans.plan import Plan
from privmix.training.plan import TrainingPlan
from privmix.training.worst_case import attack_training

DELTA = 1e-5
ADD = Adjacency.ADD_REMOVE


def ratios(rng: np.random.Generator, mu: float, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Log-likelihood ratios of mu-GDP."""
    return rng.normal(-(mu**2) / 2, mu, size), rng.normal(mu**2 / 2, mu, size)


def most(trials: int, alpha: float) -> float:
    """More errors of chance ``alpha`` than this have a chance below 1e-10."""
    return float(stats.binom.isf(1e-10, trials, alpha))


@pytest.mark.parametrize(("mu", "size"), [(0.27, 30), (0.27, 300), (1.67, 30), (1.67, 300)])
def test_both_bounds_cover(mu: float, size: int) -> None:
    """Of mechanisms that are as stated: small samples by the exact law, large ones by its approximation."""
    rng, trials, alpha, above, under = np.random.default_rng(size), 400, 0.1, 0, 0
    for _ in range(trials):
        without, present = ratios(rng, mu, size)
        above += gaussian_mu(without, present, alpha) > mu
        under += log_overlap_high(without, present, alpha) < -(mu**2) / 8
    assert above <= most(trials, alpha)
    assert under <= most(trials, alpha)


def test_the_overlap_covers_whatever_scores_are() -> None:
    """Heavy tails, atoms and scores that are no ratios: the bound stays above the true overlap of what is scored."""
    rng, trials, alpha = np.random.default_rng(1), 300, 0.1
    truth = -(0.5**2) / 8
    statistics: list[Callable[[np.ndarray], np.ndarray]] = [
        lambda z: 40 * z,
        lambda z: np.sign(z - 0.25),
        lambda z: np.exp(3 * z),
        lambda z: 0.5 * z - 0.125,
    ]
    for number, score in enumerate(statistics):
        wrong = sum(
            log_overlap_high(score(rng.normal(size=200)), score(rng.normal(0.5, 1, 200)), alpha) < truth
            for _ in range(trials)
        )
        assert wrong <= most(trials, alpha), number


@pytest.mark.parametrize(("claimed", "by_gaussian", "by_noise"), [(1.0, 0.8, 0.7), (8.0, 7.6, 7.5)])
def test_ten_thousand_runs_come_near_the_truth(claimed: float, by_gaussian: float, by_noise: float) -> None:
    """Medians of 21: that of a bound is as far below the truth as its confidence asks for."""
    rng, mu = np.random.default_rng(2), gdp_mu(claimed, DELTA)
    found = [AssumedBounds.of(*ratios(rng, mu, 5000), Gaussian(1 / mu), ADD, DELTA, 0.05) for _ in range(21)]
    assert all(one.doubt == "" for one in found)
    assert np.median([one.gaussian_epsilon for one in found if one.gaussian_epsilon is not None]) > by_gaussian
    assert np.median([one.own_noise_epsilon for one in found if one.own_noise_epsilon is not None]) > by_noise


def test_gaussian_scores_are_hardly_doubted_and_others_are() -> None:
    rng = np.random.default_rng(3)
    doubted = sum(gaussian_doubt(*ratios(rng, 1.0, 300)) != "" for _ in range(500))
    assert doubted <= most(500, 1e-3)
    without, present = ratios(rng, 1.0, 4000)
    mixed = np.where(rng.random(4000) < 0.05, present + 3, present)
    flat = rng.uniform(-1, 1, 4000)
    for one, other in ((mixed, present), (without, mixed), (flat, present), (without, 1.2 * present), (without, flat)):
        assert gaussian_doubt(one, other) != ""
    assert gaussian_doubt(without[:30], present[:30]) == "fewer than 40 scores of a kind"
    assert gaussian_doubt(np.zeros(100), present) == "scores are all the same"
    found = AssumedBounds.of(mixed, present, Gaussian(1.0), ADD, DELTA, 0.05)
    assert (found.gaussian_mu, found.gaussian_epsilon) == (None, None)
    assert "skewed" in found.doubt or "tails" in found.doubt


def test_scores_that_say_nothing_prove_nothing() -> None:
    rng = np.random.default_rng(4)
    one, other = rng.normal(size=2000), rng.normal(size=2000)
    assert gaussian_mu(other, one, 1e-10) == 0
    assert log_overlap_high(one, other, 1e-10) == 0
    assert own_noise(one, other, Gaussian(1.0), ADD, DELTA, 1e-10) == (None, 0.0)
    assert gaussian_mu(np.zeros(50), np.zeros(50), 0.05) == 0
    assert log_overlap_high(one[:1], other[:1], 0.05) == 0


def test_noise_of_two_thirds_is_rejected_and_the_planned_one_passes() -> None:
    """Of a sampled plan, whose scores are no Gaussian ones; both errors have chances below 1e-9."""
    plan = Repeated(PoissonSampled(0.05, Gaussian(1.0)), 40)
    rng, size = np.random.default_rng(5), 8000

    def scored(noise: float, present: bool) -> np.ndarray:
        joined = (rng.random((size, 40)) < 0.05) & present
        seen = joined + noise * rng.normal(size=(size, 40))
        return np.asarray(np.log1p(0.05 * np.expm1((2 * seen - 1) / 2)).sum(axis=1))

    true = scored(1.0, False), scored(1.0, True)
    assert not overlap_refutes(*true, plan, ADD, 1e-10)
    own = own_noise(*true, plan, ADD, DELTA, 1e-10)[1]
    priced = epsilon(plan, DELTA).epsilon
    assert own is not None
    assert 0 < own <= priced
    less = scored(2 / 3, False), scored(2 / 3, True)
    assert overlap_refutes(*less, plan, ADD, 1e-10)
    own = own_noise(*less, plan, ADD, DELTA, 0.05)[1]
    assert own is not None
    assert priced < own <= epsilon(Repeated(PoissonSampled(0.05, Gaussian(2 / 3)), 40), DELTA).epsilon


def test_rows_of_a_fixed_size_say_nothing_of_their_own_noise() -> None:
    """A row takes another record where it does not take this one: a pair that overlaps less than opposite records."""
    plan = Repeated(FixedSizeSampled(1000, 1, Gaussian(0.4)), 1000)
    # The other record is the opposite one: the row moves by 2, or not at all.
    nearer = Repeated(PoissonSampled(0.001, Gaussian(0.2)), 1000)
    assert log_overlap(nearer, ADD) < log_overlap(plan, Adjacency.REPLACE_ONE) < 0
    scores = ratios(np.random.default_rng(6), 3.0, 2000)
    assert own_noise(*scores, plan, Adjacency.REPLACE_ONE, DELTA, 0.05) == (None, None)
    assert not overlap_refutes(*scores, plan, Adjacency.REPLACE_ONE, 0.05)


def test_a_release_with_two_thirds_of_its_noise_is_refuted_by_its_scores() -> None:
    """Epsilon 1, where thresholds show nothing. The real engine fails with chance 1e-10."""
    config = ReleaseConfig(records=2000, dim=1, classes=("a", "b"), design="moments", centre="none")
    plan = config.calibrate(1.0, DELTA)

    def weaker(plan: Plan, records: PrivateRecords, streams: SecretStreams) -> Engine:
        return real_engine(replace(plan, noise_multiplier=plan.noise_multiplier * 2 / 3), records, streams)  # type: ignore[call-arg]

    how = {"runs": 20_000, "seed": 0}
    assert not audit_plan(plan, 1.0, DELTA, confidence=1 - 1e-10, **how).violated  # type: ignore[arg-type]
    found = audit_plan(plan, 1.0, DELTA, make=weaker, confidence=1 - 1e-6, **how)  # type: ignore[arg-type]
    assert found.violated
    assert found.below_curve
    assert found.proven_epsilon < 1
    assert found.assumed.doubt == ""
    assert found.assumed.gaussian_epsilon is not None
    assert found.assumed.gaussian_epsilon > 1


def test_training_comes_near_its_claim() -> None:
    """DP-SGD whose batches are a fifth of the records; the false alarm has chance 1e-10."""
    plan = TrainingPlan(1000, 200, 10, 2.0, clip_norm=1.0, delta=DELTA)
    claimed = plan.cost().epsilon
    scores = attack_training(plan, 10_000, seed=0)
    assert not overlap_refutes(scores.without, scores.present, plan.event, ADD, 1e-10)
    own = own_noise(scores.without, scores.present, plan.event, ADD, DELTA, 0.05)[1]
    assert own is not None
    assert 0.6 * claimed < own <= claimed
