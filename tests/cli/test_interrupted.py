"""Releases that are killed: refused without --resume, finished with it, and charged once.

Real processes die here by SIGKILL, once each for all tests; every test takes a copy of what one left.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privmix.releases import folder as release_folder
from tests.cli.helpers import Outcome, privmix

COUNT = 400
WHERE = ("features", "rows", "count", "complete", "seed")

# Each child is forked before anything has started a thread, and dies at one place.
SCRIPT = """
import os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from privmix.cli import main
from privmix.features.identity import Identity
from privmix.mechanisms import run as run_module
from privmix.releases import folder
folder.SHARD_ROWS = 1024
root = Path(sys.argv[1])

def dies(function, at):
    calls = [0]
    def hook(*args, **kwargs):
        calls[0] += 1
        if calls[0] == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)
    return hook

for line in (root / "lines.txt").read_text().splitlines():
    where, *arguments = line.split("\\t")
    pid = os.fork()
    if pid == 0:
        os.chdir(root / where)
        Identity.step = 100
        if where == "features":
            Identity.transform = dies(Identity.transform, 3)
        elif where == "complete":
            run_module.put_in_place = dies(run_module.put_in_place, 1)
        else:
            folder.ShardWriter._shard = dies(folder.ShardWriter._shard, 3)
        os._exit(100 + main.run(arguments))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == -signal.SIGKILL, (where, code)
"""


def save(path: Path, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, COUNT)
    np.savez(path, x=(np.eye(2, 3)[y] * 0.6 + rng.normal(0, 0.1, (COUNT, 3))).astype(np.float32), y=y)


def line(where: str, **changes: str | None) -> list[str]:
    """A command line with paths that are relative, so that it means a copy's files in the copy's folder."""
    given: dict[str, str | None] = {
        "data": "own.npz",
        "features": "identity",
        "classes": "2",
        "design": "poisson",
        "mixup-degree": "8",
        "rows": "4000",
        "epsilon": "4",
        "delta": "1e-4",
        "out": "REL",
    }
    given |= {"seed": "3"} if where == "seed" else {"ledger": "sqlite:///ledger.db", "dataset": "own"}
    flags = [f"--{name}={value}" for name, value in {**given, **changes}.items() if value is not None]
    return ["release", *flags, *(["--private-count"] if where in ("count", "complete") else [])]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("killed")
    for where in WHERE:
        folder = root / where
        folder.mkdir()
        save(folder / "own.npz")
        if where != "seed":
            url = f"sqlite:///{folder}/ledger.db"
            for name in ("own", "other"):
                init = ["ledger", "init", "--dataset", name, "--epsilon", "9", "--delta", "1e-3", "--ledger", url]
                assert privmix(*init).code == 0
    (root / "lines.txt").write_text("".join("\t".join([where, *line(where)]) + "\n" for where in WHERE))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(root)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return root


@pytest.fixture
def left(killed: Path, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A copy of what a killed run left, which is the current folder; the place where it was killed."""
    where: str = getattr(request, "param", "rows")
    shutil.copytree(killed / where, tmp_path / where)
    monkeypatch.chdir(tmp_path / where)
    monkeypatch.setattr(release_folder, "SHARD_ROWS", 1024)
    return where


everywhere = pytest.mark.parametrize("left", WHERE, indirect=True)
in_ledger = pytest.mark.parametrize("left", [where for where in WHERE if where != "seed"], indirect=True)


def run(where: str, *more: str, **changes: str | None) -> Outcome:
    return privmix(*line(where, **changes), *more)


def content(folder: str = ".") -> dict[str, bytes]:
    """Without ledgers, and without the locks that a kill leaves, which are empty and say nothing."""
    found = (path for path in Path(folder).rglob("*") if path.is_file() and path.suffix not in (".db", ".lock"))
    return {str(path): path.read_bytes() for path in found}


def history(dataset: str = "own") -> list[dict[str, Any]]:
    shown = privmix("ledger", "history", "--ledger", "sqlite:///ledger.db", "--dataset", dataset, "--json")
    assert shown.code == 0, shown.err
    found: list[dict[str, Any]] = json.loads(shown.out)
    return found


def charges(kind: str = "reserve") -> list[str]:
    return [str(entry.get("purpose", entry.get("result"))) for entry in history() if entry["kind"] == kind]


def clean(*folders: str) -> None:
    """Nothing is left but what belongs."""
    assert set(os.listdir()) == {"own.npz", *folders} | ({"ledger.db"} if Path("ledger.db").exists() else set())


def refused(outcome: Outcome, *words: str) -> None:
    assert outcome.code == 2, (outcome.code, outcome.err)
    assert outcome.out == ""
    assert outcome.said.strip().count("\n") == 0
    for word in words:
        assert word in outcome.err


@everywhere
def test_the_plain_command_is_refused_and_changes_nothing(left: str) -> None:
    before, charged = content(), [] if left == "seed" else history()
    refused(run(left), "--resume", "--overwrite", "REL")
    assert content() == before
    assert left == "seed" or history() == charged
    assert not Path("REL").exists()


@in_ledger
def test_resume_finishes_and_is_charged_once(left: str) -> None:
    paid = ["private record count", "release"] if left in ("count", "complete") else ["release"]
    assert charges() == paid
    assert charges("commit") == []
    outcome = run(left, "--resume")
    assert outcome.code == 0, outcome.err
    assert charges() == paid
    release_id = json.loads(Path("REL/certificate.json").read_text())["id"]
    # A run that only had to be renamed has lost its notes, so nobody can tell the ledger.
    noted = 0 if left == "complete" else len(paid)
    assert charges("commit") == [f"release {release_id}"] * noted
    budget = json.loads(privmix("ledger", "show", "--ledger", "sqlite:///ledger.db", "--dataset", "own", "--json").out)
    assert budget[0]["spent"] <= 4
    assert budget[0]["uncommitted"] == len(paid) - noted
    assert privmix("ledger", "verify", "--ledger", "sqlite:///ledger.db").code == 0
    assert privmix("verify", "REL").code == 0
    clean("REL")
    assert not [name for name in content("REL") if name.endswith(("key", "run.json", "run.shards"))]
    refused(run(left, "--resume"), "REL")


