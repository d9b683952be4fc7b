"""What diffusion models share: a denoiser, its loss, and paths from noise to data (Karras et al. 2022, Table 1).

An image y in [-1, 1] is drowned in Gaussian noise of standard deviation sigma; a denoiser D(x; sigma) learns the mean
of what it was. Sampling starts from noise alone and follows dx/dsigma = (x - D(x; sigma)) / sigma down to sigma = 0.
Models differ in a :class:`NoiseProcess`: what the network inside D is given and asked for, which noise levels it
learns, and by which levels a path goes down.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from privmix.errors import InvalidInput, check_integer

# (x (b, ...), sigma (b,)) -> D(x; sigma), in the shape and type of x.
DenoiserLike = Callable[[Tensor, Tensor], Tensor]
# (x, sigma (b,), D(x; sigma)) -> what is added to D: how guidance bends the path.
Guidance = Callable[[Tensor, Tensor, Tensor], Tensor]


class Scalings(NamedTuple):
    """What surrounds a network F: D(x; sigma) = skip x + out F(scale x; told), each (b,)."""

    skip: Tensor
    out: Tensor
    scale: Tensor
    told: Tensor


class Sampler(Protocol):
    """By which noise levels a path goes down, and how."""

    @property
    def second_order(self) -> bool:
        """Whether a step takes the mean of two slopes (Heun) in place of one (Euler)."""

    @property
    def guide_both(self) -> bool:
        """Whether guidance bends the second slope, too."""

    def levels(self) -> Tensor:
        """(steps + 1,) float64, falling, the last one 0."""


class NoiseProcess(Protocol):
    """What is a model's own: a frozen dataclass of constants, which checkpoints and cards hold."""

    @property
    def name(self) -> str:
        """Of the model."""

    @property
    def conditional(self) -> bool:
        """Whether the network is told each image's class; otherwise labels are found afterwards."""

    def sigmas(self, count: int, generator: torch.Generator) -> Tensor:
        """(count,) noise levels of one batch of training."""

    def weight(self, sigma: Tensor) -> Tensor:
        """Weight of the squared error at these levels."""

    def scalings(self, sigma: Tensor) -> Scalings:
        """What surrounds the network at (b,) levels."""

    def sampler(self, steps: int) -> Sampler:
        """Of so many noise levels above 0."""

    def suited(self, deviation: float, noise_mean: float | None) -> NoiseProcess:
        """This one, for images of that standard deviation, and with another mean of ln(sigma) in training if given.

        Raises:
            InvalidInput: it has no such mean.
        """


class Denoiser(nn.Module):
    """A network F with the scalings around it that its process asks for (equation 7).

    Attributes:
        network: (x (b, ...), c_noise (b,), condition) -> F, in the shape of x.
        process: scalings.

    Example:
        >>> from privmix.research.synthesis.edm import EdmConfig
        >>> denoiser = Denoiser(lambda x, noise, condition: 0 * x, EdmConfig(sigma_data=1.0))
        >>> denoiser(torch.ones(1, 2), torch.tensor([1.0])).tolist()
        [[0.5, 0.5]]
    """

    def __init__(self, network: Any, process: NoiseProcess) -> None:
        super().__init__()
        self.network, self.process = network, process

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
    """Mean over the batch of lambda(sigma) |D(y + n; sigma) - y|^2 a value (equations 2 and 8).

    Args:
        denoiser: as :class:`Denoiser`.
        images: (b, ...) y, in [-1, 1].
        condition: of each record of ``part``, for the network.
        process: noise levels and weights.
        generator: of noise levels and noise; its only randomness.
        part: of the batch: what it adds to the mean. Noise is drawn for the whole batch, so that parts sum to it.
    """
    size = len(images)
    sigma = process.sigmas(size, generator)[part].to(images.device)
    noise = torch.randn(images.shape, generator=generator)[part].to(images.device)
    images = images[part]
    level = sigma.reshape(-1, *[1] * (images.dim() - 1))
    error = denoiser(images + level * noise, sigma, condition) - images
    loss: Tensor = (process.weight(sigma) * error.square().flatten(1).mean(1)).sum() / size
    return loss


def sample(denoiser: DenoiserLike, noise: Tensor, sampler: Sampler, guidance: Guidance | None = None) -> Tensor:
    """Follow the path from noise to data, with Heun's steps (Algorithm 1) or Euler's.

    Args:
        denoiser: D(x; sigma); with its condition inside.
        noise: (b, ...) standard normal, a draw of its own for every image.
        sampler: noise levels.
        guidance: what it returns is added to D; none: exactly the plain path.

    Returns:
        (b, ...) float64.

    Raises:
        InvalidInput: the path left the numbers: a denoiser or a guidance that isn't one.

    Formal guarantees:
        * Image by image: one image's path depends on its own noise (and on rounding inside the network) alone.

    Example:
        >>> from privmix.research.synthesis.edm import SamplerConfig
        >>> points = sample(lambda x, sigma: torch.zeros_like(x), torch.ones(2, 3), SamplerConfig())
        >>> points.abs().max().item()
        0.0
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
    """(len(numbers), ...) standard normal: image i's depends on ``seed`` and i alone, so batches change nothing.

    Example:
        >>> bool((own_noise(1, range(0, 3), (2,))[1:] == own_noise(1, range(1, 3), (2,))).all())
        True
    """
    check_integer("seed", seed, low=0, high=2**32 - 1)
    return torch.stack([torch.randn(shape, generator=image_generator(seed, number)) for number in numbers])


def image_generator(seed: int, number: int) -> torch.Generator:
    """The generator of one image's noise."""
    # Torch looks at 32 bits of it: the odd multipliers keep the images of one seed apart, and those of seeds at most
    # 1,000 apart, if they are fewer than a million.
    mixed = (seed * 0x9E3779B97F4A7C15 + number * 0xD1B54A32D192ED03 + 0x632BE59BD9B4E019) % 2**62
    return torch.Generator().manual_seed(mixed)
