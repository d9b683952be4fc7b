"""Every entry of benchmarks/gpu runs on a CPU, on small drawn images, and goes on from what is kept."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "gpu")]

import run  # noqa: E402

LISTED = (ROOT / "benchmarks" / "gpu" / "README.md").read_text(encoding="utf-8")


@pytest.mark.thorough
@pytest.mark.parametrize("number", [one for one in run.ENTRIES if one != 5])
def test_an_entry_runs(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.common, "RESULTS", tmp_path)
    # One of five seeds shows it.
    steps = run.ENTRIES[number][:3] if number == 6 else run.ENTRIES[number]
    monkeypatch.setitem(run.ENTRIES, number, steps)
    line = ["--out", str(tmp_path / "KEPT"), "--dry-run"]
    run.main([str(number), *line, "--report"])
    assert (tmp_path / "gpu_entries.json").exists()
    # What is done is not done again.
    monkeypatch.setattr(run, "carry_out", None)
    run.main([str(number), *line])
    if number == 4:
        monkeypatch.undo()
        run.main(["5", *line])


def test_each_is_listed_and_no_step_takes_longer_than_a_call() -> None:
    for number, steps in run.ENTRIES.items():
        assert f"| {number} | `python benchmarks/gpu/run.py {number} " in LISTED
        assert max(step.minutes for step in steps) <= 8
