"""CutMix: a box of each image comes from another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from privmix.fields import Rate
from privmix.research.poisoning.base import DEFENCES, DefenceAugmentation
from privmix.research.poisoning.defences.boxes import boxes


@DEFENCES.register
@dataclass(frozen=True)
class CutMix(DefenceAugmentation):
    """A box of each image is replaced by another image's; the target by both, weighted by area (Yun et al. 2019)."""

    # The box covers 1 - lambda of the image, lambda ~ Beta(1, 1), about a uniform pixel, and is cut off at the
    # border. Each image has its own box, where Yun et al. draw one for the batch. `share`: probability that an
    # image is changed.
    share: Rate = 0.5
    name: ClassVar[str] = "cutmix"
    about: ClassVar[str] = "boxes from other images, labels by area (Yun et al. 2019)"

    def apply(
        self, pixels: Tensor, targets: Tensor, generator: torch.Generator, progress: float
    ) -> tuple[Tensor, Tensor]:
        count, _, height, width = pixels.shape
        drawn = torch.rand(count, 2, generator=generator, device=pixels.device)
        scale = torch.sqrt(drawn[:, :1]) * (drawn[:, 1:] < self.share)
        sides = (scale * torch.tensor([height, width], device=pixels.device)).long()
        inside = boxes(sides, pixels.shape, generator)
        other = torch.randperm(count, generator=generator, device=pixels.device)
        area = inside.float().mean(dim=(1, 2, 3))[:, None]
        return torch.where(inside, pixels[other], pixels), (1 - area) * targets + area * targets[other]
