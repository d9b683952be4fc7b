"""Progress by itself: bars where somebody looks on, none in scripts, hundredths where counts are private."""

from __future__ import annotations

import io
import sys
import types
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix import bars
from privmix.bars import Asked, callback, looked_at, progress_bars, shows_bars

COUNT = 8_731


class Screen:
    """What a notebook's front end was told to show, newest last; a second picture of one id takes its place."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, dict[str, str], bool]] = []

    def display(self, content: dict[str, str], *, raw: bool, display_id: str, update: bool) -> None:
        assert raw
        self.shown.append((display_id, content, update))


def sits_in(monkeypatch: pytest.MonkeyPatch, **shell: Any) -> Screen:
    """As if this ran in IPython, whose shell has these attributes."""
    screen, ipython, inner = Screen(), types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.get_ipython = lambda: types.SimpleNamespace(**shell)  # type: ignore[attr-defined]
    inner.display = screen.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", inner)
    return screen


@shows_bars
def work(times: int, *, progress: Asked = None, **given: Any) -> bool:
    """Work, and tell of it."""
    tell = callback(progress)
    for done in range(times):
        tell("rows (now)", (done + 1) * COUNT // times, COUNT)
    return progress is None


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that goes on by ten seconds each time somebody looks."""
    time = [0.0]

    def ticking() -> float:
        time[0] += 10
        return time[0]

    monkeypatch.setattr(bars, "monotonic", ticking)
    return time


def at_terminal(monkeypatch: pytest.MonkeyPatch, ps1: bool = False) -> io.StringIO:
    """As if standard error were a terminal; in a test itself, since pytest takes it anew before each."""
    written = io.StringIO()
    written.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", written)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    if ps1:
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    return written


def test_scripts_see_nothing(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    assert work(3)
    assert not looked_at()
    assert terminal.getvalue() == ""


def test_who_sits_before_a_terminal_sees_bars(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch, ps1=True)
    assert looked_at()
    assert not work(3)
    assert f"{COUNT}" in terminal.getvalue()
    terminal.truncate(0)
    # Not where somebody said so, and not where the screen is a file.
    assert not work(3, progress=False)
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    assert work(3)
    assert terminal.getvalue() == ""


def test_notebooks_show_bars_below_the_cell(monkeypatch: pytest.MonkeyPatch, now: list[float]) -> None:
    """One output, which is renewed and is empty at the end, unless bars were asked for."""
    for asked in (None, True):
        screen = sits_in(monkeypatch, kernel=object())
        assert not work(3, progress=asked)
        ids = {one for one, _, _ in screen.shown}
        assert len(ids) == 1
        assert [update for _, _, update in screen.shown] == [False] + [True] * (len(screen.shown) - 1)
        pages = [content["text/html"] for _, content, _ in screen.shown]
        assert f'value="{COUNT}" max="{COUNT}"' in pages[-1 if asked else -2]
        assert (pages[-1] == "") is (asked is None)


@pytest.mark.parametrize(
    "hidden",
    [{"records": 9_000}, {"private_count": True}, {"given": types.SimpleNamespace(count_is_private=True)}],
    ids=str,
)
def test_private_counts_are_hundredths(
    hidden: dict[str, Any], monkeypatch: pytest.MonkeyPatch, now: list[float]
) -> None:
    """Formal guarantee: a bar by itself shows no count that one asked for would not."""
    screen = sits_in(monkeypatch, kernel=object())
    work(5, **hidden)
    assert screen.shown
    assert not any(f"{COUNT}" in f"{content}".replace(",", "") for _, content, _ in screen.shown)


def test_calls_within_a_call_draw_no_bars_of_their_own(monkeypatch: pytest.MonkeyPatch, now: list[float]) -> None:
    screen = sits_in(monkeypatch, kernel=object())

    @shows_bars
    def outer(*, progress: Asked = None) -> bool:
        callback(progress)("outer", 1, 1)
        return work(2)

    assert outer()
    assert not any("rows" in content["text/html"] for _, content, _ in screen.shown)


def test_a_stage_is_escaped(monkeypatch: pytest.MonkeyPatch, now: list[float]) -> None:
    screen = sits_in(monkeypatch, kernel=object())
    with progress_bars() as tell:
        tell("<b>x</b>", 0, 0)
    assert "<b>" not in screen.shown[-1][1]["text/html"]


def test_bars_end_with_an_error(monkeypatch: pytest.MonkeyPatch, now: list[float]) -> None:
    screen = sits_in(monkeypatch, kernel=object())

    @shows_bars
    def failing(*, progress: Asked = None) -> None:
        callback(progress)("rows", 1, 2)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        failing()
    assert screen.shown[-1][1]["text/html"] == ""
    assert not bars._showing.get()


@pytest.mark.filterwarnings("ignore:.*(plain numbers|delta)")
def test_jobs_tell_where_they_are() -> None:
    told: list[str] = []

    def tell(stage: str, done: int, total: int) -> None:
        assert 0 <= done <= total
        told.append(stage)

    x, y = np.eye(300)[:, :9], np.arange(300) % 2
    made: dict[str, Any] = {"classes": 2, "features": "identity", "epsilon": 1.0, "delta": 1e-4}
    release = pm.release((x, y), design="poisson", progress=tell, **made)
    assert told
    told.clear()
    pm.verify(release, progress=tell)
    assert any(stage.startswith("tests of") for stage in told)
    told.clear()
    pm.DPClassifier(classes=[0, 1], epochs=1, delta=1e-4).fit(x, y, progress=tell)
    assert told
