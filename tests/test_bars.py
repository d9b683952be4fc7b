"""Progress by itself: bars where somebody looks on, none in scripts, hundredths where counts are private."""

import io
import itertools
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix import bars
from privmix.bars import Asked, callback, looked_at, progress_bars, shows_bars

COUNT = 8_731
# Identifier, page and whether it takes the place of an earlier one, newest last.
Shown = list[tuple[str, str, bool]]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """As if this ran in a notebook: what its front end was told to show."""
    found: Shown = []

    def display(content: dict[str, str], *, raw: bool, display_id: str, update: bool) -> None:
        assert raw
        found.append((display_id, content["text/html"], update))

    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    return found


@pytest.fixture(autouse=True)
def ten_seconds_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars, "monotonic", itertools.count(10.0, 10.0).__next__)


@shows_bars
def work(times: int, *, progress: Asked = None, **given: Any) -> bool:
    """Work, and tell of it."""
    tell = callback(progress)
    for done in range(times):
        tell("rows (now)", (done + 1) * COUNT // times, COUNT)
    return progress is None


def test_who_sits_before_a_terminal_sees_bars_and_scripts_see_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    assert work(3)
    assert not looked_at()
    assert terminal.getvalue() == ""
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert looked_at()
    assert not work(3)
    assert f"{COUNT}" in terminal.getvalue()
    terminal.truncate(0)
    # Not where somebody said so, and not where the screen is a file.
    assert not work(3, progress=False)
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    assert work(3)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("asked", [None, True])
def test_notebooks_show_bars_below_the_cell(shown: Shown, asked: Asked) -> None:
    """One output, which is renewed and is empty at the end, unless bars were asked for."""
    assert not work(3, progress=asked)
    ids, pages, updates = zip(*shown, strict=True)
    assert len(set(ids)) == 1
    assert list(updates) == [False] + [True] * (len(shown) - 1)
    assert f'value="{COUNT}" max="{COUNT}"' in pages[-1 if asked else -2]
    assert (pages[-1] == "") is (asked is None)
    with progress_bars() as tell:
        tell("<b>x</b>", 0, 0)
    assert "<b>" not in shown[-1][1], "a stage is escaped"


@pytest.mark.parametrize(
    "hidden", [{"records": 9_000}, {"private_count": True}, {"given": SimpleNamespace(count_is_private=True)}], ids=str
)
def test_private_counts_are_hundredths(hidden: dict[str, Any], shown: Shown) -> None:
    """Formal guarantee: a bar by itself shows no count that one asked for would not."""
    work(5, **hidden)
    assert shown
    assert not any(f"{COUNT}" in page.replace(",", "") for _, page, _ in shown)


def test_calls_within_a_call_draw_no_bars_of_their_own(shown: Shown) -> None:
    @shows_bars
    def outer(*, progress: Asked = None) -> bool:
        callback(progress)("outer", 1, 1)
        return work(2)

    assert outer()
    assert not any("rows" in page for _, page, _ in shown)


def test_bars_end_with_an_error(shown: Shown) -> None:
    @shows_bars
    def failing(*, progress: Asked = None) -> None:
        callback(progress)("rows", 1, 2)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        failing()
    assert shown[-1][1] == ""
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
