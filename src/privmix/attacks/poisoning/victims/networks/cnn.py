"""A small convolutional network that a CPU trains in a second."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from privmix.attacks.poisoning.victims.networks.base import NETWORKS, Network


@NETWORKS.register
class SmallCNN(Network):
    """Three convolutions with batch norm, 16, 32 and 64 channels, at a quarter of the image's side from the second on.

    The first one's stride and the pooling behind it keep the elementwise work small, which is half of what a small
    network costs on a CPU. A step on 64 images of 28 x 28 pixels takes some 5 ms.
    """

    name: ClassVar[str] = "cnn"
    about: ClassVar[str] = "three convolutions with batch norm; a second of CPU time on 2,000 MNIST images"

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        channels, *sides = shape
        layers = [nn.Conv2d(channels, 16, 5, 2, 2, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
        layers += [nn.MaxPool2d(2, ceil_mode=True)]
        layers += [nn.Conv2d(16, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
        layers += [nn.Conv2d(32, 64, 3, 2, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten()]
        height, width = (-(-side // 8) for side in sides)
        super().__init__(nn.Sequential(*layers), 64 * height * width, classes)
