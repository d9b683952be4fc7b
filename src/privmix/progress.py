"""Progress of work: one form of callback for every layer."""

from typing import Protocol


class Progress(Protocol):
    """A callback for progress; it gets public figures alone and decides nothing."""

    def __call__(self, stage: str, done: int, total: int, /) -> None:
        """Report ``done`` of ``total`` steps of a stage; brackets in its name may change meanwhile."""


def in_hundredths(progress: Progress) -> Progress:
    """Return the same, where the real number of steps is not to be seen."""
    return lambda stage, done, total: progress(stage, 100 * done // max(total, 1), 100)


def silent(stage: str, done: int, total: int) -> None:
    """Ignore progress."""
