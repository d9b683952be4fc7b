"""Images whose features are given ones: a public extractor is inverted by its gradients.

From a grey image, Adam goes down

    |a F(x) - z|^2 / |z|^2 + weight TV(x) / (side of the image),

F being the extractor, z the features asked for, a >= 0 the length that fits best, and TV the total variation (Rudin,
Osher and Fatemi 1992; Mahendran and Vedaldi 2015 invert features of photographs so). A mean of features is shorter than
the features of any image, which is why their length is free. Where z is known up to a distance, the search ends when it
is that near (Morozov's discrepancy principle): what is nearer would be a picture of the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privmix.errors import InvalidInput
from privmix.fields import Amount, Checked, Count, Positive
from privmix.progress import Progress, silent

FeatureMap = Callable[[Tensor], Tensor]
"""(b, *image shape) in [0, 1] -> (b, d), with gradients: any extractor on torch."""

# Keeps the slope of an edge's length finite where there is none.
_SMOOTH: Final = 1e-8
_TINY: Final = 1e-12
_GREY: Final = 0.5
# Of the first image: some networks have no slope at an image that is the same everywhere.
_JITTER: Final = 0.02


@dataclass(frozen=True)
class InverseConfig(Checked):
    """How images are looked for.

    Attributes:
        steps: of Adam, at most.
        learning_rate: of the first step; it falls along a cosine.
        variation: weight of the total variation; settled on digits that privmix renders.
        at_once: images in memory at a time; they do not influence each other.

    Example:
        >>> InverseConfig(steps=10).variation
        0.03
    """

    steps: Count = 200
    learning_rate: Positive = 0.1
    variation: Amount = 0.03
    at_once: Count = 32


@dataclass(frozen=True, eq=False)
class InverseImages:
    """What was found.

    Attributes:
        images: (n, *image shape) float32 in [0, 1].
        distances: (n,) squared distances of their features, at their best length, from those asked for.
        steps: (n,) steps after which each was near enough; the most that there may be where it was not.
    """

    images: NDArray[np.float32]
    distances: NDArray[np.float64]
    steps: NDArray[np.int64]


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
    """Look for an image for each row of features.

    Args:
        features: the extractor.
        wanted: (n, d), finite.
        within: (n,) squared distances within which features are near enough.
        image_shape: (H, W) or (H, W, colours).
        seed: of the first images, which are grey but for a touch.
        config: how hard to look.
        progress: called with (stage, steps done, steps in all).

    Raises:
        InvalidInput: shapes do not fit, or features are not finite.

    Example:
        >>> found = inverse_images(lambda x: x.flatten(1), np.array([[0.2, 0.8]]), np.zeros(1), (1, 2),
        ...                        config=InverseConfig(variation=0.0))
        >>> bool(found.distances[0] < 1e-4), round(float(found.images[0, 0, 1] / found.images[0, 0, 0]))
        (True, 4)
    """
    config = config or InverseConfig()
    if len(image_shape) not in (2, 3):
        raise InvalidInput("image shape", tuple(image_shape), "(H, W) or (H, W, colours)")
    if wanted.ndim != 2 or len(within) != len(wanted) or not np.isfinite(wanted).all():
        raise InvalidInput("features", wanted.shape, "(n, d) finite numbers, and n distances")
    first = np.random.default_rng(seed).random((len(wanted), *image_shape), dtype=np.float32) - 0.5
    images = torch.from_numpy(_GREY + _JITTER * first)
    targets, near = torch.from_numpy(np.asarray(wanted, np.float32)), torch.from_numpy(np.asarray(within, np.float32))
    distances, steps = np.empty(len(images)), np.empty(len(images), np.int64)
    parts = [slice(start, start + config.at_once) for start in range(0, len(images), config.at_once)]
    for number, part in enumerate(parts):
        search = _Search(features, targets[part], near[part], config)
        for step in range(config.steps):
            if not search.step(images[part], step):
                break
            progress("pictures", number * config.steps + step + 1, config.steps * len(parts))
        distances[part] = search.finish(images[part])
        steps[part] = search.taken.numpy()
    progress("pictures", config.steps * len(parts), config.steps * len(parts))
    return InverseImages(images.numpy(), distances, steps)


class _Search:
    """Of some images, which are changed in place; each stops by itself."""

    def __init__(self, features: FeatureMap, targets: Tensor, near: Tensor, config: InverseConfig) -> None:
        self.features, self.targets, self.near, self.config = features, targets, near, config
        self.squares = targets.square().sum(dim=1).clamp(min=_TINY)
        self.taken = torch.full((len(targets),), config.steps)
        self.first, self.second = None, None  # type: Tensor | None, Tensor | None

    def misfit(self, images: Tensor) -> Tensor:
        """(b,) squared distances from the targets."""
        found = self.features(images)
        length = (found * self.targets).sum(dim=1) / found.square().sum(dim=1).clamp(min=_TINY)
        return (length.clamp(min=0)[:, None] * found - self.targets).square().sum(dim=1)

    def step(self, images: Tensor, step: int) -> bool:
        """One step of Adam for those that are not near enough; whether there were some."""
        moved = images.detach().clone().requires_grad_()
        misfit = self.misfit(moved)
        self.taken[(misfit <= self.near) & (self.taken > step)] = step
        going = self.taken > step
        if not going.any():
            return False
        side = math.sqrt(images.shape[1] * images.shape[2])
        colours = images.shape[3] if images.ndim == 4 else 1
        loss = misfit / self.squares + self.config.variation / (side * colours) * total_variation(moved)
        (slope,) = torch.autograd.grad(loss.sum(), moved)
        self._descend(images, torch.nan_to_num(slope), going, step)
        return True

    def _descend(self, images: Tensor, slope: Tensor, going: Tensor, step: int) -> None:
        """Adam (Kingma and Ba 2015), with a rate that falls along a cosine."""
        first = 0.1 * slope if self.first is None else 0.9 * self.first + 0.1 * slope
        second = 1e-3 * slope**2 if self.second is None else 0.999 * self.second + 1e-3 * slope**2
        self.first, self.second = first, second
        rate = self.config.learning_rate * (1 + math.cos(math.pi * step / self.config.steps)) / 2
        way = (first / (1 - 0.9 ** (step + 1))) / ((second / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8)
        images[going] = (images - rate * way).clamp(0, 1)[going]

    def finish(self, images: Tensor) -> NDArray[np.float64]:
        """(b,) distances in the end."""
        with torch.no_grad():
            found = self.misfit(images).double().numpy()
        if not np.isfinite(found).all():
            raise InvalidInput("features", "NaN or infinity", "an extractor whose features of images are finite")
        return np.asarray(found)


def total_variation(images: Tensor) -> Tensor:
    """Isotropic total variation (Rudin, Osher and Fatemi 1992): the length of all edges times their height.

    Args:
        images: (b, H, W) or (b, H, W, colours).

    Returns:
        (b,), summed over pixels and colours; differences across the border count as zero.

    Example:
        >>> total_variation(torch.tensor([[[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]])).round(decimals=3).tolist()
        [2.0]
    """
    planes = images.unsqueeze(-1) if images.ndim == 3 else images
    down = torch.nn.functional.pad(planes[:, 1:] - planes[:, :-1], (0, 0, 0, 0, 0, 1))
    right = torch.nn.functional.pad(planes[:, :, 1:] - planes[:, :, :-1], (0, 0, 0, 1))
    edges: Tensor = (down.square() + right.square() + _SMOOTH).sqrt() - _SMOOTH**0.5
    return edges.flatten(1).sum(dim=1)
