"""Images with given features: gradients invert a public extractor.

From a grey image, Adam minimises

    max(0, |a F(x) - z|^2 - e) / |z|^2 + weight TV(x) / (side of the image),

with the extractor F, features z known up to a squared distance e, and the best length a >= 0. TV is the total variation
(Rudin, Osher and Fatemi 1992; Mahendran and Vedaldi 2015). The length is free because a mean of features is shorter
than the features of any image. Below e an image would show the noise (Morozov's discrepancy principle), so the search
then only smooths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.fields import Amount, Checked, Count, Positive
from privmix.packages import torch
from privmix.progress import Progress, silent

if TYPE_CHECKING:
    from torch import Tensor

FeatureMap = Callable[["Tensor"], "Tensor"]
"""(b, *image shape) in [0, 1] -> (b, d), with gradients: any extractor on torch."""

# Keeps the slope of an edge's length finite where there is none.
_SMOOTH: Final = 1e-8
_TINY: Final = 1e-12
_GREY: Final = 0.5
# Noise in the first image: some networks have no slope at an image that is the same everywhere.
_JITTER: Final = 0.02


@dataclass(frozen=True)
class InverseConfig(Checked):
    """Settings of the search for images; ``at_once`` images share memory and do not influence each other."""

    # variation: weight of the total variation; chosen on digits that privmix renders.

    steps: Count = 200
    learning_rate: Positive = 0.1
    variation: Amount = 0.03
    at_once: Count = 32


@dataclass(frozen=True, eq=False)
class InverseImages:
    """Images (n, image shape) float32 in [0, 1], and squared distances (n,) of their features at best length."""

    images: NDArray[np.float32]
    distances: NDArray[np.float64]


def inverse_images(
    features: FeatureMap,
    wanted: NDArray[Any],
    within: NDArray[Any],
    image_shape: tuple[int, ...],
    *,
    seed: int = 0,
    config: InverseConfig | None = None,
    progress: Progress = silent,
) -> InverseImages:
    """Find an image for each (n, d) row ``wanted`` of features, known up to the squared distances ``within`` (n,)."""
    config = config or InverseConfig()
    if len(image_shape) not in (2, 3):
        raise InvalidInput("image shape", tuple(image_shape), "(H, W) or (H, W, colours)")
    if wanted.ndim != 2 or within.shape != (len(wanted),) or not np.isfinite(wanted).all():
        raise InvalidInput("features", wanted.shape, "(n, d) finite numbers, and n distances")
    first = np.random.default_rng(seed).random((len(wanted), *image_shape), dtype=np.float32) - 0.5
    images = torch.from_numpy(_GREY + _JITTER * first)
    targets, near = (torch.from_numpy(np.asarray(part, np.float32)) for part in (wanted, within))
    distances = np.empty(len(images))
    parts = [slice(start, start + config.at_once) for start in range(0, len(images), config.at_once)]
    for number, part in enumerate(parts):
        misfit = _Misfit(features, targets[part])
        for step in _descend(misfit, near[part], images[part], config):
            progress("pictures", number * config.steps + step, config.steps * len(parts))
        with torch.no_grad():
            distances[part] = misfit(images[part]).double().numpy()
    if not np.isfinite(distances).all():
        raise InvalidInput("features", "NaN or infinity", "an extractor whose features of images are finite")
    return InverseImages(images.numpy(), distances)


@dataclass(frozen=True, eq=False)
class _Misfit:
    """(b, *image shape) -> (b,) squared distances of features, at their best length, from (b, d) targets."""

    features: FeatureMap
    targets: Tensor

    def __call__(self, images: Tensor) -> Tensor:
        found = self.features(images)
        length = (found * self.targets).sum(dim=1) / found.square().sum(dim=1).clamp(min=_TINY)
        return (length.clamp(min=0)[:, None] * found - self.targets).square().sum(dim=1)


def _descend(misfit: _Misfit, near: Tensor, images: Tensor, config: InverseConfig) -> Iterator[int]:
    """Improve ``images`` in place, yielding the number of steps done; images do not influence each other."""
    size = misfit.targets.square().sum(dim=1).clamp(min=_TINY)
    colours = images.shape[3] if images.ndim == 4 else 1
    weight = config.variation / (math.sqrt(images.shape[1] * images.shape[2]) * colours)
    # torch's own classes: imported where there is torch.
    from privmix.optimisers import Adam

    images.requires_grad_()
    optimiser = Adam([images], lr=config.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, config.steps)
    for step in range(config.steps):
        loss = (misfit(images) - near).clamp(min=0) / size + weight * total_variation(images)
        (slope,) = torch.autograd.grad(loss.sum(), images)
        images.grad = torch.nan_to_num(slope)
        optimiser.step()
        schedule.step()
        with torch.no_grad():
            images.clamp_(0, 1)
        yield step + 1
    images.requires_grad_(False)


def total_variation(images: Tensor) -> Tensor:
    """Isotropic total variation (b,) of images (b, H, W[, colours]), zero across the border (Rudin et al. 1992)."""
    planes = images.unsqueeze(-1) if images.ndim == 3 else images
    down = torch.nn.functional.pad(planes[:, 1:] - planes[:, :-1], (0, 0, 0, 0, 0, 1))
    right = torch.nn.functional.pad(planes[:, :, 1:] - planes[:, :, :-1], (0, 0, 0, 1))
    edges: Tensor = (down.square() + right.square() + _SMOOTH).sqrt() - _SMOOTH**0.5
    return edges.flatten(1).sum(dim=1)
