"""Versions of what privmix runs on, as certificates and runs note them.

This module sits beside the floors and imports none of them, so every floor may use it.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def package_version(name: str) -> str:
    """Version of an installed package; ``unknown`` where it runs from a bare checkout, or is not there.

    Example:
        >>> package_version("no such package")
        'unknown'
    """
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
