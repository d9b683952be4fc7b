"""Base of all classifiers: their inputs, and a spec from which the architecture is built again."""

from __future__ import annotations

import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

import torch
from torch import Tensor, nn

from privmix._registry import Registry
from privmix.errors import InvalidInput, check_integer
from privmix.training.facts import ImageLayout


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
        self.classes = check_integer("classes", classes, low=1)

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
    def title(self) -> str:
        return type(self).__name__

    @property
    def temperature(self) -> float:
        """The factor on logits before the softmax, from the weights alone; 1 if it is unknown."""
        return 1.0

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Arguments of the constructor that rebuild the architecture, as JSON values."""

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
    """Whether an error reports this: a smaller chunk may do."""
    text = str(error)
    return (
        isinstance(error, MemoryError | torch.OutOfMemoryError)
        or "out of memory" in text
        or "can't allocate memory" in text
    )
