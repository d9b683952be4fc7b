"""Small training jobs on 8 x 8 digits, for the tests of whole runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from privmix.mechanisms.streams import SecretStreams
from privmix.training.config import TrainingConfig
from privmix.training.dp_sgd import TrainingRecords
from privmix.training.examples import ModelFacts, PublicData
from privmix.training.run import TrainingRun
from privmix.training.trained import TrainedModel
from privmix.training.trainer import Trainer

RECORDS, CLASSES = 200, 10
FACTS = ModelFacts(tuple("0123456789"), {"name": "pixels"}, (8, 8), 64)


@cache
def read_digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Reading them takes longer than most of what tests do with them."""
    return tuple(load_digits(return_X_y=True))  # type: ignore[return-value]


def digits(start: int = 0, count: int = RECORDS) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    x, y = read_digits()
    rows = slice(start, start + count)
    return (x[rows] / 16).astype(np.float32), y[rows].astype(np.int64)


def private(start: int = 0, count: int = RECORDS) -> TrainingRecords:
    return TrainingRecords.of(*digits(start, count), classes=CLASSES)


def public(start: int = 1000, count: int = 40) -> PublicData:
    return PublicData.of(*digits(start, count), classes=CLASSES)


def public_pool() -> PublicData:
    x, y = digits(1200, 30)
    return PublicData.of(x.reshape(-1, 8, 8), y, CLASSES)


def config_of(model: str = "linear", **changes: Any) -> TrainingConfig:
    given = {"batch_size": 20, "epochs": 0.6, "epsilon": 8.0, **changes}
    return TrainingConfig.for_model(model, records=RECORDS, delta=1e-3, **given)


def job_of(config: TrainingConfig | None = None, **given: Any) -> Trainer:
    return Trainer(config or config_of(), FACTS, RECORDS, device="cpu", **given)


def run_to(out: Path, job: Trainer, *, seed: int = 1, resume: bool = False, **given: Any) -> TrainedModel:
    streams = None if resume else SecretStreams.from_seed(seed)
    with TrainingRun(out, job.settings(), streams=streams, resume=resume) as run:
        return job.run(given.pop("records", None) or private(), run=run, **given)


def weights_of(model: TrainedModel | Trainer) -> torch.Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in model.network.parameters()])


@contextmanager
def weights_made() -> Iterator[list[int]]:
    """Sizes of the weights that modules are made with; those on the device meta have no memory, and count as 0."""
    made: list[int] = []
    handle = torch.nn.modules.module.register_module_parameter_registration_hook(
        lambda module, name, weight: made.append(0 if weight is None or weight.is_meta else weight.numel())
    )
    try:
        yield made
    finally:
        handle.remove()


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
