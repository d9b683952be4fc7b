"""Two processes draw the pool that one draws, and the first alone writes and speaks."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from privmix.research.synthesis import work
from tests.cli.helpers import privmix
from tests.processes import two_processes

pytest.importorskip("diffusers")
pytest.importorskip("torchmetrics")

FLAGS = (
    *("synthesise", "--public", "public.npz", "--network", "tiny", "--steps", "6", "--batch-size", "9"),
    *("--images", "25", "--sampler-steps", "4", "--draw-batch", "5"),
)

DRAW = f"""
import os, sys
from unittest import mock
import torch
torch.set_num_threads(1)
from privmix.cli.main import run
from privmix.research.synthesis import work
os.chdir(sys.argv[1])
with mock.patch.object(work, "BLOCK", 10):
    sys.exit(run([*{FLAGS!r}, "--out", "TWO", "--work", "two"]))
"""


def test_two_processes_draw_what_one_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    public = generator.integers(0, 256, (40, 8, 8), dtype=np.uint8), np.arange(40) % 4
    np.savez(tmp_path / "public.npz", x=public[0], y=public[1], classes=4)
    done = two_processes(DRAW, tmp_path)
    assert (tmp_path / "TWO" / "card.json").exists(), "\n".join(process.stdout for process in done)
    assert "pool:" in done[0].stdout
    assert done[1].stdout == ""
    assert [process.returncode for process in done] == [0, 0]

    # The same weights, drawn from by one process.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(work, "BLOCK", 10)
    (tmp_path / "same").mkdir(mode=0o700)
    for name in ("run", "diffusion.safetensors"):
        shutil.copy(tmp_path / "two" / name, tmp_path / "same" / name)
    assert privmix(*FLAGS, "--out", "SAME", "--work", "same").code == 0
    for name in ("train.npz", "contact.png"):
        assert (tmp_path / "SAME" / name).read_bytes() == (tmp_path / "TWO" / name).read_bytes(), name

    # Weights of one process's own.
    assert privmix(*FLAGS, "--out", "ONE", "--work", "one").code == 0
    one, two = (load_file(tmp_path / name / "diffusion.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_allclose(two[name], one[name], rtol=1e-3, atol=1e-5, err_msg=name)
