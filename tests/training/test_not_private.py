"""Training without noise: the same training but for the noise, and nothing that can pass for private."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import privmix as pm
from privmix.mechanisms.streams import SecretStreams
from privmix.training.not_private import NotPrivateModel, train_without_noise
from privmix.training.plan import TrainingPlan
from privmix.training.public.config import ExtendedConfig, WarmUpConfig
from privmix.training.trainer import Trainer
from tests.refusals import refuses
from tests.training.runs import config_of, digits, job_of, private, public, weights_of


def without_noise(epsilon: float, seed: int = 0, **changes: object) -> NotPrivateModel:
    given = {
        "epsilon": epsilon,
        "optimiser": "sgd:learning_rate=1",
        "warm_up": WarmUpConfig(epochs=1, batch_size=20),
        **changes,
    }
    job = job_of(config_of(**given), public=public() if "scenario" in given else None)
    return train_without_noise(job, private(), streams=SecretStreams.from_seed(seed))


@pytest.mark.parametrize(
    "changes",
    [{}, {"scenario": "extended", "extended": ExtendedConfig("dope", batch_size=20)}, {"microbatch_size": 4}],
    ids=["plain", "extended", "microbatches"],
)
def test_the_noise_of_the_plan_has_no_part_in_it(changes: dict[str, object]) -> None:
    """Ten thousand times the noise, the same batches: the same weights to the last bit."""
    first, second = without_noise(1000.0, **changes), without_noise(0.1, **changes)
    assert torch.equal(weights_of(first), weights_of(second))
    assert not torch.equal(weights_of(first), weights_of(without_noise(1000.0, seed=1, **changes)))


def test_it_is_the_private_training_as_its_noise_vanishes() -> None:
    settings = {"epochs": 0.3, "epsilon": 1e6}
    job = job_of(config_of(**settings))
    noisy = job.run(private(), streams=SecretStreams.from_seed(0))
    clean = train_without_noise(job, private(), streams=SecretStreams.from_seed(0))
    start = weights_of(job_of())
    private_weights = weights_of(noisy)
    moved = float((weights_of(clean) - start).norm())
    assert 0 < float((private_weights - weights_of(clean)).norm()) < 0.2 * moved


def test_nothing_of_it_passes_for_private(tmp_path: Path) -> None:
    """It has no certificate and no way to a folder; a plan without noise is none, and nobody can ask for one."""
    model = without_noise(8.0)
    assert repr(model).startswith("<NOT PRIVATE")
    for name in ("certificate", "write", "save"):
        assert not hasattr(model, name)
    assert model.predict(digits(400, 50)[0]).shape == (50,)
    with refuses("noise_multiplier"):
        TrainingPlan(200, 20, 5, 0.0, clip_norm=1.0, delta=1e-3, epsilon=8.0)
    for epsilon in (float("inf"), 0.0):
        with refuses("epsilon"):
            pm.train(digits(), epsilon=epsilon, delta=1e-3, classes=range(10), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_certified_run_starts_from_it() -> None:
    """Its weights, called initial ones, would have a certificate of 0 for the private records in them."""
    job = job_of()
    start = weights_of(job).clone()
    model = train_without_noise(job, private(), streams=SecretStreams.from_seed(0))
    with refuses("network"):
        Trainer(job.config, job.facts, records=len(private()), network=model.network)
    left = weights_of(job)
    assert torch.equal(left, start)
    assert not torch.equal(weights_of(model), start)
