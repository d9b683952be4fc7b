"""DDPM: noise levels, loss and sampler against diffusers and against what they are for Gaussians."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from privmix.research.synthesis.ddpm import DdimConfig, DdpmConfig
from privmix.research.synthesis.denoising import Denoiser, denoising_loss, own_noise, sample
from privmix.research.synthesis.diffusion import train_diffusion
from tests.research.synthesis.test_diffusion import tiny

diffusers = pytest.importorskip("diffusers")

MEAN, STD = 0.3, 0.7
PROCESS = DdpmConfig()


def noise_of_a_gaussian(x: Tensor, step: Tensor, condition: object = None) -> Tensor:
    """The best network for N(MEAN, STD^2) data, in the authors' own terms: E[e | sqrt(a_t) y + sqrt(1 - a_t) e = x]."""
    a = diffusers.DDPMScheduler().alphas_cumprod.double()[step.long()][:, None]
    found: Tensor = (1 - a).sqrt() * (x - a.sqrt() * MEAN) / (a * STD**2 + 1 - a)
    return found


def test_best_network_of_a_gaussian_reaches_the_analytic_loss() -> None:
    """E |e - E[e | x]|^2 = a STD^2 / (a STD^2 + 1 - a), its mean over all steps."""
    y = MEAN + STD * torch.randn(200_000, 1, generator=torch.Generator().manual_seed(0))
    best = Denoiser(noise_of_a_gaussian, PROCESS)
    loss = denoising_loss(best, y.double(), None, PROCESS, torch.Generator().manual_seed(1))
    a = diffusers.DDPMScheduler().alphas_cumprod.double()
    # Of 200,000 draws: one deviation is below half a percent.
    assert loss.item() == pytest.approx((a * STD**2 / (a * STD**2 + 1 - a)).mean().item(), rel=0.03)
    nothing = Denoiser(lambda x, step, condition: torch.zeros_like(x), PROCESS)
    worse = denoising_loss(nothing, y, None, PROCESS, torch.Generator().manual_seed(1))
    assert worse.item() == pytest.approx(1.0, abs=0.03)


def test_paths_are_those_of_diffusers() -> None:
    """DDIM's own update, in the authors' scaling of x."""
    scheduler = diffusers.DDIMScheduler(clip_sample=False, timestep_spacing="trailing")
    scheduler.set_timesteps(20)
    noise = own_noise(0, range(50), (2,))
    drawn = sample(Denoiser(noise_of_a_gaussian, PROCESS), noise, DdimConfig(20))
    top = PROCESS.schedule()[-1]
    theirs = noise.double() * top / (1 + top**2).sqrt()
    for step in scheduler.timesteps:
        theirs = scheduler.step(noise_of_a_gaussian(theirs, step.expand(50)), step, theirs).prev_sample
    assert torch.allclose(drawn, theirs, atol=1e-4)


def test_a_model_is_not_told_of_classes_and_goes_on_where_it_was(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).random((12, 1, 8, 8)).astype(np.float32), np.arange(12) % 3
    whole = train_diffusion(x, y, 3, tiny(4, process=PROCESS))
    train_diffusion(x, y, 3, tiny(2, process=PROCESS), checkpoint=tmp_path)
    resumed = train_diffusion(x, y, 3, tiny(4, process=PROCESS), checkpoint=tmp_path)
    told_otherwise = train_diffusion(x, 2 - y, 3, tiny(4, process=PROCESS))
    for other in (resumed, told_otherwise):
        pairs = zip(whole.denoiser.parameters(), other.denoiser.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    sampler = DdimConfig(4)
    one, other = (
        np.concatenate([*whole.draw(labels, seed=1, sampler=sampler, batch_size=size)]).astype(int)
        for labels, size in ((np.zeros(6, int), 6), (np.arange(6) % 3, 2))
    )
    # Rounding inside the network may move a pixel by one level.
    assert np.abs(one - other).max() <= 1
