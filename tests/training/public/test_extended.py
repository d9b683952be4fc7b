"""Extended methods: their guarantees, and each against its formula written out."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from privmix.training.gradients.parameters import FlatParameters, SideInformation
from privmix.training.public.base import ExtendedMethod
from privmix.training.public.config import ExtendedConfig
from privmix.training.public.extended import AdaDps, DopeSgd, MirrorDescent, WeightMultiplicity
from privmix.training.public_phase import build_method
from tests.refusals import refuses
from tests.training.public.helpers import Snapshot, mlp, naive_gradient, public_data, source

ALL = ["multiplicity", "dope", "mirror", "adadps", "multiplicity+adadps"]
STEPS = 10


def method_on(model: nn.Module, name: str) -> ExtendedMethod:
    config = ExtendedConfig(name, batch_size=6, perturbations=3, adaptive=True)
    method = build_method(config, source(model), STEPS)
    assert method is not None
    return method


def same(first: SideInformation, second: SideInformation) -> bool:
    pairs = [(getattr(first, name), getattr(second, name)) for name in ("perturbations", "scale", "centre")]
    return all((a is None and b is None) or torch.equal(a, b) for a, b in pairs)


def advance(model: nn.Module, method: ExtendedMethod, steps: range) -> list[tuple[SideInformation, Tensor]]:
    """Run steps whose "private" mean is a function of the step, moving the weights; what each step saw."""
    flat, seen = FlatParameters(model), []
    for step in steps:
        side = method.prepare(step)
        mean = torch.randn(flat.size, generator=torch.Generator().manual_seed(step))
        direction = method.combine(mean, step)
        flat.set(flat.get() - 0.1 * direction)
        seen.append((side, direction))
    return seen


@pytest.mark.parametrize("name", ALL)
def test_repeatable(name: str) -> None:
    """Guarantee: twice, or in a fresh object at the same weights and state, the same bits; other steps differ."""
    model = mlp(dropout=0.3)
    method = method_on(model, name)
    advance(model, method, range(3))
    first = method.prepare(3)
    torch.rand(3)
    assert same(first, method.prepare(3))
    fresh = method_on(model, name)
    fresh.load_state_dict(method.state_dict())
    assert same(first, fresh.prepare(3))
    assert torch.equal(method.combine(torch.ones(43), 3), fresh.combine(torch.ones(43), 3))


@pytest.mark.parametrize("name", ALL)
def test_without_a_trace(name: str) -> None:
    """Guarantee: prepare leaves weights, gradients, mode and generators as they were."""
    model = mlp(dropout=0.3)
    method = method_on(model, name)
    before = Snapshot(model)
    method.prepare(0)
    before.check()


@pytest.mark.parametrize("name", ALL)
def test_public(name: str) -> None:
    """Guarantee: prepare sees no private mean: whatever combine was given, equal weights give equal bits."""
    model = mlp()
    found = []
    for size in (0.0, 1e6):
        method = method_on(model, name)
        method.prepare(0)
        method.combine(torch.full((43,), size), 0)
        found.append(method.prepare(1))
    assert same(*found)


def private_gradients(model: nn.Module, records: int = 8) -> Tensor:
    data = public_data(records, seed=3)
    return torch.stack([naive_gradient(model, data.x[i : i + 1], data.targets[i : i + 1]) for i in range(records)])


def test_dope_clipped_follows_its_formula_and_descends() -> None:
    model, bound = mlp(), 0.3
    private, method = private_gradients(model), DopeSgd(source(model))
    centre = method.prepare(2).centre
    assert centre is not None
    x, targets = method.source.data.batch(2, 6, 7)
    public = naive_gradient(model, x, targets)
    torch.testing.assert_close(centre, public)
    expected = public.clone()
    for row in private - public:
        expected += row * min(1.0, bound / float(row.norm())) / len(private)
    residuals = private - centre
    clipped = residuals * (bound / residuals.norm(dim=1, keepdim=True)).clamp(max=1.0)
    direction = method.combine(clipped.mean(dim=0), 2)
    torch.testing.assert_close(direction, expected)
    assert float(direction @ private.mean(dim=0)) > 0


@pytest.mark.parametrize("name", ["dope", "mirror", "adadps"])
def test_combine_wants_the_step_that_was_prepared(name: str) -> None:
    method = method_on(mlp(), name)
    with pytest.raises(RuntimeError, match=r"prepare\(0\)"):
        method.combine(torch.zeros(43), 0)
    method.prepare(0)
    with pytest.raises(RuntimeError, match="1"):
        method.combine(torch.zeros(43), 1)


def test_combine_uses_the_gradient_at_the_weights_that_prepare_saw() -> None:
    model = mlp()
    method = DopeSgd(source(model, max_norm=1e-3))
    centre = method.prepare(0).centre
    assert centre is not None
    assert float(centre.norm()) == pytest.approx(1e-3, rel=1e-4)
    flat = FlatParameters(model)
    flat.set(flat.get() + 1)
    assert torch.equal(method.combine(torch.zeros(43), 0), centre)


def test_mirror_descent_mixes_by_its_cosine() -> None:
    model = mlp()
    method = MirrorDescent(source(model), steps=8)
    shares = [method.private_share(step) for step in range(12)]
    assert shares == pytest.approx([math.cos(math.pi * step / 16) for step in range(9)] + [0.0] * 3)
    assert same(method.prepare(3), SideInformation())
    x, targets = method.source.data.batch(3, 6, 7)
    mean = torch.linspace(-1, 1, 43)
    expected = shares[3] * mean + (1 - shares[3]) * naive_gradient(model, x, targets)
    torch.testing.assert_close(method.combine(mean, 3), expected)


def test_mirror_descent_begins_as_dp_sgd_and_may_keep_a_floor() -> None:
    method = MirrorDescent(source(mlp()), steps=8, decay_steps=20, floor=0.9)
    method.prepare(0)
    assert torch.equal(method.combine(torch.ones(43), 0), torch.ones(43))
    assert method.private_share(7) == 0.9
    assert MirrorDescent(source(mlp()), steps=8, decay_steps=20).private_share(10) == pytest.approx(math.sqrt(0.5))


def test_adadps_scales_by_the_bias_corrected_second_moment() -> None:
    model, decay, damping = mlp(), 0.8, 0.05
    method = AdaDps(source(model), decay, damping)
    flat, gradients = FlatParameters(model), []
    for step in range(4):
        gradients.append(naive_gradient(model, *method.source.data.batch(step, 6, 7)))
        weights = [decay ** (step - past) for past in range(step + 1)]
        moment = sum(w * g**2 for w, g in zip(weights, gradients, strict=True)) / sum(weights)
        root = moment.sqrt()
        raw = 1 / (root + damping * root.square().mean().sqrt())
        side = method.prepare(step)
        torch.testing.assert_close(side.scale, raw * (root.norm() / (raw * root).norm()), rtol=1e-4, atol=1e-5)
        assert side.centre is None
        mean = torch.linspace(-1, 1, 43)
        assert torch.equal(method.combine(mean, step), mean)
        flat.set(flat.get() - 0.2 * mean)


class Flat(nn.Module):
    """A loss without slope."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros(len(x), 3) + 0 * self.weight


