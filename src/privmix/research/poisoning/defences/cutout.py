"""Cutout: a black square in each image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from privmix.errors import InvalidInput
from privmix.fields import Size
from privmix.research.poisoning.base import DEFENCES, DefenceAugmentation
from privmix.research.poisoning.defences.boxes import boxes, half_of
from privmix.research.poisoning.images import VictimImages


@DEFENCES.register
@dataclass(frozen=True)
class CutoutDefence(DefenceAugmentation):
    """A black square about a random pixel of each image, cut off at the border (DeVries and Taylor 2017)."""

    # side 0: half of the image's shorter side, as 16 of 32 in their CIFAR-10.
    side: Size = 0
    name: ClassVar[str] = "cutout"
    about: ClassVar[str] = "a black square in each image (DeVries and Taylor 2017)"

    def check(self, records: VictimImages) -> None:
        check_side(self.side, records)

    def apply(
        self, pixels: Tensor, targets: Tensor, generator: torch.Generator, progress: float
    ) -> tuple[Tensor, Tensor]:
        return cut_out(pixels, self.side, generator), targets


def cut_out(pixels: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """(b, C, H, W) -> the same with a black square of ``side`` pixels in each; 0: of half the image's."""
    sides = torch.full((len(pixels), 2), half_of(side, pixels.shape), device=pixels.device)
    return pixels * ~boxes(sides, pixels.shape, generator)


def check_side(side: int, records: VictimImages) -> None:
    """Raise InvalidInput if the square is larger than the images."""
    if side > min(records.shape[1:]):
        raise InvalidInput("side", side, f"at most that of the images, {min(records.shape[1:])} pixels")
