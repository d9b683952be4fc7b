"""Progress of long calls: bars in a terminal or notebook, or a callback. Every layer may use this module."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from markupsafe import Markup

from privmix.errors import InvalidInput
from privmix.options import readable
from privmix.progress import Progress, in_hundredths, silent

if TYPE_CHECKING:
    from rich.console import Console

P = ParamSpec("P")
R = TypeVar("R")

Asked = Progress | bool | None
"""Options of Python users: a callback, True for bars, False for no bars; None: bars in a terminal or notebook."""

# Work that ends sooner (seconds) needs no bar unless a user requests one, and a cell no more pictures than eyes see.
_PATIENCE: Final = 1.0
_PAUSE: Final = 0.15
_showing: ContextVar[bool] = ContextVar("showing", default=False)


def looked_at() -> bool:
    """Whether Python runs interactively: in a notebook or a terminal session."""
    if _in_notebook():
        return True
    interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive) or _shell() is not None
    return interactive and sys.stderr is not None and sys.stderr.isatty()


def _shell() -> Any:
    """IPython's, where this runs in one; it is not imported for that."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def _in_notebook() -> bool:
    return getattr(_shell(), "kernel", None) is not None


def shows_bars(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function with ``progress`` so that it draws bars, on standard error or in a notebook's cell."""
    # True: bars; None: bars where looked_at and after a second, removed at the end. Private record counts: percentages.
    # Nested calls draw none.

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        asked = kwargs.get("progress")
        unasked = asked is None and not _showing.get() and looked_at()
        if asked is not True and not unasked:
            return function(*args, **kwargs)
        private = bool(kwargs.get("private_count")) or kwargs.get("records") is not None
        private = private or any(getattr(one, "count_is_private", False) for one in (*args, *kwargs.values()))
        before = _showing.set(True)
        try:
            with progress_bars(percent=private, after=_PATIENCE if unasked else 0.0, transient=unasked) as bars:
                return function(*args, **{**kwargs, "progress": bars})  # type: ignore[arg-type]
        finally:
            _showing.reset(before)

    # With types as they are written, where editors and `help` ask for it.
    called.__signature__ = readable(function)  # type: ignore[attr-defined]
    return called


def callback(asked: Asked) -> Progress:
    """Return ``progress`` as a callback, in functions decorated by :func:`shows_bars`."""
    if asked is None or asked is False:
        return silent
    if asked is True or not callable(asked):
        raise InvalidInput("progress", type(asked).__name__, "True, or a callback that takes (stage, done, total)")
    return asked


@contextmanager
def progress_bars(
    *,
    console: Console | None = None,
    quiet: bool = False,
    percent: bool = False,
    after: float = 0.0,
    transient: bool = False,
) -> Iterator[Progress]:
    """Yield a callback (stage, done, total) that draws one bar a stage."""
    # percent: hide counts where the real number of records is private; after: seconds of delay; transient: remove at
    # the end.
    if quiet:
        yield silent
        return
    drawn: _Terminal | _Cell = _Cell() if console is None and _in_notebook() else _Terminal(console, transient)
    begun = monotonic()

    def update(stage: str, done: int, total: int) -> None:
        # The part in brackets changes while a stage lasts.
        name = stage.partition(" (")[0]
        drawn.update(name, stage, done, total)
        if monotonic() - begun >= after:
            drawn.draw()

    try:
        yield in_hundredths(update) if percent else update
    finally:
        drawn.end(transient)


class _Terminal:
    """Bars by Rich."""

    def __init__(self, console: Console | None, transient: bool) -> None:
        # Rich takes time to import, and most jobs draw nothing.
        from rich import progress as bars
        from rich.console import Console
        from rich.text import Text

        class Rate(bars.ProgressColumn):
            def render(self, task: bars.Task) -> Text:
                speed = task.finished_speed or task.speed
                return Text("" if speed is None else f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s")

        columns = (
            bars.TextColumn("{task.description:<22}"),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            Rate(),
            bars.TimeElapsedColumn(),
            bars.TimeRemainingColumn(),
        )
        self._bars = bars.Progress(*columns, console=console or Console(stderr=True), transient=transient)
        self._tasks: dict[str, bars.TaskID] = {}
        self._started = False

    def update(self, name: str, stage: str, done: int, total: int) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(stage, total=total)
        self._bars.update(self._tasks[name], description=stage, completed=done, total=total)

    def draw(self) -> None:
        if not self._started:
            self._started = True
            self._bars.start()

    def end(self, transient: bool) -> None:
        del transient
        if self._started:
            self._bars.stop()


_BAR: Final = Markup(
    '<tr style="background:none"><td style="text-align:left;padding:0 1em 0 0">{0}</td><td style="padding:0 1em 0 0">'
    '<progress value="{1}" max="{2}" aria-label="{0}" style="width:16em"></progress></td>'
    '<td style="text-align:left;padding:0 1em 0 0">{1:,} / {2:,}</td><td style="text-align:left">{3:.0f} s</td></tr>'
)
_BARS: Final = Markup('<table style="border-collapse:collapse;font:14px/1.5 system-ui,sans-serif">{}</table>')


class _Cell:
    """Bars below a notebook's cell, by the browser: Rich's there need a package of widgets."""

    def __init__(self) -> None:
        self._stages: dict[str, tuple[str, int, int, float, float]] = {}
        self._id, self._drawn, self._last = f"privmix-{uuid.uuid4().hex}", False, 0.0

    def update(self, name: str, stage: str, done: int, total: int) -> None:
        begun = self._stages[name][3] if name in self._stages else monotonic()
        self._stages[name] = stage, done, total, begun, monotonic()

    def draw(self, *, at_once: bool = False) -> None:
        if at_once or monotonic() - self._last >= _PAUSE:
            self._last = monotonic()
            rows = Markup("").join(
                _BAR.format(stage, done, max(total, 1), last - begun)
                for stage, done, total, begun, last in self._stages.values()
            )
            text = "\n".join(f"{stage}: {done:,} / {total:,}" for stage, done, total, *_ in self._stages.values())
            self._show({"text/html": str(_BARS.format(rows)), "text/plain": text})

    def end(self, transient: bool) -> None:
        if self._drawn and transient:
            self._show({"text/html": "", "text/plain": ""})
        elif self._drawn or (self._stages and not transient):
            self.draw(at_once=True)

    def _show(self, content: dict[str, str]) -> None:
        from IPython.display import display

        display(content, raw=True, display_id=self._id, update=self._drawn)  # type: ignore[no-untyped-call]
        self._drawn = True
