"""The process that one started dies by SIGKILL, at work on a cluster: the same bytes, one charge, nobody left over."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privmix as pm
from tests.engine.test_ray import processes

N, CLASSES = 1100, 2
LEDGER, STORE, OUT, DATASET = "sqlite:///ledger.db", "STORE", "OUT", "../d.parquet"
DATA: dict[str, Any] = {"classes": CLASSES, "features": "identity"}
WISHES: dict[str, Any] = {**DATA, "epsilon": 4.0, "delta": 1e-4, "design": "moments", "clip_norm": 2.0}
PAID: dict[str, Any] = {"ledger": LEDGER, "dataset": "own", "out": OUT}

# What dies as it is called, and what was asked for.
MOMENTS = {
    "features": ("FeatureStoreWriter.append", "pm.extract_features(DATASET, **DATA, out=STORE, **RAY)"),
    "encoding": ("FeatureStoreWriter.append", "pm.release(DATASET, **WISHES, **PAID, **RAY)"),
    "summing": ("Started.sums", "pm.release(DATASET, **WISHES, **PAID, **RAY)"),
    "publishing": ("Run.publish", "pm.release(DATASET, **WISHES, **PAID, **RAY)"),
}
SCRIPT = """
import os, signal, sys, warnings
from pathlib import Path
warnings.simplefilter("ignore")
import ray
import privmix as pm
from privmix.data.store import FeatureStoreWriter
from privmix.engine.ray import Started
from privmix.mechanisms.run import Run
from tests.engine.test_killed_driver import DATA, DATASET, MOMENTS, OUT, PAID, STORE, WISHES

where, work = MOMENTS[sys.argv[1]]
RAY = {"engine": f"ray:address={sys.argv[2]}"}
owner, _, step = where.rpartition(".")
original, calls = getattr(eval(owner), step), []

def dies(*args, **kwargs):
    if ray.is_initialized():
        Path("job").write_text(ray.get_runtime_context().get_job_id())
    calls.append(None)
    # Tiles: when one is in the store.
    if step == "append" and len(calls) < 2:
        return original(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(eval(owner), step, dies)
exec(work)
"""


def die(place: Path, moment: str, address: str) -> None:
    """Have a process work in ``place`` and die there."""
    place.mkdir()
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(0, 0.3, N).astype(np.float32) for name in "abc"}
    table = pa.table(columns | {"label": rng.integers(0, CLASSES, N)})
    pq.write_table(table, place.parent / "d.parquet", row_group_size=150)
    pm.Ledger.create(f"sqlite:///{place}/ledger.db").add_dataset("own", epsilon=9.0, delta=1e-3)
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, moment, address],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(place)},
    )
    assert done.returncode == -9, done.stdout + done.stderr


def workers_of(job: str) -> list[Path]:
    """Processes that a cluster whose token is ours started for a job."""
    return processes(f"RAY_JOB_ID={job}", f"RAY_AUTH_TOKEN={os.environ['RAY_AUTH_TOKEN']}")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def charges(kind: str) -> int:
    return sum(entry["kind"] == kind for entry in pm.Ledger.open(LEDGER).history("own"))


def finish(place: Path, moment: str, monkeypatch: pytest.MonkeyPatch, **machine: Any) -> dict[str, bytes]:
    """Give the command again in a copy of what is left; each file of the result."""
    shutil.copytree(place, place.with_name(f"{place.name}-again"))
    monkeypatch.chdir(place.with_name(f"{place.name}-again"))
    if moment == "features":
        pm.extract_features(DATASET, **DATA, out=STORE, **machine)
    else:
        assert (charges("reserve"), charges("commit")) == (1, 0)
        pm.release(DATASET, **WISHES, **PAID, resume=True, **machine)
        assert (charges("reserve"), charges("commit")) == (1, 1)
    out = STORE if moment == "features" else OUT
    assert set(os.listdir()) - {"job"} == {"ledger.db", out}
    found = contents(Path(out))
    shutil.rmtree(Path.cwd())
    return found


@pytest.mark.parametrize(
    "moment",
    ["encoding", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("features", "summing", "publishing"))],
)
def test_it_goes_on_to_the_same_bytes_for_one_charge(
    cluster: Any, tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / moment
    die(place, moment, cluster.address)
    # Nothing but the ledger can be entered or read by others.
    for entry in os.scandir(place):
        assert entry.name in ("ledger.db", "job") or entry.stat().st_mode & 0o077 == 0, entry.name
    job = (place / "job").read_text()
    # Actors and tasks have nobody who would ask for what they make.
    for _ in range(300):
        if not workers_of(job):
            break
        time.sleep(0.2)
    assert workers_of(job) == []
    found = finish(place, moment, monkeypatch, engine="ray")
    assert found
    # One machine finishes the same run, under its key.
    assert found == finish(place, moment, monkeypatch)
