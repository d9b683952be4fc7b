"""Model inversion: images from a released row, by regularised maximum likelihood with total variation.

He, Zhang and Lee (2019), as Li et al. 2022 (section 5.1, appendix G) and 2024 (appendix K) give it for mixed features.
The attacker knows the extractor, the clipping bounds, the released mean and m, and solves by Adam, projected to [0, 1],

    minimise over x_1 .. x_m in [0, 1]:   || row - (1/m) sum_i clip(F(x_i)) ||^2 + beta (1/m) sum_i TV(x_i).

The attacker knows how many records the row holds, which a release does not state: that makes the attack stronger.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privmix.errors import InvalidInput, check_integer, check_number
from privmix.fields import Checked, Count, Positive
from privmix.optimisers import Adam
from privmix.progress import Progress
from privmix.publication.dataset import RecordTransform
from privmix.research.inversion.options import STEPS

# How far random images move a start that is otherwise the same for every member of a row.
_JITTER = 0.1
# Keeps the slope of an edge's length finite where there is none.
_SMOOTH = 1e-8


@dataclass(frozen=True)
class InversionConfig(Checked):
    """The attacker's effort; the learning rate falls along a cosine, and `images_at_once` never cuts a row."""

    # Li et al. 2022 take up to 5,000 steps at a constant rate; a few hundred do with a rate that falls to zero.
    steps: Count = STEPS
    learning_rate: Positive = 0.4
    images_at_once: Count = 64
    device: str = "cpu"


@dataclass(frozen=True)
class MixedFeatures:
    """A row without noise as a function of its images: the attacker's copy of the mechanism."""

    # features: (b, *image shape) in [0, 1] -> (b, d), with gradients.
    features: Callable[[Tensor], Tensor]
    transform: RecordTransform
    divisor: float

    def __call__(self, images: Tensor) -> Tensor:
        """(rows, members, *image shape) -> (rows, d)."""
        vectors = self._clip(self.features(images.flatten(0, 1)), self.transform.clip_norm)
        if self.transform.centre is not None and self.transform.residual_clip_norm is not None:
            centre = torch.from_numpy(self.transform.centre).to(vectors.device)
            vectors = self._clip(vectors - centre, self.transform.residual_clip_norm)
        return vectors.view(len(images), images.shape[1], -1).sum(dim=1) / self.divisor

    def _clip(self, vectors: Tensor, bound: float) -> Tensor:
        order = 1 if self.transform.norm == "l1" else 2
        norms = vectors.norm(p=order, dim=1, keepdim=True)
        clipped: Tensor = vectors * (bound / norms.clamp(min=bound))
        return clipped


def inversion_loss(mixed: MixedFeatures, images: Tensor, rows: Tensor, tv_weight: float) -> Tensor:
    """Return the attacker's objective per row (DPFMix, appendix G): squared misfit plus beta times mean variation."""
    misfit = (mixed(images) - rows).square().sum(dim=1)
    variation = total_variation(images.flatten(0, 1)).view(len(images), -1).mean(dim=1)
    return misfit + tv_weight * variation


def invert(
    mixed: MixedFeatures,
    rows: NDArray[Any],
    image_shape: tuple[int, ...],
    members: int,
    generator: np.random.Generator,
    *,
    tv_weight: float = 1e-3,
    start: NDArray[Any] | None = None,
    config: InversionConfig | None = None,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """Recover the images, (R, members, image shape) float32 in [0, 1], behind released rows (R, d)."""
    # The noisier the row, the larger a strong attacker chooses `tv_weight`. `start` is an image to start near, such
    # as the mean of public ones; None starts from uniform noise, as DPFMix does.
    config = config or InversionConfig()
    if len(image_shape) not in (2, 3):
        raise InvalidInput("image shape", tuple(image_shape), "(H, W) or (H, W, colours)")
    if rows.ndim != 2 or len(rows) == 0:
        raise InvalidInput("rows", rows.shape, "(R, d) with R >= 1")
    check_integer("members", members, low=1)
    check_number("tv_weight", tv_weight, low=0)
    shape = (len(rows), members, *image_shape)
    first = generator.random(shape, dtype=np.float32)
    if start is not None:
        if np.shape(start) != tuple(image_shape):
            raise InvalidInput("start", np.shape(start), f"an image of shape {tuple(image_shape)}")
        first = np.clip(start + _JITTER * (first - 0.5), 0, 1, dtype=np.float32)
    images, targets = (torch.from_numpy(np.asarray(one, np.float32)).to(config.device) for one in (first, rows))
    block = max(1, config.images_at_once // members)
    blocks = [slice(row, row + block) for row in range(0, len(rows), block)]
    total = config.steps * len(blocks)
    for number, part in enumerate(blocks):
        for step in _descend(mixed, images[part], targets[part], tv_weight, config):
            if progress is not None:
                progress("inversion", number * config.steps + step, total)
    return np.asarray(images.cpu().numpy())


def _descend(
    mixed: MixedFeatures, images: Tensor, rows: Tensor, tv_weight: float, config: InversionConfig
) -> Iterator[int]:
    """Improve ``images`` in place, yielding the number of steps done; rows do not influence each other."""
    images.requires_grad_()
    optimiser = Adam([images], lr=config.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, config.steps)
    for step in range(config.steps):
        (images.grad,) = torch.autograd.grad(inversion_loss(mixed, images, rows, tv_weight).sum(), images)
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
