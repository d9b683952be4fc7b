"""How the discriminant learns from mixed rows, by the powers that it weighs for the spread of class means.

Class means are taken for draws whose variance along a direction is a power of that direction's variance among records.
Powers from 0.5 to 2.5 are weighed against each other for released moments. Of rows, errors of variances and of means go
together, and high powers find a wide spread in few directions where there is none. The same releases of rows are fitted
with all seven powers, with those up to 1.25 (what the learner does) and with 1 alone. A fifth of the training records
is held out and classified: test sets have no part in it.

Runs are kept in results/row_powers_runs.json, so a broken-off benchmark goes on where it stopped.

    python benchmarks/bench_row_powers.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import common
from bench_class_shares import parted
from privmix.designs import Classwise, Poisson
from privmix.engine import PrivateRecords
from privmix.learning import DiscriminantClassifier
from privmix.planning import ReleaseConfig
from privmix.releases import SecretStreams, release_to_memory
from privmix.research.rivals import GaussianMixing

RUNS = common.RESULTS / "row_powers_runs.json"
DELTA = 1e-5
FIRST_SEED = 700
EPSILONS, SEEDS = (1.0, 8.0), 5
DATASETS = ("digits", "banking77")
DESIGNS: dict[str, Any] = {"Gaussian mixing": GaussianMixing(), "Poisson mixup": Poisson(), "class-wise": Classwise()}
ALL = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5)
WAYS = {"all seven powers": ALL, "**up to 1.25**": ALL[:4], "1 alone": (1.0,)}


def one_run(dataset: str, design: str, epsilon: float, seed: int) -> dict[str, Any]:
    x, y, held, labels = parted(dataset)
    classes = tuple(map(str, range(int(y.max()) + 1)))
    plan = ReleaseConfig(len(x), x.shape[1], classes, DESIGNS[design]).calibrate(epsilon, DELTA)
    release = release_to_memory(
        plan,
        PrivateRecords(x, y),
        SecretStreams.from_seed(FIRST_SEED + seed),
        extractor={"name": "identity"},
        input_shape=x.shape[1:],
    )
    accuracies = {}
    for name, powers in WAYS.items():
        with patch("privmix.learning.class_statistics._POWERS_OF_ROWS", powers):
            accuracies[name] = float((DiscriminantClassifier().fit(release).predict(held) == labels).mean())
    return {"dataset": dataset, "design": design, "epsilon": epsilon, "seed": seed, "accuracies": accuracies}


def jobs() -> Iterator[tuple[str, str, float, int]]:
    for seed in range(SEEDS):
        for dataset in DATASETS:
            for design in DESIGNS:
                for epsilon in EPSILONS:
                    yield dataset, design, epsilon, seed


def main() -> None:
    runs: list[dict[str, Any]] = json.loads(RUNS.read_text()) if RUNS.exists() else []
    done = {(run["dataset"], run["design"], run["epsilon"], run["seed"]) for run in runs}
    for job in jobs():
        if job not in done:
            runs.append(one_run(*job))
            print(job, *(f"{value:.3f}" for value in runs[-1]["accuracies"].values()), flush=True)
            RUNS.write_text(json.dumps(runs, indent=1) + "\n")
    report(runs)


def report(runs: list[dict[str, Any]]) -> None:
    rows = []
    for dataset in DATASETS:
        for design in DESIGNS:
            for epsilon in EPSILONS:
                by = {"dataset": dataset, "design": design, "epsilon": epsilon}
                own = [run["accuracies"] for run in runs if all(run[name] == value for name, value in by.items())]
                cells = [common.told([100 * run[name] for run in own]) for name in WAYS if own]
                rows.append([f"{dataset}, {len(parted(dataset)[0]):,} records", design, f"{epsilon:g}", *cells])
    settings = {
        "delta": DELTA,
        "cells": "held-out accuracy, %: mean (standard deviation, releases)",
        "held out": "a fifth of the training records; test sets are not read",
        "features": "digits: pixels; banking77: sentence embeddings",
        "releases": "the same for every way, of as many rows as the design has by default",
        "accounting": "PLD, add or remove one record; where the mean is released first it is paid for",
    }
    tables = [common.table(["data", "design", "epsilon", *WAYS], rows)]
    common.save(
        "row_powers", "Powers of the spread of class means, learned from rows", settings, {"runs": runs}, tables
    )


if __name__ == "__main__":
    main()
