"""What all victims' networks share: a body, whose outputs filters and attackers look at, and a linear head."""

from __future__ import annotations

from typing import ClassVar, Final

import torch
from torch import Tensor, nn

from privmix.plugins import Registry


class Network(nn.Module):
    """A body, images (b, C, H, W) in [0, 1] -> (b, d), and a linear head, (b, d) -> (b, K).

    Subclasses take the images' shape (C, H, W) and the number of classes K.

    Attributes:
        name: as it is called; ``NETWORKS.register`` makes it known.
        about: one line for help.
        body, head: the two parts.
        classes: K.
    """

    name: ClassVar[str]
    about: ClassVar[str]

    def __init__(self, body: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.body, self.head, self.classes = body, nn.Linear(width, classes), classes

    def forward(self, pixels: Tensor) -> Tensor:
        """(b, C, H, W) -> (b, K) logits."""
        logits: Tensor = self.head(self.body(pixels))
        return logits


class Centred(nn.Module):
    """Pixels in [0, 1] about 0, with a standard deviation near 1 as most photographs have it: 4 x - 2.

    The same for all data: means of the records themselves would be for the attacker to move.
    """

    def forward(self, pixels: Tensor) -> Tensor:
        """(b, C, H, W) -> (b, C, H, W)."""
        return 4 * pixels - 2


NETWORKS: Final[Registry[type[Network]]] = Registry(
    "network", "privmix.research.poisoning.victims.networks", "privmix.poisoning_victims"
)


def build(name: str, shape: tuple[int, int, int], classes: int) -> Network:
    """A network with fresh weights, from torch's global generator.

    Args:
        name: ``cnn``, ``cnn-wide``, ``resnet``, ``resnet18``, or that of a network that another package registers.
        shape: (C, H, W) of the images.
        classes: number of logits.

    Raises:
        InvalidInput: there is none of that name.

    Example:
        >>> build("cnn", (1, 28, 28), 10).head
        Linear(in_features=1024, out_features=10, bias=True)
    """
    made: Network = NETWORKS[name](shape, classes)  # type: ignore[arg-type,call-arg]
    # Faster where channels are few. Weights keep it when others are loaded into them, so that kept networks give the
    # same bits as fresh ones.
    return made.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]
