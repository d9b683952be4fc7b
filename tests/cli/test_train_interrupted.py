"""Training runs that are killed: refused without --resume, finished with it, and charged once.

Real processes die here by SIGKILL, once each for all tests; every test takes a copy of what one left.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.helpers import Outcome, privmix
from tests.cli.training import (
    LEDGER,
    certificate,
    charges,
    history,
    left_over,
    line,
    open_ledger,
    train,
    weights,
    write_all,
)

RUNS: dict[str, dict[str, str | None]] = {
    "seed": {"seed": "3"},
    "bank": {"seed": "3", "bank": "2"},
    "extended": {
        "seed": "3",
        "scenario": "extended",
        "public": "public.npz",
        "public_method": "adadps",
        "public_batch": "8",
        "warm_up_epochs": "2",
        "optimiser": "adam",
    },
    "ledger": {"ledger": LEDGER, "dataset": "own"},
    # Killed while features are read, before there is any checkpoint.
    "reading": {"ledger": LEDGER, "dataset": "own"},
    # Killed once the model is written: before its run's key is gone, and after.
    "complete": {"ledger": LEDGER, "dataset": "own"},
    "keyless": {"ledger": LEDGER, "dataset": "own"},
}
KILLED = [name for name in RUNS if name != "keyless"]

# Each child is forked before anything has started a thread, and dies at one place.
SCRIPT = """
import os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from privmix.cli import main
from privmix.jobs import training
from privmix.mechanisms.run_folder import RunFolder
from privmix.training import dp_sgd, run
run._EVERY = 0.0
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
        if where == "reading":
            training.features_in_memory = dies(training.features_in_memory, 1)
        elif where == "complete":
            RunFolder.end_key = dies(RunFolder.end_key, 1)
        elif where == "keyless":
            RunFolder.keep_only = dies(RunFolder.keep_only, 1)
        else:
            dp_sgd.DpSgd.step = dies(dp_sgd.DpSgd.step, 6)
        os._exit(100 + main.run(arguments))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == -signal.SIGKILL, (where, code)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("killed")
    patch = pytest.MonkeyPatch()
    for where, changes in RUNS.items():
        write_all(root / where)
        if "ledger" in changes:
            patch.chdir(root / where)
            open_ledger()
            open_ledger(dataset="other")
    patch.undo()
    lines = ["\t".join([where, *line(**changes)]) for where, changes in RUNS.items()]
    (root / "lines.txt").write_text("\n".join(lines) + "\n")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(root)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return root


