"""A network of a stranger's description is built without memory first, and compared with the given weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks

from privmix.errors import InvalidInput
from privmix.untrusted import MEBIBYTE

# Layers without weights (activations, dropout, pooling, containers) for each array of weights, and for none.
_MODULES_AN_ARRAY: Final = 20
_MODULES: Final = 200
# Numbers of a description that are no sizes of arrays: counts of patches, groups, sides of images.
_SMALL: Final = 2**16
_TABLES: Final = 64 * MEBIBYTE
_ALLOWED: Final = "a network whose weights are those in the weights file"


def check_described(
    build: Callable[[], nn.Module], options: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise unless ``build`` makes a network with exactly these weights. Takes no memory for them.

    Formal guarantees:
        - Time and memory are linear in the number of arrays: building stops at the first array or layer too many.
        - What a build with memory then takes is what the weights file holds, and tables of at most 64 MiB or the size
          of the weights.
    """
    # options: a stranger's description. shapes: name of array -> shape, from the header of the weights file.
    elements = sum(math.prod(shape) for shape in shapes.values())
    _check_numbers(options, max(elements, _SMALL))
    try:
        with _limited(len(shapes)), torch.device("meta"):
            network = build()
    except InvalidInput:
        raise
    except Exception:
        raise InvalidInput("network", "a description that gives none", _ALLOWED) from None
    found = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    if found != dict(shapes):
        wrong = sorted(set(found.items()) ^ set(shapes.items()))
        raise InvalidInput("weights of the network", wrong[0], _ALLOWED)
    tables = sum(
        buffer.numel() * buffer.element_size() for name, buffer in network.named_buffers() if name not in found
    )
    if tables > max(_TABLES, 4 * elements):
        raise InvalidInput("network", f"tables of {tables:,} bytes", "a network not larger than its weights")


def without_memory(network: nn.Module) -> dict[str, Tensor]:
    """Return the network's parameters and buffers as shapes alone, for :func:`torch.func.functional_call`."""
    return {
        name: torch.empty_like(tensor, device="meta").requires_grad_(tensor.requires_grad)
        for name, tensor in [*network.named_parameters(), *network.named_buffers()]
    }


def _check_numbers(value: Any, most: int) -> None:
    """No number of a description is larger than the number of weights: loops over it end."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            _check_numbers(part, most)
    elif isinstance(value, int) and abs(value) > most:
        raise InvalidInput("number in the network's description", value, f"at most {most}, for weights of this size")


@contextmanager
def _limited(arrays: int) -> Iterator[None]:
    """Stop the building of a network with more arrays or layers than the weights justify."""
    left = {"arrays": arrays, "layers": _MODULES + _MODULES_AN_ARRAY * arrays}

    def count(what: str, added: object) -> None:
        left[what] -= added is not None
        if left[what] < 0:
            raise InvalidInput("network", f"more {what}", _ALLOWED)

    handles = [
        hooks.register_module_parameter_registration_hook(lambda module, name, added: count("arrays", added)),
        hooks.register_module_module_registration_hook(lambda module, name, added: count("layers", added)),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
