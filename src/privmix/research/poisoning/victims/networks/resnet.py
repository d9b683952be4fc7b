"""Residual networks for small images, with a first layer that keeps their size (He et al. 2016, CIFAR's form)."""

from __future__ import annotations

from typing import ClassVar, Final

from torch import Tensor, nn
from torch.nn import functional

from privmix.research.poisoning.victims.networks.base import NETWORKS, Centred, Network


def _normed(before: int, after: int, kernel: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(after))


class ResNetBlock(nn.Module):
    """Two convolutions of 3 x 3 next to a shortcut, which is a convolution of 1 x 1 where the shape changes."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first: Final = _normed(before, after, 3, stride)
        self.second: Final = _normed(after, after, 3)
        same = before == after and stride == 1
        self.shortcut: nn.Module = nn.Identity() if same else _normed(before, after, 1, stride)

    def forward(self, maps: Tensor) -> Tensor:
        """(b, before, H, W) -> (b, after, H / stride, W / stride)."""
        inner = self.second(functional.relu(self.first(maps)))
        return functional.relu(inner + self.shortcut(maps))


@NETWORKS.register
class SmallResNet(Network):
    """A residual network of five convolutions, to 32, 64 and 128 channels at 1/2, 1/4 and 1/8 of the image's side."""

    name: ClassVar[str] = "resnet"
    about: ClassVar[str] = "a small residual network: twice as slow as cnn-wide"

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        layers = [Centred(), _normed(shape[0], 32, 5, 2), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)]
        layers += [ResNetBlock(32, 64, 1), ResNetBlock(64, 128, 2), nn.Flatten()]
        _, height, width = shape
        super().__init__(nn.Sequential(*layers), 128 * -(-height // 8) * -(-width // 8), classes)


@NETWORKS.register
class ResNet18(Network):
    """ResNet-18 for images of 32 x 32: two blocks each of 64, 128, 256 and 512 channels (11.2 million weights)."""

    name: ClassVar[str] = "resnet18"
    about: ClassVar[str] = "ResNet-18 for small images (He et al. 2016), as in the paper; for GPUs"

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        layers: list[nn.Module] = [Centred(), _normed(shape[0], 64, 3), nn.ReLU()]
        before = 64
        for stage, after in enumerate((64, 128, 256, 512)):
            layers += [ResNetBlock(before, after, 1 if stage == 0 else 2), ResNetBlock(after, after, 1)]
            before = after
        super().__init__(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), 512, classes)
