"""Non-leaking changes of training images: the network is given nine numbers (Karras et al. 2022, appendix F.2)."""

import math
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from privmix.fields import Checked, Proportion

NUMBERS: Final = 9
# Strengths of Karras et al. 2022: of log2 of scale and of anisotropy, and of shifts as parts of the side.
_SCALE, _SHIFT = 0.2, 0.125


@dataclass(frozen=True)
class NonLeaking(Checked):
    """Mirrors, scaling, rotation, stretching and shifts, each with `probability` (Karras et al.: 0.12)."""

    # `mirror`: whether half of the images are mirrored left and right; not for digits and letters.
    probability: Proportion = 0.12
    mirror: bool = False

    def __call__(self, images: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """(b, C, H, W) in [-1, 1] -> the changed images, and (b, 9) what was done to each: zeros for nothing."""
        count = len(images)

        def chosen() -> Tensor:
            return (torch.rand(count, generator=generator) < self.probability).float()

        def normal() -> Tensor:
            return torch.randn(count, generator=generator)

        left = (torch.rand(count, generator=generator) < 0.5).float() * float(self.mirror)
        down = chosen() * (torch.rand(count, generator=generator) < 0.5).float()
        scale = chosen() * normal() * _SCALE
        turn = chosen() * (2 * torch.rand(count, generator=generator) - 1) * math.pi
        stretch, axis = chosen() * normal() * _SCALE, (2 * torch.rand(count, generator=generator) - 1) * math.pi
        right, low = (chosen() * normal() * _SHIFT for _ in range(2))
        told = [left, down, scale / _SCALE, turn.cos() - 1, turn.sin()]
        told += [stretch / _SCALE * axis.cos(), stretch / _SCALE * axis.sin(), right / _SHIFT, low / _SHIFT]
        matrix = _scaled(1 - 2 * left, 1 - 2 * down) @ _scaled(2**-scale, 2**-scale) @ _turned(-turn)
        matrix = matrix @ _turned(axis) @ _scaled(2**-stretch, 2**stretch) @ _turned(-axis)
        grid = torch.cat([matrix, torch.stack([-2 * right, -2 * low], 1)[:, :, None]], dim=2)
        numbers = torch.stack(told, dim=1)
        return _moved(images, grid, numbers.any(dim=1)), numbers.to(images.device)


def _moved(images: Tensor, grid: Tensor, chosen: Tensor) -> Tensor:
    """Each chosen image as its own map (2, 3) shows it; the others stay the same bits."""
    if not bool(chosen.any()):
        return images
    out = images.clone()
    changed = chosen.nonzero()[:, 0].to(images.device)
    places = functional.affine_grid(grid[chosen].to(images.device), list(images[changed].shape), align_corners=False)
    out[changed] = functional.grid_sample(images[changed], places, padding_mode="reflection", align_corners=False)
    return out


def _scaled(x: Tensor, y: Tensor) -> Tensor:
    return torch.stack([torch.stack([x, 0 * x], 1), torch.stack([0 * y, y], 1)], 1)


def _turned(angle: Tensor) -> Tensor:
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([torch.stack([cos, -sin], 1), torch.stack([sin, cos], 1)], 1)
