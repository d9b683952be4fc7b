"""Base of all methods on public data: their source of public gradients, and state that a checkpoint must hold."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Final

import torch
from torch import Tensor

from privmix._registry import Registry
from privmix.errors import InvalidInput, check_choice
from privmix.training.gradients.side_information import PublicMethod, SideInformation
from privmix.training.public.gradients import PublicGradients


class ExtendedMethod(PublicMethod):
    """A :class:`PublicMethod` with a name, the state for checkpoints, and rules of combination.

    A step is ``prepare(step)``, the private sum, ``combine(mean, step)``, and then the optimiser's update.

    Formal guarantees:
        * Public: what ``prepare`` returns is a function of the released weights, public data and the seed. Methods with
          a state also use earlier weights. So it costs no privacy; ``combine`` is post-processing.
        * Repeatable: ``prepare`` twice, or in a fresh object at the same weights and state, returns the same bits.
        * Without a trace: ``prepare`` leaves weights, ``grad`` fields and torch's global generators as they were.

    Attributes:
        name: for :func:`privmix.training.public.base.parse_method`; ``METHODS.register`` makes it known.
        directs: whether it sets a centre or a scale, or changes the direction; at most one method may.
        follows: whether a step goes along the public gradient itself, whose length then counts.
        settings: its arguments: fields of :class:`~privmix.training.public.config.ExtendedConfig`, steps, or own
            options.
        options: ``"module:name"`` of the dataclass of its own options (all with defaults), or empty. Help imports that
            module, which must be quick (:mod:`privmix.options`).
    """

    name: ClassVar[str]
    directs: ClassVar[bool] = True
    follows: ClassVar[bool] = False
    settings: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[str] = ""

    def state_dict(self) -> dict[str, Tensor]:
        """Return the next step's input except weights and step; empty for most methods. Public; valid after a step."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from :meth:`state_dict`; raise for another method's state."""
        if set(state) != set(self.state_dict()):
            raise InvalidInput("state of the public method", sorted(state), f"that of {self.name}")


METHODS: Final[Registry[type[ExtendedMethod]]] = Registry(
    "public method", "privmix.training.public", "privmix.public_methods"
)


def method_names() -> tuple[str, ...]:
    """Every name that :func:`parse_method` takes alone."""
    return ("none", *METHODS)


def parse_method(name: str, field: str = "public_method") -> tuple[str, ...]:
    """Split ``none``, a method's name, or weight multiplicity and one other joined by ``+``; raise otherwise."""
    names = tuple(part.strip() for part in name.split("+")) if isinstance(name, str) else (name,)
    for part in names:
        check_choice(field, part, method_names())
    if names == ("none",):
        return ()
    if "none" in names or len(set(names)) < len(names) or sum(METHODS[part].directs for part in names) > 1:
        free, directing = (
            ", ".join(kind.name for kind in METHODS.all() if kind.directs is way) for way in (False, True)
        )
        raise InvalidInput(field, name, f"one method, or {free} and one of {directing}")
    return names


def settings_of(name: str) -> frozenset[str]:
    """Fields of ``ExtendedConfig`` that the methods of this name are made with."""
    return frozenset(one for part in parse_method(name) for one in METHODS[part].settings) - {"steps"}


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
        """Return result of ``prepare``, from this step's public gradient (P,)."""

    def _gradient(self, step: int) -> Tensor:
        """Return the public gradient that ``prepare(step)`` saw: the weights may have been touched since."""
        if self._held is None or self._held[0] != step:
            raise RuntimeError(f"prepare({step}) comes before combine({step})")
        return self._held[1]


def scaled_to_keep_norm(scale: Tensor, typical: Tensor) -> Tensor:
    """``scale`` (P,) times the constant for which ``scale * typical`` is as long as ``typical``, or ones."""
    before = torch.linalg.vector_norm(typical, dtype=torch.float64)
    after = torch.linalg.vector_norm(scale * typical, dtype=torch.float64)
    if not bool(before > 0) or not bool(after > 0):
        return torch.ones_like(scale)
    return scale * float(before / after)
