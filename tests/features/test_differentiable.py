"""Extractors with gradients: the same features as the extractor gives, and the slopes that they really have."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from privmix.features.base import Extractor, get_extractor
from privmix.features.identity import Pixels
from privmix.features.projected import Projected
from privmix.features.scattering import Scattering
from tests.features.models import save_vision
from tests.features.test_module import IMAGE, convolutions, program
from tests.refusals import refuses

TOLERANCE = 1e-4


def module(folder: Path) -> Extractor:
    return get_extractor(f"module:{program(convolutions(), folder / 'net.pt2', IMAGE)}")


def vision(folder: Path) -> Extractor:
    pytest.importorskip("transformers")
    return get_extractor("vision", model=str(save_vision("vit", folder / "vit")), image_size=32)


CASES: dict[str, tuple[Callable[[Path], Extractor], tuple[int, ...]]] = {
    "scattering": (lambda _: Scattering(), (28, 28)),
    "scattering-odd": (lambda _: Scattering(), (9, 31)),
    "scattering-colour": (lambda _: Scattering(), (8, 12, 3)),
    "scattering-photographs": (lambda _: Scattering(ycbcr=True, mirror=True), (8, 12, 3)),
    "scattering-large": (lambda _: Scattering(), (60, 50)),
    "pixels": (lambda _: Pixels(), (5, 4, 3)),
    "projected": (lambda _: Projected(Pixels(), 20), (8, 8)),
    "module": (module, (8, 9, 3)),
    "vision": (vision, (20, 24, 3)),
}


def slope_error(features: Callable[[Tensor], Tensor], image: Tensor, step: float) -> float:
    """Relative gap between the gradient along a direction and the central difference along it."""
    generator = torch.Generator().manual_seed(2)
    weights = torch.randn(features(image).shape, generator=generator)
    direction = torch.randn(image.shape, generator=generator)
    leaf = image.clone().requires_grad_()
    (gradient,) = torch.autograd.grad((features(leaf) * weights).sum(), leaf)
    with torch.no_grad():
        ahead, behind = (features(image + sign * step * direction).double() for sign in (1, -1))
        expected = ((ahead - behind) * weights.double()).sum() / (2 * step)
    return float(abs((gradient * direction).sum() - expected) / abs(expected))


@pytest.mark.parametrize("name", CASES)
def test_equals_the_extractor_and_has_its_slopes(name: str, tmp_path: Path) -> None:
    build, shape = CASES[name]
    extractor = build(tmp_path)
    images = np.random.default_rng(0).random((3, *shape), dtype=np.float32)
    expected = extractor.transform(images)  # first, so that weights are loaded the way a release loads them
    features = extractor.differentiable(shape)
    found = features(torch.from_numpy(images).requires_grad_())
    assert found.requires_grad
    assert found.shape == expected.shape
    assert np.abs(found.detach().numpy() - expected).max() < TOLERANCE
    # Resizing cuts what overshoots [0, 1]: stay away from such kinks.
    inner = 0.3 + 0.4 * images if name == "vision" else images
    assert slope_error(features, torch.from_numpy(inner), 1e-3) < 2e-2


def test_a_black_image_has_finite_gradients() -> None:
    black = torch.zeros(1, 28, 28, requires_grad=True)
    Scattering().differentiable((28, 28))(black).sum().backward()
    assert black.grad is not None
    assert bool(torch.isfinite(black.grad).all())


def test_extractors_without_gradients_and_wrong_shapes_are_refused(tmp_path: Path) -> None:
    with refuses("features"):
        get_extractor("tabular:docs/adult.json").differentiable((14,))
    with refuses("input shape for scattering"):
        Scattering().differentiable((28,))
    flat = program(nn.Linear(4, 2), tmp_path / "flat.pt2", (4,))
    with refuses("input shape for module"):
        get_extractor(f"module:{flat}").differentiable((4,))
