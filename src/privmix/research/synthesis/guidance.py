"""Discriminator guidance (Kim et al. 2023): paths bend to where real images are likelier than drawn ones.

A discriminator d(x; sigma) separates noisy real images from noisy drawn ones. At its best d / (1 - d) is the ratio of
the two densities, whose gradient the model's score lacks: score + grad log(d / (1 - d)). It takes features of a
classifier of noisy images; both are trained on the public images, and on drawn ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from privmix.errors import InvalidInput, check_number
from privmix.fields import Amount, Count, Positive, Whole, check_fields
from privmix.optimisers import Adam
from privmix.progress import Progress
from privmix.research.synthesis.denoising import Guidance, NoiseProcess

# Noise levels of the variance-preserving times 0.01 and 1, between which Kim et al. guide.
_LEAST, _MOST = 0.0447, 152.0
_EMBEDDED: Final = 8
_GROUPS: Final = 8


@dataclass(frozen=True)
class GuidanceConfig:
    """Settings of classifier and discriminator (learning rate and weight decay of Kim et al.: 3e-4 and 1e-7)."""

    width: Annotated[int, Whole(8)] = 32
    epochs: Count = 50
    batch_size: Annotated[int, Whole(2)] = 128
    learning_rate: Positive = 3e-4
    weight_decay: Amount = 1e-7
    seed: Annotated[int, Whole(0, 2**32 - 1)] = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if self.width % _GROUPS:
            raise InvalidInput("width", self.width, f"a multiple of {_GROUPS}")


class NoisyFeatures(nn.Module):
    """Features of noisy images: convolutions that are given the noise level. No layer mixes the images of a batch."""

    def __init__(self, shape: tuple[int, int, int], width: int) -> None:
        super().__init__()
        self.sizes: Final = (width, 2 * width, 2 * width)
        channels = (shape[0], *self.sizes)
        self.layers: Final = nn.ModuleList(
            nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in zip(channels, self.sizes, strict=False)
        )
        self.norms: Final = nn.ModuleList(nn.GroupNorm(_GROUPS, size) for size in self.sizes)
        self.levels: Final = nn.ModuleList(nn.Linear(2 * _EMBEDDED, size) for size in self.sizes)

    @property
    def width(self) -> int:
        return self.sizes[-1]

    def forward(self, x: Tensor, sigma: Tensor, process: NoiseProcess) -> Tensor:
        """(b, C, H, W) and (b,) -> (b, width)."""
        level = sigma.to(x.dtype)
        told = (level.log() / 4)[:, None] * 2.0 ** torch.arange(_EMBEDDED, dtype=x.dtype, device=x.device)
        told = torch.cat([told.sin(), told.cos()], dim=1)
        x = x * process.scalings(level).scale[:, None, None, None]
        for layer, norm, tell in zip(self.layers, self.norms, self.levels, strict=True):
            x = functional.silu(norm(layer(x)) + tell(told)[:, :, None, None])
        return x.mean(dim=(2, 3))


class Discriminator(nn.Module):
    """log(d / (1 - d)) of a noisy image given its class: of the ratio of real and drawn images' densities."""

    def __init__(self, features: NoisyFeatures, classes: int, process: NoiseProcess) -> None:
        super().__init__()
        self.features: Final = features
        self.process: Final = process
        self.of_class: Final = nn.Embedding(classes, features.width)
        self.head: Final = nn.Sequential(
            nn.Linear(features.width, features.width), nn.SiLU(), nn.Linear(features.width, 1)
        )

    def forward(self, x: Tensor, sigma: Tensor, labels: Tensor) -> Tensor:
        """(b, C, H, W), (b,), (b,) -> (b,)."""
        ratio: Tensor = self.head(self.features(x, sigma, self.process) + self.of_class(labels))[:, 0]
        return ratio


