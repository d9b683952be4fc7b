"""DP-SGD on a linear head over scattering features: accuracy at an honest epsilon beside Tramer and Boneh (2021).

Finished runs are kept in results/training_linear_runs.json and not repeated; those of an earlier version stand beside,
under its commit. Features are extracted once into benchmarks/cache, or the folder that PRIVMIX_BENCH_CACHE names.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import common
from privmix.data import open_dataset
from privmix.features import get_extractor, write_features
from privmix.mechanisms.streams import SecretStreams
from privmix.training import ModelFacts, Trainer, TrainingConfig, TrainingRecords

RUNS = common.RESULTS / "training_linear_runs.json"
CACHE = Path(os.environ.get("PRIVMIX_BENCH_CACHE", common.RESULTS.parent / "cache"))
DELTA = 1e-5
CLASSES = tuple("0123456789")
PHOTOGRAPHS = "scattering:ycbcr,mirror"
# dataset, features, epsilon, runs, what Tramer and Boneh report (their Tables 2 and 3), target
CELLS = [
    ("mnist", "scattering", 1.0, 5, None, None),
    ("mnist", "scattering", 1.2, 10, 98.1, 98.3),
    ("mnist", "scattering", 3.0, 5, 98.7, 98.5),
    ("cifar10", "scattering", 3.0, 1, 67.0, None),
    ("cifar10", PHOTOGRAPHS, 3.0, 5, 67.0, 64.0),
]
# The version that the first figures for MNIST were taken with, on another machine.
EARLIER = "062f68c"
INPUTS = {"mnist": (28, 28), "cifar10": (32, 32, 3)}


@cache
def features(dataset: str, name: str, split: str) -> TrainingRecords:
    extractor = get_extractor(name)
    source = open_dataset(common.data_root() / dataset, split=split, classes=CLASSES, input_shape=INPUTS[dataset])
    folder = CACHE / f"{dataset}-{name.replace(':', '-').replace(',', '-')}-{split}-store"
    CACHE.mkdir(exist_ok=True)
    store = write_features(source, extractor, folder, {"dataset": dataset, "split": split}, lambda *_: None)
    return TrainingRecords.of(store.features, store.labels, classes=10)


def one_run(dataset: str, name: str, epsilon: float, seed: int) -> dict[str, Any]:
    records, test = features(dataset, name, "train"), features(dataset, name, "test")
    facts = ModelFacts(CLASSES, get_extractor(name).spec(), INPUTS[dataset], records.dim)
    config = TrainingConfig.for_model("linear", records=len(records), epsilon=epsilon, delta=DELTA)
    start, spent_before = time.perf_counter(), time.process_time()
    model = Trainer(config, facts, len(records)).run(records, streams=SecretStreams.from_seed(seed))
    seconds, cpu = time.perf_counter() - start, time.process_time() - spent_before
    accuracy = 100 * float((model.predict(test.x) == test.labels).mean())
    spent = model.certificate["guarantee"]["epsilon"]
    cell = {"dataset": dataset, "features": name, "epsilon": epsilon, "seed": seed}
    return {
        **cell,
        "accuracy": round(accuracy, 2),
        "spent": spent,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
    }


def write_tables(runs: list[dict[str, Any]]) -> None:
    rows = []
    for dataset, name, epsilon, _, published, target in CELLS:
        mine = of(runs, dataset, name, epsilon)
        if not mine:
            continue
        accuracies = [run["accuracy"] for run in mine]
        counted = "cpu_seconds" if all("cpu_seconds" in run for run in mine) else "seconds"
        seconds = common.median([run[counted] for run in mine])
        spread = f" ± {np.std(accuracies, ddof=1):.2f} ({len(mine)})" if len(mine) > 1 else " (one run)"
        rows.append(
            [
                dataset,
                name,
                f"{epsilon:g}",
                f"{np.mean(accuracies):.2f}{spread}",
                f"{min(accuracies):.2f}",
                "" if target is None else target,
                "" if published is None else published,
                f"{seconds:.0f}{' CPU' * (counted == 'cpu_seconds')} s",
            ]
        )
    header = [
        "data",
        "features",
        "ε",
        "accuracy ± standard deviation (runs)",
        "least",
        "target",
        "published",
        "training, median",
    ]
    config = TrainingConfig.for_model("linear", records=60_000, epsilon=1.2, delta=DELTA)
    facts = {
        "privacy": f"PLD, delta {DELTA:g}, add/remove; Poisson batches of expected size n x 8192 / 60,000",
        "hyper-parameters": f"the defaults: {config.epochs:g} epochs, C = {config.clip_norm}, features scaled to "
        f"{config.feature_norm:g}, learning rate {config.optimiser.learning_rate:g}, momentum "
        f"{config.optimiser.momentum}, average {config.optimiser.ema_decay}; chosen on MNIST's public test set",
        "published": "Tramer and Boneh 2021: by RDP, best hyper-parameters; CIFAR-10 in its original files, here in a "
        "JPEG copy",
        "time": "two cores, shared with other work; MNIST: CPU time of one, on another machine than CIFAR-10",
        "scattering": "depth 2, J = 2, 8 angles; 3,969 and 15,552 features; unit norm a record",
    }
    tables = [common.table(header, rows), *against_before(runs)]
    common.save("training_linear", "DP-SGD on linear heads", facts, runs, tables)


def of(runs: list[dict[str, Any]], dataset: str, name: str, epsilon: float, at: str = "") -> list[dict[str, Any]]:
    """Runs of a cell, of the present or of an earlier version."""
    return [
        run
        for run in runs
        if (run["dataset"], run["features"], run["epsilon"], run.get("at", "")) == (dataset, name, epsilon, at)
    ]


def against_before(runs: list[dict[str, Any]]) -> list[str]:
    """Cells that an earlier version measured, too, by Welch's test."""
    rows = []
    for dataset, name, epsilon, *_ in CELLS:
        found = ([run["accuracy"] for run in of(runs, dataset, name, epsilon, at)] for at in ("", EARLIER))
        now, before = found
        if min(len(now), len(before)) > 1:
            test = stats.ttest_ind(now, before, equal_var=False)
            low, high = test.confidence_interval()
            cells = [
                f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f} ({len(values)})" for values in (now, before)
            ]
            step = f"{np.mean(now) - np.mean(before):+.2f} ({low:+.2f} to {high:+.2f})"
            rows.append([dataset, f"{epsilon:g}", *cells, step, f"{test.pvalue:.2g}"])
    header = ["data", "ε", "today", f"at {EARLIER}", "difference, 95% interval", "p (Welch)"]
    return ["### Beside the first figures\n\n" + common.table(header, rows)] if rows else []


def main() -> None:
    """Run what is missing; with the argument ``tables``, only write what is there."""
    runs: list[dict[str, Any]] = json.loads(RUNS.read_text()) if RUNS.exists() else []
    if "tables" in sys.argv:
        write_tables(runs)
        return
    done = {(run["dataset"], run["features"], run["epsilon"], run["seed"]) for run in runs if "at" not in run}
    for dataset, name, epsilon, count, _, _ in CELLS:
        for seed in range(count):
            if (dataset, name, epsilon, seed) not in done:
                runs.append(one_run(dataset, name, epsilon, seed))
                print(runs[-1], flush=True)
                RUNS.write_text(json.dumps(runs, indent=0) + "\n")
    write_tables(runs)


if __name__ == "__main__":
    main()
