"""Model inversion: images from a released row, by regularised maximum likelihood with total variation.

He, Zhang and Lee (2019), in the form that Li et al. 2022 (section 5.1, appendix G) and 2024 (appendix K) give it for
mixed
features: the attacker knows the extractor, the clipping bounds, the released mean and m, and looks for images whose
mixed features are the released ones,

    minimise over x_1 .. x_m in [0, 1]:   || row - (1/m) sum_i clip(F(x_i)) ||^2 + beta (1/m) sum_i TV(x_i),

by Adam from random images. Each step is followed by a projection onto [0, 1]. The attacker is told how many records
the row holds, which a release does not say: that makes it stronger, never weaker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privmix.errors import InvalidInput, check_integer, check_number
from privmix.fields import Checked, Count, Positive
from privmix.learning.inverse import FeatureMap, total_variation
from privmix.optimisers import Adam
from privmix.progress import Progress
from privmix.publication.dataset import RecordTransform
from privmix.research.inversion.options import STEPS

# How far random images move a start that is otherwise the same for every member of a row.
_JITTER = 0.1


@dataclass(frozen=True)
class InversionConfig(Checked):
    """How hard the attacker tries.

    Attributes:
        steps: of Adam (Li et al. 2022: at most 5,000 at a constant rate; a few hundred do with a rate that falls to
            zero).
        learning_rate: of the first step; it falls along a cosine.
        images_at_once: images in memory at a time; a row is never cut.

    Example:
        >>> InversionConfig(steps=100).learning_rate
        0.4
    """

    steps: Count = STEPS
    learning_rate: Positive = 0.4
    images_at_once: Count = 64


@dataclass(frozen=True)
class MixedFeatures:
    """What a row would be without noise, as a function of its images: the attacker's copy of the mechanism.

    Attributes:
        features: the extractor, with gradients.
        transform: clipping bounds and released mean.
        divisor: public m that sums are divided by.

    Example:
        >>> mixed = MixedFeatures(lambda x: x.flatten(1), RecordTransform(1.0), 2.0)
        >>> mixed(torch.eye(2).reshape(1, 2, 1, 2)).tolist()
        [[0.5, 0.5]]
    """

    features: FeatureMap
    transform: RecordTransform
    divisor: float

    def __call__(self, images: Tensor) -> Tensor:
        """(rows, members, *image shape) -> (rows, d)."""
        vectors = self._clip(self.features(images.flatten(0, 1)), self.transform.clip_norm)
        if self.transform.centre is not None and self.transform.residual_clip_norm is not None:
            centre = torch.from_numpy(self.transform.centre)
            vectors = self._clip(vectors - centre, self.transform.residual_clip_norm)
        return vectors.view(len(images), images.shape[1], -1).sum(dim=1) / self.divisor

    def _clip(self, vectors: Tensor, bound: float) -> Tensor:
        order = 1 if self.transform.norm == "l1" else 2
        norms = vectors.norm(p=order, dim=1, keepdim=True)
        clipped: Tensor = vectors * (bound / norms.clamp(min=bound))
        return clipped


def inversion_loss(mixed: MixedFeatures, images: Tensor, rows: Tensor, tv_weight: float) -> Tensor:
    """What the attacker minimises, for each row (DPFMix, appendix G): squared misfit plus weighted mean variation.

    Args:
        mixed: the attacker's copy of the mechanism.
        images: (rows, members, *image shape).
        rows: (rows, d) released.
        tv_weight: beta.

    Returns:
        (rows,).
    """
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
    """Recover the images behind released rows.

    Args:
        mixed: extractor, clipping, mean and m, all public.
        rows: (R, d) released features.
        image_shape: (H, W) or (H, W, colours).
        members: how many images to look for in each row.
        generator: source of the images that the search starts from.
        tv_weight: beta; the noisier the row, the larger a strong attacker chooses it.
        start: an image to start near, such as the mean of public ones; None starts from uniform noise, as DPFMix does.
        config: steps and memory.
        progress: called with (stage, steps done, steps in all).

    Returns:
        (R, members, *image_shape) float32 in [0, 1].

    Raises:
        InvalidInput: shapes do not fit.

    Example:
        >>> mixed = MixedFeatures(lambda x: x.flatten(1), RecordTransform(10.0), 1.0)
        >>> found = invert(mixed, np.array([[0.2, 0.8]]), (1, 2), 1, np.random.default_rng(0))
        >>> found.shape, bool(np.abs(found.ravel() - [0.2, 0.8]).max() < 0.01)
        ((1, 1, 1, 2), True)
    """
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
    images, targets = torch.from_numpy(first), torch.from_numpy(np.asarray(rows, np.float32))
    block = max(1, config.images_at_once // members)
    blocks = [slice(row, row + block) for row in range(0, len(rows), block)]
    total = config.steps * len(blocks)
    for number, part in enumerate(blocks):
        for step in _descend(mixed, images[part], targets[part], tv_weight, config):
            if progress is not None:
                progress("inversion", number * config.steps + step, total)
    return np.asarray(images.numpy())


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
