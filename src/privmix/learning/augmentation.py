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
    """The ones meant by ``"flip"``, ``"crop"`` or both with a comma; None means none.

    Raises:
        InvalidInput: another name, or one twice.

    Example:
        >>> sorted(augmentations("flip,crop"))
        ['crop', 'flip']
    """
    named = text.split(",") if isinstance(text, str) else []
    if not (text is None or named) or not set(named) <= set(AUGMENTATIONS) or len(set(named)) != len(named):
        raise InvalidInput("augment", text, f"{', '.join(AUGMENTATIONS)}, or both with a comma")
    return frozenset(named)


@dataclass(frozen=True)
class ImageRows:
    """Random horizontal flips and crops, as Li et al. 2022 (appendix E.3) take of released images of CIFAR.

    A flip has probability 1/2. A crop is a window of the image's size, at any place, of the image with 4 pixels more on
    all sides, in which it is mirrored: zeros there would have no noise. Each row is drawn for by itself.

    Args:
        which: of :data:`AUGMENTATIONS`.
        shape: (H, W) or (H, W, channels) of an image, channels last in a row.
        dim: numbers in a row.
        centre: (d,) what was subtracted from every record; an image is a row and this.

    Raises:
        InvalidInput: rows are no images of that shape, or these are too small to be mirrored.

    Example:
        >>> flips = ImageRows(frozenset(["flip"]), (1, 2), 2)
        >>> found = flips(torch.tensor([[1.0, 2.0]] * 8), torch.Generator().manual_seed(0))
        >>> sorted({tuple(row) for row in found.tolist()})
        [(1.0, 2.0), (2.0, 1.0)]
    """

    which: frozenset[str]
    shape: tuple[int, ...]
    dim: int
    centre: Tensor | None = None

    def __post_init__(self) -> None:
        if len(self.shape) not in (2, 3) or math.prod(self.shape) != self.dim:
            allowed = f"none: {self.dim} numbers a row are no pixels of inputs of shape {self.shape}"
            raise InvalidInput("augment", ",".join(sorted(self.which)), allowed)
        if "crop" in self.which and min(self.shape[:2]) <= _PADDING:
            raise InvalidInput("augment", "crop", f"flip: images of {self.shape[:2]} pixels have no margin to mirror")

    def __call__(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """(b, d) rows -> (b, d), drawn anew at every call."""
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
    """(b, c, H, W) windows of as many mirrored ones."""
    count, channels, height, width = images.shape
    wide = torch.nn.functional.pad(images, (_PADDING,) * 4, mode="reflect")
    top, left = torch.randint(2 * _PADDING + 1, (2, count), generator=generator)
    rows = (top[:, None] + torch.arange(height))[:, None, :, None]
    columns = (left[:, None] + torch.arange(width))[:, None, None, :]
    image, channel = torch.arange(count)[:, None, None, None], torch.arange(channels)[None, :, None, None]
    return wide[image, channel, rows, columns]
