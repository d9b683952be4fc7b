"""Flips and crops: the changes of images that an ordinary training makes anyway, which gradients pass through."""

from __future__ import annotations

import torch
from torch import Tensor


def moved(pixels: Tensor, generator: torch.Generator, *, flips: bool, crops: int) -> Tensor:
    """Each image mirrored with probability 1/2, and moved by up to ``crops`` pixels in each direction.

    A product with a matrix of zeros and ones from either side does both: it gives the same pixels as slices do, on any
    device and whatever the order of additions, and so does its gradient.

    Args:
        pixels: (b, C, H, W).
        generator: on the device of the pixels.
        flips: mirror left to right.
        crops: most that an image is moved by; black pixels come in (a crop of the image in a black frame).

    Example:
        >>> image = torch.eye(3)[None, None]
        >>> moved(image, torch.Generator().manual_seed(1), flips=False, crops=1)[0, 0]
        tensor([[0., 0., 0.],
                [1., 0., 0.],
                [0., 1., 0.]])
    """
    if not flips and not crops:
        return pixels
    rows, columns = (_shift(pixels, size, crops, generator) for size in pixels.shape[2:])
    if flips:
        chosen = torch.rand(len(pixels), 1, 1, generator=generator, device=pixels.device) < 0.5
        columns = torch.where(chosen, columns.flip(2), columns)
    changed: Tensor = rows[:, None] @ pixels @ columns[:, None].transpose(2, 3)
    return changed


def _shift(pixels: Tensor, size: int, crops: int, generator: torch.Generator) -> Tensor:
    """(b, size, size): row i of a matrix has its one in column i + d, if there is one; d is each image's own."""
    by = torch.randint(-crops, crops + 1, (len(pixels), 1, 1), generator=generator, device=pixels.device)
    at = torch.arange(size, device=pixels.device)
    return (at[:, None] + by == at).to(pixels.dtype)
