"""Trainings by workers of a cluster: what one process gives, also where one is lost; the key stays here."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

import privmix as pm
from privmix.engine.ray import Cluster
from privmix.errors import InvalidInput
from privmix.jobs import job as jobs_job
from privmix.jobs import training_crew
from privmix.ledger import Ledger
from privmix.mechanisms.streams import SecretStreams
from privmix.training import run as run_module
from privmix.training.dp_sgd import SAMPLING
from privmix.training.noise import MOST_PROCESSES
from tests.engine.training_hooks import KILLED_AT, Watched, train_loop
from tests.training.runs import digits, files

SEED, RECORDS, STEPS = 5, 200, 6
NAMES = [f"f{number}" for number in range(64)]
ASKED: dict[str, Any] = {
    "epsilon": 8.0,
    "delta": 1e-3,
    "classes": 10,
    "features": "identity",
    "columns": NAMES,
    "device": "cpu",
    "batch_size": 20,
    "epochs": 0.6,
    "seed": SEED,
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("trainings")
    x, y = digits(0, RECORDS)
    pq.write_table(pa.table({**dict(zip(NAMES, x.T, strict=True)), "label": y}), found / "d.parquet")
    return found


@pytest.fixture(scope="module")
def alone(root: Path) -> np.ndarray:
    pm.train(root / "d.parquet", out=root / "ALONE", **ASKED)
    return weights(root / "ALONE")


@pytest.fixture
def charges(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    seen, own = list[Any](), jobs_job.charge
    monkeypatch.setattr(jobs_job, "charge", lambda *given: (seen.append(given), own(*given))[1])
    # A checkpoint after each step.
    monkeypatch.setattr(run_module, "_EVERY", 0.0)
    return seen


def weights(folder: Path) -> np.ndarray:
    return np.concatenate(
        [tensor.reshape(-1) for _, tensor in sorted(load_file(folder / "weights.safetensors").items())]
    )


def trained(root: Path, name: str, patch: pytest.MonkeyPatch, *, workers: int, kill: bool = False) -> list[int]:
    """Train in so many workers; the steps that were shown."""
    notes, shown = root / f"{name}-NOTES", list[int]()
    notes.mkdir()
    patch.setattr(training_crew, "Cluster", partial(Cluster, on_task_start=Watched(str(notes), kill)))

    def progress(stage: str, done: int, total: int) -> None:
        if stage.startswith("private steps"):
            shown.append(done)

    pm.train(root / "d.parquet", out=root / name, engine="ray", workers=workers, progress=progress, **ASKED)
    return shown


def keys(root: Path, name: str) -> list[str]:
    return [place.read_text() for place in sorted((root / f"{name}-NOTES").glob("keys-*"))]


def test_a_worker_is_lost_and_the_noise_is_the_same(
    cluster: Any, root: Path, alone: np.ndarray, charges: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise that was drawn twice would stand out: it is larger than what is allowed by more than a thousand times."""
    before = set(os.listdir(root))
    shown = trained(root, "LOST", monkeypatch, workers=2, kill=True)
    found = weights(root / "LOST")
    assert np.linalg.norm(found - alone) <= 1e-6 * np.linalg.norm(alone)
    # It went on behind the last checkpoint, and was charged once.
    assert shown == [*range(1, KILLED_AT + 1), *range(KILLED_AT + 1, STEPS + 1)]
    assert len(charges) == 1
    assert set(files(root / "LOST")) == {"model.json", "certificate.json", "weights.safetensors"}
    assert set(os.listdir(root)) - before == {"LOST", "LOST-NOTES"}, "nothing is left behind"
    master = bytes(SecretStreams.from_seed(SEED)._key or b"").hex()
    sampling = SecretStreams.from_seed(SEED).derive(SAMPLING).share().hex()
    assert len(keys(root, "LOST")) == 2
    for known in keys(root, "LOST"):
        assert master not in known
        assert sampling in known


