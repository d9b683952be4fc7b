"""``privmix train`` under torchrun: what one process gives, written and charged once, and no process left waiting."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.cli.helpers import privmix
from tests.cli.training import LEDGER, RECORDS, certificate, charges, digits, line, open_ledger, write_all
from tests.processes import environment, free_port, two_processes

# Both processes run all lines one after the other and note their exit codes.
SCRIPT = """
import json, os, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
import torch.distributed as dist
from privmix.cli import main
dist.init_process_group("gloo")
codes = {}
for text in Path("lines.txt").read_text().splitlines():
    name, *arguments = text.split("\\t")
    codes[name] = main.run(arguments)
    # Where one of them ended early, the other must not meet it in the next line.
    dist.barrier()
Path(f"codes-{os.environ['RANK']}.json").write_text(json.dumps(codes))
dist.destroy_process_group()
"""
PAID = {"ledger": LEDGER, "dataset": "own"}
LINES: dict[str, dict[str, str | None]] = {
    "paid": {"out": "PAID", **PAID},
    "bank": {"out": "BANK", "bank": "2", "seed": "0"},
    "store": {"out": "STORED", "store": "STORE", "seed": "0", "features": "scattering"},
    "network": {"out": "NETWORK", "model": "wrn-10-1", "epochs": "0.2", "seed": "0", "strategy": "vmap"},
    # Whoever read these rows would fail otherwise.
    "too dear": {"out": "DEAR", "epsilon": "1000", "data": "wrong.npz", **PAID},
    "there already": {"out": "PAID", **PAID},
    "nothing to resume": {"out": "NONE", "resume": ""},
    "microbatches": {"out": "MICRO", "microbatch": "2"},
    "wrong labels": {"out": "WRONG", "data": "wrong.npz", "store": "WRONG-STORE"},
    "dry": {"out": "DRY", "dry_run": ""},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("processes") / "root"
    write_all(found)
    x, y = digits(0, RECORDS)
    np.savez(found / "wrong.npz", x=x, y=y + 7)
    return found


@pytest.fixture(scope="module")
def said(root: Path) -> list[str]:
    """Standard error of both processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        open_ledger()
    (root / "lines.txt").write_text("".join("\t".join([name, *line(**given)]) + "\n" for name, given in LINES.items()))
    found = [done.stdout for done in two_processes(SCRIPT, root)]
    assert all((root / f"codes-{rank}.json").exists() for rank in (0, 1)), "\n".join(found)
    return found


@pytest.fixture
def codes(said: list[str], root: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """Exit codes of both processes, by line; the current folder is theirs."""
    monkeypatch.chdir(root)
    return [json.loads(Path(f"codes-{rank}.json").read_text()) for rank in (0, 1)]


WELL = ("paid", "bank", "store", "network", "dry")
# Exit codes of both processes: where the head fails or a row is refused, all end.
ENDS = {name: [0, 0] for name in WELL} | {"too dear": [3, 1], "microbatches": [2, 2]}
ENDS |= {name: [2, 1] for name in ("there already", "nothing to resume", "wrong labels")}


@pytest.mark.parametrize("name", ENDS)
def test_all_processes_end(name: str, codes: list[dict[str, int]], said: list[str]) -> None:
    assert [of[name] for of in codes] == ENDS[name], said
    assert "internal" not in said[1]
    assert Path(str(LINES[name]["out"])).exists() == ((name in WELL and name != "dry") or name == "there already")


def test_charged_and_written_once(codes: list[dict[str, int]], said: list[str]) -> None:
    assert charges() == ["training"]
    assert charges("commit") == [f"model {certificate('PAID')['id']}"]
    assert privmix("verify", "PAID").code == 0
    assert not Path(".PAID.run").exists()
    # The head alone speaks of results.
    for words in ("privmix evaluate PAID", "NOT private", "guarantee:"):
        assert (words in said[0], words in said[1]) == (True, False), words


@pytest.mark.parametrize("name", ["bank", "store", "network"])
def test_two_give_the_weights_of_one(name: str, codes: list[dict[str, int]]) -> None:
    given = LINES[name]
    privmix(*line(**{**given, "out": f"{given['out']}-ALONE"})).passed()
    same(str(given["out"]), f"{given['out']}-ALONE")


def same(one: str, other: str) -> None:
    first, second = (load_file(Path(folder, "weights.safetensors")) for folder in (one, other))
    assert set(first) == set(second)
    for name in first:
        np.testing.assert_allclose(first[name], second[name], rtol=1e-5, atol=1e-5)


@pytest.mark.thorough
def test_torchrun(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    started = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    started += ["--master-port", free_port(), "-m", "privmix.cli.main", *line(seed="0", out="TORCHRUN")]
    done = subprocess.run(started, env=environment(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("guarantee: ") == 1
    privmix(*line(seed="0", out="ALONE")).passed()
    same("TORCHRUN", "ALONE")
