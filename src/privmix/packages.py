"""Installed packages: versions for certificates and runs, and torch where it is needed.

This module sits beside the floors and imports none of them but errors, so every floor may use it.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any

from privmix.errors import MissingExtra


@cache
def package_version(name: str) -> str:
    """Version of an installed package; ``unknown`` where it runs from a bare checkout, or is not there.

    Example:
        >>> package_version("no such package")
        'unknown'
    """
    # A tenth of what help takes.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


@cache
def import_part(module: str) -> Any:
    """Import a module that may need torch.

    Raises:
        MissingExtra: torch is not installed.

    Example:
        >>> import_part("privmix.packages").__name__
        'privmix.packages'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != "torch":
            raise
        raise MissingExtra("torch", "torch") from None


class _Torch:
    """torch, imported when an attribute of it is first read."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_part("torch"), name)


if TYPE_CHECKING:
    import torch as torch
else:
    torch = _Torch()
