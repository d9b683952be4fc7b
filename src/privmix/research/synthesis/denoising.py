"""The common parts of diffusion models: a denoiser, its loss, paths from noise to data (Karras et al. 2022, Table 1).

An image y in [-1, 1] gets Gaussian noise of standard deviation sigma; a denoiser D(x; sigma) learns the mean of y.
Sampling starts from noise alone and follows dx/dsigma = (x - D(x; sigma)) / sigma down to sigma = 0.
Models differ in a :class:`NoiseProcess`: input and target of the network inside D, noise levels of training, and path.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from privmix.errors import InvalidInput, check_integer

# (x (b, ...), sigma (b,)) -> D(x; sigma), in the shape and type of x.
DenoiserLike = Callable[[Tensor, Tensor], Tensor]
# (x, sigma (b,), D(x; sigma)) -> what is added to D: how guidance bends the path.
Guidance = Callable[[Tensor, Tensor, Tensor], Tensor]


class Scalings(NamedTuple):
    """The factors around a network F: D(x; sigma) = skip x + out F(scale x; level), each (b,)."""

    skip: Tensor
    out: Tensor
    scale: Tensor
    told: Tensor


class DenoisingSampler(Protocol):
    """By which noise levels a path goes down, and how."""

    @property
    def second_order(self) -> bool:
        """Whether a step takes the mean of two slopes (Heun) instead of one (Euler)."""

    @property
    def guide_both(self) -> bool:
        """Whether guidance bends the second slope, too."""

    def levels(self) -> Tensor:
        """Return (steps + 1,) float64, falling, the last one 0."""


class NoiseProcess(Protocol):
    """The constants of a model's noise: a frozen dataclass, which checkpoints and cards hold."""

    @property
    def name(self) -> str:
        """The model's name."""

    @property
    def conditional(self) -> bool:
        """Whether the network gets each image's class; otherwise labels are found afterwards."""

    def sigmas(self, count: int, generator: torch.Generator) -> Tensor:
        """(count,) noise levels of one batch of training."""

    def weight(self, sigma: Tensor) -> Tensor:
        """Weight of the squared error at these levels."""

    def scalings(self, sigma: Tensor) -> Scalings:
        """Return the factors around the network at (b,) levels."""

    def sampler(self, steps: int) -> DenoisingSampler:
        """Return a sampler with ``steps`` noise levels above 0."""

    def suited(self, deviation: float, noise_mean: float | None) -> "NoiseProcess":
        """Return this process for images of that deviation; with another training mean of ln(sigma) if given."""


class Denoiser(nn.Module):
    """A network F, (x (b, ...), c_noise (b,), condition) -> like x, with its process's scalings (equation 7)."""

    def __init__(self, network: Any, process: NoiseProcess) -> None:
        super().__init__()
        self.network: Final = network
        self.process: Final = process

    def forward(self, x: Tensor, sigma: Tensor, condition: Any = None) -> Tensor:
        """(b, ...) noisy inputs and (b,) noise levels -> (b, ...) what they were, on average."""
        found = self.process.scalings(sigma.to(x.dtype))
        skip, out, scale = (one.reshape(-1, *[1] * (x.dim() - 1)) for one in found[:3])
        clean: Tensor = skip * x + out * self.network((scale * x).float(), found.told.float(), condition).to(x.dtype)
        return clean


def denoising_loss(
    denoiser: Any,
    images: Tensor,
    condition: Any,
    process: NoiseProcess,
    generator: torch.Generator,
    part: slice = slice(None),
) -> Tensor:
    """Mean over the batch of lambda(sigma) |D(y + n; sigma) - y|^2 a value (equations 2 and 8); y in [-1, 1]."""
    # `part` of the batch: its share of the mean. Noise is drawn for the whole batch, so that parts sum to it.
    size = len(images)
    sigma = process.sigmas(size, generator)[part].to(images.device)
    noise = torch.randn(images.shape, generator=generator)[part].to(images.device)
    images = images[part]
    level = sigma.reshape(-1, *[1] * (images.dim() - 1))
    error = denoiser(images + level * noise, sigma, condition) - images
    loss: Tensor = (process.weight(sigma) * error.square().flatten(1).mean(1)).sum() / size
    return loss


def sample(
    denoiser: DenoiserLike, noise: Tensor, sampler: DenoisingSampler, guidance: Guidance | None = None
) -> Tensor:
    """Follow the path from noise (b, ...) to data in float64, by Heun's steps (Algorithm 1) or Euler's.

    Formal guarantees:
        * Image by image: one image's path depends on its own noise (and on rounding inside the network) alone.
    """
    levels = sampler.levels()

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
        if then > 0 and sampler.second_order:
            ahead = x + (then - now) * (first + slope(ahead, then, sampler.guide_both)) / 2
        x = ahead
    if not bool(torch.isfinite(x).all()):
        raise InvalidInput("samples", "values that are infinite or not numbers", "a denoiser that was trained")
    return x


def own_noise(seed: int, numbers: range, shape: tuple[int, ...]) -> Tensor:
    """(len(numbers), ...) standard normal: image i's depends on `seed` and i alone, so batches change nothing."""
    check_integer("seed", seed, low=0, high=2**32 - 1)
    return torch.stack([torch.randn(shape, generator=image_generator(seed, number)) for number in numbers])


def image_generator(seed: int, number: int) -> torch.Generator:
    # Torch looks at 32 bits of it. The odd multipliers keep the images of one seed apart, and those of seeds at most
    # 1,000 apart, if they are fewer than a million.
    mixed = (seed * 0x9E3779B97F4A7C15 + number * 0xD1B54A32D192ED03 + 0x632BE59BD9B4E019) % 2**62
    return torch.Generator().manual_seed(mixed)
