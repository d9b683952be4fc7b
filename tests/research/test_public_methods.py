"""Public gradients; extended methods: names, combinations, guarantees, and each against its formula written out."""

import dataclasses
import math

import pytest
import torch
from torch import Tensor, nn

from privmix.research.public_methods import AdaDps, DopeSgd, MirrorDescent, WeightMultiplicity
from privmix.training.gradients.parameters import FlatParameters, SideInformation
from privmix.training.public.base import (
    ExtendedMethod,
    adaptive_ascent,
    ascent,
    method_names,
    parse_method,
    public_gradient,
    settings_of,
)
from privmix.training.public.config import ExtendedConfig
from privmix.training.public_phase import Combined, build_method
from tests.refusals import refuses
from tests.training.public.helpers import CLASSES, Snapshot, mlp, naive_gradient, public_data, source

ALL = ["multiplicity", "dope", "mirror", "adadps", "multiplicity+adadps"]


def method_on(model: nn.Module, name: str) -> ExtendedMethod:
    config = ExtendedConfig(name, batch_size=6, perturbations=3, adaptive=True)
    return build_method(config, source(model), 10)  # type: ignore[return-value]


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
    """Guarantee: twice, or in a fresh object at the same weights and state, the same bits."""
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
    with refuses("state of the public method"):
        fresh.load_state_dict({"other": torch.zeros(1)})


@pytest.mark.parametrize("name", ALL)
def test_public_and_without_a_trace(name: str) -> None:
    """Guarantee: prepare leaves weights, gradients, mode and generators as they were, and sees no private mean:
    whatever combine was given, equal weights give equal bits.
    """
    model = mlp(dropout=0.3)
    before, found = Snapshot(model), []
    for size in (0.0, 1e6):
        method = method_on(model, name)
        method.prepare(0)
        method.combine(torch.full((43,), size), 0)
        found.append(method.prepare(1))
        before.check()
    assert same(*found)


def test_dope_clipped_follows_its_formula_and_descends() -> None:
    model, bound = mlp(), 0.3
    data, method = public_data(8, seed=3), DopeSgd(source(model))
    private = torch.stack(
        [naive_gradient(model, *one) for one in zip(data.x.split(1), data.targets.split(1), strict=True)]
    )
    centre = method.prepare(2).centre
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
    assert float(centre.norm()) == pytest.approx(1e-3, rel=1e-4)
    FlatParameters(model).set(FlatParameters(model).get() + 1)
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
    flat = source(Flat())
    assert AdaDps(flat).prepare(0).scale.tolist() == [1.0] * 3
    assert WeightMultiplicity(flat, perturbations=2).prepare(0).perturbations.tolist() == [[0.0] * 3] * 2
    assert DopeSgd(flat).prepare(0).centre.tolist() == [0.0] * 3


def test_adadps_takes_steps_in_order_or_its_state() -> None:
    model = mlp()
    method = method_on(model, "adadps")
    for steps in (range(0), range(2)):
        advance(model, method, steps)
        with pytest.raises(RuntimeError, match="saved state"):
            method.prepare(1)
    state = method.state_dict()
    kept = {key: value.clone() for key, value in state.items()}
    advance(model, method, range(2, 4))
    assert all(torch.equal(state[key], kept[key]) for key in state)


@pytest.mark.parametrize("adaptive", [False, True], ids=["plain", "adaptive"])
def test_perturbations_lie_along_gradients_of_separate_public_batches(adaptive: bool) -> None:
    model = mlp()
    method = WeightMultiplicity(source(model), rho=0.2, perturbations=3, adaptive=adaptive)
    found = method.prepare(5).perturbations
    assert found.shape == (3, 43)
    scale = FlatParameters(model).get().abs() + 0.01 if adaptive else torch.ones(43)
    for part, row in enumerate(found, start=1):
        gradient = naive_gradient(model, *method.source.data.batch(5, 6, 7, part=part))
        torch.testing.assert_close(row, 0.2 * scale**2 * gradient / (scale * gradient).norm())
        assert float(row @ gradient) > 0
    assert not torch.allclose(found[0], found[1])
    mean = torch.linspace(-1, 1, 43)
    assert torch.equal(method.combine(mean, 5), mean)


@pytest.mark.parametrize("name", method_names())
def test_every_method_is_built_by_its_name(name: str) -> None:
    method = build_method(ExtendedConfig(name, batch_size=6), source(mlp()), steps=5)
    assert (method is None) if name == "none" else (method is not None and method.name == name)


