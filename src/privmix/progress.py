"""Where work is, told as it proceeds: one form for every floor."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """What is called as work proceeds; it is told public figures alone, and decides nothing.

    Example:
        >>> def show(stage: str, done: int, total: int) -> None:
        ...     print(f"{stage}: {done} of {total}")
        >>> tell: Progress = show
        >>> tell("rows", 2, 3)
        rows: 2 of 3
    """

    def __call__(self, stage: str, done: int, total: int, /) -> None:
        """Say how far a stage is.

        Args:
            stage: its name; what is in brackets after it changes while it lasts.
            done: steps that are done.
            total: steps in all.
        """


def silent(stage: str, done: int, total: int) -> None:
    """Tell nobody."""
