"""Boxes at random places of images, for defences that cut something out."""

import torch
from torch import Tensor


def boxes(sides: Tensor, shape: torch.Size, generator: torch.Generator) -> Tensor:
    """(b, 1, H, W) True in a box of sizes `sides` (b, 2) about a uniform pixel of each image, cut off at the border."""
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
