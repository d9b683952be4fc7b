"""What all classifiers share: what they take, and a spec from which the architecture is built again."""

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
from privmix.training.layout import ImageLayout


@dataclass(frozen=True)
class Wanted:
    """What a model that is asked for by name is made for.

    Attributes:
        input_shape: of a raw input; (H, W) or (H, W, C) for image models.
        dim: length of a feature vector.
        classes: number of logits.
        norm: L2 norm that each vector is to be scaled to, or None.
    """

    input_shape: tuple[int, ...]
    dim: int
    classes: int
    norm: float | None = None

    @property
    def images(self) -> ImageLayout:
        """How inputs are images.

        Raises:
            InvalidInput: they are none, or a norm of vectors is asked for.
        """
        if self.norm is not None:
            raise InvalidInput("norm", self.norm, "none, unless the model is linear")
        return ImageLayout.of_input(self.input_shape)


class Classifier(nn.Module, ABC):
    """A network from one input to ``classes`` logits, without any layer that mixes the records of a batch.

    Attributes:
        name: what its spec calls it; ``MODELS.register`` makes it known.
        called: what users call it: a name, or in words how names of it are made.
        takes_images: whether ``forward`` takes images (b, C, H, W) in [0, 1], or vectors (b, d) otherwise.
        classes: number of logits.
        certifiable: False for weights of a run that somebody looked into or changed: none may start from these.
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
        """The model that users mean by ``name``, with fresh weights; None where the name is of another kind's.

        Raises:
            InvalidInput: its name, but it can't be made for such inputs.
        """
        return cls.made(wanted) if name == cls.called else None

    @classmethod
    def made(cls, wanted: Wanted) -> Self:
        """The model that is called ``called``; a kind with many names makes them in :meth:`of_name`."""
        raise NotImplementedError

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """(b, C, H, W) in [0, 1], or (b, d) -> (b, classes) logits."""

    @property
    def title(self) -> str:
        """Its name in messages."""
        return type(self).__name__

    @property
    def temperature(self) -> float:
        """What logits are multiplied by before the softmax, from the weights alone; 1 where nothing is known."""
        return 1.0

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Arguments of the constructor that rebuild the architecture, as JSON values."""

    def values_a_record(self, dim: int) -> int:
        """Numbers that the first layer sees of a record of ``dim`` values: what a batch takes in memory."""
        return dim

    def spec(self) -> dict[str, Any]:
        """The architecture, without its weights: what :func:`~privmix.training.models.model_from_spec` takes."""
        return {"architecture": self.name, **self.options()}


MODELS: Final[Registry[type[Classifier]]] = Registry("architecture", "privmix.training.models", "privmix.models")


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Initialise from ``seed`` alone, and leave torch's global generators as they were.

    Example:
        >>> before = torch.get_rng_state()
        >>> with seeded(0):
        ...     first = torch.rand(1)
        >>> with seeded(0):
        ...     second = torch.rand(1)
        >>> bool(first == second), torch.equal(before, torch.get_rng_state())
        (True, True)
    """
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
    """[0, 1] -> [-1, 1]."""
    return 2 * images - 1


def group_norm(channels: int, groups: int) -> nn.GroupNorm:
    """GroupNorm with ``groups`` groups, or as many below that as divide the channels.

    Example:
        >>> group_norm(64, 16).num_groups, group_norm(24, 16).num_groups
        (16, 12)
    """
    fitting = next(count for count in range(min(groups, channels), 0, -1) if channels % count == 0)
    return nn.GroupNorm(fitting, channels)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether that is what an error says: a smaller chunk may do."""
    text = str(error)
    return (
        isinstance(error, MemoryError | torch.OutOfMemoryError)
        or "out of memory" in text
        or "can't allocate memory" in text
    )
