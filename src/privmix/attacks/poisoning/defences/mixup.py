"""k-way mixup with equal weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from privmix.attacks.poisoning.base import DEFENCES, Augmentation
from privmix.errors import check_integer


@DEFENCES.register
@dataclass(frozen=True)
class Mixup(Augmentation):
    """Each image is the mean of ``ways`` images of the batch, its target that of their targets (Borgnia et al., Eq. 6).

    Attributes:
        ways: k, how many images are mixed.
    """

    ways: int = 2
    name: ClassVar[str] = "mixup"
    about: ClassVar[str] = "means of k images and of their labels (Borgnia et al. 2021, Equation 6)"

    def __post_init__(self) -> None:
        check_integer("ways", self.ways, low=2)

    def apply(
        self, pixels: Tensor, targets: Tensor, generator: torch.Generator, progress: float
    ) -> tuple[Tensor, Tensor]:
        orders = [torch.randperm(len(pixels), generator=generator) for _ in range(self.ways - 1)]
        mixed = sum((pixels[order] for order in orders), pixels) / self.ways
        return mixed, sum((targets[order] for order in orders), targets) / self.ways
