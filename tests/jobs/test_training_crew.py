"""What a training on a cluster refuses before it has one, and what it hands to workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privmix.errors import InvalidInput
from privmix.jobs.persons import Persons
from privmix.jobs.training import TrainingJob
from privmix.jobs.training_crew import TrainingPart
from privmix.world import World

ray: Any = pytest.importorskip("ray", reason="the Ray engine needs privmix[ray]")

SECRET = "of-the-ledger"
RAY: dict[str, Any] = {"classes": 2, "features": "identity", "engine": "ray", "epochs": 2, "batch_size": 8}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.normal(size=(40, 3)).astype(np.float32))
    (tmp_path / "d.csv").write_text(
        "a,b,label\n" + "".join(f"{a:.9f},{b:.9f},{int(a > 0)}\n" for a, b in rng.normal(size=(40, 2)))
    )
    return tmp_path / "d.csv"


def job(data: Any, **given: Any) -> TrainingJob:
    from privmix.jobs.columns import Columns

    asked = {"epsilon": 8.0, "delta": 1e-3, "columns": Columns(number_columns="a,b"), **RAY, **given}
    return TrainingJob(data, **asked)


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("workers", {"engine": "local", "workers": 2}),
        ("workers", {"workers": 0}),
        ("ray_address", {"engine": "local", "ray_address": "auto"}),
        ("engine", {"engine": "spark"}),
        ("out", {"out": None}),
        ("person", {"persons": Persons(array=np.arange(40)), "records": 40}),
        ("private_count", {"private_count": True}),
        ("epsilon", {"epsilon": 0}),
        ("microbatch", {"microbatch": 2}),
    ],
)
def test_what_several_workers_cannot_do_is_refused(field: str, given: dict[str, Any], data: Path) -> None:
    with pytest.raises(InvalidInput) as refused:
        job(data, **{"out": data.parent / "M", **given}).plan(World())
    assert refused.value.field == field


def test_records_in_memory_are_refused_since_they_would_go_by_ray(tmp_path: Path) -> None:
    from privmix.jobs.columns import Columns

    records = (np.ones((40, 2), np.float32), np.arange(40) % 2)
    with pytest.raises(InvalidInput, match="no record goes by Ray"):
        job(records, out=tmp_path / "M", columns=Columns()).plan(World())


def test_what_travels_has_no_record_no_ledger_and_no_place(data: Path) -> None:
    """Everything else of a job is options and names."""
    asked = job(data, out=data.parent / "PLACE-OF-RESULT", ledger=f"sqlite:///{SECRET}", dataset=SECRET)
    _ = asked.opened
    sent = ray.cloudpickle.dumps(TrainingPart(asked))
    assert str(data).encode() in sent
    for private in (SECRET, "PLACE-OF-RESULT", *data.read_text().split()[1].split(",")[:2]):
        assert private.encode() not in sent


def test_a_worker_plans_what_is_planned_here(data: Path) -> None:
    asked = job(data, out=data.parent / "M", seed=3, device="cpu", resume=False)
    planned = asked.plan(World())
    assert ray.cloudpickle.loads(ray.cloudpickle.dumps(TrainingPart(asked))).prepare() == planned.trainer.settings()
