"""The Ray engine from the command line: the rows of the local one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.cli.helpers import Outcome, privmix


def release(folder: Path, name: str, *more: str) -> Outcome:
    line = ["release", "--data", str(folder / "own.npz"), "--features", "identity", "--classes", "2", "--seed", "3"]
    figures = ["--design", "poisson", "--mixup-degree", "8", "--rows", "1500", "--epsilon", "4", "--delta", "1e-4"]
    return privmix(*line, *figures, "--out", str(folder / name), *more)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", x=rng.normal(0, 0.3, (300, 3)).astype(np.float32), y=rng.integers(0, 2, 300))
    return tmp_path


@pytest.mark.thorough
def test_ray_gives_the_rows_of_the_local_engine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="the Ray engine needs privmix[ray]")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert release(folder, "LOCAL").code == 0
    outcome = release(folder, "RAY", "--engine", "ray", "--workers", "1")
    assert outcome.code == 0, outcome.err
    assert not ray.is_initialized()
    shards = {}
    for name in ("LOCAL", "RAY"):
        assert privmix("verify", str(folder / name)).code == 0
        shards[name] = {path.name: path.read_bytes() for path in (folder / name / "data").iterdir()}
    assert shards["LOCAL"] == shards["RAY"]
    assert set(os.listdir(folder)) == {"own.npz", "LOCAL", "RAY"}


def test_without_ray_the_engine_is_refused_before_anything(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from privmix.jobs import release_setting

    monkeypatch.setattr(release_setting, "find_spec", lambda name: None)
    outcome = release(folder, "REL", "--engine", "ray")
    assert outcome.code == 2
    assert "privmix[ray]" in outcome.err
    assert os.listdir(folder) == ["own.npz"]


@pytest.mark.parametrize("more", [["--memory-gb", "0.001"], ["--workers", "1"], ["--workers", "3"]])
def test_memory_and_workers_change_no_row(folder: Path, more: list[str]) -> None:
    assert release(folder, "ONE").code == 0
    assert release(folder, "TWO", *more).code == 0
    one, two = (json.loads((folder / name / "certificate.json").read_text())["files"] for name in ("ONE", "TWO"))
    assert one == two