@pytest.mark.parametrize(
    "name", ["", "dopey", "none+dope", "dope+dope", "dope+mirror", "multiplicity+dope+adadps", "multiplicity+", None]
)
def test_names_that_make_no_method_are_refused(name: str) -> None:
    with refuses("public_method"):
        parse_method(name)
    with refuses("method"):
        ExtendedConfig(name)


@pytest.mark.parametrize("name", ["multiplicity+dope", "dope+multiplicity", "mirror+multiplicity"])
def test_a_combination_does_what_its_parts_do(name: str) -> None:
    model, config = mlp(), ExtendedConfig(name, batch_size=6, perturbations=2)
    both = build_method(config, source(model), steps=5)
    assert isinstance(both, Combined)
    side, mean = both.prepare(1), torch.linspace(-1, 1, 43)
    expected = mean
    for part in name.split("+"):
        alone = build_method(dataclasses.replace(config, method=part), source(model), 5)
        for field, value in vars(alone.prepare(1)).items():
            assert value is None or torch.equal(value, getattr(side, field))
        expected = alone.combine(expected, 1)
    assert torch.equal(both.combine(mean, 1), expected)


def test_a_combination_draws_no_batch_twice() -> None:
    config = ExtendedConfig("multiplicity+dope", batch_size=6, perturbations=2)
    side = build_method(config, source(mlp()), 5).prepare(0)
    for row in side.perturbations:
        assert float(nn.functional.cosine_similarity(row, side.centre, dim=0)) < 0.999


def test_every_method_says_which_settings_it_is_made_with() -> None:
    """A field of the config belongs to the methods that name it, or to the source of public gradients."""
    fields = {field.name for field in dataclasses.fields(ExtendedConfig)}
    used = {name: settings_of(name) for name in method_names() if name != "none"}
    assert set().union(*used.values()) == fields - {"method", "method_options", "batch_size", "max_norm"}
    assert settings_of("none") == used["dope"] == frozenset()
    assert settings_of("multiplicity+adadps") == used["multiplicity"] | used["adadps"]


def test_it_is_the_gradient_of_the_mean_soft_target_cross_entropy() -> None:
    model, data = mlp(), public_data()
    targets = 0.7 * data.targets + 0.3 * data.targets.roll(1, dims=0)
    found = public_gradient(model, FlatParameters(model), data.x, targets)
    torch.testing.assert_close(found, naive_gradient(model, data.x, targets))
    assert not found.requires_grad


def test_without_a_trace() -> None:
    """Guarantee: weights, running averages, gradients and generators are as before, dropout or not."""
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, CLASSES))
    before, data = Snapshot(model), public_data()
    public_gradient(model, FlatParameters(model), data.x, data.targets)
    before.check()


def test_frozen_parameters_are_left_out_and_unused_ones_have_no_slope() -> None:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head, self.unused = nn.Linear(4, 4), nn.Linear(4, CLASSES), nn.Parameter(torch.ones(2))
            self.body.requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(x))

    model, data = Partly(), public_data()
    flat = FlatParameters(model)
    parts = flat.unflatten(public_gradient(model, flat, data.x, data.targets))
    assert set(parts) == {"head.weight", "head.bias", "unused"}
    assert parts["unused"].tolist() == [0.0, 0.0]
    assert bool(parts["head.weight"].any())


@pytest.mark.parametrize("size", [1e-42, 1e-20, 1.0, 1e38])
def test_the_ascent_has_length_rho_whatever_the_gradients_size(size: float) -> None:
    gradient = torch.tensor([1.0, -1.0, 1.0, 1.0]) * size
    for found in (ascent(gradient, 0.2), adaptive_ascent(gradient, torch.ones(4), 0.2, 0.0)):
        torch.testing.assert_close(found, torch.tensor([0.1, -0.1, 0.1, 0.1]), rtol=1e-3, atol=0)


def test_long_gradients_are_cut_and_short_ones_left() -> None:
    model = mlp()
    plain = source(model).at(0)
    norm = float(plain.norm())
    torch.testing.assert_close(source(model, max_norm=norm / 4).at(0), plain / 4)
    assert torch.equal(source(model, max_norm=norm * 4).at(0), plain)


def test_a_gradient_that_is_not_finite_counts_as_zero() -> None:
    model = mlp()
    with torch.no_grad():
        next(iter(model.parameters())).mul_(float("inf"))
    with pytest.warns(UserWarning, match="step 3"):
        assert not bool(source(model).at(3).any())
