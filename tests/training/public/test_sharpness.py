"""Sharpness: the top of the whole spectrum, wherever it lies."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from privmix.errors import InvalidInput
from privmix.training.examples import PublicData
from privmix.training.gradients.parameters import FlatParameters
from privmix.training.public.sharpness import sharpness
from tests.training.public.helpers import Snapshot, mlp, public_data


def spectrum(model: nn.Module, data: PublicData) -> Tensor:
    """All eigenvalues, from the Hessian written out."""
    flat = FlatParameters(model)

    def loss(weights: Tensor) -> Tensor:
        logits = functional_call(model, flat.unflatten(weights), (data.x,))
        return nn.functional.cross_entropy(logits, data.targets)

    return torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, flat.get()))


@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_largest_eigenvalue(seed: int) -> None:
    model, data = mlp(seed), public_data()
    top = float(spectrum(model, data)[-1])
    assert sharpness(model, data, tolerance=1e-6) == pytest.approx(top, rel=1e-3)
    assert sharpness(model, data) == pytest.approx(top, rel=0.02)


def test_it_does_not_depend_on_the_batch_size() -> None:
    model, data = mlp(), public_data()
    assert sharpness(model, data, batch_size=7) == pytest.approx(sharpness(model, data), rel=1e-4)


class Saddle(nn.Module):
    """Logits (``bend`` a² + b + 2 c, 0) at 0: curvature downwards along a, upwards in the plane of b and c."""

    def __init__(self, bend: float) -> None:
        super().__init__()
        self.bend, self.weights = bend, nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        a, b, c = self.weights.unbind()
        return torch.cat([(self.bend * a**2 + b + 2 * c) * x, torch.zeros_like(x)], dim=1)


@pytest.mark.parametrize("bend", [0.5, 1.25, 20.0], ids=["smaller", "equal", "larger"])
def test_a_negative_eigenvalue_does_not_hide_the_largest(bend: float) -> None:
    data = PublicData(torch.ones(1, 1), torch.tensor([[1.0, 0.0]]))
    values = spectrum(Saddle(bend), data)
    assert float(values[0]) == pytest.approx(-bend)
    assert float(values[-1]) == pytest.approx(1.25)
    assert sharpness(Saddle(bend), data) == pytest.approx(1.25, rel=1e-4)


def test_a_flat_loss_has_none() -> None:
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unused = nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            return torch.zeros(len(x), 3) + 0 * self.unused.sum()

    assert sharpness(Constant(), public_data()) == 0.0


def test_the_model_is_left_as_it_was() -> None:
    model = mlp(dropout=0.5)
    before = Snapshot(model)
    assert sharpness(model, public_data()) == sharpness(model, public_data())
    before.check()


@pytest.mark.parametrize("settings", [{"iterations": 0}, {"tolerance": -1.0}, {"batch_size": 0}], ids=str)
def test_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        sharpness(mlp(), public_data(), **settings)  # type: ignore[arg-type]
