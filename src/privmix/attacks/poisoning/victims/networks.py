"""Networks with batch norm, as they are trained where nobody asks for privacy."""

from __future__ import annotations

from typing import Final

from torch import Tensor, nn

from privmix.errors import check_choice


class Network(nn.Module):
    """A body, images (b, C, H, W) in [0, 1] -> (b, d), and a linear head, (b, d) -> (b, K)."""

    def __init__(self, body: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.body, self.head, self.classes = body, nn.Linear(width, classes), classes

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(pixels))
        return logits


def _cnn(shape: tuple[int, int, int], classes: int) -> Network:
    channels, height, width = shape
    layers: list[nn.Module] = []
    for wide in (16, 32, 64):
        layers += [nn.Conv2d(channels, wide, 3, 2, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU()]
        channels, height, width = wide, -(-height // 2), -(-width // 2)
    return Network(nn.Sequential(*layers, nn.Flatten()), channels * height * width, classes)


NETWORKS: Final = {"cnn": _cnn}


def build(name: str, shape: tuple[int, int, int], classes: int) -> Network:
    """A network with fresh weights.

    Raises:
        InvalidInput: there is none of that name.
    """
    return NETWORKS[check_choice("network", name, NETWORKS)](shape, classes)
