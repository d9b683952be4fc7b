"""How a job tells where it is: a callback, or bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from privmix.errors import InvalidInput
from privmix.progress import Progress, silent

if TYPE_CHECKING:
    from rich.console import Console

P = ParamSpec("P")
R = TypeVar("R")

Asked = Progress | bool | None
"""What users of Python ask for: a callback, True for bars, nothing."""


def shows_bars(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function that takes ``progress`` take True as well: it draws bars then, on standard error or in a notebook.

    Where the count of records is private, bars show hundredths.
    """

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs.get("progress") is not True:
            return function(*args, **kwargs)
        private = bool(kwargs.get("private_count")) or kwargs.get("records") is not None
        with progress_bars(percent=private) as bars:
            return function(*args, **{**kwargs, "progress": bars})  # type: ignore[arg-type]

    return called


def callback(asked: Asked) -> Progress:
    """What was asked for, as a callback; in functions that :func:`shows_bars` stands above.

    Raises:
        InvalidInput: it is none.

    Example:
        >>> callback(None) is silent
        True
    """
    if asked is None or asked is False:
        return silent
    if asked is True or not callable(asked):
        raise InvalidInput("progress", type(asked).__name__, "True, or a callback that takes (stage, done, total)")
    return asked


@contextmanager
def progress_bars(*, console: Console | None = None, quiet: bool = False, percent: bool = False) -> Iterator[Progress]:
    """Yield a callback (stage, done, total) that draws one bar a stage.

    Args:
        console: where; None: standard error, or a notebook's cell.
        quiet: draw nothing.
        percent: show hundredths in place of counts, where the real number of records is not to be seen.
    """
    # Rich takes time to import, and most jobs draw nothing.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        ProgressColumn,
        Task,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars
    from rich.text import Text

    class Rate(ProgressColumn):
        """Steps a second."""

        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s")

    columns = (
        TextColumn("{task.description:<22}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console or Console(stderr=True), disable=quiet) as bars:
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
