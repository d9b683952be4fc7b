"""Small convolutional networks that a CPU trains in seconds."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from privmix.research.poisoning.victims.networks.base import NETWORKS, Network


def _body(channels: int, wide: int) -> nn.Sequential:
    """Convolutions to ``wide``, 2 ``wide`` and 4 ``wide`` channels at 1/2, 1/4 and 1/8 of the image's side."""
    layers = [nn.Conv2d(channels, wide, 5, 2, 2, bias=False), nn.BatchNorm2d(wide), nn.ReLU()]
    layers += [nn.MaxPool2d(2, ceil_mode=True)]
    layers += [nn.Conv2d(wide, 2 * wide, 3, 1, 1, bias=False), nn.BatchNorm2d(2 * wide), nn.ReLU()]
    layers += [nn.Conv2d(2 * wide, 4 * wide, 3, 2, 1, bias=False), nn.BatchNorm2d(4 * wide), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers)


def _width(shape: tuple[int, int, int], wide: int) -> int:
    _, height, width = shape
    return 4 * wide * -(-height // 8) * -(-width // 8)


@NETWORKS.register
class SmallCNN(Network):
    """Three convolutions with batch norm, to 16, 32 and 64 channels; a step on 64 images of 28 x 28 takes some 5 ms."""

    # The first stride and the pooling keep the elementwise work small: half the cost of a small network on a CPU.
    name: ClassVar[str] = "cnn"
    about: ClassVar[str] = "three convolutions with batch norm; a second of CPU time on 2,000 MNIST images"

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__(_body(shape[0], 16), _width(shape, 16), classes)


@NETWORKS.register
class WideCNN(Network):
    """The same, twice as wide: more to each second of CPU time on 10,000 photographs than small residual networks."""

    name: ClassVar[str] = "cnn-wide"
    about: ClassVar[str] = "the same, twice as wide; half a minute of CPU time or less on 10,000 CIFAR-10 images"

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__(_body(shape[0], 32), _width(shape, 32), classes)
