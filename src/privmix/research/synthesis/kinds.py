"""The diffusion models there are, by name."""

from __future__ import annotations

from typing import Final

from privmix.errors import check_choice
from privmix.research.synthesis.ddpm import DdpmConfig
from privmix.research.synthesis.denoising import NoiseProcess
from privmix.research.synthesis.edm import EdmConfig

PROCESSES: Final[dict[str, type[NoiseProcess]]] = {"edm": EdmConfig, "ddpm": DdpmConfig}


def noise_process(name: str) -> NoiseProcess:
    """The model of that name, with its authors' constants.

    Raises:
        InvalidInput: there is none.

    Example:
        >>> noise_process("ddpm").conditional
        False
    """
    return PROCESSES[check_choice("diffusion", name, PROCESSES)]()
