"""Progress on a terminal: bars that teach, and that never show a record count which is not public."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from privmix.cli import console
from tests.cli.helpers import privmix

COUNT = 8731
GIVEN = ["--features=identity", "--classes=2", "--epsilon=4", "--delta=1e-6"]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    shown = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=shown, force_terminal=True, width=200, highlight=False))
    return shown


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    y = np.arange(COUNT) % 2
    path = tmp_path_factory.mktemp("own") / "own.npz"
    np.savez(path, x=np.eye(2, 3, dtype=np.float32)[y], y=y)
    return path


@pytest.mark.parametrize("records", [[], ["--records=9000"]], ids=["public", "declared"])
def test_canary_audits_show_it_only_where_it_is_public(
    records: list[str], data: Path, terminal: io.StringIO, tmp_path: Path
) -> None:
    privmix("train", f"--data={data}", *GIVEN, "--epochs=1", f"--out={tmp_path / 'OUT'}", *records).passed()
    terminal.truncate(0)
    privmix("audit", tmp_path / "OUT", f"--data={data}", "--canaries=8").passed()
    assert "features (identity)" in terminal.getvalue()
    assert (str(COUNT) in terminal.getvalue()) is not bool(records)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("release", True),
        ("release --records=9000", False),
        ("release --private-count", False),
        ("train", True),
        ("train --records=9000", False),
    ],
)
def test_bars_show_the_record_count_only_where_it_is_public(
    line: str, shown: bool, data: Path, terminal: io.StringIO, tmp_path: Path
) -> None:
    own = ["--epochs=1"] if "train" in line else ["--design=poisson:mixup_degree=8", "--rows=2000"]
    outcome = privmix(*line.split(), *own, *GIVEN, f"--data={data}", f"--out={tmp_path / 'OUT'}").passed()
    assert shown or not re.search("8,?731", outcome.out)
    assert "features (identity)" in terminal.getvalue()
    assert (str(COUNT) in terminal.getvalue()) is shown
    assert "100/100" in terminal.getvalue() or shown


@pytest.mark.parametrize("percent", [False, True])
def test_without_a_terminal_there_is_a_line_now_and_then(percent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log shows that work goes on, and no count that is not public."""
    shown = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=shown, width=200, highlight=False))
    monkeypatch.setattr(console, "monotonic", iter((0.0, 10.0, 31.0, 40.0, 62.0)).__next__)
    with console.progress_bars(percent=percent) as update:
        for done in (1, 2, 3, 4):
            update("features (rows)", done * 1000, COUNT)
    lines = shown.getvalue().splitlines()
    told = ["22%", "45%"] if percent else ["2,000 of 8,731", "4,000 of 8,731"]
    # 1,000 in 21 seconds, then 3,000 in 52; where the count is private, from 11% to 22 and 45.
    left = ["0:02:29", "0:01:24"] if percent else ["0:02:21", "0:01:22"]
    assert lines == [f"features: {how_far}, about {one} left" for how_far, one in zip(told, left, strict=True)]


def test_quiet_means_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=shown, width=200))
    monkeypatch.setattr(console, "_SECONDS", -1.0)
    with console.progress_bars(quiet=True) as update:
        update("features", 1, 2)
    assert shown.getvalue() == ""
