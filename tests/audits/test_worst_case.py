"""Worst cases: the attack's likelihood ratio is the right one, what runs has the audited law, bad input is refused."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from privmix.accounting import Adjacency
from privmix.audits.audit import audit_plan
from privmix.audits.worst_case import attack, exact_pairs, worst_case_of
from privmix.errors import InvalidInput
from privmix.planning import ReleaseConfig
from privmix.training.plan import TrainingPlan
from privmix.training.worst_case import attack_training, audit_training
from tests.refusals import refuses
from tests.releases.helpers import ALL_DESIGNS, EMBEDDINGS, design_name, own_options

EXTRA: list[dict[str, Any]] = [
    {"design": "classwise", "centre": "none"},
    {"design": "hierarchical", "centre": "none", "label_noise_ratio": 2.0},
    {"design": "hierarchical", "centre": "none", "expected_classes": 3.0},
    {"design": "fixed", "centre": "none"},
    {"design": "moments"},
    {"design": "moments", "plain_labels": True},
    {"design": "moments", "centre": "none"},
    {"design": "moments-series", "steps": 3, "centre": "none"},
    *EMBEDDINGS,
]


def config(**choices: Any) -> ReleaseConfig:
    choices.setdefault("rows", None if choices.get("full_batch") else 12)
    own = own_options({"mixup_degree": 20, **choices})
    return ReleaseConfig(records=120, dim=6, classes=("ant", "bee", "cat"), **own)


@pytest.mark.parametrize("choices", [*ALL_DESIGNS, *EXTRA], ids=design_name)
def test_scores_are_log_likelihood_ratios(choices: dict[str, Any]) -> None:
    """E[e^s | absent] = 1 and E[e^-s | present] = 1; with deviations below 3, means of 300 are within 7 errors."""
    case = worst_case_of(config(**choices).with_noise(2.5, 4.0))
    scores = attack(case, 600, seed=1, workers=1)
    for sample in (np.exp(scores.without), np.exp(-scores.present)):
        error = max(sample.std(), 1e-3) / len(sample) ** 0.5
        assert sample.std() < 3
        assert abs(sample.mean() - 1) < 7 * error


@pytest.mark.parametrize("design", ["poisson", "hierarchical", "classwise", "fixed", "moments"])
def test_no_more_is_proven_than_was_priced(design: str) -> None:
    """Of centred plans; test_planted_bugs.py has the others, with more runs. Wrong with chance 2e-10."""
    plan = config(design=design).calibrate(3.0, 0.05)
    found = audit_plan(plan, 3.0, 0.05, runs=600, confidence=1 - 2e-10, seed=2, workers=1)
    assert not found.violated
    assert found.proven_epsilon <= 3
    assert found.to_dict()["points"]["alpha"] == sorted(found.to_dict()["points"]["alpha"], reverse=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_seeded_attacks_repeat_and_halves_are_alike_in_size(workers: int) -> None:
    case = worst_case_of(config(centre="none").with_noise(1.0))
    one, other = attack(case, 150, seed=3, workers=workers), attack(case, 150, seed=3, workers=1)
    np.testing.assert_array_equal(one.present, other.present)
    assert one.without.shape == one.present.shape == (75,)
    assert not np.array_equal(one.present, attack(case, 150, seed=4, workers=1).present)


def test_what_runs_costs_what_the_plan_costs() -> None:
    for choices in ALL_DESIGNS:
        plan = config(**choices).with_noise(1.3)
        runs = worst_case_of(plan).plan
        assert runs.event == plan.event or plan.design == "fixed"
        assert runs.record_rate == pytest.approx(plan.record_rate)
        assert runs.adjacency == plan.adjacency


def test_what_cannot_be_audited_is_refused() -> None:
    with refuses("residual_clip_norm"):
        # The canary would be hidden.
        worst_case_of(config(residual_clip_norm=1.0).with_noise(1.0, 4.0))
    with refuses("microbatch_size"):
        attack_training(TrainingPlan(500, 100, 8, 1.2, clip_norm=1.0, delta=0.01, microbatch_size=4), 100)
    plan = config(centre="none").with_noise(1.0)
    for changed in ({"runs": 4}, {"runs": 1}, {"confidence": 0.2}, {"confidence": 1.0}, {"seed": -1}):
        with pytest.raises(InvalidInput):
            audit_plan(plan, 1.0, 1e-5, **{"runs": 100, **changed})  # type: ignore[arg-type]
    with refuses("delta"):
        audit_plan(plan, 1.0, 1.0, runs=100)


def test_pairs_agree_with_looking_at_all() -> None:
    x = np.random.default_rng(0).integers(0, 6, (40, 2)).astype(float)
    far = np.abs(np.subtract.outer(np.arange(40), np.arange(40)))
    apart = x[:, None] - x[None]
    naive = ((apart == 2) & np.isin(far, (1, 2, 3, 4, 8, 16))[..., None]).sum(axis=1)
    np.testing.assert_array_equal(exact_pairs(x, 1.0, 2.0), naive)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_training_under_both_adjacencies(adjacency: Adjacency) -> None:
    """Wrong with chance 1e-10; the attack is worth something, and not more than the price."""
    plan = TrainingPlan(500, 100, 8, 1.2, clip_norm=3.0, delta=0.01, adjacency=adjacency)
    found = audit_training(plan, plan.cost().epsilon, runs=6000, confidence=1 - 2e-10, seed=0)
    assert not found.violated
    assert 0 < found.proven_epsilon <= plan.cost().epsilon
    assert audit_training(plan, 0.1, runs=6000, confidence=1 - 2e-7, seed=0).violated


@pytest.mark.parametrize(
    "design",
    ["two-stage", *(pytest.param(one, marks=pytest.mark.thorough) for one in ("three-stage", "corrected-moments"))],
)
def test_two_stages_show_the_canary_in_every_query(design: str) -> None:
    """Log-likelihood ratios are those of one Gaussian query of the joint noise."""
    # Three statistics of 400 draws, each beyond its bounds with chance 2e-10; 2/3 of the width is rejected with 1 -
    # 1e-9.
    plan = ReleaseConfig(2000, 5, ("ant", "bee", "cat"), design, rows=1).calibrate(4.0, 1e-3)
    squared = 1 / plan.noise_multiplier**2 + 1 / plan.centre_noise_multiplier**2
    scores = attack(worst_case_of(plan), 800, seed=0, workers=1)
    count = len(scores.without)
    low, high = stats.chi2.ppf([1e-10, 1 - 1e-10], count - 1) / count
    for found in (scores.without, scores.present):
        assert low < found.var() / squared < high
    apart = scores.present.mean() - scores.without.mean()
    assert abs(apart / squared - 1) < stats.norm.isf(1e-10) * (2 / count / squared) ** 0.5
