"""How a job tells where it is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with (stage, done, total). What is in brackets after a stage's name changes while it lasts."""


def silent(stage: str, done: int, total: int) -> None:
    """Tell nobody."""
