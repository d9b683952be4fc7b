"""EDM: scalings, loss, schedule and sampler against what they are for Gaussians."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from privmix.errors import InvalidInput
from privmix.research.synthesis.denoising import Denoiser, denoising_loss, own_noise, sample
from privmix.research.synthesis.edm import EdmConfig, SamplerConfig
from privmix.research.synthesis.guidance import GuidanceConfig, density_ratio_guidance
from tests.refusals import refuses

MEAN, STD = 0.3, 0.7


def gaussian(mean: float = MEAN, std: float = STD):
    """The best denoiser of N(mean, std^2) data: the posterior mean."""

    def denoise(x: Tensor, sigma: Tensor) -> Tensor:
        level = sigma.to(x.dtype)[:, None] ** 2
        return (std**2 * x + level * mean) / (std**2 + level)

    return denoise


def test_without_noise_nothing_is_left_to_do() -> None:
    wild = Denoiser(lambda x, noise, condition: torch.sin(50 * x) + noise[:, None], EdmConfig())
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    near = wild(x, torch.full((5,), 1e-6))
    assert torch.allclose(near, x, atol=1e-4)
    assert not torch.allclose(wild(x, torch.ones(5)), x, atol=1e-2)


def test_scalings_are_those_of_the_paper() -> None:
    """Karras et al. 2022, Table 1: written out anew."""
    seen = {}

    def network(x: Tensor, noise: Tensor, condition: object) -> Tensor:
        seen["x"], seen["noise"] = x, noise
        return torch.ones_like(x)

    sigma, data = 2.0, 0.5
    got = Denoiser(network, EdmConfig(sigma_data=data))(torch.full((1, 1), 3.0), torch.tensor([sigma]))
    root = math.sqrt(sigma**2 + data**2)
    assert seen["x"].item() == pytest.approx(3.0 / root)
    assert seen["noise"].item() == pytest.approx(math.log(sigma) / 4)
    assert got.item() == pytest.approx(3.0 * data**2 / root**2 + sigma * data / root)


@pytest.mark.parametrize("sigma", [0.01, 0.5, 20.0])
def test_suited_to_images_the_network_sees_unit_variance(sigma: float) -> None:
    """Whose deviation is a quarter of what the constants are for."""
    images = 0.12 * torch.randn(20_000, generator=torch.Generator().manual_seed(0))
    noisy = images + sigma * torch.randn(20_000, generator=torch.Generator().manual_seed(1))
    seen = {}
    for config in (EdmConfig(), EdmConfig().suited(float(images.std()), -0.4)):
        scale = config.scalings(torch.tensor([sigma])).scale
        seen[config.sigma_data] = (scale * noisy).var().item()
    assert seen[0.12] == pytest.approx(1, abs=0.1)
    assert sigma > 1 or seen[0.5] < 0.6
    assert config.sigmas(20_000, torch.Generator().manual_seed(2)).log().mean().item() == pytest.approx(-0.4, abs=0.05)


def test_best_denoiser_of_a_gaussian_reaches_the_analytic_loss() -> None:
    """At every level the least squared error is std^2 sigma^2 / (std^2 + sigma^2)."""
    config, generator = EdmConfig(sigma_data=0.5), torch.Generator().manual_seed(0)
    y = MEAN + STD * torch.randn(200_000, 1, generator=generator)
    best = gaussian()
    loss = denoising_loss(lambda x, sigma, condition: best(x, sigma), y, None, config, torch.Generator().manual_seed(1))
    levels = config.sigmas(200_000, torch.Generator().manual_seed(1)).double()
    analytic = (config.weight(levels) * STD**2 * levels**2 / (STD**2 + levels**2)).mean()
    # Of 200,000 draws: one deviation is below half a percent.
    assert loss.item() == pytest.approx(analytic.item(), rel=0.03)
    worse = denoising_loss(lambda x, sigma, condition: 0 * x, y, None, config, torch.Generator().manual_seed(1))
    assert worse.item() > 1.2 * loss.item()


def test_samples_of_a_gaussian_have_its_moments() -> None:
    noise = own_noise(0, range(4000), (2,))
    drawn = sample(gaussian(), noise, SamplerConfig(steps=40))
    exact = MEAN + STD * (noise - noise.mean(0)) / noise.std(0)
    assert torch.allclose(drawn.mean(0), exact.double().mean(0), atol=0.02)
    assert torch.allclose(drawn.std(0), torch.full((2,), STD, dtype=torch.float64), atol=0.02)


def test_samples_of_a_mixture_have_its_moments() -> None:
    """Two narrow Gaussians at -1 and 1, of weights 1/4 and 3/4."""
    centres, weights, std = torch.tensor([-1.0, 1.0], dtype=torch.float64), torch.tensor([0.25, 0.75]), 0.1

    def denoise(x: Tensor, sigma: Tensor) -> Tensor:
        total = std**2 + sigma.double()[:, None] ** 2
        told = torch.softmax(weights.log() - (x - centres) ** 2 / (2 * total), dim=1)
        means = (std**2 * x + (total - std**2) * centres) / total
        return (told * means).sum(1, keepdim=True)

    drawn = sample(denoise, own_noise(0, range(4000), (1,)), SamplerConfig(steps=60))
    # A share of 4000 draws has a deviation of 0.007.
    assert (drawn > 0).double().mean().item() == pytest.approx(0.75, abs=0.04)
    assert drawn[drawn > 0].std().item() == pytest.approx(std, abs=0.02)


def test_heun_is_second_order() -> None:
    """Halving the steps' length quarters the error, for a path that is known in closed form."""
    noise = own_noise(0, range(10), (1,))
    top, bottom = SamplerConfig().sigma_max, 0.0
    scale = STD / math.sqrt(STD**2 + top**2)
    exact = MEAN + scale * (noise.double() * top - MEAN) + bottom
    errors = [
        (sample(gaussian(), noise, SamplerConfig(steps=steps)) - exact).abs().max().item() for steps in (30, 60, 120)
    ]
    assert errors[0] / errors[1] > 3
    assert errors[1] / errors[2] > 3


