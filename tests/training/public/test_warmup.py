"""The warm-up: one step against its definition, repeatable runs, flat minima, and adversarial examples."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from privmix.training.examples import PublicData
from privmix.training.gradients.parameters import FlatParameters
from privmix.training.public.config import WarmUpConfig
from privmix.training.public.warmup import adversarial, step_gradient, warm_up
from tests.refusals import refuses
from tests.training.public.helpers import Snapshot, mlp, naive_gradient, public_data

RHO, ETA = 0.3, 0.02


def config(optimiser: str = "sgd", **settings: object) -> WarmUpConfig:
    given = {"epochs": 2, "batch_size": 10, "learning_rate": 0.1, "rho": RHO, "eta": ETA, **settings}
    return WarmUpConfig(optimiser=optimiser, **given)  # type: ignore[arg-type]


def naive_followed_gradient(model: nn.Module, x: Tensor, targets: Tensor, optimiser: str) -> Tensor:
    """Perturb a copy of the model tensor by tensor, and differentiate there."""
    moved = copy.deepcopy(model)
    if optimiser != "sgd":
        gradient = FlatParameters(model).unflatten(naive_gradient(model, x, targets))
        scales = {name: tensor.detach().abs() + ETA for name, tensor in model.named_parameters()}
        if optimiser == "sam":
            scales = {name: torch.ones_like(scale) for name, scale in scales.items()}
        norm = math.sqrt(sum(float(((scales[name] * gradient[name]) ** 2).sum()) for name in gradient))
        with torch.no_grad():
            for name, tensor in moved.named_parameters():
                tensor += RHO * scales[name] ** 2 * gradient[name] / norm
    return naive_gradient(moved, x, targets)


@pytest.mark.parametrize("optimiser", ["sgd", "sam", "asam"])
def test_a_step_follows_the_gradient_of_its_definition(optimiser: str) -> None:
    model, data = mlp(), public_data()
    before = Snapshot(model)
    loss, found = step_gradient(model, FlatParameters(model), data.x, data.targets, config(optimiser))
    before.check()
    torch.testing.assert_close(found, naive_followed_gradient(mlp(), data.x, data.targets, optimiser))
    assert loss == pytest.approx(float(nn.functional.cross_entropy(model(data.x), data.targets).detach()))


@pytest.mark.parametrize("optimiser", ["sgd", "sam", "asam"])
def test_full_batch_epochs_are_momentum_sgd_on_that_gradient(optimiser: str) -> None:
    """With one batch an epoch the order of records does not matter: a plain loop gives the same weights."""
    data, settings = public_data(), config(optimiser, epochs=3, batch_size=24, weight_decay=0.01)
    model, reference = mlp(), mlp()
    warm_up(model, data, settings, seed=0)
    flat = FlatParameters(reference)
    weights, velocity = flat.get(), torch.zeros(flat.size)
    for step in range(3):
        gradient = naive_followed_gradient(reference, data.x, data.targets, optimiser) + 0.01 * weights
        velocity = 0.9 * velocity + gradient
        weights = weights - 0.1 * 0.5 * (1 + math.cos(math.pi * step / 3)) * velocity
        flat.set(weights)
    torch.testing.assert_close(FlatParameters(model).get(), weights)


def trained(seed: int, **settings: object) -> Tensor:
    model = mlp(dropout=0.3)
    warm_up(model, public_data(), config("sam", **settings), seed=seed)
    return FlatParameters(model).get()


def test_repeatable() -> None:
    """Guarantee: equal seeds, equal weights, whatever the global generator holds."""
    first = trained(1)
    torch.rand(5)
    assert torch.equal(first, trained(1))
    assert not torch.equal(first, trained(2))


def test_apart() -> None:
    """Guarantee: global generators, the model's mode and its grad fields are as before."""
    model = mlp(dropout=0.3).eval()
    before = Snapshot(model)
    warm_up(model, public_data(), config("asam"), seed=0)
    assert any(not torch.equal(tensor, before.values[name]) for name, tensor in model.state_dict().items())
    before.values = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    before.check()


def test_an_epoch_visits_every_record_once_with_fresh_seeds() -> None:
    data, visits, seeds = public_data(), [], []

    def augment(x: Tensor, targets: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        visits.append([int((data.x == row).all(dim=1).nonzero()) for row in x])
        seeds.extend(own.tolist())
        return x, targets

    warm_up(mlp(), data, config(), seed=0, augment=augment)
    assert [len(rows) for rows in visits] == [10, 10, 4] * 2
    epochs = [[row for rows in half for row in rows] for half in (visits[:3], visits[3:])]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(24))
    assert epochs[0] != epochs[1]
    assert len(set(seeds)) == 48


def test_frozen_parameters_stay() -> None:
    model = mlp()
    model[0].requires_grad_(False)
    warm_up(model, public_data(), config("sam", epochs=0), seed=0)
    assert torch.equal(model[3].weight, mlp()[3].weight)
    warm_up(model, public_data(), config("sam"), seed=0)
    assert torch.equal(model[0].weight, mlp()[0].weight)
    assert not torch.equal(model[3].weight, mlp()[3].weight)


def test_divergence_is_an_error_that_names_the_learning_rate() -> None:
    model = nn.Sequential(nn.Linear(4, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 3))
    with refuses("warm_up learning_rate"):
        warm_up(model, public_data(), config(learning_rate=1e25, epochs=5), seed=0)


def test_the_cosine_starts_at_the_rate_and_ends_near_zero() -> None:
    assert [config().rate(step, 10) for step in (0, 5, 10)] == pytest.approx([0.1, 0.05, 0.0])
    assert {config(schedule="constant").rate(step, 10) for step in range(10)} == {0.1}


RADIUS = 0.1


def in_unit_range() -> PublicData:
    data = public_data()
    return PublicData(torch.sigmoid(data.x), data.targets)


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
    assert 0 <= float(found.min()) <= float(found.max()) <= 1
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
    losses = [nn.functional.cross_entropy(model(at), targets, reduction="none") for at in (found, by_chance)]
    assert bool((losses[0] >= losses[1]).all())
    with refuses("images for the adversary"):
        adversarial(model, flat, x + 1, targets, radius=0.1)


def test_repeatable_from_its_seed() -> None:
    model, data = mlp(dropout=0.5), in_unit_range()

    def found(seed: int) -> Tensor:
        return adversarial(model, FlatParameters(model), data.x, data.targets, radius=RADIUS, steps=2, seed=seed)

    state = torch.get_rng_state()
    assert torch.equal(found(1), found(1))
    assert not torch.equal(found(1), found(2))
    assert torch.equal(torch.get_rng_state(), state)


def test_radius_0_is_the_plain_warm_up() -> None:
    found = []
    for own in ({}, {"adversary": 0.0, "adversary_steps": 3}, {"adversary": 1e-3}):
        model = mlp()
        warm_up(model, in_unit_range(), WarmUpConfig(epochs=2, batch_size=10, optimiser="sgd", **own), seed=0)
        found.append(FlatParameters(model).get())
    plain, zero, some = found
    assert torch.equal(plain, zero)
    assert not torch.equal(plain, some)
    # The adversary draws from a generator of its own: what else is random stays, so a tiny ball changes little.
    torch.testing.assert_close(plain, some, atol=1e-3, rtol=0)
