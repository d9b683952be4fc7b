"""Progress bars of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import Final

from privmix.bars import progress_bars as bars_on
from privmix.cli.console import err, plain
from privmix.progress import Progress

# Between two lines where no bars can be drawn.
_SECONDS: Final = 30.0


@contextmanager
def progress_bars(*, quiet: bool = False, percent: bool = False) -> Iterator[Progress]:
    """:func:`privmix.bars.progress_bars` on standard error; where that is no terminal, now and then a line."""
    if not quiet and not err.is_terminal:
        yield _lines(percent)
        return
    with bars_on(console=err, quiet=quiet, percent=percent) as update:
        yield update


def _lines(percent: bool) -> Progress:
    """Write a line now and then if there is no terminal: a log shows that work goes on, and for how long."""
    last, begun = monotonic(), dict[str, tuple[float, int]]()

    def update(stage: str, done: int, total: int) -> None:
        nonlocal last
        now, name = monotonic(), plain(stage.partition(" (")[0])
        if percent:
            # The real number of records may not be for everyone's eyes.
            done, total = 100 * done // max(total, 1), 100
        start, first = begun.setdefault(name, (now, done))
        if now - last < _SECONDS:
            return
        last = now
        left = timedelta(seconds=round((now - start) * (total - done) / (done - first))) if done > first else None
        how_far = f"{done}%" if percent else f"{done:,} of {total:,}"
        err.print(f"{name}: {how_far}{'' if left is None else f', about {left} left'}", soft_wrap=True)

    return update
