"""Models by name, and models again from their specs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from privmix.errors import InvalidInput
from privmix.training.config import OWN
from privmix.training.models.base import MODELS, Classifier, Wanted, seeded
from privmix.training.models.budget import check_described


def build_model(
    name: str, *, input_shape: tuple[int, ...], dim: int, classes: int, seed: int, norm: float | None = None
) -> Classifier:
    """Make a model with fresh weights (or pretrained ones under a fresh head).

    ``linear`` takes features (b, d); all others take images (b, C, H, W) in [0, 1]: see ``takes_images``.

    Args:
        name: ``linear``, ``cnn``, ``cnn-relu``, ``resnet-9``, ``wrn-DEPTH-WIDTH``, ``hf:FOLDER_OR_NAME``,
            ``hf-head:FOLDER_OR_NAME``, or that of a model that another package registers.
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
        privmix.errors.InvalidInput: model: got 'vgg'; allowed: cnn, cnn-relu, ...
    """
    wanted = Wanted(tuple(input_shape), dim, classes, norm)
    with seeded(seed):
        for kind in MODELS.all() if isinstance(name, str) else ():
            found = kind.of_name(name, wanted)
            if found is not None:
                return found
    raise InvalidInput("model", name, ", ".join(sorted(kind.called for kind in MODELS.all())))


def model_from_spec(
    spec: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> Classifier:
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
    kind = MODELS[architecture]
    known = set(inspect.signature(kind.__init__).parameters) - {"self", "model", "module"}
    if not set(options) <= known:
        raise InvalidInput(f"options of {architecture}", sorted(options), "those that its spec has")

    def build() -> Classifier:
        try:
            return kind(**options)
        except TypeError:
            raise InvalidInput(f"options of {architecture}", sorted(options), "those that its spec has") from None

    with seeded(0):
        # One of the user's own is none of privmix's: nothing is computed without its code.
        if shapes is not None and kind.name != OWN:
            check_described(build, options, shapes)
        return build()
