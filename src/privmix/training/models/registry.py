"""Models by name, and models again from their specs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any, Final

from privmix.errors import InvalidInput
from privmix.training.layout import ImageLayout
from privmix.training.models.base import Classifier, seeded
from privmix.training.models.budget import check_described
from privmix.training.models.hf import PretrainedClassifier
from privmix.training.models.small import LinearHead, ReluCNN, ResNet9, TanhCNN
from privmix.training.models.wide_resnet import WideResNet

_CLASSES: Final[dict[str, type[Classifier]]] = {
    kind.architecture: kind for kind in (LinearHead, TanhCNN, ReluCNN, ResNet9, WideResNet, PretrainedClassifier)
}
_WIDE: Final = re.compile(r"wrn-(\d{1,4})-(\d{1,3})")
_NAMES: Final = (
    "linear, cnn, cnn-relu, resnet-9, wrn-DEPTH-WIDTH such as wrn-16-4 and wrn-40-4, "
    "hf:FOLDER_OR_NAME, or hf-head:FOLDER_OR_NAME (its last layer alone is trained)"
)


def build_model(
    name: str, *, input_shape: tuple[int, ...], dim: int, classes: int, seed: int, norm: float | None = None
) -> Classifier:
    """Make a model with fresh weights (or pretrained ones under a fresh head).

    ``linear`` takes features (b, d); all others take images (b, C, H, W) in [0, 1]: see ``takes_images``.

    Args:
        name: ``linear``, ``cnn``, ``cnn-relu``, ``resnet-9``, ``wrn-DEPTH-WIDTH``, ``hf:FOLDER_OR_NAME`` or
            ``hf-head:FOLDER_OR_NAME``.
        input_shape: of a raw input; (H, W) or (H, W, C) for image models.
        dim: length of a feature vector.
        classes: number of logits.
        seed: weights depend on it alone, and torch's global generators are left as they were.
        norm: for ``linear``: scale each vector to this L2 norm.

    Raises:
        InvalidInput: no such model, or not for such inputs.
        StorageError: the hub cannot be reached and the model is not in the local cache.
        MissingExtra: a pretrained model is wanted and transformers is not installed.

    Example:
        >>> model = build_model("wrn-16-4", input_shape=(32, 32, 3), dim=3072, classes=10, seed=0)
        >>> model.takes_images, sum(parameter.numel() for parameter in model.parameters())
        (True, 2748890)
        >>> build_model("vgg", input_shape=(8, 8), dim=64, classes=2, seed=0)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: model: got 'vgg'; allowed: linear, cnn, ...
    """
    with seeded(seed):
        if name == "linear":
            return LinearHead(dim=dim, classes=classes, norm=norm)
        if norm is not None:
            raise InvalidInput("norm", norm, "none, unless the model is linear")
        return _image_model(name, input_shape, classes)


def _image_model(name: str, input_shape: tuple[int, ...], classes: int) -> Classifier:
    if not _known(name):
        raise InvalidInput("model", name, _NAMES)
    layout = ImageLayout.of_input(input_shape)
    channels, height, width = layout.shape
    if wide := _WIDE.fullmatch(name):
        depth, factor = map(int, wide.groups())
        return WideResNet(channels_in=channels, classes=classes, depth=depth, width=factor)
    if name == "resnet-9":
        if min(height, width) < 8:
            raise InvalidInput("input shape", tuple(input_shape), "images of at least 8 x 8 for the model resnet-9")
        return ResNet9(channels_in=channels, classes=classes)
    if name in ("cnn", "cnn-relu"):
        kind = TanhCNN if name == "cnn" else ReluCNN
        return kind(channels_in=channels, height=height, width=width, classes=classes)
    prefix, _, where = name.partition(":")
    return PretrainedClassifier.load(
        where, channels_in=channels, height=height, width=width, classes=classes, frozen=prefix == "hf-head"
    )


def _known(name: Any) -> bool:
    if not isinstance(name, str):
        return False
    if name.startswith(("hf:", "hf-head:")):
        return bool(name.partition(":")[2])
    return name in ("cnn", "cnn-relu", "resnet-9") or _WIDE.fullmatch(name) is not None


def model_from_spec(spec: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]] | None = None) -> Classifier:
    """Rebuild the architecture that ``model.spec()`` describes; its weights are to be loaded.

    Args:
        spec: architecture and options; nothing in it names code, a path or an address.
        shapes: name of array -> shape of the weights at hand. The spec of a stranger needs them: a network that is
            none of these weights is refused before it takes memory.

    Raises:
        InvalidInput: no spec of a model of this package, or of other weights.
        MissingExtra: a pretrained model's architecture is wanted and transformers is not installed.

    Example:
        >>> model = build_model("linear", input_shape=(4,), dim=4, classes=2, seed=0, norm=1.0)
        >>> model_from_spec(model.spec()).spec() == model.spec()
        True
        >>> model_from_spec({**model.spec(), "dim": 10**9}, {"head.weight": (2, 4), "head.bias": (2,)})
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: number in the network's description: got 1000000000; allowed: at most 65536, for \
weights of this size
    """
    options = dict(spec)
    architecture = options.pop("architecture", None)
    if not isinstance(architecture, str) or architecture not in _CLASSES:
        raise InvalidInput("architecture", architecture, "one of " + ", ".join(_CLASSES))
    kind = _CLASSES[architecture]
    known = set(inspect.signature(kind.__init__).parameters) - {"self", "model"}
    if not set(options) <= known:
        raise InvalidInput(f"options of {architecture}", sorted(options), "those that its spec has")

    def build() -> Classifier:
        try:
            return kind(**options)
        except TypeError:
            raise InvalidInput(f"options of {architecture}", sorted(options), "those that its spec has") from None

    with seeded(0):
        if shapes is not None:
            check_described(build, options, shapes)
        return build()
