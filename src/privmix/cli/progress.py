"""Progress bars of the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from privmix.cli.app import err


class _Rate(ProgressColumn):
    """Steps a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s")


@contextmanager
def progress_bars(*, quiet: bool = False, percent: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a callback (stage, done, total) that draws one bar a stage on standard error.

    Args:
        quiet: draw nothing.
        percent: show hundredths in place of counts, where the real number of records is not to be seen.
    """
    columns = (
        TextColumn("{task.description:<22}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, disable=quiet or not err.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def update(stage: str, done: int, total: int) -> None:
            # What follows in brackets changes while a stage lasts.
            name = stage.partition(" (")[0]
            if percent:
                done, total = 100 * done // max(total, 1), 100
            if name not in tasks:
                tasks[name] = bars.add_task(stage, total=total)
            bars.update(tasks[name], description=stage, completed=done, total=total)

        yield update
