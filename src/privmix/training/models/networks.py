"""Networks for DP-SGD: a linear head on features, the papers' CNNs, ResNet-9 and wide residual networks."""

import math
import re
from typing import ClassVar, Final, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from privmix.errors import InvalidInput, check_integer, check_number
from privmix.training.models.base import MODELS, Classifier, Wanted, centred, group_norm

# Chosen on digits, banking77 and Adult, on records held out of their training data (benchmarks/results/ended.md).
_APART: Final = 3.0


@MODELS.register
class LinearHead(Classifier):
    """A linear layer on vectors of length ``dim``, from zero weights; each is first scaled to the public ``norm``."""

    name: ClassVar[str] = "linear"
    called: ClassVar[str] = "linear"
    takes_images: ClassVar[bool] = False

    @classmethod
    def made(cls, wanted: Wanted) -> Self:
        return cls(dim=wanted.dim, classes=wanted.classes, norm=wanted.norm)

    def __init__(self, *, dim: int, classes: int, norm: float | None = None) -> None:
        super().__init__(classes)
        self.dim: Final = check_integer("dim", dim, low=1)
        self.norm: Final = None if norm is None else check_number("norm", norm, low=0, low_open=True)
        self.head: Final = nn.Linear(self.dim, self.classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    @property
    def temperature(self) -> float:
        """Factor that brings logits as far apart as those of a typical calibrated classifier."""
        # Clipped gradients continue long after a record is classified, and noise adds up in every weight: logits grow
        # with the learning rate and the noise, for any records. The spread of logits for a vector of the public norm,
        # in the mean over all directions, is the weights' own size; it is scaled to a public constant.
        if self.norm is None:
            return 1.0
        weights = self.head.weight.detach().double()
        apart = self.norm * float((weights - weights.mean(dim=0)).square().mean().sqrt())
        return min(1.0, _APART / apart) if apart > 0 else 1.0

    def scaled(self, x: Tensor) -> Tensor:
        """(b, d) vectors at the wanted norm."""
        if self.norm is None:
            return x
        # In float64, since squares of very small or large entries leave float32's range; in two factors, since the
        # quotient may leave it too.
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float64)
        root = torch.where(length > 0, self.norm / length, 0.0).sqrt().to(x.dtype)
        return x * root * root

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.scaled(x))
        return logits


class _ShapedCNN(Classifier):
    """A CNN that ends in layers on the flattened image, so that its size depends on the image's."""

    takes_images: ClassVar[bool] = True

    def __init__(self, *, channels_in: int, height: int, width: int, classes: int) -> None:
        super().__init__(classes)
        self.channels_in: Final = check_integer("channels", channels_in, low=1)
        self.height: Final = check_integer("height", height, low=1)
        self.width: Final = check_integer("width", width, low=1)
        self.convolutions: Final = self._convolutions()
        try:
            with torch.no_grad():
                flat = self.convolutions(torch.zeros(1, self.channels_in, self.height, self.width)).numel()
        except RuntimeError:
            flat = 0
        if flat == 0:
            raise InvalidInput("input shape", (self.height, self.width), f"larger images for the model {self.called}")
        self.fully_connected: Final = self._fully_connected(flat)

    @classmethod
    def made(cls, wanted: Wanted) -> Self:
        channels, height, width = wanted.images.shape
        return cls(channels_in=channels, height=height, width=width, classes=wanted.classes)

    def _convolutions(self) -> nn.Sequential:
        raise NotImplementedError

    def _fully_connected(self, flat: int) -> nn.Sequential:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fully_connected(self.convolutions(centred(x)).flatten(1))
        return logits


@MODELS.register
class TanhCNN(_ShapedCNN):
    """The tanh networks of Papernot et al. (2021), a baseline of Park et al. 2024 (Table 5).

    Images with a side below 32 get two convolutions (26,010 parameters for ten classes of 28 x 28), others six (550,570
    for ten classes of 32 x 32 in colour). Tanh bounds activations, which keeps gradients small to clip.
    """

    name: ClassVar[str] = "tanh-cnn"
    called: ClassVar[str] = "cnn"

    def _convolutions(self) -> nn.Sequential:
        if min(self.height, self.width) < 32:
            return nn.Sequential(
                nn.Conv2d(self.channels_in, 16, 8, stride=2, padding=2),
                nn.Tanh(),
                nn.MaxPool2d(2, stride=1),
                nn.Conv2d(16, 32, 4, stride=2),
                nn.Tanh(),
                nn.MaxPool2d(2, stride=1),
            )
        layers: list[nn.Module] = []
        before = self.channels_in
        for after in (32, 64, 128):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.Tanh()]
            layers += [nn.Conv2d(after, after, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2)]
            before = after
        return nn.Sequential(*layers)

    def _fully_connected(self, flat: int) -> nn.Sequential:
        hidden = 32 if min(self.height, self.width) < 32 else 128
        return nn.Sequential(nn.Linear(flat, hidden), nn.Tanh(), nn.Linear(hidden, self.classes))


