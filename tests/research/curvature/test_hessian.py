"""Sharpness: the top of the whole spectrum, wherever it lies."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from privmix.research.curvature.hessian import curvature, sharpness
from privmix.training.examples import PublicData
from privmix.training.gradients.parameters import FlatParameters
from tests.training.public.helpers import Snapshot, mlp, public_data


def spectrum(model: nn.Module, data: PublicData) -> Tensor:
    """All eigenvalues, from the Hessian written out."""
    flat = FlatParameters(model)

    def loss(weights: Tensor) -> Tensor:
        logits = functional_call(model, flat.unflatten(weights), (data.x,))
        return nn.functional.cross_entropy(logits, data.targets)

    return torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, flat.get()))


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


def test_the_model_is_left_as_it_was() -> None:
    model = mlp(dropout=0.5)
    before = Snapshot(model)
    assert sharpness(model, public_data()) == sharpness(model, public_data())
    before.check()


@pytest.mark.parametrize("seed", range(3))
def test_eigenvalues_and_trace_are_those_of_the_hessian(seed: int) -> None:
    """43 weights: the iteration spans them all where it is let, and then nothing is estimated."""
    model, data = mlp(seed), public_data()
    truth = spectrum(model, data)
    found = curvature(model, data, tolerance=0.0)
    torch.testing.assert_close(torch.tensor(found.eigenvalues), truth[-5:].flip(0), atol=1e-4, rtol=1e-3)
    assert found.ratio == pytest.approx(float(truth[-1] / truth[-5]), rel=0.01)
    assert found.trace == pytest.approx(float(truth.sum()), abs=1e-3)
    assert found.trace_error < 1e-3
    quick = curvature(model, data, eigenvalues=2)
    torch.testing.assert_close(
        torch.tensor(quick.eigenvalues), truth[-2:].flip(0), atol=0.02 * float(truth[-1]), rtol=0
    )
    assert quick.eigenvalues[0] == pytest.approx(sharpness(model, data), rel=0.02)


def test_the_trace_of_the_rest_is_estimated_without_bias() -> None:
    """Few steps leave most of the space to the probes: 400 of them, within seven standard errors (below 1e-10)."""
    model, data = mlp(), public_data()
    found = curvature(model, data, eigenvalues=1, iterations=3, probes=400)
    assert found.trace_error > 1e-3
    assert abs(found.trace - float(spectrum(model, data).sum())) < 7 * found.trace_error
