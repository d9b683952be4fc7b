"""Progress bars of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from privmix.cli.app import err
from privmix.jobs.progress import Progress
from privmix.jobs.progress import progress_bars as bars_on


@contextmanager
def progress_bars(*, quiet: bool = False, percent: bool = False) -> Iterator[Progress]:
    """:func:`privmix.jobs.progress.progress_bars` on standard error, if that is a terminal."""
    with bars_on(console=err, quiet=quiet or not err.is_terminal, percent=percent) as update:
        yield update