@pytest.mark.thorough
def test_any_number_of_workers_gives_the_same(
    cluster: Any, root: Path, alone: np.ndarray, charges: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    more = cluster.add_node(num_cpus=2, object_store_memory=80 * 2**20, include_dashboard=False)
    try:
        for workers in (1, 2, 4):
            assert trained(root, f"OF-{workers}", monkeypatch, workers=workers) == [*range(1, STEPS + 1)]
            assert len(keys(root, f"OF-{workers}")) == workers
            found = weights(root / f"OF-{workers}")
            assert np.linalg.norm(found - alone) <= 1e-6 * np.linalg.norm(alone)
        trained(root, "OF-2-LOST", monkeypatch, workers=2, kill=True)
    finally:
        cluster.remove_node(more)
    assert (root / "OF-2-LOST-NOTES" / "killed").exists()
    np.testing.assert_array_equal(weights(root / "OF-2-LOST"), weights(root / "OF-2"), err_msg="bit for bit")


@pytest.mark.thorough
def test_ctrl_c_ends_the_workers_and_the_run_goes_on_here(
    cluster: Any, root: Path, alone: np.ndarray, charges: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_crew, "Cluster", partial(Cluster, on_task_start=Watched(str(root), False)))

    def progress(stage: str, done: int, total: int) -> None:
        if stage.startswith("private steps") and done == STEPS - 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pm.train(root / "d.parquet", out=root / "STOPPED", engine="ray", workers=2, progress=progress, **ASKED)
    numbers = [int(place.name.rsplit("-", 1)[1]) for place in root.glob("keys-*")]
    assert len(numbers) >= 1
    until = time.monotonic() + 30
    while any(map(lives, numbers)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(lives, numbers))
    assert not list(root.glob(".pmx-*"))
    pm.train(root / "d.parquet", out=root / "STOPPED", resume=True, **ASKED)
    assert np.linalg.norm(weights(root / "STOPPED") - alone) <= 1e-6 * np.linalg.norm(alone)
    assert len(charges) == 1


def lives(number: int) -> bool:
    """Whether a process is there, and not only waited for."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.thorough
@pytest.mark.parametrize("late", [False, True])
def test_what_a_worker_alone_lacks_ends_it_and_is_said(
    cluster: Any, root: Path, charges: list[Any], monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    monkeypatch.setattr(training_crew, "Cluster", partial(Cluster, on_task_start=fails_late if late else fails))
    with pytest.raises(InvalidInput) as refused:
        pm.train(root / "d.parquet", out=root / f"LACKING-{late}", engine="ray", workers=1, **ASKED)
    said = "".join([str(refused.value), *getattr(refused.value, "__notes__", ())])
    assert refused.value.allowed == "files that are there"
    assert "secret" not in said
    assert len(charges) == late
    assert ("costs nothing more" in said) == late, "the run is kept"
    assert not list(root.glob(".pmx-*"))


def fails() -> None:
    raise InvalidInput("data", "secret", "files that are there")


def fails_late() -> None:
    from privmix.training.dp_sgd import DpSgd

    DpSgd.step = lambda *_: fails()  # type: ignore[method-assign,misc,assignment]


@pytest.mark.thorough
def test_ray_train_goes_on_with_the_same_noise(cluster: Any, root: Path, alone: np.ndarray) -> None:
    """All its processes are on the cluster, the head too: what torchrun's are."""
    pytest.importorskip("ray.train.torch", reason="it comes with ray[train]")
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    asked = {"folder": str(root), "name": "BY-RAY-TRAIN", "options": ASKED}
    runs = RunConfig(storage_path=str(root / "STORAGE"), failure_config=FailureConfig(max_failures=2))
    TorchTrainer(
        train_loop, train_loop_config=asked, scaling_config=ScalingConfig(num_workers=2), run_config=runs
    ).fit()
    assert (root / "killed").exists()
    assert np.linalg.norm(weights(root / "BY-RAY-TRAIN") - alone) <= 1e-6 * np.linalg.norm(alone)
    kept = [path for path in (root / "STORAGE").rglob("*") if path.suffix in (".safetensors", ".pt", ".state")]
    assert not kept, "nothing of a training is in its storage"


@pytest.mark.thorough
@pytest.mark.parametrize("elsewhere", [False, True])
def test_from_the_command_line_it_is_charged_once(cluster: Any, root: Path, elsewhere: bool) -> None:
    """On a cluster of its own, and on one that is there, at its address."""
    name, ledger = f"CLI-{elsewhere}", f"sqlite:///{root}/l-{elsewhere}.db"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    asked = {"--epsilon": "2", "--delta": "1e-3", "--classes": "10", "--features": "identity", "--epochs": "0.6"}
    asked |= {"--columns": ",".join(NAMES), "--batch-size": "20", "--workers": "1", "--engine": "ray"}
    if elsewhere:
        asked["--ray-address"] = cluster.address
    else:
        environment = {key: value for key, value in environment.items() if not key.startswith("RAY_")}
    budget = ["ledger", "init", "--dataset", "D", "--epsilon", "2", "--delta", "1e-3"]
    train = ["train", "--data", str(root / "d.parquet"), "--out", str(root / name), "--dataset", "D"]
    train += ["--store", str(root / f"STORE-{elsewhere}")]
    for line in ([*budget], [*train, *(word for pair in asked.items() for word in pair)]):
        command = [sys.executable, "-m", "privmix.cli.main", *line, "--ledger", ledger]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
    assert "trained: linear" in done.stdout
    assert [entry["kind"] for entry in Ledger.open(ledger).history("D")].count("reserve") == 1
    assert not list(root.glob(".pmx-*"))


def test_no_more_workers_than_the_noise_has_room_for(tmp_path: Path) -> None:
    """The head is a process, too; nothing is started or charged."""
    data = (np.eye(4).repeat(50, axis=0), [0, 1] * 100)
    asked: dict[str, Any] = {"classes": 2, "features": "identity", "epsilon": 1, "delta": 1e-3, "engine": "ray"}
    with pytest.raises(pm.InvalidInput, match=f"workers: got {MOST_PROCESSES}; allowed: at most {MOST_PROCESSES - 1}"):
        pm.train(data, workers=MOST_PROCESSES, out=tmp_path / "MODEL", **asked)
    assert list(tmp_path.iterdir()) == []
