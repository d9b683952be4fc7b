"""Engines from the command line; tests/commands/test_extract_features.py compares a cluster with the local engine."""

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


def test_without_ray_the_engine_is_refused_before_anything(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from privmix.jobs import release_setting

    monkeypatch.setattr(release_setting, "find_spec", lambda name: None)
    outcome = release(folder, "REL", "--engine", "ray")
    assert outcome.code == 2
    assert "privmix[ray]" in outcome.err
    assert os.listdir(folder) == ["own.npz"]


def test_memory_and_workers_change_no_row(folder: Path) -> None:
    assert release(folder, "ONE").code == 0
    assert release(folder, "TWO", "--memory-gb", "0.001", "--workers", "3").code == 0
    one, two = (json.loads((folder / name / "certificate.json").read_text())["files"] for name in ("ONE", "TWO"))
    assert one == two