def test_levels_are_those_of_diffusers() -> None:
    scheduler = pytest.importorskip("diffusers").EDMEulerScheduler(sigma_min=0.002, sigma_max=80.0, rho=7.0)
    scheduler.set_timesteps(18)
    assert torch.allclose(SamplerConfig().levels(), scheduler.sigmas.double(), rtol=1e-5)


def test_noise_of_an_image_is_its_own() -> None:
    together = own_noise(5, range(10, 14), (2, 3))
    assert torch.equal(together[2:], own_noise(5, range(12, 14), (2, 3)))
    assert len(torch.unique(torch.cat([together, own_noise(6, range(10, 14), (2, 3))]))) == 48


def test_weight_zero_is_exactly_unguided() -> None:
    noise = own_noise(0, range(5), (2,))
    bend = density_ratio_guidance(lambda x, sigma: (x**3).sum(1), 0.0)
    assert torch.equal(sample(gaussian(), noise, SamplerConfig(), bend), sample(gaussian(), noise, SamplerConfig()))


@pytest.mark.parametrize(("weight", "both", "steps"), [(1.0, True, 18), (2.0, False, 300)])
def test_density_ratio_of_two_gaussians_moves_the_mean_to_the_right_place(
    weight: float, both: bool, steps: int
) -> None:
    """The model draws N(-0.3, std^2), the data are N(0.5, std^2): the ratio of the densities is known."""

    def ratio(x: Tensor, sigma: Tensor) -> Tensor:
        total = 2 * (STD**2 + sigma[:, None] ** 2)
        return (((x + 0.3) ** 2 - (x - 0.5) ** 2) / total).sum(1)

    noise = own_noise(0, range(500), (2,))
    noise = (noise - noise.mean(0)) / noise.std(0)
    config = SamplerConfig(steps=steps, guide_both=both)
    guided = sample(gaussian(-0.3), noise, config, density_ratio_guidance(ratio, weight))
    assert torch.allclose(guided.mean(0), torch.full((2,), 0.5, dtype=torch.float64), atol=0.03)
    assert torch.allclose(sample(gaussian(-0.3), noise, config).mean(0), torch.tensor(-0.3).double(), atol=0.01)


def test_untrained_path_that_leaves_the_numbers_is_refused() -> None:
    with refuses("samples"):
        sample(lambda x, sigma: x * np.inf, own_noise(0, range(2), (2,)), SamplerConfig())


def test_levels_have_an_order() -> None:
    with refuses("sigma_max"):
        SamplerConfig(sigma_max=0.001)


@pytest.mark.parametrize("width", [4, 12])
def test_a_discriminator_has_whole_groups_of_channels(width: int) -> None:
    with pytest.raises(InvalidInput, match=f"width: got {width}"):
        GuidanceConfig(width=width)
