"""An audit of the real engine: gradient canaries that nothing hides, the best possible attack, and what it proves.

Proofs are wrong with chance below 1e-9.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from torch import Tensor

from privmix.audits.bounds import proven_epsilon
from privmix.mechanisms.streams import SecretStreams
from privmix.training.batches import Batch, PoissonBatches
from privmix.training.gradients.clipping import Clipping
from privmix.training.mechanisms import dp_sgd as mechanism
from privmix.training.plan import TrainingPlan
from privmix.training.worst_case import attack_training, canary_readings

FALSE_ALARM = 1e-10
CANARIES, RUNS = 200, 200
PLAN = TrainingPlan(CANARIES, 50, 10, 0.9, clip_norm=0.3, delta=0.01)


@functools.cache
def claimed() -> float:
    return PLAN.cost().epsilon


def proven(runs: int = RUNS) -> float:
    thresholds = claimed() * np.linspace(0.2, 1.2, 9)
    found = attack_training(PLAN, 2 * CANARIES * runs, seed=0, directions=2 * CANARIES)
    return proven_epsilon(found.without, found.present, thresholds, PLAN.delta, FALSE_ALARM)


def test_the_best_attack_proves_no_more_than_is_claimed_and_more_than_half_of_it() -> None:
    assert 0.5 * claimed() < proven() <= claimed()


def test_half_the_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = mechanism.noisy_mean

    def half(total: Tensor, plan: TrainingPlan, streams: SecretStreams, step: int) -> Tensor:
        exact = total.float() / plan.units
        return exact + 0.5 * (honest(total, plan, streams, step) - exact)

    monkeypatch.setattr(mechanism, "noisy_mean", half)
    assert proven(RUNS // 2) > claimed()


def test_sampling_everyone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Full batches that are priced at the rate of the plan."""

    def draw(self: PoissonBatches, step: int) -> Batch:
        everyone = np.arange(self.records)
        return Batch(everyone, everyone)

    monkeypatch.setattr(PoissonBatches, "draw", draw)
    assert proven(RUNS // 2) > claimed()


@pytest.mark.parametrize("factor", [2.0, None], ids=["twice-the-bound", "none"])
def test_missing_clipping_is_caught(monkeypatch: pytest.MonkeyPatch, factor: float | None) -> None:
    honest = Clipping.factors

    def factors(self: Clipping, norms: Tensor) -> Tensor:
        return torch.ones_like(norms) if factor is None else factor * honest(self, norms)

    monkeypatch.setattr(Clipping, "factors", factors)
    assert proven(RUNS // 2) > claimed()


def test_noise_that_repeats_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same noise in every second step: steps' differences show the canaries without noise."""
    honest = mechanism.noisy_mean

    def repeated(total: Tensor, plan: TrainingPlan, streams: SecretStreams, step: int) -> Tensor:
        return honest(total, plan, streams, step // 2)

    monkeypatch.setattr(mechanism, "noisy_mean", repeated)
    present = np.arange(2 * CANARIES) < CANARIES
    seen = np.stack([canary_readings(PLAN, present, SecretStreams.from_seed(seed)) for seed in range(20)])
    # Without noise between them, any difference of two steps' sums is a canary that joined one of them.
    apart = np.abs(seen[:, 1::2] - seen[:, ::2]).max(axis=1)
    thresholds = np.array([0.5])
    assert proven_epsilon(apart[:, ~present].ravel(), apart[:, present].ravel(), thresholds, 0.01, 1e-7) > claimed()
