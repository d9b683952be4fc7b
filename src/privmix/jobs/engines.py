"""Where a release may run."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from privmix.errors import InvalidInput, MissingExtra, check_choice, check_integer, check_number
from privmix.jobs.options import AUTO
from privmix.plans import design_named

ENGINES: Final = ("local", "ray")


def check_engine(
    engine: str, design: str, memory_gb: float | None, workers: int | None, ray_address: str | None
) -> None:
    """Raise unless a release can run so: asked before budget is charged, and not when the first row is due.

    Raises:
        InvalidInput: an option is out of range, or does not go with the others.
        MissingExtra: ray is asked for and not installed.
    """
    check_choice("engine", engine, ENGINES)
    if memory_gb is not None:
        check_number("memory_gb", memory_gb, low=0, low_open=True)
    if workers is not None:
        check_integer("workers", workers, low=1)
    if engine != "ray":
        if ray_address is not None:
            raise InvalidInput("ray_address", ray_address, "an address with `engine` ray")
    elif design != AUTO and engine not in design_named(design).engines:
        raise InvalidInput("engine", engine, f"local for design {design}, which reads records once and in blocks")
    elif find_spec("ray") is None:
        raise MissingExtra("ray", "ray")