@MODELS.register
class ReluCNN(_ShapedCNN):
    """The five-layer ReLU network of Lee et al. (2019), used for DPMix in Li et al. 2022 (Table 5)."""

    name: ClassVar[str] = "relu-cnn"
    called: ClassVar[str] = "cnn-relu"

    def _convolutions(self) -> nn.Sequential:
        first, second = nn.Conv2d(self.channels_in, 32, 5, padding=2), nn.Conv2d(32, 48, 5, padding=2)
        return nn.Sequential(first, nn.ReLU(), nn.MaxPool2d(2), second, nn.ReLU(), nn.MaxPool2d(2))

    def _fully_connected(self, flat: int) -> nn.Sequential:
        first, second, third = nn.Linear(flat, 100), nn.Linear(100, 100), nn.Linear(100, self.classes)
        return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third)


@MODELS.register
class ResNet9(Classifier):
    """ResNet-9 with GroupNorm (Park et al. 2024, Table 6, after Klause et al. 2022): 6.62M parameters for 100 classes.

    Images are at least 8 x 8; ``width`` is the channels of the first layer, and the last has eight times as many.
    """

    name: ClassVar[str] = "resnet-9"
    called: ClassVar[str] = "resnet-9"
    takes_images: ClassVar[bool] = True

    @classmethod
    def made(cls, wanted: Wanted) -> Self:
        channels, *sides = wanted.images.shape
        if min(sides) < 8:
            raise InvalidInput("input shape", wanted.input_shape, "images of at least 8 x 8 for the model resnet-9")
        return cls(channels_in=channels, classes=wanted.classes)

    def __init__(self, *, channels_in: int, classes: int, width: int = 64, groups: int = 32) -> None:
        super().__init__(classes)
        self.channels_in: Final = check_integer("channels", channels_in, low=1)
        self.width: Final = check_integer("width", width, low=1)
        self.groups: Final = check_integer("groups", groups, low=1, high=4096)
        first, second, third, fourth = (self.width * factor for factor in (1, 2, 4, 8))
        self.layer0: Final = self._layer(self.channels_in, first)
        self.layer1: Final = self._layer(first, second, pool=True)
        self.residual1: Final = nn.Sequential(self._layer(second, second), self._layer(second, second))
        self.layer2: Final = self._layer(second, third, pool=True)
        self.layer3: Final = self._layer(third, fourth, pool=True)
        self.residual3: Final = nn.Sequential(self._layer(fourth, fourth), self._layer(fourth, fourth))
        self.head: Final = nn.Linear(fourth, self.classes)

    def _layer(self, before: int, after: int, *, pool: bool = False) -> nn.Sequential:
        conv = nn.Conv2d(before, after, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
        layers: list[nn.Module] = [conv, group_norm(after, self.groups), nn.ReLU()]
        return nn.Sequential(*layers, nn.MaxPool2d(2)) if pool else nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layer1(self.layer0(centred(x)))
        hidden = self.layer2(hidden + self.residual1(hidden))
        hidden = self.layer3(hidden)
        hidden = hidden + self.residual3(hidden)
        logits: Tensor = self.head(hidden.amax((-2, -1)))
        return logits


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
        self.channels_in: Final = check_integer("channels", channels_in, low=1)
        self.depth: Final = check_integer("depth", depth, low=10)
        self.width: Final = check_integer("width", width, low=1)
        self.groups: Final = check_integer("groups", groups, low=1, high=4096)
        if (self.depth - 4) % 6:
            raise InvalidInput("depth", depth, "6 b + 4 for an integer b >= 1: 10, 16, 22, 28, 34, 40, ...")
        blocks = (self.depth - 4) // 6
        self.stem: Final = StandardisedConv2d(self.channels_in, _STEM, 3, padding=1, bias=False)
        layers: list[nn.Module] = []
        before = _STEM
        for stage in range(3):
            after = _STEM * 2**stage * self.width
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(_Block(before, after, stride, self.groups))
                before = after
        self.blocks: Final = nn.Sequential(*layers)
        self.norm: Final = group_norm(before, self.groups)
        self.head: Final = nn.Linear(before, self.classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

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
