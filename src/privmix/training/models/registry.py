"""Models by name, and models again from their specs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from privmix.errors import InvalidInput
from privmix.training.config import OWN
from privmix.training.models.base import MODELS, Classifier, Wanted, check_described, seeded


def build_model(
    name: str, *, input_shape: tuple[int, ...], dim: int, classes: int, seed: int, norm: float | None = None
) -> Classifier:
    """Make a model with fresh weights, or pretrained ones under a fresh head.

    ``linear`` takes features (b, d); others take images (b, C, H, W) in [0, 1].

    Args:
        name: ``linear``, ``cnn``, ``cnn-relu``, ``resnet-9``, ``wrn-DEPTH-WIDTH``. Also ``hf:FOLDER_OR_NAME``,
            ``hf-head:FOLDER_OR_NAME``, or the name of a registered model.
        input_shape: of a raw input; (H, W) or (H, W, C) for image models.
        dim: length of a feature vector.
        classes: number of logits.
        seed: of the weights; torch's global generators are restored.
        norm: for ``linear``: scale each vector to this L2 norm.

    Raises:
        InvalidInput: no such model, or not for such inputs.
        StorageError: the hub cannot be reached and the model is not in the local cache.
        MissingExtra: a pretrained model is wanted and transformers is not installed.
    """
    wanted = Wanted(tuple(input_shape), dim, classes, norm)
    with seeded(seed):
        for kind in MODELS.all() if isinstance(name, str) else ():
            found = kind.of_name(name, wanted)
            if found is not None:
                return found
    raise InvalidInput("model", name, ", ".join(sorted(kind.called for kind in MODELS.all())))


def model_from_spec(spec: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]] | None = None) -> Classifier:
    """Rebuild the architecture of ``model.spec()``, for weights to be loaded.

    A stranger's spec needs ``shapes``, name of array -> shape of the given weights: a network of other weights is
    refused before it takes memory. A spec names no code, path or address.
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