def train_discriminator(
    real: Tensor,
    real_labels: Tensor,
    drawn: Tensor,
    drawn_labels: Tensor,
    classes: int,
    config: GuidanceConfig,
    process: NoiseProcess,
    progress: Progress | None = None,
) -> Discriminator:
    """Train a classifier of noisy PUBLIC images in [-1, 1], then a discriminator on its frozen features."""
    if real.shape[1:] != drawn.shape[1:] or not len(real) or not len(drawn):
        raise InvalidInput("drawn images", tuple(drawn.shape), f"images of shape {tuple(real.shape[1:])}")
    shape: tuple[int, int, int] = (int(real.shape[1]), int(real.shape[2]), int(real.shape[3]))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)
        features = NoisyFeatures(shape, config.width)
        classifier = nn.Linear(features.width, classes)
        found = Discriminator(features, classes, process)
    generator = torch.Generator().manual_seed(config.seed)

    def classified(rows: Tensor, x: Tensor, sigma: Tensor) -> Tensor:
        return functional.cross_entropy(classifier(features(x, sigma, process)), real_labels[rows])

    weights = [*features.parameters(), *classifier.parameters()]
    _fit("classifier", weights, real, classified, config, process, generator, progress)
    images, labels = torch.cat([real, drawn]), torch.cat([real_labels, drawn_labels])
    is_real = torch.cat([torch.ones(len(real)), torch.zeros(len(drawn))])
    # Fewer of the one sort must not move the ratio.
    weight = torch.where(is_real > 0, len(images) / (2 * len(real)), len(images) / (2 * len(drawn)))

    def told_apart(rows: Tensor, x: Tensor, sigma: Tensor) -> Tensor:
        ratio = found(x, sigma, labels[rows])
        return functional.binary_cross_entropy_with_logits(ratio, is_real[rows], weight[rows])

    for parameter in features.parameters():
        parameter.requires_grad_(False)
    weights = [*found.of_class.parameters(), *found.head.parameters()]
    _fit("discriminator", weights, images, told_apart, config, process, generator, progress)
    return found.eval()


def guidance(discriminator: Discriminator, labels: Tensor, weight: float) -> Guidance:
    """Return the term added to D(x; sigma): weight sigma^2 grad log(d / (1 - d))."""
    # If only the first of Heun's two slopes is bent, weight 2 is the whole correction; if both are, weight 1 is.
    check_number("guidance weight", weight, low=0)

    def ratio(x: Tensor, sigma: Tensor) -> Tensor:
        found: Tensor = discriminator(x.float(), sigma.float(), labels)
        return found

    return density_ratio_guidance(ratio, weight)


def density_ratio_guidance(log_ratio: Callable[[Tensor, Tensor], Tensor], weight: float) -> Guidance:
    """:func:`guidance` for any (x, sigma) -> (b,) logarithm of the ratio of real to drawn densities."""

    def bend(x: Tensor, sigma: Tensor, clean: Tensor) -> Tensor:
        level = float(sigma[0])
        if weight == 0 or not _LEAST <= level <= _MOST:
            return torch.zeros_like(clean)
        with torch.enable_grad():
            at = x.detach().requires_grad_(True)
            (slope,) = torch.autograd.grad(log_ratio(at, sigma).sum(), at)
        return weight * level**2 * slope

    return bend


def _fit(
    stage: str,
    parameters: list[nn.Parameter],
    images: Tensor,
    loss_of: Callable[[Tensor, Tensor, Tensor], Tensor],
    config: GuidanceConfig,
    process: NoiseProcess,
    generator: torch.Generator,
    progress: Progress | None,
) -> None:
    optimiser = Adam(parameters, lr=config.learning_rate, weight_decay=config.weight_decay)
    for epoch in range(config.epochs):
        for rows in torch.split(torch.randperm(len(images), generator=generator), config.batch_size):
            sigma = process.sigmas(len(rows), generator)
            noise = torch.randn(images[rows].shape, generator=generator)
            loss = loss_of(rows, images[rows] + sigma[:, None, None, None] * noise, sigma)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        if progress is not None:
            progress(f"{stage} (loss {float(loss.detach()):.3f})", epoch + 1, config.epochs)
