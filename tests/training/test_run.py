"""Runs that are interrupted: resumed to the same bits, never under other data, and never by two at a time."""

import os
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from privmix.mechanisms import run as base_module
from privmix.mechanisms.streams import SecretStreams
from privmix.training import run as run_module
from privmix.training.config import OptimiserConfig, TrainingConfig
from privmix.training.mechanisms import dp_sgd as mechanism
from privmix.training.public.config import ExtendedConfig, WarmUpConfig
from privmix.training.run import TrainingRun
from privmix.training.trainer import Trainer
from tests.refusals import refuses
from tests.training.runs import RECORDS, config_of, files, job_of, private, public, run_to

STEPS = 6


class Killed(BaseException):
    """What no code catches."""


@pytest.fixture(autouse=True)
def same_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_module.uuid, "uuid4", lambda: uuid.UUID(int=7))


def checkpoint_at(monkeypatch: pytest.MonkeyPatch, steps: set[int]) -> None:
    """Checkpoints after these steps alone (and at the end, as the job asks for)."""
    save = TrainingRun.save

    def chosen(self: TrainingRun, step: int, state: Callable[[], Any], *, now: bool = False) -> None:
        save(self, step, state, now=now or step in steps)

    monkeypatch.setattr(run_module, "CHECKPOINT_SECONDS", 1e9)
    monkeypatch.setattr(TrainingRun, "save", chosen)


def kill(out: Path, job: Trainer, *, after: int, stage: str = "private", **given: Any) -> None:
    """Begin the job, or take it up again, and kill it once so many steps of a stage are done: before a checkpoint."""

    def progress(now: str, done: int, total: int) -> None:
        if now.startswith(stage) and done == after:
            raise Killed

    with pytest.raises(Killed):
        run_to(out, job, progress=progress, **given)


