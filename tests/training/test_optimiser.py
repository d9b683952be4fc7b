from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from privmix.training.config import SCHEDULES, OptimiserConfig
from privmix.training.dp_sgd import Optimiser
from privmix.training.gradients.parameters import FlatParameters

STEPS = 12
CONFIGS = {
    "sgd": OptimiserConfig(learning_rate=0.3),
    "momentum": OptimiserConfig(learning_rate=0.3, momentum=0.9, schedule="cosine", weight_decay=0.01),
    "adam": OptimiserConfig("adam", learning_rate=0.05, schedule="linear", warm_up_steps=3),
    "average": OptimiserConfig(learning_rate=0.3, momentum=0.5, ema_decay=0.9),
}


def model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))


def directions() -> Tensor:
    return torch.randn(STEPS, 26, generator=torch.Generator().manual_seed(1))


def trained(config: OptimiserConfig) -> tuple[FlatParameters, Optimiser]:
    flat = FlatParameters(model())
    optimiser = Optimiser(flat, config, STEPS)
    for step, direction in enumerate(directions()):
        optimiser.step(direction, step)
    return flat, optimiser


def test_sgd_by_hand() -> None:
    config = CONFIGS["momentum"]
    weights, velocity = FlatParameters(model()).get().double(), torch.zeros(26, dtype=torch.float64)
    for step, direction in enumerate(directions().double()):
        velocity = 0.9 * velocity + direction + 0.01 * weights
        weights = weights - config.rate(step, STEPS) * velocity
    flat, optimiser = trained(config)
    assert torch.allclose(flat.get().double(), weights, atol=1e-5)
    assert torch.equal(optimiser.evaluated, flat.get())


def test_average_by_hand() -> None:
    """Its decay starts low: min(0.9, (1 + t) / (10 + t)), so that early weights are forgotten."""
    flat = FlatParameters(model())
    optimiser = Optimiser(flat, CONFIGS["average"], STEPS)
    average = flat.get().double()
    for step, direction in enumerate(directions()):
        optimiser.step(direction, step)
        decay = min(0.9, (1 + step) / (10 + step))
        average = decay * average + (1 - decay) * flat.get().double()
        assert torch.allclose(optimiser.evaluated.double(), average, atol=1e-5)
    assert not torch.allclose(optimiser.evaluated, flat.get(), atol=1e-3)
    assert optimiser.finite
    optimiser.step(torch.where(torch.arange(26) == 3, torch.inf, 0.0), 0)
    assert not optimiser.finite


@pytest.mark.parametrize("name", CONFIGS)
def test_resumed_run_has_the_same_bits(name: str) -> None:
    flat, whole = trained(CONFIGS[name])
    for stop in (0, 1, 5):
        before = Optimiser(FlatParameters(model()), CONFIGS[name], STEPS)
        for step in range(stop):
            before.step(directions()[step], step)
        other = FlatParameters(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)))
        after = Optimiser(other, CONFIGS[name], STEPS)
        after.load(before.state())
        for step in range(stop, STEPS):
            after.step(directions()[step], step)
        assert torch.equal(other.get(), flat.get())
        assert torch.equal(after.evaluated, whole.evaluated)
        states = [{key: value.tolist() for key, value in one.state().items()} for one in (after, whole)]
        assert states[0] == states[1]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_rates(schedule: str) -> None:
    """A linear rise, then never more than the rate that was asked for, never below 0, and never up again."""
    config = OptimiserConfig(learning_rate=2.0, schedule=schedule, warm_up_steps=4)
    rates = [config.rate(step, 20) for step in range(20)]
    assert rates[:5] == [0.5, 1.0, 1.5, 2.0, 2.0]
    assert all(after <= before for before, after in pairwise(rates[4:]))
    later = {"constant": (2.0, 2.0), "linear": (1.0, 2 / 16), "cosine": (1.0, 1 + math.cos(math.pi * 15 / 16))}
    assert (rates[12], rates[-1]) == pytest.approx(later[schedule])
    # A warm-up that is longer than the run.
    assert [config.rate(step, 2) for step in range(2)] == [0.5, 1.0]
