"""Names of the extended methods, their settings, and which of them go together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from privmix.errors import InvalidInput, check_choice, check_number
from privmix.training.gradients.side_information import SideInformation
from privmix.training.public.base import METHODS, ExtendedMethod
from privmix.training.public.gradients import PublicGradients


def method_names() -> tuple[str, ...]:
    """Every name that :func:`parse_method` takes alone."""
    return ("none", *METHODS)


def parse_method(name: str) -> tuple[str, ...]:
    """Read the name of a method, or of weight multiplicity and one other joined by ``+``.

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
        check_choice("public method", part, method_names())
    if names == ("none",):
        return ()
    if "none" in names or len(set(names)) < len(names) or sum(METHODS[part].directs for part in names) > 1:
        free, directing = (
            ", ".join(kind.name for kind in METHODS.all() if kind.directs is way) for way in (False, True)
        )
        raise InvalidInput("public method", name, f"one method, or {free} and one of {directing}")
    return names


def settings_of(name: str) -> frozenset[str]:
    """Fields of :class:`ExtendedConfig` that the methods of this name are made with.

    Example:
        >>> sorted(settings_of("multiplicity+dope"))
        ['adaptive', 'perturbations', 'rho']
    """
    return frozenset(field for part in parse_method(name) for field in METHODS[part].settings) - {"steps"}


@dataclass(frozen=True)
class ExtendedConfig:
    """Which extended method to use, and settings of all of them; defaults are those of Park et al. 2024, appendix C.

    Attributes:
        method: see :func:`parse_method`.
        batch_size: of public batches.
        max_norm: public gradients are cut to this length; None: see :meth:`longest`.
        rho: of weight multiplicity.
        perturbations: V of weight multiplicity.
        adaptive: weight multiplicity with ASAM's directions.
        decay_steps: T0 of mirror descent; None: the number of steps.
        floor: least private share of mirror descent.
        moment_decay: beta of AdaDPS.
        damping: of AdaDPS.

    Raises:
        InvalidInput: the method is unknown. Numbers are checked by the methods that use them.
    """

    method: str = "none"
    batch_size: int = 64
    max_norm: float | None = None
    rho: float = 0.1
    perturbations: int = 16
    adaptive: bool = False
    decay_steps: int | None = None
    floor: float = 0.0
    moment_decay: float = 0.9
    damping: float = 0.1

    def __post_init__(self) -> None:
        parse_method(self.method)
        if self.max_norm is not None:
            check_number("max_norm", self.max_norm, low=0, low_open=True)

    def longest(self, clip_norm: float) -> float | None:
        """Length to which public gradients are cut, or None: not at all.

        A method whose steps go along the public gradient takes the clipping bound where nothing is said: no mean of
        clipped gradients is longer, and a learning rate that suits these suits it. Uncut, a public gradient is several
        times as long, and steps along it leave the minimum that they should find.

        Args:
            clip_norm: of the private gradients.

        Example:
            >>> ExtendedConfig("dope").longest(0.1), ExtendedConfig("dope", max_norm=3.0).longest(0.1)
            (0.1, 3.0)
            >>> ExtendedConfig("adadps").longest(0.1) is None
            True
        """
        follows = any(METHODS[part].follows for part in parse_method(self.method))
        return clip_norm if self.max_norm is None and follows else self.max_norm


def build_method(config: ExtendedConfig, source: PublicGradients, steps: int) -> ExtendedMethod | None:
    """The method that ``config`` names, or None for ``none``.

    Args:
        config: its ``batch_size`` and what is :meth:`~ExtendedConfig.longest` are for whoever makes ``source``.
        source: of public gradients.
        steps: of the private phase.

    Raises:
        InvalidInput: a setting is out of range, or ``source`` was made with others than ``config``'s.
    """
    names = parse_method(config.method)
    named = config.max_norm is not None and source.max_norm != config.max_norm
    if names and (source.batch_size != config.batch_size or named):
        given = source.batch_size, source.max_norm
        raise InvalidInput("public gradients", given, f"batch size and norm {config.batch_size, config.max_norm}")
    methods = [_build(name, config, source, steps) for name in names]
    if not methods:
        return None
    return methods[0] if len(methods) == 1 else Combined(methods)


def _build(name: str, config: ExtendedConfig, source: PublicGradients, steps: int) -> ExtendedMethod:
    given: dict[str, Any] = {**vars(config), "steps": steps}
    make: Callable[..., ExtendedMethod] = METHODS[name]
    return make(source, **{field: given[field] for field in METHODS[name].settings})


class Combined(ExtendedMethod):
    """Several methods in one step: at most one that perturbs weights, and at most one that directs.

    What directs (a centre, a scale, another direction) is designed for the gradients that clipping sees, and two of
    them would each undo the other's reckoning; perturbed weights go with any of them.

    Raises:
        InvalidInput: fewer than two methods, or two of a kind.
    """

    name: ClassVar[str] = "combined"

    def __init__(self, methods: Sequence[ExtendedMethod]) -> None:
        names = [method.name for method in methods]
        directing = sum(method.directs for method in methods)
        if len(methods) != 2 or directing != 1:
            raise InvalidInput("public methods", names, "weight multiplicity and one method that directs")
        self.methods = tuple(methods)

    def prepare(self, step: int) -> SideInformation:
        found: dict[str, Tensor] = {}
        for method in self.methods:
            side = method.prepare(step)
            given = {"perturbations": side.perturbations, "scale": side.scale, "centre": side.centre}
            for field, value in given.items():
                assert value is None or field not in found
                if value is not None:
                    found[field] = value
        return SideInformation(**found)

    def combine(self, mean: Tensor, step: int) -> Tensor:
        for method in self.methods:
            mean = method.combine(mean, step)
        return mean

    def state_dict(self) -> dict[str, Tensor]:
        return {f"{method.name}.{key}": value for method in self.methods for key, value in method.state_dict().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        super().load_state_dict(state)
        for method in self.methods:
            prefix = method.name + "."
            method.load_state_dict({key[len(prefix) :]: state[key] for key in state if key.startswith(prefix)})

    def fingerprint(self) -> dict[str, Any]:
        return {"method": self.name, "methods": [method.fingerprint() for method in self.methods]}
