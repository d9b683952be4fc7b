"""k-way mixup with equal weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from privmix.errors import InvalidInput
from privmix.fields import Whole
from privmix.research.poisoning.base import DEFENCES, DefenceAugmentation
from privmix.research.poisoning.images import VictimImages


@DEFENCES.register
@dataclass(frozen=True)
class Mixup(DefenceAugmentation):
    """Each image is the mean of `ways` images of the batch, its target that of theirs (Borgnia et al., Eq. 6)."""

    # The k images of a mean are drawn without replacement (their Equation 5; a batch of fewer than k repeats some).
    # The first is the image itself, so that each is in k means of an epoch.
    ways: Annotated[int, Whole(2)] = 2
    name: ClassVar[str] = "mixup"
    about: ClassVar[str] = "means of k images and of their labels (Borgnia et al. 2021, Equation 6)"

    def check(self, records: VictimImages) -> None:
        if len(records) < self.ways:
            raise InvalidInput("ways", self.ways, "no more than there are records")

    def apply(
        self, pixels: Tensor, targets: Tensor, generator: torch.Generator, progress: float
    ) -> tuple[Tensor, Tensor]:
        size, device = len(pixels), pixels.device
        # In a circle of random order, the images at k - 1 different distances from each: all are different, and any
        # k - 1 are as likely as any others.
        order = torch.randperm(size, generator=generator, device=device)
        place = torch.argsort(order)
        away = torch.randperm(max(size, self.ways) - 1, generator=generator, device=device)[: self.ways - 1] + 1
        others = [order[(place + one) % size] for one in away]
        mixed = sum((pixels[one] for one in others), pixels) / self.ways
        return mixed, sum((targets[one] for one in others), targets) / self.ways
