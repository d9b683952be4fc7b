"""The diffusion model of Ho, Jain and Abbeel 2020 ("DDPM"): unconditional, its network estimates the noise itself.

They write a noisy image as sqrt(a_t) y + sqrt(1 - a_t) e with a_t = (1 - b_1) ... (1 - b_t). Divided by sqrt(a_t), this
is y + sigma_t e with sigma_t = sqrt(1 / a_t - 1). The network's e gives the denoiser D(x; sigma_t) = x - sigma_t e
(Karras et al. 2022, Table 1). The deterministic sampler of Song, Meng and Ermon 2021 ("DDIM") is Euler's method.
"""

from dataclasses import dataclass, field
from typing import Annotated

import torch
from torch import Tensor

from privmix.errors import InvalidInput, check_integer, check_number
from privmix.fields import Checked, Share, Whole, check_fields
from privmix.research.synthesis.denoising import Scalings


@dataclass(frozen=True)
class DdpmConfig:
    """Constants of training (Ho et al., section 4): T levels, b_t linear from b_1 to b_T; no classes."""

    timesteps: Annotated[int, Whole(2, 100000)] = 1000
    beta_first: Share = 1e-4
    beta_last: Share = 0.02
    name: str = field(default="ddpm", init=False)
    conditional: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        check_fields(self)
        check_number("beta_last", self.beta_last, low=self.beta_first, high=1, high_open=True)

    def schedule(self) -> Tensor:
        """(T,) float64: sigma_t, rising."""
        betas = torch.linspace(self.beta_first, self.beta_last, self.timesteps, dtype=torch.float64)
        return torch.expm1(-torch.log1p(-betas).cumsum(0)).sqrt()

    def sigmas(self, count: int, generator: torch.Generator) -> Tensor:
        """(count,) noise levels of one batch of training."""
        return self.schedule().float()[torch.randint(self.timesteps, (count,), generator=generator)]

    def weight(self, sigma: Tensor) -> Tensor:
        """1 / sigma^2, with which the error of D is that of the noise: L_simple (equation 14)."""
        return 1 / sigma**2

    def scalings(self, sigma: Tensor) -> Scalings:
        """Return x - sigma F(sqrt(a_t) x; t), t the step whose level is nearest: (b,) levels -> (b,) each."""
        levels = self.schedule().to(sigma).log()
        told = torch.bucketize(sigma.log(), (levels[1:] + levels[:-1]) / 2)
        return Scalings(torch.ones_like(sigma), -sigma, (1 + sigma**2).rsqrt(), told.to(sigma))

    def suited(self, deviation: float, noise_mean: float | None) -> "DdpmConfig":
        if noise_mean is not None:
            raise InvalidInput("noise_mean", noise_mean, "nothing for ddpm, whose noise levels are fixed")
        return self

    def sampler(self, steps: int) -> "DdimConfig":
        """DDIM's, with ``steps`` of the T levels."""
        return DdimConfig(steps, self)


@dataclass(frozen=True)
class DdimConfig(Checked):
    """The deterministic sampler of Song et al. 2021 (equation 12 at eta = 0): an evaluation of the network a step."""

    # The levels are evenly spaced among those of training, the highest one among them.
    steps: Annotated[int, Whole(2)] = 50
    process: DdpmConfig = field(default_factory=DdpmConfig)
    guide_both: bool = field(default=False, init=False)
    second_order: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("steps", self.steps, low=2, high=self.process.timesteps)

    def levels(self) -> Tensor:
        """Return (steps + 1,) float64, falling, the last one 0."""
        count = self.process.timesteps
        chosen = (count - torch.arange(self.steps, dtype=torch.float64) * count / self.steps).round().long() - 1
        return torch.cat([self.process.schedule()[chosen], torch.zeros(1, dtype=torch.float64)])
