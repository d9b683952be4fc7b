"""What all methods on public data share: their source of public gradients, and state that a checkpoint must hold."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

from privmix._registry import Registry
from privmix.errors import InvalidInput
from privmix.training.gradients.side_information import PublicMethod, SideInformation
from privmix.training.public.gradients import PublicGradients


class ExtendedMethod(PublicMethod):
    """A :class:`PublicMethod` with a name, the state that a checkpoint needs, and what it may be combined with.

    A step is ``prepare(step)``, the private sum, ``combine(mean, step)``, and then the optimiser's update.

    Formal guarantees:
        * Public: what ``prepare`` returns is a function of the released weights, public data and the seed (and, for
          methods with a state, of earlier weights), so it costs no privacy; ``combine`` is post-processing.
        * Repeatable: ``prepare`` twice, or in a fresh object at the same weights and state, returns the same bits.
        * Without a trace: ``prepare`` leaves weights, ``grad`` fields and torch's global generators as they were.

    Attributes:
        name: as :func:`privmix.training.public.registry.parse_method` knows it; ``METHODS.register`` makes it known.
        directs: whether it sets a centre or a scale, or changes the direction; at most one method may.
        follows: whether a step goes along the public gradient itself, whose length then counts.
        settings: what it is made with: fields of :class:`~privmix.training.public.registry.ExtendedConfig`, or steps.
    """

    name: ClassVar[str]
    directs: ClassVar[bool] = True
    follows: ClassVar[bool] = False
    settings: ClassVar[tuple[str, ...]] = ()

    def state_dict(self) -> dict[str, Tensor]:
        """What the next step needs beside weights and step; empty for most methods. Public; take it after a step."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what :meth:`state_dict` returned.

        Raises:
            InvalidInput: the state is another method's.
        """
        if set(state) != set(self.state_dict()):
            raise InvalidInput("state of the public method", sorted(state), f"that of {self.name}")


METHODS: Final[Registry[type[ExtendedMethod]]] = Registry(
    "public method", "privmix.training.public", "privmix.public_methods"
)


class WithGradients(ExtendedMethod):
    """A method that follows one public gradient g_pub per step: computed by ``prepare``, used by ``combine``."""

    def __init__(self, source: PublicGradients) -> None:
        self.source = source
        self._held: tuple[int, Tensor] | None = None

    def prepare(self, step: int) -> SideInformation:
        gradient = self.source.at(step)
        self._held = step, gradient
        return self._side_information(gradient, step)

    @abstractmethod
    def _side_information(self, gradient: Tensor, step: int) -> SideInformation:
        """What ``prepare`` returns, from this step's public gradient (P,)."""

    def _gradient(self, step: int) -> Tensor:
        """The public gradient that ``prepare(step)`` saw: the weights may have been touched since."""
        if self._held is None or self._held[0] != step:
            raise RuntimeError(f"prepare({step}) comes before combine({step})")
        return self._held[1]

    def fingerprint(self) -> dict[str, Any]:
        return {"method": self.name, **self._settings(), **self.source.fingerprint()}

    def _settings(self) -> dict[str, Any]:
        return {}


def scaled_to_keep_norm(scale: Tensor, typical: Tensor) -> Tensor:
    """``scale`` (P,) times the constant for which ``scale * typical`` is as long as ``typical``; ones if it is zero.

    Example:
        >>> scaled_to_keep_norm(torch.tensor([1.0, 1.0]), torch.tensor([3.0, 4.0])).tolist()
        [1.0, 1.0]
    """
    before = torch.linalg.vector_norm(typical, dtype=torch.float64)
    after = torch.linalg.vector_norm(scale * typical, dtype=torch.float64)
    if not bool(before > 0) or not bool(after > 0):
        return torch.ones_like(scale)
    return scale * float(before / after)
