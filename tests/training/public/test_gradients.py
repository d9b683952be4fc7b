"""Public gradients: right, repeatable, without a trace, and tame when they are not finite."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from privmix.training.gradients.parameters import FlatParameters
from privmix.training.public.base import adaptive_ascent, ascent, public_gradient
from tests.training.public.helpers import CLASSES, Snapshot, mlp, naive_gradient, public_data, source


def test_it_is_the_gradient_of_the_mean_soft_target_cross_entropy() -> None:
    model, data = mlp(), public_data()
    targets = 0.7 * data.targets + 0.3 * data.targets.roll(1, dims=0)
    found = public_gradient(model, FlatParameters(model), data.x, targets)
    torch.testing.assert_close(found, naive_gradient(model, data.x, targets))
    assert not found.requires_grad


def test_without_a_trace() -> None:
    """Guarantee: weights, running averages, gradients and generators are as before, dropout or not."""
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, CLASSES))
    before = Snapshot(model)
    data = public_data()
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
    torch.testing.assert_close(ascent(gradient, 0.2), torch.tensor([0.1, -0.1, 0.1, 0.1]), rtol=1e-3, atol=0)
    found = adaptive_ascent(gradient, torch.ones(4), 0.2, 0.0)
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
