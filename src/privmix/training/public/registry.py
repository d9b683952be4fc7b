"""The extended methods that settings name, and which of them go together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor

from privmix.errors import InvalidInput
from privmix.training.gradients.side_information import SideInformation
from privmix.training.public.base import METHODS, ExtendedMethod, parse_method
from privmix.training.public.config import ExtendedConfig
from privmix.training.public.gradients import PublicGradients


def build_method(config: ExtendedConfig, source: PublicGradients, steps: int) -> ExtendedMethod | None:
    """Return the method that ``config`` names, or None for ``none``; raise where ``source`` has other settings."""
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
    given: dict[str, Any] = {**vars(config), "steps": steps, **config.own(name)}
    make: Callable[..., ExtendedMethod] = METHODS[name]
    return make(source, **{field: given[field] for field in METHODS[name].settings})


class Combined(ExtendedMethod):
    """Several methods in one step: at most one that perturbs weights, and at most one that directs."""

    # A centre, scale or other direction is designed for the gradients that clipping sees: two would invalidate each
    # other.

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