SCENARIOS: dict[str, Any] = {
    "sgd with momentum": {"optimiser": OptimiserConfig(learning_rate=2.0, momentum=0.9, weight_decay=0.01)},
    "adam": {"optimiser": OptimiserConfig("adam", 0.01, schedule="cosine", warm_up_steps=2)},
    "average": {"optimiser": OptimiserConfig(learning_rate=2.0, ema_decay=0.9)},
    "adadps": {"scenario": "extended", "extended": ExtendedConfig("adadps", batch_size=8)},
    "multiplicity": {
        "scenario": "extended",
        "extended": ExtendedConfig("multiplicity+adadps", batch_size=8, perturbations=1),
    },
    "microbatches": {"microbatch_size": 4, "microbatch_mixes": 2},
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_same_bits_wherever_it_was_killed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = dict(SCENARIOS[name])
    given = {"public": public()} if "scenario" in changes else {}
    config = config_of(warm_up=WarmUpConfig(epochs=1), **changes)
    run_to(tmp_path / "whole", job_of(config, **given))
    expected = files(tmp_path / "whole")
    checkpoint_at(monkeypatch, {2, 3})
    # In a fresh checkpoint's place, between checkpoints, before the first and after the last.
    for step in range(1, STEPS + 1):
        out = tmp_path / f"killed{step}"
        kill(out, job_of(config, **given), after=step)
        assert not out.exists()
        run_to(out, job_of(config, **given), resume=True)
        assert files(out) == expected, step
        assert not out.with_name(f".{out.name}.run").exists()


def test_same_bits_after_a_kill_in_the_warm_up(tmp_path: Path) -> None:
    config = config_of(scenario="warm", warm_up=WarmUpConfig(epochs=3, batch_size=10))
    run_to(tmp_path / "whole", job_of(config, public=public()))

    job, stages = job_of(config, public=public()), []
    kill(tmp_path / "out", job, stage="warm-up", after=2)
    kill(tmp_path / "out", job, resume=True, after=1)
    run_to(tmp_path / "out", job, resume=True, progress=lambda stage, done, total: stages.append(stage))
    assert not any(stage.startswith("warm-up") for stage in stages), "a finished warm-up is kept"
    assert files(tmp_path / "out") == files(tmp_path / "whole")


SCRIPT = """
import os, signal, sys, uuid
from dataclasses import replace
from pathlib import Path
import torch
torch.set_num_threads(1)
from privmix.errors import InvalidInput
from privmix.training import run as run_module
from privmix.training.run import TrainingRun
from tests.training.runs import config_of, files, job_of, run_to
uuid.uuid4 = lambda: uuid.UUID(int=7)
run_module.CHECKPOINT_SECONDS = 0.0
root, stride = Path(sys.argv[1]), int(sys.argv[2])
job = job_of(config_of(epochs=0.4))

def child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def hooked(work, at, count=None):
    state = [0]
    def wrap(function):
        def counted(*args, **kwargs):
            state[0] += 1
            if state[0] == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)
        return counted
    for name in ("open", "write", "fsync", "replace", "unlink", "mkdir", "rmdir", "fchmod", "close"):
        setattr(os, name, wrap(getattr(os, name)))
    work()
    if count is not None:
        count.write_text(str(state[0]))

run_to(root / "first", job)
assert child(lambda: hooked(lambda: run_to(root / "whole", job), 0, root / "count")) == 0
expected, steps = files(root / "whole"), int((root / "count").read_text())
kills = resumed = 0
for at in range(1, steps + 1, stride):
    out = root / f"run{at}"
    code = child(lambda: hooked(lambda: run_to(out, job), at))
    assert code == -signal.SIGKILL, (at, code)
    kills += 1
    if out.exists():
        assert files(out) == expected, at
        try:
            run_to(out, job)
        except InvalidInput as error:
            assert error.field == "out", error
    else:
        again = TrainingRun.interrupted(out) is not None
        resumed += again
        run_to(out, job, resume=again)
    assert files(out) == expected, at
    assert not [path for path in root.iterdir() if path.name.startswith(".")], at
print("kills", kills, "resumed", resumed)
"""


def test_same_bits_after_sigkill_at_file_operations(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path), "3"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    words = process.stdout.split()
    assert int(words[1]) >= 15
    assert int(words[3]) >= 8


def test_noise_is_never_drawn_for_two_different_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, bytes, bytes]] = []
    noises: dict[int, torch.Tensor] = {}
    draw = mechanism.noisy_mean

    def recorded(total: torch.Tensor, plan: Any, streams: SecretStreams, step: int) -> torch.Tensor:
        mean = draw(total, plan, streams, step)
        seen.append((step, total.numpy().tobytes(), mean.numpy().tobytes()))
        noises[step] = mean.double() * plan.units - total
        return mean

    monkeypatch.setattr(mechanism, "noisy_mean", recorded)
    checkpoint_at(monkeypatch, {2})
    kill(tmp_path / "out", job_of(), after=5)
    run_to(tmp_path / "out", job_of(), resume=True)
    assert [step for step, *_ in seen] == [0, 1, 2, 3, 4, 2, 3, 4, 5]
    assert len({(step, total, mean) for step, total, mean in seen}) == STEPS
    # Steps do not share it: their correlation over 650 numbers is within 7 standard errors (false alarm 4e-11).
    correlations = torch.corrcoef(torch.stack([noises[step] for step in range(STEPS)])).fill_diagonal_(0)
    assert float(correlations.abs().max()) < 7 / 650**0.5
    # And under no key twice: the next run's noise is another.
    run_to(tmp_path / "next", job_of(), seed=2)
    assert len({(step, mean) for step, _, mean in seen}) == 2 * STEPS


def test_a_plan_that_is_calibrated_otherwise_is_another_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages that price may change between a kill and its resume; what ran is what the certificate is to state."""
    kill(tmp_path / "out", job_of(), after=2)
    config = config_of()
    planned = config.plan(RECORDS)
    other = replace(planned, noise_multiplier=planned.noise_multiplier * 1.01)
    with monkeypatch.context() as patched:
        patched.setattr(TrainingConfig, "plan", lambda self, records, **options: other)
        with refuses("`resume` with plan.noise_multiplier"):
            run_to(tmp_path / "out", job_of(), resume=True)
    run_to(tmp_path / "out", job_of(), resume=True)


def test_the_key_is_nowhere_in_a_model(tmp_path: Path) -> None:
    key, job = bytes(range(100, 132)), job_of()
    streams = SecretStreams(bytearray(key), insecure_seed=False)
    with TrainingRun(tmp_path / "out", job.settings(), streams=streams) as run:
        job.run(private(), run=run)
    assert not any(key in content for content in files(tmp_path / "out").values())
