"""EfficientNet-Lite as fixed layers: inverted bottlenecks (MBConv) without squeeze-and-excitation, ReLU6, no training.

The network is that of Tan and Le (2019) in its Lite variants: no squeeze-and-excitation, ReLU6 in place of swish, and a
stem and head that do not grow with the width. A batch normalisation that only infers is a multiplication and an
addition a channel: both are folded into the convolution before it, in double precision.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from privmix.packages import torch

if TYPE_CHECKING:
    from torch import Tensor


STRIDE: Final = 32
HEAD_WIDTH: Final = 1280
# Kernel, stride of the first block, blocks of the smallest network: the seven stages of EfficientNet-B0.
_STAGES: Final = ((3, 1, 1), (3, 2, 2), (5, 2, 2), (3, 2, 3), (5, 1, 3), (5, 2, 4), (3, 1, 1))
_EPSILON: Final = 1e-3


@dataclass(frozen=True, eq=False)
class Layer:
    """A convolution with its normalisation folded in.

    Attributes:
        weight: (out, in / groups, k, k).
        bias: (out,).
        stride: 1 or 2.
        groups: 1, or the number of channels.
        active: whether ReLU6 follows.
    """

    weight: Tensor
    bias: Tensor
    stride: int = 1
    groups: int = 1
    active: bool = True

    def __call__(self, x: Tensor) -> Tensor:
        """(b, in, H, W) -> (b, out, H / stride, W / stride); H and W are whole multiples of the stride."""
        kernel = self.weight.shape[-1]
        margin = kernel // 2
        if self.stride == 2:
            # TensorFlow's "same": of an odd number of points that are missing, the last one lies after the image.
            before = kernel // 2 - 1
            x, margin = torch.nn.functional.pad(x, (before, margin, before, margin)), 0
        found = torch.nn.functional.conv2d(x, self.weight, self.bias, self.stride, margin, 1, self.groups)
        return torch.nn.functional.relu6(found, inplace=True) if self.active else found

    def to(self, device: torch.device) -> Layer:
        """The layer on a device, its weights in the order of a channel's neighbours."""
        weight = self.weight.to(device).contiguous(memory_format=torch.channels_last)
        return Layer(weight, self.bias.to(device), self.stride, self.groups, self.active)


@dataclass(frozen=True, eq=False)
class Block:
    """An inverted bottleneck: widened by a convolution of 1 x 1, filtered channel by channel, narrowed again.

    Attributes:
        layers: two or three; the last one is not active.
        skips: whether the input is added to the output.
    """

    layers: tuple[Layer, ...]
    skips: bool

    def __call__(self, x: Tensor) -> Tensor:
        """(b, in, H, W) -> (b, out, H / stride, W / stride)."""
        found = x
        for layer in self.layers:
            found = layer(found)
        return found.add_(x) if self.skips else found


@dataclass(frozen=True, eq=False)
class LiteNetwork:
    """The layers of a network up to where its classifier would begin.

    Attributes:
        stem: the first convolution.
        stages: blocks of each of the seven stages.
        head: the last convolution, to 1,280 channels.

    Formal guarantees:
        * fixed: no batch statistics, no random numbers, nothing that calls leave behind.
    """

    stem: Layer
    stages: tuple[tuple[Block, ...], ...]
    head: Layer

    @classmethod
    def of(cls, state: Mapping[str, Tensor], depth: float, device: torch.device) -> LiteNetwork:
        """Fold a state of ``efficientnet-lite-pytorch``'s network, whose names these are.

        Args:
            state: tensors by name; those of the classifier are not looked at.
            depth: how many times as many blocks as in the smallest network stages two to six have.
            device: where the network runs.

        Raises:
            KeyError: a layer is missing.
        """

        def folded(conv: str, norm: str, stride: int = 1, active: bool = True) -> Layer:
            weight = state[f"{conv}.weight"].double()
            scale = state[f"{norm}.weight"].double() / (state[f"{norm}.running_var"].double() + _EPSILON).sqrt()
            bias = state[f"{norm}.bias"].double() - state[f"{norm}.running_mean"].double() * scale
            alone = weight.shape[1] == 1
            layer = Layer(
                (weight * scale.view(-1, 1, 1, 1)).float(), bias.float(), stride, len(weight) if alone else 1, active
            )
            return layer.to(device)

        def block(number: int, stride: int) -> Block:
            name = f"_blocks.{number}"
            widen = [folded(f"{name}._expand_conv", f"{name}._bn0")] if number else []
            filters = folded(f"{name}._depthwise_conv", f"{name}._bn1", stride)
            narrow = folded(f"{name}._project_conv", f"{name}._bn2", active=False)
            layers = (*widen, filters, narrow)
            return Block(layers, stride == 1 and layers[0].weight.shape[1] * layers[0].groups == len(narrow.weight))

        stages, number = [], 0
        for place, (_, stride, blocks) in enumerate(_STAGES):
            # The first and the last stage do not grow; the others do, rounded up.
            count = blocks if place in (0, len(_STAGES) - 1) else math.ceil(depth * blocks)
            stages.append(tuple(block(number + later, 1 if later else stride) for later in range(count)))
            number += count
        return cls(folded("_conv_stem", "_bn0", 2), tuple(stages), folded("_conv_head", "_bn1"))

    @property
    def widths(self) -> list[int]:
        """Channels of each stage's maps."""
        return [len(stage[-1].layers[-1].weight) for stage in self.stages]

    def __call__(self, x: Tensor, head: bool = True) -> list[Tensor]:
        """Maps of every stage, and of the head.

        Args:
            x: (b, 3, H, W), sides that are multiples of 32, values (255 v - 127) / 128 of an image v in [0, 1].
            head: whether those of the head are wanted.

        Returns:
            (b, width, H / s, W / s) of each stage, s from 2 to 32; then (b, 1280, H / 32, W / 32).
        """
        x = self.stem(x.contiguous(memory_format=torch.channels_last))
        maps = []
        for stage in self.stages:
            for block in stage:
                x = block(x)
            maps.append(x)
        return [*maps, self.head(x)] if head else maps
