"""EDM: scalings, loss, schedule and sampler against what they are for Gaussians."""

import math

import pytest
import torch
from torch import Tensor

from privmix.research.synthesis.denoising import Denoiser, denoising_loss, own_noise, sample
from privmix.research.synthesis.edm import EdmConfig, SamplerConfig
from privmix.research.synthesis.guidance import density_ratio_guidance

MEAN, STD = 0.3, 0.7


def gaussian(mean: float = MEAN, std: float = STD):
    """The best denoiser of N(mean, std^2) data: the posterior mean."""

    def denoise(x: Tensor, sigma: Tensor) -> Tensor:
        level = sigma.to(x.dtype)[:, None] ** 2
        return (std**2 * x + level * mean) / (std**2 + level)

    return denoise


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
