"""Adversarial examples: inside their ball, worse than chance finds, and what training on them is good for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from privmix.training.examples import PublicData
from privmix.training.gradients.parameters import FlatParameters
from privmix.training.public.config import WarmUpConfig
from privmix.training.public.warmup import adversarial, warm_up
from tests.refusals import refuses
from tests.training.public.helpers import Snapshot, mlp, public_data

RADIUS = 0.1


def in_unit_range() -> PublicData:
    data = public_data()
    return PublicData(torch.sigmoid(data.x), data.targets)


def losses(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    with torch.no_grad():
        return nn.functional.cross_entropy(model(x), targets, reduction="none")


@pytest.mark.parametrize("radius", [2 / 255, 8 / 255, 1.0])
@pytest.mark.parametrize("steps", [0, 1, 7])
def test_inside_of_the_ball_and_of_the_unit_range(radius: float, steps: int) -> None:
    """Guarantee, also for images at the ends of the range."""
    model, data = mlp(), in_unit_range()
    x = torch.cat([data.x, torch.zeros(2, 4), torch.ones(2, 4)])
    targets = torch.cat([data.targets, data.targets[:4]])
    before = Snapshot(model)
    found = adversarial(model, FlatParameters(model), x, targets, radius=radius, steps=steps)
    before.check()
    assert found.shape == x.shape
    assert float((found - x).abs().max()) <= radius + 1e-6
    assert float(found.min()) >= 0
    assert float(found.max()) <= 1
    assert not torch.equal(found, x)


def test_ascent_beats_a_random_point_of_the_ball() -> None:
    """For a linear model of two classes the worst corner is known: the ascent ends there."""
    model = nn.Linear(4, 2)
    data = in_unit_range()
    x, targets = data.x * 0.5 + 0.25, torch.eye(2)[torch.arange(24) % 2]
    flat = FlatParameters(model)
    found = adversarial(model, flat, x, targets, radius=RADIUS, steps=8)
    slope = (model.weight[1] - model.weight[0]).detach()
    worst = x + RADIUS * torch.where(targets[:, :1] == 1, slope.sign(), -slope.sign())
    torch.testing.assert_close(found, worst)
    by_chance = adversarial(model, flat, x, targets, radius=RADIUS, steps=0)
    assert bool((losses(model, found, targets) >= losses(model, by_chance, targets)).all())


def test_repeatable_from_its_seed() -> None:
    model, data = mlp(dropout=0.5), in_unit_range()

    def found(seed: int) -> Tensor:
        return adversarial(model, FlatParameters(model), data.x, data.targets, radius=RADIUS, steps=2, seed=seed)

    state = torch.get_rng_state()
    assert torch.equal(found(1), found(1))
    assert not torch.equal(found(1), found(2))
    assert torch.equal(torch.get_rng_state(), state)


def warmed(data: PublicData, model: nn.Module, **settings: object) -> nn.Module:
    given = {"epochs": 2, "batch_size": 10, "optimiser": "sgd", **settings}
    warm_up(model, data, WarmUpConfig(**given), seed=0)  # type: ignore[arg-type]
    return model


def test_radius_0_is_the_plain_warm_up() -> None:
    data = in_unit_range()
    plain, zero, some = (
        FlatParameters(warmed(data, mlp(), **own)).get()
        for own in ({}, {"adversary": 0.0, "adversary_steps": 3}, {"adversary": 1e-3})
    )
    assert torch.equal(plain, zero)
    assert not torch.equal(plain, some)
    # The adversary draws from a generator of its own: what else is random stays, so a tiny ball changes little.
    torch.testing.assert_close(plain, some, atol=1e-3, rtol=0)


def test_images_beyond_the_unit_range_are_refused() -> None:
    model, data = mlp(), in_unit_range()
    with refuses("images for the adversary"):
        adversarial(model, FlatParameters(model), data.x + 1, data.targets, radius=0.1)
