"""Interrupted releases and trainings on the command line: refused without --resume, finished with it, charged once.

tests/jobs/test_killed.py kills every job at every step by SIGKILL; releases and trainings compare the bits of what
resumes in tests/releases/test_resume.py and tests/training/test_run.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privmix.jobs.release import ReleaseJob
from privmix.jobs.training import TrainingJob
from tests.cli.helpers import Outcome, privmix, refused

Changes = dict[str, str | None]

LEDGER = "sqlite:///ledger.db"
JOBS: dict[str, Any] = {"release": ReleaseJob, "train": TrainingJob}
OWN: dict[str, Changes] = {
    "release": {"design": "poisson:mixup_degree=8", "rows": "40"},
    "train": {"epochs": "1", "batch-size": "20"},
}
every_verb = pytest.mark.parametrize("verb", JOBS)


def save(path: str = "own.npz", seed: int = 0, count: int = 400) -> None:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, count)
    np.savez(path, x=(np.eye(2, 3)[y] * 0.6 + rng.normal(0, 0.1, (count, 3))).astype(np.float32), y=y)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save()
    save("public.npz", 5, 80)
    for name in ("own", "other"):
        init = ["ledger", "init", "--dataset", name, "--epsilon", "9", "--delta", "1e-3", "--ledger", LEDGER]
        assert privmix(*init).code == 0
    return tmp_path


def run(verb: str, *more: str, **changes: str | None) -> Outcome:
    given: Changes = {"data": "own.npz", "features": "identity", "classes": "2", "epsilon": "4", "delta": "1e-4"}
    given |= {"out": "OUT", "ledger": LEDGER, "dataset": "own", **OWN[verb]}
    given |= {name.replace("_", "-"): value for name, value in changes.items()}
    return privmix(verb, *(f"--{name}={value}" for name, value in given.items() if value is not None), *more)


def interrupted(verb: str, owner: Any, step: str, **changes: str | None) -> None:
    def stops(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, step, stops)
        outcome = run(verb, **changes)
    assert (outcome.code, outcome.err.endswith("stopped\n")) == (130, True)
    assert Path(".OUT.run").is_dir()


def content() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(".OUT.run").rglob("*") if path.is_file()}


def history() -> list[dict[str, Any]]:
    shown = privmix("ledger", "history", "--ledger", LEDGER, "--dataset", "own", "--json")
    found: list[dict[str, Any]] = json.loads(shown.out)
    return found


def charges(kind: str) -> int:
    return sum(entry["kind"] == kind for entry in history())


def finished(verb: str) -> None:
    outcome = run(verb, "--resume")
    assert outcome.code == 0, outcome.err
    assert privmix("verify", "OUT").code == 0
    assert privmix("ledger", "verify", "--ledger", LEDGER).code == 0
    assert charges("reserve") == 1
    left = {path.name for path in Path().iterdir() if path.suffix != ".lock" or path.stat().st_size}
    assert left == {"own.npz", "public.npz", "ledger.db", "OUT"}
    refused(run(verb, "--resume"), "OUT")
    assert charges("reserve") == 1


@every_verb
def test_the_plain_command_is_refused_and_changes_nothing(verb: str) -> None:
    interrupted(verb, JOBS[verb], "compute")
    before, charged = content(), history()
    refused(run(verb), "--resume", "--overwrite", "OUT")
    assert content() == before
    assert history() == charged
    assert not Path("OUT").exists()
    finished(verb)
    assert charges("commit") == 1


OTHERS: list[tuple[Changes, str]] = [
    ({"dataset": "other"}, "--dataset"),
    ({"ledger": None, "dataset": None}, "--ledger"),
    ({"out": "OTHER"}, "--resume"),
    ({"features": "pixels"}, "--resume"),
    ({"epsilon": "5"}, "--resume"),
]


@every_verb
def test_resume_with_other_options_is_refused_and_harms_nothing(verb: str) -> None:
    interrupted(verb, JOBS[verb], "compute")
    before, charged = content(), history()
    for changes, flag in OTHERS:
        refused(run(verb, "--resume", **changes), flag)
        assert content() == before, changes
    refused(run(verb, "--resume", "--private-count"), "--")
    assert content() == before
    privmix("ledger", "init", "--dataset", "own", "--epsilon", "9", "--delta", "1e-3", "--ledger", "sqlite:///new.db")
    refused(run(verb, "--resume", ledger="sqlite:///new.db"), "reservation")
    Path("new.db").unlink()
    assert history() == charged
    finished(verb)


@pytest.mark.parametrize(
    ("verb", "words"), [("release", "records of the interrupted run"), ("train", "allowed: other")]
)
def test_a_charge_is_not_carried_to_data_of_another_name(verb: str, words: str) -> None:
    """Interrupted before the records were noted: the ledger still knows whose they are."""
    interrupted(verb, JOBS[verb], "read")
    save(seed=1)
    assert run(verb, out="OTHER", dataset="other").code == 0
    refused(run(verb, "--resume"), "--", words)
    assert privmix("ledger", "verify", "--ledger", LEDGER).code == 0
