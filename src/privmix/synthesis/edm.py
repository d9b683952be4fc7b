"""The diffusion model of Karras, Aittala, Aila and Laine 2022 ("EDM"): preconditioning, loss, schedule and sampler.

An image y in [-1, 1] is drowned in Gaussian noise of standard deviation sigma; a denoiser D(x; sigma) learns the mean
of what it was. Sampling starts from noise alone and follows dx/dsigma = (x - D(x; sigma)) / sigma down to sigma = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import torch
from torch import Tensor, nn

from privmix.errors import InvalidInput, check_integer, check_number

# (x (b, ...), sigma (b,)) -> D(x; sigma), in the shape and type of x.
DenoiserLike = Callable[[Tensor, Tensor], Tensor]
# (x, sigma (b,), D(x; sigma)) -> what is added to D: how guidance bends the path.
Guidance = Callable[[Tensor, Tensor, Tensor], Tensor]

_HIGHEST: Final = 1e6


@dataclass(frozen=True)
class EdmConfig:
    """Constants of training, with Karras et al.'s values (Table 1, last column).

    Attributes:
        sigma_data: standard deviation of the data, pixels in [-1, 1].
        log_mean, log_std: noise levels of training have ln(sigma) ~ N(log_mean, log_std^2).

    Example:
        >>> EdmConfig().sigma_data
        0.5
    """

    sigma_data: float = 0.5
    log_mean: float = -1.2
    log_std: float = 1.2

    def __post_init__(self) -> None:
        check_number("sigma_data", self.sigma_data, low=0, low_open=True)
        check_number("log_std", self.log_std, low=0, low_open=True)

    def sigmas(self, count: int, generator: torch.Generator) -> Tensor:
        """(count,) noise levels of one batch of training."""
        drawn: Tensor = torch.exp(self.log_mean + self.log_std * torch.randn(count, generator=generator))
        return drawn

    def weight(self, sigma: Tensor) -> Tensor:
        """lambda(sigma), with which every noise level starts with a loss of 1 (section 5)."""
        return (sigma**2 + self.sigma_data**2) / (sigma * self.sigma_data) ** 2


@dataclass(frozen=True)
class SamplerConfig:
    """The deterministic sampler, with Karras et al.'s values for 32 x 32 images.

    Attributes:
        steps: N noise levels above 0; an image takes 2 N - 1 evaluations of the network.
        sigma_min, sigma_max: least and most noise.
        rho: how much the levels crowd at small noise.
        guide_both: guidance bends both slopes of a step, of which weight 1 is the whole correction; otherwise the
            first one alone (Kim et al. 2023), where weight 2 is, and more steps are needed.

    Example:
        >>> [round(level, 3) for level in SamplerConfig(steps=4).levels().tolist()]
        [80.0, 9.723, 0.47, 0.002, 0.0]
    """

    steps: int = 18
    sigma_min: float = 0.002
    sigma_max: float = 80.0
    rho: float = 7.0
    guide_both: bool = False

    def __post_init__(self) -> None:
        check_integer("steps", self.steps, low=2, high=10_000)
        check_number("sigma_min", self.sigma_min, low=0, low_open=True)
        check_number("sigma_max", self.sigma_max, low=self.sigma_min, high=_HIGHEST, low_open=True)
        check_number("rho", self.rho, low=0, low_open=True)

    def levels(self) -> Tensor:
        """(steps + 1,) float64, falling, the last one 0 (equation 5)."""
        place = torch.arange(self.steps, dtype=torch.float64) / (self.steps - 1)
        top, bottom = (sigma ** (1 / self.rho) for sigma in (self.sigma_max, self.sigma_min))
        return torch.cat([(top + place * (bottom - top)) ** self.rho, torch.zeros(1, dtype=torch.float64)])


class Denoiser(nn.Module):
    """A network F with the scalings around it that keep its input and its target at unit variance (equation 7).

    Formal guarantees:
        * Nothing is left to do without noise: D(x; sigma) -> x as sigma -> 0, whatever F is.

    Attributes:
        network: (x (b, ...), c_noise (b,), condition) -> F, in the shape of x.
        config: constants.

    Example:
        >>> denoiser = Denoiser(lambda x, noise, condition: 0 * x, EdmConfig(sigma_data=1.0))
        >>> denoiser(torch.ones(1, 2), torch.tensor([1.0])).tolist()
        [[0.5, 0.5]]
    """

    def __init__(self, network: Any, config: EdmConfig) -> None:
        super().__init__()
        self.network, self.config = network, config

    def forward(self, x: Tensor, sigma: Tensor, condition: Any = None) -> Tensor:
        """(b, ...) noisy inputs and (b,) noise levels -> (b, ...) what they were, on average."""
        data = self.config.sigma_data
        level = sigma.to(x.dtype).reshape(-1, *[1] * (x.dim() - 1))
        total = level**2 + data**2
        skip, out, scale = data**2 / total, level * data / total.sqrt(), 1 / total.sqrt()
        found = self.network((scale * x).float(), sigma.float().log() / 4, condition)
        clean: Tensor = skip * x + out * found.to(x.dtype)
        return clean


def edm_loss(denoiser: Any, images: Tensor, condition: Any, config: EdmConfig, generator: torch.Generator) -> Tensor:
    """Mean over the batch of lambda(sigma) |D(y + n; sigma) - y|^2 a value (equations 2 and 8).

    Args:
        denoiser: as :class:`Denoiser`.
        images: (b, ...) y, in [-1, 1].
        condition: of each record, for the network.
        config: constants.
        generator: of noise levels and noise; its only randomness.
    """
    sigma = config.sigmas(len(images), generator).to(images.device)
    noise = torch.randn(images.shape, generator=generator).to(images.device)
    level = sigma.reshape(-1, *[1] * (images.dim() - 1))
    error = denoiser(images + level * noise, sigma, condition) - images
    loss: Tensor = (config.weight(sigma) * error.square().flatten(1).mean(1)).mean()
    return loss


def sample(
    denoiser: DenoiserLike, noise: Tensor, config: SamplerConfig | None = None, guidance: Guidance | None = None
) -> Tensor:
    """Follow the path from noise to data with Heun's second-order steps (Algorithm 1).

    Args:
        denoiser: D(x; sigma); with its condition inside.
        noise: (b, ...) standard normal, a draw of its own for every image.
        config: noise levels.
        guidance: what it returns is added to D; none: exactly the plain path.

    Returns:
        (b, ...) float64.

    Raises:
        InvalidInput: the path left the numbers: a denoiser or a guidance that isn't one.

    Formal guarantees:
        * Image by image: one image's path depends on its own noise (and on rounding inside the network) alone.

    Example:
        >>> points = sample(lambda x, sigma: torch.zeros_like(x), torch.ones(2, 3))
        >>> points.abs().max().item()
        0.0
    """
    config = config or SamplerConfig()
    levels = config.levels()

    def slope(x: Tensor, level: Tensor, bend: bool) -> Tensor:
        sigma = torch.full((len(x),), float(level), dtype=torch.float64)
        clean = denoiser(x, sigma).to(torch.float64)
        if guidance is not None and bend:
            clean = clean + guidance(x, sigma, clean).to(torch.float64)
        return (x - clean) / level

    x = noise.to(torch.float64) * levels[0]
    for now, then in pairwise(levels):
        first = slope(x, now, True)
        ahead = x + (then - now) * first
        if then > 0:
            ahead = x + (then - now) * (first + slope(ahead, then, config.guide_both)) / 2
        x = ahead
    if not bool(torch.isfinite(x).all()):
        raise InvalidInput("samples", "values that are infinite or not numbers", "a denoiser that was trained")
    return x


def own_noise(seed: int, numbers: range, shape: tuple[int, ...]) -> Tensor:
    """(len(numbers), ...) standard normal: image i's depends on ``seed`` and i alone, so batches change nothing.

    Example:
        >>> bool((own_noise(1, range(0, 3), (2,))[1:] == own_noise(1, range(1, 3), (2,))).all())
        True
    """
    check_integer("seed", seed, low=0, high=2**32 - 1)
    return torch.stack([torch.randn(shape, generator=image_generator(seed, number)) for number in numbers])


def image_generator(seed: int, number: int) -> torch.Generator:
    """The generator of one image's noise."""
    # Spread over 62 bits by odd multipliers: neighbouring numbers must not share streams.
    mixed = (seed * 0x9E3779B97F4A7C15 + number * 0xD1B54A32D192ED03 + 0x632BE59BD9B4E019) % 2**62
    return torch.Generator().manual_seed(mixed)
