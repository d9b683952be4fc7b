"""Releases whose record count is private: estimated, paid for, and nowhere to be read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.cli.helpers import Outcome, privmix, refused

# Thresholds of a random result hold for these keys: no run fails by chance.
pytestmark = pytest.mark.usefixtures("fixed_keys")

COUNT, EPSILON = 2953, 0.5


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, COUNT)
    x = (np.eye(2, 3)[y] * 0.6 + rng.normal(0, 0.1, (COUNT, 3))).astype(np.float32)
    path = tmp_path_factory.mktemp("own") / "own.npz"
    np.savez(path, x=x, y=y)
    return path


def release(data: Path, out: Path, *more: str, **changes: str) -> Outcome:
    given = {
        "data": str(data),
        "features": "identity",
        "classes": "2",
        "design": "moments",
        "rows": "30",
        "epsilon": str(EPSILON),
        "delta": "1e-6",
        "out": str(out),
        **changes,
    }
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    return privmix("release", *flags, "--private-count", *more)


def ledger(folder: Path, epsilon: float = EPSILON) -> str:
    url = f"sqlite:///{folder}/ledger.db"
    line = ["--dataset", "own", "--epsilon", str(epsilon), "--delta", "1e-6", "--ledger", url]
    assert privmix("ledger", "init", *line).code == 0
    return url


@pytest.mark.parametrize("design", ["moments", "poisson"])
def test_the_count_is_not_shown(data: Path, tmp_path: Path, design: str) -> None:
    """What is estimated and charged is tested in tests/jobs/test_private_counts.py."""
    out = tmp_path / "REL"
    # Its own row count would be the estimate, which is public.
    changes = {"rows": "1000"} if design == "poisson" else {}
    outcome = release(data, out, design=design, **changes)
    assert outcome.code == 0, outcome.err
    shown = [outcome.out, outcome.err, *(path.read_text() for path in out.iterdir() if path.suffix in (".json", ".md"))]
    for text in shown:
        assert not re.search(r"(?<![\w.])2,?953(?![\w.])", text)
    assert "private estimate" in privmix("inspect", str(out)).out


def test_a_plan_of_it_would_cost_and_is_refused(data: Path, tmp_path: Path) -> None:
    url = ledger(tmp_path)
    outcome = release(data, tmp_path / "REL", "--dry-run", ledger=url, dataset="own")
    refused(outcome, "--private-count", "--dry-run")
    (budget,) = json.loads(privmix("ledger", "show", "--ledger", url, "--json").out)
    assert (budget["spent"], budget["reservations"]) == (0, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.db"]


def test_too_large_a_degree_is_compared_with_the_estimate_only(data: Path, tmp_path: Path) -> None:
    outcome = release(data, tmp_path / "REL", design="poisson:mixup_degree=100000")
    assert outcome.code == 2
    assert "mixup_degree" in outcome.err
    assert str(COUNT) not in outcome.err


def test_an_overspent_budget_is_refused_before_the_count(data: Path, tmp_path: Path) -> None:
    url = ledger(tmp_path, epsilon=0.001)
    outcome = release(data, tmp_path / "REL", ledger=url, dataset="own")
    assert outcome.code == 3
    assert "budget of own" in outcome.err
    assert str(COUNT) not in outcome.err
    assert not (tmp_path / "REL").exists()