def test_zero_gradients_change_nothing() -> None:
    model = Flat()
    assert AdaDps(source(model)).prepare(0).scale.tolist() == [1.0] * 3
    assert WeightMultiplicity(source(model), perturbations=2).prepare(0).perturbations.tolist() == [[0.0] * 3] * 2
    assert DopeSgd(source(model)).prepare(0).centre.tolist() == [0.0] * 3


def test_adadps_takes_steps_in_order_or_its_state() -> None:
    model = mlp()
    method = method_on(model, "adadps")
    with pytest.raises(RuntimeError, match="saved state"):
        method.prepare(1)
    advance(model, method, range(2))
    with pytest.raises(RuntimeError, match="saved state"):
        method.prepare(1)
    state = method.state_dict()
    kept = {key: value.clone() for key, value in state.items()}
    advance(model, method, range(2, 4))
    assert all(torch.equal(state[key], kept[key]) for key in state)


@pytest.mark.parametrize("name", ALL)
def test_the_state_of_another_method_is_refused(name: str) -> None:
    with refuses("state of the public method"):
        method_on(mlp(), name).load_state_dict({"other": torch.zeros(1)})


@pytest.mark.parametrize("adaptive", [False, True], ids=["plain", "adaptive"])
def test_perturbations_lie_along_gradients_of_separate_public_batches(adaptive: bool) -> None:
    model = mlp()
    method = WeightMultiplicity(source(model), rho=0.2, perturbations=3, adaptive=adaptive)
    found = method.prepare(5).perturbations
    assert found is not None
    assert found.shape == (3, 43)
    scale = FlatParameters(model).get().abs() + 0.01 if adaptive else torch.ones(43)
    for part, row in enumerate(found, start=1):
        gradient = naive_gradient(model, *method.source.data.batch(5, 6, 7, part=part))
        torch.testing.assert_close(row, 0.2 * scale**2 * gradient / (scale * gradient).norm())
        assert float(row @ gradient) > 0
    assert not torch.allclose(found[0], found[1])
    mean = torch.linspace(-1, 1, 43)
    assert torch.equal(method.combine(mean, 5), mean)
