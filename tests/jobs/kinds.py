"""Every kind of job on the same few records, which note what the ledger held when somebody looked at them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import privmix as pm
from privmix.data import ArraySource
from privmix.jobs.canaries import CanaryJob
from privmix.jobs.columns import Columns
from privmix.jobs.dataset import Dataset
from privmix.jobs.job import Done, Job, PlannedJob
from privmix.jobs.release import ReleaseJob
from privmix.jobs.training import TrainingJob
from privmix.world import World

LEDGER: Final = "sqlite:///ledger.db"
OUT, MODEL = Path("OUT"), Path("MODEL")
RECORDS, COLUMNS = 200, 20
EPSILON, BUDGET, DELTA = 2.0, 9.0, 1e-4
CLASSES = ("no", "yes")


def numbers(seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, RECORDS)
    return rng.normal(size=(RECORDS, COLUMNS)) + y[:, None], y


class Noting(ArraySource):
    """Records that note, each time they are used or hashed, how many charges the ledger held by then."""

    def __init__(self, x: NDArray[Any], y: NDArray[Any], ledger: str | None = LEDGER) -> None:
        super().__init__(x, y, CLASSES)
        self.used: list[int] = []
        self.hashed: list[int] = []
        self._ledger = ledger

    def _checked(self, size: int, *span: Any) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        self.used.append(0 if self._ledger is None else charges())
        return super()._checked(size, *span)

    def _as_given(self, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        self.hashed.append(0 if self._ledger is None else charges())
        return super()._as_given(size)


@dataclass(frozen=True)
class Kind:
    """A kind of job; one that is `placed` may resume after a kill."""

    job: type[Any]
    options: dict[str, Any]
    placed: bool

    def make(self, **changes: Any) -> Job[Any, Any]:
        """A job that is charged to the ledger; ``seed_of`` draws other records, ``y`` gives other labels."""
        x, y = numbers(changes.pop("seed_of", 0))
        y = changes.pop("y", y)
        given = {"ledger": LEDGER, "dataset": "own", **self.options, **changes}
        job = self.job(data=(x, y), **given)
        job.__dict__["opened"] = Dataset(Noting(x, y, given["ledger"]), None, "train", Columns())
        return job

    def plan(self, job: Job[Any, Any]) -> PlannedJob[Any]:
        """What it plans, alone in the world."""
        return job.plan(World()) if isinstance(job, TrainingJob) else job.plan()

    def run(self, **changes: Any) -> Done[Any]:
        job = self.make(**changes)
        return job.carry_out(self.plan(job))


_COMMON: Final = {"epsilon": EPSILON, "delta": DELTA, "classes": list(CLASSES), "features": "identity"}
_TRAINING: Final = {**_COMMON, "epochs": 1, "batch_size": 20}
KINDS: Final = {
    "release": Kind(
        ReleaseJob,
        {**_COMMON, "design": "poisson:mixup_degree=8", "rows": 50, "clip_norm": 5.0, "out": OUT},
        placed=True,
    ),
    "training": Kind(TrainingJob, {**_TRAINING, "out": OUT}, placed=True),
    "training in memory": Kind(TrainingJob, _TRAINING, placed=False),
    "audit": Kind(CanaryJob, {"target": MODEL, "canaries": 20}, placed=False),
}
PLACED: Final = {name: kind for name, kind in KINDS.items() if kind.placed}


def prepare() -> None:
    """A ledger with datasets, and a model to audit, in the current folder."""
    book = pm.Ledger.create(LEDGER)
    for name, epsilon in (("own", BUDGET), ("other", BUDGET), ("small", EPSILON / 2)):
        book.add_dataset(name, epsilon=epsilon, delta=DELTA)
    KINDS["training"].run(ledger=None, dataset=None, out=MODEL)


def charges(kind: str = "reserve") -> int:
    """How many entries of a kind the ledger has."""
    return sum(entry["kind"] == kind for entry in pm.Ledger.open(LEDGER).history("own"))