@pytest.fixture
def left(killed: Path, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A copy of what a killed run left, which is the current folder; the place where it was killed."""
    where: str = getattr(request, "param", "ledger")
    shutil.copytree(killed / where, tmp_path / where)
    monkeypatch.chdir(tmp_path / where)
    return where


everywhere = pytest.mark.parametrize("left", KILLED, indirect=True)


def run(where: str, **changes: str | None) -> Outcome:
    return train(**{**RUNS[where], **changes})


def content() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(".MODEL.run").rglob("*") if path.is_file()}


def refused(outcome: Outcome, *words: str) -> None:
    assert outcome.code == 2, (outcome.code, outcome.err)
    assert outcome.out == ""
    # A seed is warned of first.
    assert outcome.said.strip().count("\n") == outcome.err.count("warning:")
    for word in words:
        assert word in outcome.err, outcome.err


def clean(*folders: str) -> None:
    """Nothing is left but what belongs; locks are empty files."""
    locks = {name for name in os.listdir() if name.endswith(".lock")}
    assert left_over() - locks == set(folders)
    assert all(os.path.getsize(name) == 0 for name in locks)


@everywhere
def test_the_plain_command_is_refused_and_changes_nothing(left: str) -> None:
    before, charged = content(), history() if "ledger" in RUNS[left] else []
    refused(run(left), "--resume", "--overwrite", "MODEL")
    assert content() == before
    assert "ledger" not in RUNS[left] or history() == charged
    assert not Path("MODEL").exists()


@pytest.mark.parametrize("left", ["seed", "bank", "extended"], indirect=True)
def test_resume_gives_the_bits_of_a_run_that_was_not_killed(left: str) -> None:
    outcome = run(left, resume="")
    assert outcome.code == 0, outcome.err
    assert run(left, out="WHOLE").code == 0
    assert weights("MODEL") == weights("WHOLE")
    clean("MODEL", "WHOLE")


@pytest.mark.parametrize("left", ["ledger", "reading"], indirect=True)
def test_resume_finishes_and_is_charged_once(left: str) -> None:
    assert charges() == ["training"]
    assert charges("commit") == []
    outcome = run(left, resume="")
    assert outcome.code == 0, outcome.err
    assert charges() == ["training"]
    assert charges("commit") == [f"model {certificate()['id']}"]
    assert certificate()["in_ledger"] == "planned"
    assert certificate()["insecure_seed"] is False
    for verb in (["ledger", "verify", "--ledger", LEDGER], ["verify", "MODEL"]):
        assert privmix(*verb).code == 0
    clean("MODEL")
    assert {path.name for path in Path("MODEL").iterdir()} == {"model.json", "certificate.json", "weights.safetensors"}
    refused(run(left, resume=""), "MODEL")
    assert charges() == ["training"]


def test_resume_goes_on_where_it_stopped(left: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from privmix.training.dp_sgd import DpSgd

    steps: list[int] = []
    step = DpSgd.step

    def counted(self: DpSgd, number: int) -> None:
        steps.append(number)
        step(self, number)

    monkeypatch.setattr(DpSgd, "step", counted)
    assert run(left, resume="").code == 0
    assert steps == [5, 6, 7, 8, 9]


OTHERS: list[tuple[dict[str, str | None], list[str]]] = [
    ({"epsilon": "7"}, ["--resume", "epsilon"]),
    ({"delta": "1e-5"}, ["--resume", "delta"]),
    ({"epochs": "2"}, ["--resume", "epochs"]),
    ({"batch_size": "20"}, ["--resume", "batch_size"]),
    ({"clip_norm": "2"}, ["--resume", "clip_norm"]),
    ({"learning_rate": "1"}, ["--resume", "learning_rate"]),
    ({"model": "wrn-10-1", "feature_norm": None}, ["--resume", "model"]),
    ({"features": "scattering"}, ["--resume", "extractor"]),
    ({"classes": "11"}, ["--resume", "classes"]),
    ({"records": "300"}, ["--resume", "records_declared"]),
    ({"model_seed": "1"}, ["--resume", "model_seed"]),
    ({"bank": "2"}, ["--resume", "bank"]),
    ({"scenario": "warm", "public": "public.npz"}, ["--resume"]),
    ({"dataset": "other"}, ["--dataset", "charged"]),
    ({"dataset": "unknown"}, ["--dataset"]),
    ({"ledger": None, "dataset": None}, ["--ledger", "interrupted run"]),
    ({"ledger": None}, ["--ledger, --dataset"]),
    ({"ledger": "sqlite:///none.db"}, ["none.db"]),
    ({"seed": "1"}, ["--seed", "--ledger"]),
    ({"out": "OTHER"}, ["--resume", "there is none"]),
]


def test_resume_with_other_options_is_refused_and_harms_nothing(left: str) -> None:
    before, charged = content(), history()
    for changes, words in OTHERS:
        refused(run(left, resume="", **changes), *words)
        assert content() == before, changes
    assert history() == charged
    outcome = run(left, resume="", chunk="11")
    assert outcome.code == 0, outcome.err
    assert charges() == ["training"]


@pytest.mark.parametrize("left", ["complete", "keyless"], indirect=True)
def test_killed_after_the_model_was_written(left: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is paid for and whole; resuming puts it in its place and reads no record."""

    def read(*_: object) -> None:
        raise AssertionError("records are read")

    monkeypatch.setattr("privmix.jobs.training.features_in_memory", read)
    assert Path(".MODEL.run/run.key").exists() == (left == "complete")
    refused(run(left, resume="", epochs="2"), "--resume", "epochs")
    outcome = run(left, resume="")
    assert outcome.code == 0, outcome.err
    assert privmix("verify", "MODEL").code == 0
    assert charges() == ["training"]
    # Nothing shows any more which reservation it was once the key, whose seal showed it, is gone.
    assert len(charges("commit")) == (left == "complete")
    clean("MODEL")
    refused(run(left), "MODEL")
