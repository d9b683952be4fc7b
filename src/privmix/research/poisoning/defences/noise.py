"""Laplace noise on the images of each batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from privmix.fields import Positive
from privmix.research.poisoning.base import DEFENCES, DefenceAugmentation


@DEFENCES.register
@dataclass(frozen=True)
class InputNoise(DefenceAugmentation):
    """Laplace noise of `scale` / 255 on each pixel, drawn again for each batch (Borgnia et al. 2021, A.1)."""

    # Noisy pixels may leave [0, 1]. With mixup, as `mixup:4+noise:16`, it is Borgnia et al.'s DP-InstaHide in
    # training. It is NOT differentially private: images get new noise in each epoch, and it has no price. Design
    # `fixed` is.
    scale: Positive = 16.0
    name: ClassVar[str] = "noise"
    about: ClassVar[str] = "fresh Laplace noise on each batch; NOT a guarantee (Borgnia et al. 2021)"

    def apply(
        self, pixels: Tensor, targets: Tensor, generator: torch.Generator, progress: float
    ) -> tuple[Tensor, Tensor]:
        # The difference of two exponential variables.
        drawn = pixels.new_empty((2, *pixels.shape)).exponential_(generator=generator)
        return pixels + (drawn[0] - drawn[1]) * (self.scale / 255), targets
