"""The diffusion model of Karras, Aittala, Aila and Laine 2022 ("EDM"): noise levels, scalings and sampler."""

from dataclasses import dataclass, field, replace
from typing import Annotated, Final

import torch
from torch import Tensor

from privmix.errors import check_number
from privmix.fields import Checked, Number, Positive, Whole, check_fields
from privmix.research.synthesis.denoising import Scalings

_HIGHEST: Final = 1e6


@dataclass(frozen=True)
class EdmConfig(Checked):
    """Constants of training, with Karras et al.'s values (Table 1, last column); the network is given classes.

    Formal guarantees:
        * Nothing is left to do without noise: D(x; sigma) -> x as sigma -> 0, for every network.
        * The network's input and its target have unit variance at every level.
    """

    sigma_data: Positive = 0.5
    log_mean: Annotated[float, Number(-10, 10)] = -1.2
    log_std: Positive = 1.2
    name: str = field(default="edm", init=False)
    conditional: bool = field(default=True, init=False)

    def sigmas(self, count: int, generator: torch.Generator) -> Tensor:
        """(count,) noise levels of one batch of training."""
        drawn: Tensor = torch.exp(self.log_mean + self.log_std * torch.randn(count, generator=generator))
        return drawn

    def weight(self, sigma: Tensor) -> Tensor:
        """lambda(sigma), with which every noise level starts with a loss of 1 (section 5)."""
        return (sigma**2 + self.sigma_data**2) / (sigma * self.sigma_data) ** 2

    def scalings(self, sigma: Tensor) -> Scalings:
        """Return the scalings of equation 7: (b,) levels -> (b,) each."""
        data = self.sigma_data
        total = sigma**2 + data**2
        return Scalings(data**2 / total, sigma * data / total.sqrt(), 1 / total.sqrt(), sigma.log() / 4)

    def suited(self, deviation: float, noise_mean: float | None) -> "EdmConfig":
        """With the standard deviation of the images, in hundredths, and another mean of ln(sigma) if given."""
        data = max(round(deviation, 2), 0.01)
        return replace(self, sigma_data=data, log_mean=self.log_mean if noise_mean is None else noise_mean)

    def sampler(self, steps: int) -> "SamplerConfig":
        return SamplerConfig(steps=steps)


@dataclass(frozen=True)
class SamplerConfig:
    """The deterministic sampler, with Karras et al.'s values for 32 x 32 images; 2 N - 1 evaluations for N levels."""

    # `guide_both`: guidance bends both slopes of a step, where weight 1 is the whole correction; otherwise the
    # first alone (Kim et al. 2023), where weight 2 is, and more steps are needed.
    steps: Annotated[int, Whole(2, 10000)] = 18
    sigma_min: Positive = 0.002
    sigma_max: Positive = 80.0
    rho: Positive = 7.0
    guide_both: bool = False
    second_order: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        check_fields(self)
        check_number("sigma_max", self.sigma_max, low=self.sigma_min, high=_HIGHEST, low_open=True)

    def levels(self) -> Tensor:
        """Return (steps + 1,) float64, falling, the last one 0 (equation 5)."""
        place = torch.arange(self.steps, dtype=torch.float64) / (self.steps - 1)
        top, bottom = (sigma ** (1 / self.rho) for sigma in (self.sigma_max, self.sigma_min))
        return torch.cat([(top + place * (bottom - top)) ** self.rho, torch.zeros(1, dtype=torch.float64)])
