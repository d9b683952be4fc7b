"""Versions of installed packages, and imports that need torch. Every layer may use this module."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from privmix.errors import MissingExtra


@cache
def package_version(name: str) -> str:
    """Return an installed package's version; ``unknown`` in a bare checkout or if it is missing."""
    # A tenth of what help takes.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


@contextmanager
def torch_as_extra() -> Iterator[None]:
    """Raise MissingExtra where code imports torch and it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != "torch":
            raise
        raise MissingExtra("torch", "torch") from None


@cache
def import_part(module: str) -> Any:
    """Import a module that may need torch; raise MissingExtra without it."""
    with torch_as_extra():
        return importlib.import_module(module)


class _Torch:
    """torch, imported when an attribute of it is first read."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_part("torch"), name)


if TYPE_CHECKING:
    import torch as torch
else:
    torch = _Torch()
