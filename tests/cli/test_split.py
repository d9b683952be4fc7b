"""``privmix split``: two datasets that the other verbs take, and words that say what it means."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from privmix.data import open_dataset
from tests.cli.helpers import privmix


@pytest.fixture
def data(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    x, y = random.integers(0, 256, (90, 4, 4)).astype(np.uint8), np.repeat([0, 1, 2], 30)
    np.savez(tmp_path / "all.npz", x=x, y=y, classes=np.array(["a", "b", "c"]))
    return tmp_path / "all.npz"


def test_both_files_are_datasets(data: Path, tmp_path: Path) -> None:
    places = "--public", str(tmp_path / "p.npz"), "--private", str(tmp_path / "q.npz")
    outcome = privmix("split", "--data", str(data), "--share", "0.1", *places, "--seed", "1", "--json")
    assert outcome.code == 0, outcome.err
    assert "without any protection" in outcome.out
    found = json.loads(outcome.out)
    assert (found["public_records"], found["private_records"]) == (9, 81)
    public = open_dataset(tmp_path / "p.npz").read()
    assert np.bincount(public.y).tolist() == [3, 3, 3]
    assert open_dataset(tmp_path / "q.npz").schema.classes == ("a", "b", "c")
    again = privmix("split", "--data", str(data), "--share", "0.1", *places)
    assert again.code == 2
    assert "does not exist yet" in again.err
