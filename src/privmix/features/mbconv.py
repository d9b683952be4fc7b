"""EfficientNet-Lite (Tan and Le 2019) as fixed layers: inverted bottlenecks without squeeze-and-excitation, ReLU6."""
# Each batch normalisation is a factor and an addend per channel, folded into its convolution in double precision.

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
    """A convolution with folded normalisation: weight (out, in / groups, k, k), bias (out,); ReLU6 if ``active``."""

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
        """Return the layer on a device, its weights in the order of a channel's neighbours."""
        weight = self.weight.to(device).contiguous(memory_format=torch.channels_last)
        return Layer(weight, self.bias.to(device), self.stride, self.groups, self.active)


@dataclass(frozen=True, eq=False)
class MBConvBlock:
    """An inverted bottleneck of two or three layers, the last without ReLU6; ``skips``: the input is added."""

    layers: tuple[Layer, ...]
    skips: bool

    def __call__(self, x: Tensor) -> Tensor:
        found = x
        for layer in self.layers:
            found = layer(found)
        return found.add_(x) if self.skips else found


@dataclass(frozen=True, eq=False)
class LiteNetwork:
    """The layers of a network before its classifier: stem, blocks of seven stages, head to 1,280 channels.

    Formal guarantees:
        * fixed: no batch statistics, no random numbers, nothing that calls leave behind.
    """

    stem: Layer
    stages: tuple[tuple[MBConvBlock, ...], ...]
    head: Layer

    @classmethod
    def of(cls, state: Mapping[str, Tensor], depth: float, device: torch.device) -> LiteNetwork:
        """Fold tensors of ``efficientnet-lite-pytorch``; ``depth`` multiplies the blocks of stages two to six."""

        def folded(conv: str, norm: str, stride: int = 1, active: bool = True) -> Layer:
            weight = state[f"{conv}.weight"].double()
            scale = state[f"{norm}.weight"].double() / (state[f"{norm}.running_var"].double() + _EPSILON).sqrt()
            bias = state[f"{norm}.bias"].double() - state[f"{norm}.running_mean"].double() * scale
            alone = weight.shape[1] == 1
            layer = Layer(
                (weight * scale.view(-1, 1, 1, 1)).float(), bias.float(), stride, len(weight) if alone else 1, active
            )
            return layer.to(device)

        def block(number: int, stride: int) -> MBConvBlock:
            name = f"_blocks.{number}"
            widen = [folded(f"{name}._expand_conv", f"{name}._bn0")] if number else []
            filters = folded(f"{name}._depthwise_conv", f"{name}._bn1", stride)
            narrow = folded(f"{name}._project_conv", f"{name}._bn2", active=False)
            layers = (*widen, filters, narrow)
            return MBConvBlock(
                layers, stride == 1 and layers[0].weight.shape[1] * layers[0].groups == len(narrow.weight)
            )

        stages, number = [], 0
        for place, (_, stride, blocks) in enumerate(_STAGES):
            # The first and the last stage do not grow; the others do, rounded up.
            count = blocks if place in (0, len(_STAGES) - 1) else math.ceil(depth * blocks)
            stages.append(tuple(block(number + later, 1 if later else stride) for later in range(count)))
            number += count
        return cls(folded("_conv_stem", "_bn0", 2), tuple(stages), folded("_conv_head", "_bn1"))

    @property
    def widths(self) -> list[int]:
        return [len(stage[-1].layers[-1].weight) for stage in self.stages]

    def __call__(self, x: Tensor, head: bool = True) -> list[Tensor]:
        """Return maps of each stage (b, width, H / s, W / s), s = 2 to 32. With ``head``: (b, 1280, H / 32, W / 32)."""
        # x: (b, 3, H, W), sides multiples of 32, values (255 v - 127) / 128 of an image v in [0, 1].
        x = self.stem(x.contiguous(memory_format=torch.channels_last))
        maps = []
        for stage in self.stages:
            for block in stage:
                x = block(x)
            maps.append(x)
        return [*maps, self.head(x)] if head else maps
