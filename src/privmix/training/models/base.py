"""Base of all classifiers: made by name, built again from a spec, with a bound on what is built."""

import inspect
import logging
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks

from privmix._registry import Registry
from privmix.errors import InvalidInput, check_integer
from privmix.training.config import OWN
from privmix.training.examples import ImageLayout
from privmix.untrusted import MEBIBYTE


@dataclass(frozen=True)
class Wanted:
    """Inputs and outputs of a model to build: raw ``input_shape``, features ``dim``, logits ``classes``, ``norm``."""

    input_shape: tuple[int, ...]
    dim: int
    classes: int
    norm: float | None = None

    @property
    def images(self) -> ImageLayout:
        """Layout of image inputs; raise where they are none, or a norm of vectors is set."""
        if self.norm is not None:
            raise InvalidInput("norm", self.norm, "none, unless the model is linear")
        return ImageLayout.of_input(self.input_shape)


class Classifier(nn.Module, ABC):
    """A network from one input to ``classes`` logits, without any layer that mixes the records of a batch.

    Attributes:
        name: in its spec; ``MODELS.register`` makes it known.
        called: name for users, or how its names are made.
        takes_images: whether ``forward`` takes images (b, C, H, W) in [0, 1], or vectors (b, d) otherwise.
        classes: number of logits.
        certifiable: False for weights of an observed or changed run: no training may start from these.
    """

    name: ClassVar[str]
    called: ClassVar[str]
    takes_images: ClassVar[bool]
    certifiable: bool = True

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes: Final = check_integer("classes", classes, low=1)

    @classmethod
    def of_name(cls, name: str, wanted: Wanted) -> Self | None:
        """Return the model called ``name``, with fresh weights; None where the name belongs to another class."""
        return cls.made(wanted) if name == cls.called else None

    @classmethod
    def made(cls, wanted: Wanted) -> Self:
        """Return the model that is called ``called``; a kind with many names makes them in :meth:`of_name`."""
        raise NotImplementedError

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """(b, C, H, W) in [0, 1], or (b, d) -> (b, classes) logits."""

    @property
    def temperature(self) -> float:
        """The factor on logits before the softmax, from the weights alone; 1 if it is unknown."""
        return 1.0

    def options(self) -> dict[str, Any]:
        """Arguments of the constructor that rebuild the architecture, as JSON values; attributes of the same names."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def values_a_record(self, dim: int) -> int:
        """Numbers that the first layer sees of a record of ``dim`` values: what a batch takes in memory."""
        return dim

    def spec(self) -> dict[str, Any]:
        """Return the architecture, without its weights: what `model_from_spec` takes."""
        return {"architecture": self.name, **self.options()}


MODELS: Final[Registry[type[Classifier]]] = Registry("architecture", "privmix.training.models", "privmix.models")


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Initialise from ``seed`` alone, and restore torch's global generators."""
    number = check_integer("seed", seed, low=0, high=2**63 - 1)
    # Weights are drawn on the CPU: the generators of GPUs need be neither saved nor seeded.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(number)
        yield


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Without what torch logs and warns of for its own developers."""
    logger = logging.getLogger("torch")
    level = logger.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            logger.setLevel(level)


def centred(images: Tensor) -> Tensor:
    return 2 * images - 1


def group_norm(channels: int, groups: int) -> nn.GroupNorm:
    """GroupNorm with ``groups`` groups, or the largest number below that divides the channels."""
    fitting = next(count for count in range(min(groups, channels), 0, -1) if channels % count == 0)
    return nn.GroupNorm(fitting, channels)


def is_out_of_memory(error: BaseException) -> bool:
    text = str(error)
    return (
        isinstance(error, MemoryError | torch.OutOfMemoryError)
        or "out of memory" in text
        or "can't allocate memory" in text
    )


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


def build_model(
    name: str, *, input_shape: tuple[int, ...], dim: int, classes: int, seed: int, norm: float | None = None
) -> Classifier:
    """Make a model with fresh weights, or pretrained ones under a fresh head.

    ``linear`` takes features (b, d), scaled to L2 norm ``norm``; others take images (b, C, H, W) in [0, 1] of raw shape
    (H, W) or (H, W, C). Torch's global generators are restored.
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