@pytest.mark.parametrize("left", ["seed"], indirect=True)
def test_resume_gives_the_bytes_of_a_run_that_was_not_killed(left: str) -> None:
    kept = {path.name: path.read_bytes() for path in Path(".REL.run/data").iterdir()}
    assert len(kept) == 2
    assert run(left, "--resume").code == 0
    assert run(left, out="WHOLE").code == 0
    shards = {path.name: path.read_bytes() for path in Path("REL/data").iterdir()}
    assert shards == {path.name: path.read_bytes() for path in Path("WHOLE/data").iterdir()}
    assert len(shards) == 4
    assert kept.items() <= shards.items()
    clean("REL", "WHOLE")


OTHERS: list[tuple[dict[str, str | None], list[str]]] = [
    ({"epsilon": "5"}, ["--resume", "plan"]),
    ({"delta": "1e-5"}, ["--resume", "plan"]),
    ({"rows": "4001"}, ["--resume", "plan"]),
    ({"mixup-degree": "9"}, ["--resume", "plan"]),
    ({"design": "classwise"}, ["--resume", "plan"]),
    ({"clip-norm": "2"}, ["--resume", "plan"]),
    ({"centre": "none"}, ["--resume", "plan"]),
    ({"classes": "3"}, ["--resume", "plan"]),
    ({"features": "pixels"}, ["--resume", "extractor"]),
    ({"records": "400"}, ["--resume", "plan"]),
    ({"dataset": "other"}, ["--dataset", "charged"]),
    ({"dataset": "unknown"}, ["--dataset"]),
    ({"ledger": None, "dataset": None}, ["--ledger", "interrupted run"]),
    ({"ledger": None}, ["--ledger, --dataset"]),
    ({"ledger": "sqlite:///none.db"}, ["none.db"]),
    ({"seed": "1"}, ["--seed", "--ledger"]),
    ({"out": "OTHER"}, ["--resume", "there is none"]),
    ({"engine": "magic"}, ["--engine"]),
]


def test_resume_with_other_options_is_refused_and_harms_nothing(left: str) -> None:
    before = content(".REL.run")
    for changes, words in OTHERS:
        refused(run(left, "--resume", **changes), *words)
        assert content(".REL.run") == before, changes
    refused(run(left, "--resume", "--private-count"), "--")
    assert content(".REL.run") == before
    privmix("ledger", "init", "--dataset", "own", "--epsilon", "9", "--delta", "1e-3", "--ledger", "sqlite:///new.db")
    refused(run(left, "--resume", ledger="sqlite:///new.db"), "reservation")
    Path("new.db").unlink()
    assert run(left, "--resume").code == 0
    assert charges() == ["release"]
    clean("REL")


@pytest.mark.parametrize("left", ["features"], indirect=True)
def test_a_charge_is_not_carried_to_data_of_another_name(left: str) -> None:
    """Killed before the records were noted: the ledger still knows whose they are."""
    save(Path("own.npz"), seed=1)
    assert run(left, out="OTHER", dataset="other").code == 0
    refused(run(left, "--resume"), "--resume", "records of the interrupted run")
    assert privmix("ledger", "verify", "--ledger", "sqlite:///ledger.db").code == 0


@pytest.mark.parametrize("left", ["count"], indirect=True)
def test_resume_keeps_the_private_count(left: str) -> None:
    planned = json.loads(Path(".REL.run/run.json").read_text())["settings"]["plan"]["records"]
    refused(privmix(*[part for part in line(left) if part != "--private-count"], "--resume"), "--resume", "plan")
    assert run(left, "--resume").code == 0
    certificate = json.loads(Path("REL/certificate.json").read_text())
    assert certificate["plan"]["records"] == planned


@pytest.mark.parametrize("left", ["complete"], indirect=True)
def test_a_renaming_that_failed_needs_no_records(left: str) -> None:
    assert not Path(".REL.run/run.json").exists()
    refused(run(left, "--resume", epsilon="3.9"), "--resume")
    # Same content in another order: whatever is in the file is not looked at any more.
    with np.load("own.npz") as held:
        x, y = held["x"], held["y"]
    np.savez("own.npz", x=x[::-1], y=y[::-1])
    assert run(left, "--resume").code == 0
    clean("REL")


def test_two_at_a_time_are_refused(left: str) -> None:
    import fcntl

    with open(".REL.lock", "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        refused(run(left, "--resume"), "no other process")
        refused(run(left, "--overwrite"), "no other process")
    assert Path(".REL.run/run.key").is_file()
    assert run(left, "--resume").code == 0
    clean("REL")


def test_nothing_to_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save(Path("own.npz"))
    refused(run("seed", "--resume"), "--resume", "there is none")
    clean()


def test_places_that_cannot_be_written_cost_nothing(left: str) -> None:
    before = history()
    for changes in ({"out": "own.npz/REL"}, {"out": "OTHER", "store": "own.npz"}):
        outcome = run(left, **changes)
        assert outcome.code == 1, outcome.err
        assert "can't write" in outcome.err
        assert outcome.err.strip().count("\n") == 0
    assert history() == before
