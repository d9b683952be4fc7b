"""The common part of all victims' networks: a body, whose outputs filters and attackers look at, and a linear head."""

from typing import ClassVar, Final

import torch
from torch import Tensor, nn

from privmix.plugins import Registry


class Network(nn.Module):
    """A body, images (b, C, H, W) in [0, 1] -> (b, d), and a linear head, (b, d) -> (b, K)."""

    name: ClassVar[str]
    about: ClassVar[str]

    def __init__(self, body: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.body: nn.Module = body
        self.head: nn.Linear = nn.Linear(width, classes)
        self.classes: Final = classes

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(pixels))
        return logits


class Centred(nn.Module):
    """Map pixels to 4 x - 2, of standard deviation near 1 in photographs; an attacker could move real means."""

    def forward(self, pixels: Tensor) -> Tensor:
        return 4 * pixels - 2


NETWORKS: Final[Registry[type[Network]]] = Registry(
    "network", "privmix.research.poisoning.victims.networks", "privmix.poisoning_victims"
)


def build(name: str, shape: tuple[int, int, int], classes: int) -> Network:
    """Return a network for images (C, H, W) with fresh weights, from torch's global generator."""
    made: Network = NETWORKS[name](shape, classes)  # type: ignore[arg-type,call-arg]
    # Faster where channels are few. Weights keep it when others are loaded into them, so that kept networks give the
    # same bits as fresh ones.
    return made.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]
