"""Wide residual networks for DP-SGD: group normalisation and standardised weights, no batch statistics."""

from __future__ import annotations

import math
import re
from typing import Any, ClassVar, Final, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from privmix.errors import InvalidInput, check_integer
from privmix.training.models.base import MODELS, Classifier, Wanted, centred, group_norm

_NAME: Final = re.compile(r"wrn-(\d{1,4})-(\d{1,3})")
_STEM = 16
# Added to the variance of a filter's weights, which is about 1 / fan-in.
_EPS = 1e-8


class StandardisedConv2d(nn.Conv2d):
    """A convolution whose filters are shifted to mean 0 and scaled to norm 1 (Qiao et al. 2019)."""

    # A filter of norm 1 keeps the variance of its input, where Qiao's, of variance 1, would multiply it by the fan-in.

    @staticmethod
    def standardise(weight: Tensor) -> Tensor:
        """(out, in / groups, kh, kw) -> the filters that are used, of the same shape."""
        rows = weight.flatten(1)
        fan_in = rows.shape[1]
        # One operation on the weight, not a mean and a variance: ghost clipping counts the uses of a parameter.
        unit: Tensor = functional.layer_norm(rows, (fan_in,), eps=_EPS) / math.sqrt(fan_in)
        return unit.view_as(weight)

    def forward(self, input: Tensor) -> Tensor:
        output: Tensor = self._conv_forward(input, self.standardise(self.weight), self.bias)
        return output


@MODELS.register
class WideResNet(Classifier):
    """WRN-depth-width (Zagoruyko and Komodakis 2016) in the form that suits DP-SGD (De et al. 2022; Park et al. 2024).

    Pre-activation blocks, GroupNorm instead of batch normalisation, and standardised convolutions without biases.
    WRN-16-4 has 2.75M parameters for ten classes of colour images, WRN-40-4 8.95M: the counts of the original.
    ``depth`` is 6 blocks + 4: 10, 16, 22, ...; ``width`` is a factor on the channels 16, 32 and 64 of the three stages.
    """

    name: ClassVar[str] = "wide-resnet"
    called: ClassVar[str] = "wrn-DEPTH-WIDTH such as wrn-16-4 and wrn-40-4"
    takes_images: ClassVar[bool] = True

    @classmethod
    def of_name(cls, name: str, wanted: Wanted) -> Self | None:
        sizes = _NAME.fullmatch(name)
        if sizes is None:
            return None
        depth, width = map(int, sizes.groups())
        return cls(channels_in=wanted.images.channels, classes=wanted.classes, depth=depth, width=width)

    def __init__(self, *, channels_in: int, classes: int, depth: int = 16, width: int = 4, groups: int = 16) -> None:
        super().__init__(classes)
        self.channels_in = check_integer("channels", channels_in, low=1)
        self.depth = check_integer("depth", depth, low=10)
        self.width = check_integer("width", width, low=1)
        self.groups = check_integer("groups", groups, low=1, high=4096)
        if (self.depth - 4) % 6:
            raise InvalidInput("depth", depth, "6 b + 4 for an integer b >= 1: 10, 16, 22, 28, 34, 40, ...")
        blocks = (self.depth - 4) // 6
        self.stem = StandardisedConv2d(self.channels_in, _STEM, 3, padding=1, bias=False)
        layers: list[nn.Module] = []
        before = _STEM
        for stage in range(3):
            after = _STEM * 2**stage * self.width
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(_Block(before, after, stride, self.groups))
                before = after
        self.blocks = nn.Sequential(*layers)
        self.norm = group_norm(before, self.groups)
        self.head = nn.Linear(before, self.classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("channels_in", "classes", "depth", "width", "groups")}

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.blocks(self.stem(centred(x)))
        logits: Tensor = self.head(torch.relu(self.norm(hidden)).mean((-2, -1)))
        return logits


class _Block(nn.Module):
    """Two convolutions, each after normalisation and ReLU, added to what came in."""

    def __init__(self, before: int, after: int, stride: int, groups: int) -> None:
        super().__init__()
        self.norm1 = group_norm(before, groups)
        self.conv1 = StandardisedConv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.norm2 = group_norm(after, groups)
        self.conv2 = StandardisedConv2d(after, after, 3, padding=1, bias=False)
        changes = stride != 1 or before != after
        self.shortcut = StandardisedConv2d(before, after, 1, stride=stride, bias=False) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        active = torch.relu(self.norm1(x))
        kept = x if self.shortcut is None else self.shortcut(active)
        hidden = self.conv2(torch.relu(self.norm2(self.conv1(active))))
        added: Tensor = kept + hidden
        return added
