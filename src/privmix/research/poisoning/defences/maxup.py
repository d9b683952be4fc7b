"""MaxUp: of several versions of each image, the one that the network does worst on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from privmix.fields import Fraction, Size, Whole
from privmix.research.poisoning.base import DEFENCES, DefenceAugmentation
from privmix.research.poisoning.defences.cutout import check_side, cut_out
from privmix.research.poisoning.images import VictimImages


@DEFENCES.register
@dataclass(frozen=True)
class MaxUp(DefenceAugmentation):
    """Training on the worst of several cutouts of each image (Gong et al. 2020, Equation 2)."""

    # Borgnia et al. write of the lowest loss; Gong et al. take the highest. A pass without gradients over all
    # versions finds it, with batch norm as in training; the step then sees another batch, so batch norm differs a
    # little. `start`: share of the training before which images stay as they are: 5 of 40 epochs, as Borgnia et al.
    versions: Annotated[int, Whole(2)] = 4
    side: Size = 0
    start: Fraction = 0.125
    name: ClassVar[str] = "maxup"
    about: ClassVar[str] = "the worst of several cutouts of each image (Gong et al. 2020)"
    stands_last: ClassVar[bool] = True

    def check(self, records: VictimImages) -> None:
        check_side(self.side, records)

    def loss(
        self, network: Any, pixels: Tensor, targets: Tensor, generator: torch.Generator, progress: float
    ) -> Tensor:
        if progress >= self.start:
            pixels = self.worst(network, pixels, targets, generator)
        return functional.cross_entropy(network(pixels), targets)

    def worst(self, network: Any, pixels: Tensor, targets: Tensor, generator: torch.Generator) -> Tensor:
        """(b, C, H, W): of ``versions`` cutouts of each image the one with the largest loss; gradients pass through."""
        cut = torch.stack([cut_out(pixels, self.side, generator) for _ in range(self.versions)])
        with torch.no_grad():
            losses = functional.cross_entropy(
                network(cut.flatten(0, 1)), targets.repeat(self.versions, 1), reduction="none"
            )
        chosen = losses.view(self.versions, -1).argmax(0)
        return cut[chosen, torch.arange(len(pixels), device=pixels.device)]
