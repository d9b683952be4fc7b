import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from privmix.training.gradients.config import AUTOMATIC, CLIPPINGS, FLAT
from privmix.training.gradients.parameters import Clipping, lengths
from tests.refusals import refuses

both_kinds = pytest.mark.parametrize("kind", CLIPPINGS)


def clipped(gradient: Tensor, clipping: Clipping) -> Tensor:
    """The gradient times its factor, in float32 as the strategies do it."""
    return gradient * clipping.factors(lengths(gradient[None])).float()


@both_kinds
@given(exponent=st.floats(-40, 38), bound=st.floats(-6, 6), spread=st.floats(0, 6), seed=st.integers(0, 2**32))
def test_bounded_at_any_length(kind: str, exponent: float, bound: float, spread: float, seed: int) -> None:
    """Lengths from denormal to the largest float32, even and uneven vectors."""
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(50, generator=generator) * torch.logspace(0, -spread, 50)
    gradient = (direction / direction.abs().max()) * (10.0**exponent if exponent < 38 else 3e38)
    clip_norm = 10.0**bound
    assert float(clipped(gradient, Clipping(clip_norm, kind)).double().norm()) <= clip_norm


@both_kinds
def test_bounded_after_rounding_with_millions_of_entries(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    random = torch.randn(3_000_000, generator=generator)
    for gradient in (random, torch.full((3_000_000,), 0.1), torch.cat([torch.tensor([3000.0]), random])):
        found = float(clipped(gradient, Clipping(0.1, kind)).double().norm())
        assert 0.1 * (1 - 1e-4) < found <= 0.1
    # The worst a vector can do: all entries equal, so that all errors have one sign.
    for entry in torch.rand(300, generator=generator).tolist():
        gradient = torch.full((1000,), 1.0 + entry)
        assert float(clipped(gradient, Clipping(0.7, kind)).double().norm()) <= 0.7


@both_kinds
def test_total_on_norms_that_are_no_numbers(kind: str) -> None:
    norms = torch.tensor([math.nan, math.inf, -math.inf, 1.0, 0.0])
    factors = Clipping(1.0, kind).factors(norms)
    assert factors[:3].tolist() == [0.0, 0.0, 0.0]
    assert bool((factors[3:] > 0).all())
    assert bool(torch.isfinite(factors).all())
    # A factor among float32's smallest numbers may be rounded to twice itself.
    assert Clipping(1e-7, kind).factors(torch.tensor([1e38, 1e300], dtype=torch.float64)).tolist() == [0.0, 0.0]


@both_kinds
@pytest.mark.parametrize("bound", [1e-30, 1e-3, 1.0, 1e25])
def test_no_rounding_of_a_norm_makes_or_breaks_a_share(kind: str, bound: float) -> None:
    """Up to the largest float32 and past it, what a record adds is continuous in its norm, as a share of the bound."""
    norms = torch.logspace(-45, 39, 200_001, dtype=torch.float64)
    share = Clipping(bound, kind).factors(norms) * norms / bound
    # A step of the norm is a thousandth of it: shares move by no more than that.
    assert float(share.diff().abs().max()) < 1.1e-3
    assert float(share[norms > 1e36].max()) == 0.0


@both_kinds
def test_own_record_only(kind: str) -> None:
    norms = torch.tensor([0.1, 5.0, math.nan, 2.0], dtype=torch.float64)
    clipping = Clipping(1.0, kind)
    assert clipping.factors(norms).tolist() == [float(clipping.factors(norms[i : i + 1])) for i in range(4)]


def test_flat_leaves_short_gradients_alone_and_automatic_normalises() -> None:
    """AUTO-S: C / (norm + gamma) at every length."""
    norms = torch.tensor([0.0, 1e-30, 0.5, 0.999, 2.0, 100.0], dtype=torch.float64)
    factors = Clipping(1.0, FLAT).factors(norms)
    assert factors[:4].tolist() == [1.0] * 4
    assert factors[4:].tolist() == pytest.approx([0.5, 0.01], rel=1e-5)
    factors = Clipping(0.3, AUTOMATIC, gamma=0.05).factors(norms)
    assert factors.tolist() == pytest.approx([0.3 / (norm + 0.05) for norm in norms.tolist()], rel=1e-5)


def test_lengths_are_exact_and_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = torch.rand(7, 1000, generator=torch.Generator().manual_seed(0))
    found = lengths(vectors)
    assert torch.allclose(found, vectors.double().square().sum(1).sqrt(), rtol=1e-14)
    monkeypatch.setattr("privmix.training.gradients.parameters.CPU_BLOCK", 2500)
    assert torch.equal(lengths(vectors), found)
    assert lengths(vectors[:0]).shape == (0,)
    assert float(lengths(torch.full((1, 4), 3e38))[0]) == pytest.approx(6e38)


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, 1e-31, 1e26, math.inf, math.nan])
def test_bounds_with_which_sums_would_leave_the_range_of_float32_are_refused(clip_norm: float) -> None:
    """A sum of a few records that overflows, where one record fewer did not, moves by more than any bound."""
    with refuses("clip_norm"):
        Clipping(clip_norm)
