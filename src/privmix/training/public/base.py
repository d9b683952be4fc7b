"""What all methods on public data share: their source of public gradients, and state that a checkpoint must hold."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

from privmix._registry import Registry
from privmix.errors import InvalidInput, check_choice
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
        name: as :func:`privmix.training.public.base.parse_method` knows it; ``METHODS.register`` makes it known.
        directs: whether it sets a centre or a scale, or changes the direction; at most one method may.
        follows: whether a step goes along the public gradient itself, whose length then counts.
        settings: what it is made with: fields of :class:`~privmix.training.public.config.ExtendedConfig`, or steps, or
            its own options.
        options: where the dataclass of its own options is, ``"module:name"``, in a file that imports little, since help
            asks for it (:mod:`privmix.options`); empty: it has none. Each option has a default.
    """

    name: ClassVar[str]
    directs: ClassVar[bool] = True
    follows: ClassVar[bool] = False
    settings: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[str] = ""

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


def method_names() -> tuple[str, ...]:
    """Every name that :func:`parse_method` takes alone."""
    return ("none", *METHODS)


def parse_method(name: str, field: str = "public_method") -> tuple[str, ...]:
    """Read the name of a method, or of weight multiplicity and one other joined by ``+``.

    Args:
        name: as settings say it.
        field: that messages name.

    Returns:
        Names in the order given; empty for ``none``.

    Raises:
        InvalidInput: a name is unknown, comes twice, or does not go with another.

    Example:
        >>> parse_method("multiplicity+dope")
        ('multiplicity', 'dope')
        >>> parse_method("none")
        ()
    """
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
    """Fields of :class:`privmix.training.public.config.ExtendedConfig` that the methods of this name are made with.

    Example:
        >>> sorted(settings_of("multiplicity+dope"))
        ['adaptive', 'perturbations', 'rho']
    """
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
