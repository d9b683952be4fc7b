"""What probabilities of released and trained models are worth: log loss and expected calibration error on test sets.

Before: softmax of the scores as they are. After: at the temperature that the release gives or, of a head trained with
DP-SGD, the weights' own size. Beside them what the best temperature of all would reach, found with the test labels,
which nobody has to spare. The two constants (learning/calibration.py: SUREST; training/models/small.py: _APART) were
chosen on records that were held out of the training data of digits, banking77 and Adult, under other seeds; test sets
were looked at for this page alone. Expected calibration error: over 15 bins of the largest probability (Guo et al.
2017).

Runs are kept in results/calibration_runs.json, so a broken-off run goes on where it ended.

    python benchmarks/bench_calibration.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

import common
from bench_designs import data as told_data
from privmix.data import embedded_digits, open_dataset
from privmix.designs import Classwise, Moments, Poisson, TwoStage
from privmix.engine import PrivateRecords
from privmix.features import get_extractor
from privmix.learning import LEARNERS
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.releases import release_to_memory
from privmix.training import ModelFacts, Trainer, TrainingConfig, TrainingRecords

RUNS = common.RESULTS / "calibration_runs.json"
DELTA = 1e-5
DP_SGD = "DP-SGD, linear head"
DESIGNS: dict[str, Any] = {
    "moments": Moments(),
    "two-stage": TwoStage(),
    "poisson": Poisson(),
    "class sums": Classwise(full_batch=True),
}
MOST: dict[str, Any] = {"poisson": 4000}
# dataset -> what is measured: (design, learner), and the number of seeds
CELLS: dict[str, tuple[list[tuple[str, str]], int]] = {
    "digits": (
        [
            ("moments", "discriminant"),
            ("moments", "second-moments"),
            ("two-stage", "two-stage"),
            ("poisson", "noise-aware-ridge"),
            (DP_SGD, ""),
        ],
        5,
    ),
    "banking77": (
        [("moments", "discriminant"), ("class sums", "discriminant"), ("two-stage", "two-stage"), (DP_SGD, "")],
        3,
    ),
    "mnist": (
        [("moments", "discriminant"), ("two-stage", "two-stage"), ("poisson", "noise-aware-ridge"), (DP_SGD, "")],
        3,
    ),
}  # fmt: skip
EPSILONS = (1.0, 8.0)
FEATURES = {"digits": "pixels", "banking77": "sentence embeddings", "mnist": "pixels"}


@cache
def data(dataset: str, split: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    if dataset == "banking77":
        return told_data("banking77", split)
    source = embedded_digits(split) if dataset == "digits" else open_dataset(common.data_root() / "mnist", split=split)
    records = source.read()
    return get_extractor("pixels").transform(records.x), records.y


def log_loss(scores: NDArray[Any], labels: NDArray[np.int64], temperature: float = 1.0) -> float:
    return -float(log_softmax(temperature * scores, axis=1)[np.arange(len(labels)), labels].mean())


def calibration_error(scores: NDArray[Any], labels: NDArray[np.int64], temperature: float = 1.0) -> float:
    chances = np.exp(log_softmax(temperature * scores, axis=1))
    surest, right = chances.max(axis=1), chances.argmax(axis=1) == labels
    bins = np.minimum((15 * surest).astype(int), 14)
    return float(sum(abs((right[bins == one] - surest[bins == one]).sum()) for one in range(15)) / len(labels))


def scored(dataset: str, design: str, learner: str, epsilon: float, seed: int) -> tuple[NDArray[np.float64], float]:
    """(n, K) scores of the test set, and the temperature that the model has."""
    x, y = data(dataset, "train")
    classes = tuple(str(number) for number in range(int(y.max()) + 1))
    test_x, streams = data(dataset, "test")[0], SecretStreams.from_seed(seed)
    if design == DP_SGD:
        facts = ModelFacts(classes, {"name": "identity", "version": 1, "options": {}}, x.shape[1:], x.shape[1])
        config = TrainingConfig.for_model("linear", records=len(x), epsilon=epsilon, delta=DELTA)
        model = Trainer(config, facts, len(x)).run(TrainingRecords.of(x, y, classes=len(classes)), streams=streams)
        import torch

        with torch.no_grad():
            logits = model.network(torch.from_numpy(test_x)).double().numpy()
        return logits, model.network.temperature
    wanted = ReleaseConfig(
        len(x), x.shape[1], classes, DESIGNS[design], rows=MOST.get(design, 1 if design != "class sums" else None)
    )
    release = release_to_memory(
        wanted.calibrate(epsilon, DELTA),
        PrivateRecords(x, y),
        streams,
        extractor={"name": "identity"},
        input_shape=x.shape[1:],
    )
    found = LEARNERS[learner]().fit(release)
    return found.decision_function(test_x).astype(np.float64), found.temperature_


def one_run(dataset: str, design: str, learner: str, epsilon: float, seed: int) -> dict[str, Any]:
    scores, temperature = scored(dataset, design, learner, epsilon, seed)
    labels = data(dataset, "test")[1]

    def loss(logarithm: float) -> float:
        return log_loss(scores, labels, float(np.exp(logarithm)))

    best = minimize_scalar(loss, bounds=(-8, 8), method="bounded")
    return {
        "dataset": dataset,
        "design": design,
        "learner": learner,
        "epsilon": epsilon,
        "seed": seed,
        "accuracy": float((scores.argmax(axis=1) == labels).mean()),
        "log_loss_before": log_loss(scores, labels),
        "log_loss": log_loss(scores, labels, temperature),
        "log_loss_best": float(best.fun),
        "error_before": calibration_error(scores, labels),
        "error": calibration_error(scores, labels, temperature),
        "temperature": temperature,
        "temperature_best": float(np.exp(best.x)),
    }


def jobs() -> Iterator[tuple[str, str, str, float, int]]:
    for dataset, (kinds, seeds) in CELLS.items():
        for seed in range(200, 200 + seeds):
            for design, learner in kinds:
                for epsilon in EPSILONS:
                    yield dataset, design, learner, epsilon, seed


def report(runs: list[dict[str, Any]]) -> str:
    rows = []
    for dataset, (kinds, _) in CELLS.items():
        for design, learner in kinds:
            for epsilon in EPSILONS:
                asked = {"dataset": dataset, "design": design, "learner": learner, "epsilon": epsilon}
                found = [run for run in runs if all(run[name] == value for name, value in asked.items())]
                if not found:
                    continue

                def told(name: str, digits: int = 2, found: list[dict[str, Any]] = found) -> str:
                    return common.told([run[name] for run in found], digits)

                rows.append([
                    f"{dataset} ({FEATURES[dataset]})", design, learner or "-", f"{epsilon:g}",
                    common.told([100 * run["accuracy"] for run in found]),
                    told("log_loss_before"), told("log_loss"), told("log_loss_best"),
                    told("error_before", 3), told("error", 3),
                ])  # fmt: skip
    head = [
        "data", "what", "learner", "epsilon", "accuracy, %", "log loss before", "after", "best temperature",
        "ECE before", "after",
    ]  # fmt: skip
    return common.table(head, rows)


if __name__ == "__main__":
    kept: list[dict[str, Any]] = json.loads(RUNS.read_text()) if RUNS.exists() else []
    done = {tuple(run[name] for name in ("dataset", "design", "learner", "epsilon", "seed")) for run in kept}
    for job in jobs():
        if job not in done:
            kept.append(one_run(*job))
            RUNS.write_text(json.dumps(kept, indent=1) + "\n")
            print(job, kept[-1]["log_loss_before"], kept[-1]["log_loss"], flush=True)
    words = (
        "Means over seeds, in brackets standard deviation and number of runs. Log loss in nats: guessing has ln K, "
        "2.30 for 10 classes and 4.34 for 77. `best temperature` is found with the test labels, which nobody has to "
        "spare."
    )
    common.save("calibration", "Calibrated probabilities", {"delta": DELTA}, kept, [words, report(kept)])
