"""Boxes at random places of images, for defences that cut something out."""

from __future__ import annotations

import torch
from torch import Tensor


def boxes(sides: Tensor, shape: torch.Size, generator: torch.Generator) -> Tensor:
    """A box in each image, about a pixel drawn uniformly, cut off at the border (DeVries and Taylor 2017).

    Args:
        sides: (b, 2) heights and widths in pixels, whole numbers, before they are cut off.
        shape: (b, C, H, W) of the images.
        generator: on the device of ``sides``.

    Returns:
        (b, 1, H, W), True inside the box.

    Example:
        >>> inside = boxes(torch.tensor([[2, 3]]), torch.Size([1, 1, 4, 4]), torch.Generator().manual_seed(3))
        >>> int(inside.sum()) <= 6
        True
    """
    along = []
    for axis, size in enumerate(shape[2:]):
        centre = torch.randint(size, (len(sides),), generator=generator, device=sides.device)
        first = (centre - sides[:, axis] // 2)[:, None]
        at = torch.arange(size, device=sides.device)
        along.append((at >= first) & (at < first + sides[:, axis, None]))
    return (along[0][:, :, None] & along[1][:, None, :])[:, None]


def half_of(side: int, shape: torch.Size | tuple[int, ...]) -> int:
    """``side``, or half of the image's shorter one where it is 0."""
    return side or max(1, min(shape[-2:]) // 2)
