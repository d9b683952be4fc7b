"""Flips and crops of released rows that are pixels of images: rows are public, so it costs nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from privmix.errors import InvalidInput
from privmix.packages import torch

if TYPE_CHECKING:
    from torch import Tensor

AUGMENTATIONS: Final = ("flip", "crop")
_PADDING: Final = 4


def augmentations(text: str | None) -> frozenset[str]:
    """Parse "flip", "crop" or both with a comma between; None gives none."""
    named = text.split(",") if isinstance(text, str) else []
    if not (text is None or named) or not set(named) <= set(AUGMENTATIONS) or len(set(named)) != len(named):
        raise InvalidInput("augment", text, f"{', '.join(AUGMENTATIONS)}, or both, separated by a comma")
    return frozenset(named)


@dataclass(frozen=True)
class ImageRows:
    """Random horizontal flips and crops of rows that are images (Li et al. 2022, appendix E.3), drawn for each row."""

    # A flip has probability 1/2. A crop is a window of the image's size, at any place, of the image with 4 mirrored
    # pixels on all sides: zeros there would have no noise. ``centre`` (d,) was subtracted from every record.

    which: frozenset[str]
    shape: tuple[int, ...]
    dim: int
    centre: Tensor | None = None

    def __post_init__(self) -> None:
        if len(self.shape) not in (2, 3) or math.prod(self.shape) != self.dim:
            allowed = f"no augmentation: rows of {self.dim} numbers are not images of shape {self.shape}"
            raise InvalidInput("augment", ",".join(sorted(self.which)), allowed)
        if "crop" in self.which and min(self.shape[:2]) <= _PADDING:
            raise InvalidInput("augment", "crop", f"flip only: images of {self.shape[:2]} pixels are too small to crop")

    def __call__(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """(b, d) rows -> (b, d), with new draws at every call."""
        height, width, channels = (*self.shape, 1)[:3]
        whole = rows if self.centre is None else rows + self.centre
        images = whole.reshape(-1, height, width, channels).permute(0, 3, 1, 2)
        if "flip" in self.which:
            turned = torch.rand(len(images), generator=generator) < 0.5
            images = torch.where(turned[:, None, None, None], images.flip(-1), images)
        if "crop" in self.which:
            images = _cropped(images, generator)
        found = images.permute(0, 2, 3, 1).reshape(len(rows), self.dim)
        return found if self.centre is None else found - self.centre


def _cropped(images: Tensor, generator: torch.Generator) -> Tensor:
    count, channels, height, width = images.shape
    wide = torch.nn.functional.pad(images, (_PADDING,) * 4, mode="reflect")
    top, left = torch.randint(2 * _PADDING + 1, (2, count), generator=generator)
    rows = (top[:, None] + torch.arange(height))[:, None, :, None]
    columns = (left[:, None] + torch.arange(width))[:, None, None, :]
    image, channel = torch.arange(count)[:, None, None, None], torch.arange(channels)[None, :, None, None]
    return wide[image, channel, rows, columns]
