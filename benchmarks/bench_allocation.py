"""Random allocation beside Poisson sampling: the noise that a target takes, and accuracy on MNIST.

n = T = 60,000, delta 1e-5. Noise multipliers are the least that each price allows, for a record that is added or
removed and for one that is replaced. Accuracy is that of bench_discriminant.py: scattering features, private centring,
m = 64, the discriminant learner and ridge regression; its Poisson runs are taken as they were kept. Runs are kept in
results/allocation_runs.json, so a broken-off benchmark goes on where it stopped.

    python benchmarks/bench_allocation.py [--seeds 3] [--report]
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import common
from bench_designs import data
from privmix.accounting import Adjacency, calibrate
from privmix.designs import Allocation, Poisson
from privmix.engine import PrivateRecords
from privmix.learning import DiscriminantClassifier, NoiseAwareRidgeClassifier
from privmix.planning import ReleaseConfig
from privmix.releases import SecretStreams, release_to_memory

RUNS = common.RESULTS / "allocation_runs.json"
KEPT = common.RESULTS / "discriminant_runs.json"
RECORDS, DELTA, DEGREE = 60_000, 1e-5, 64
EPSILONS = (1.0, 8.0)
# Poisson's price for replaced records takes minutes where few records are in a row.
DEGREES = {"add_remove": (1, 4, 16, 64), "replace_one": (16, 64)}
DESIGNS: dict[str, Any] = {"poisson": Poisson, "allocation": Allocation}
KEPT_AS = f"Poisson mixup, m = {DEGREE}"
LEARNERS: dict[str, Any] = {"discriminant": DiscriminantClassifier, "ridge": NoiseAwareRidgeClassifier}


def noise_of(design: str, degree: int, epsilon: float, adjacency: str) -> dict[str, Any]:
    config = ReleaseConfig(RECORDS, 1, ("0", "1"), DESIGNS[design](mixup_degree=degree), centre="none")
    start = time.process_time()
    found = calibrate(lambda noise: config.with_noise(noise).event, epsilon, DELTA, adjacency=Adjacency(adjacency))
    return {
        "kind": "noise",
        "design": design,
        "degree": degree,
        "epsilon": epsilon,
        "adjacency": adjacency,
        "noise_multiplier": found.noise_multiplier,
        "priced": found.epsilon,
        "cpu_seconds": time.process_time() - start,
    }


def accuracy_of(design: str, epsilon: float, seed: int) -> dict[str, Any]:
    (x, y), (test_x, test_y) = (data("mnist", split) for split in ("train", "test"))
    config = ReleaseConfig(len(x), x.shape[1], tuple("0123456789"), DESIGNS[design](mixup_degree=DEGREE))
    plan = config.calibrate(epsilon, DELTA)
    release = release_to_memory(
        plan,
        PrivateRecords(x, y),
        SecretStreams.from_seed(seed),
        extractor={"name": "mnist"},
        input_shape=(x.shape[1],),
    )
    run: dict[str, Any] = {"kind": "accuracy", "design": design, "epsilon": epsilon, "seed": seed}
    for name, make in LEARNERS.items():
        run[name] = float((make().fit(release).predict(test_x) == test_y).mean())
    return run


def work(seeds: int) -> list[dict[str, Any]]:
    """All runs, those that were kept and the others."""
    runs = json.loads(RUNS.read_text()) if RUNS.exists() else []
    asked: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
    for adjacency, degrees in DEGREES.items():
        for degree in degrees:
            for epsilon in EPSILONS:
                for design in DESIGNS:
                    names = ("design", "degree", "epsilon", "adjacency")
                    given = (design, degree, epsilon, adjacency)
                    asked.append((noise_of, given, {"kind": "noise", **dict(zip(names, given, strict=True))}))
    for seed in range(seeds):
        for epsilon in EPSILONS:
            key = {"kind": "accuracy", "design": "allocation", "epsilon": epsilon, "seed": seed}
            asked.append((accuracy_of, ("allocation", epsilon, seed), key))
    for make, given, key in asked:
        if not any(key.items() <= run.items() for run in runs):
            runs.append(make(*given))
            print(runs[-1], flush=True)
            RUNS.write_text(json.dumps(runs, indent=1) + "\n")
    return runs


def noise_table(runs: list[dict[str, Any]], adjacency: str, words: str) -> str:
    rows = []
    for degree in DEGREES[adjacency]:
        cells: list[str] = [f"{degree}"]
        for epsilon in EPSILONS:
            wanted = {"kind": "noise", "degree": degree, "epsilon": epsilon, "adjacency": adjacency}
            found = {run["design"]: run["noise_multiplier"] for run in runs if wanted.items() <= run.items()}
            if len(found) < len(DESIGNS):
                cells += ["", "", ""]
                continue
            saved = 100 * (1 - found["allocation"] / found["poisson"])
            cells += [f"{found['poisson']:.4f}", f"{found['allocation']:.4f}", f"{saved:.2f}%"]
        rows.append(cells)
    header = [f"m ({words})"]
    for epsilon in EPSILONS:
        header += [f"Poisson, eps {epsilon:g}", f"allocation, eps {epsilon:g}", "less noise"]
    return common.table(header, rows)


def accuracy_table(runs: list[dict[str, Any]]) -> str:
    kept = [run for run in json.loads(KEPT.read_text()) if (run["dataset"], run["design"]) == ("mnist", KEPT_AS)]
    rows = []
    for name, before in (("discriminant", "discriminant"), ("ridge", "before")):
        for words in DESIGNS:
            cells = []
            for epsilon in EPSILONS:
                if words == "poisson":
                    found = [run[before]["accuracy"] for run in kept if run["epsilon"] == epsilon]
                else:
                    wanted = {"kind": "accuracy", "epsilon": epsilon}
                    found = [run[name] for run in runs if wanted.items() <= run.items()]
                cells.append(common.told([100 * one for one in found], 2) if found else "")
            rows.append([f"{words}, {name}", *cells])
    return common.table(["MNIST, m = 64: test accuracy, %", *(f"eps {epsilon:g}" for epsilon in EPSILONS)], rows)


def report(runs: list[dict[str, Any]], *, again: bool) -> None:
    dear = max(
        (run["cpu_seconds"] for run in runs if run["kind"] == "noise" and run["design"] == "allocation"), default=0
    )
    tables = [
        "Each record is in exactly k = m of T rows, one of every block of T/m; by Poisson sampling it joins each with "
        "probability m/n.",
        noise_table(runs, "add_remove", "add or remove one"),
        noise_table(runs, "replace_one", "replace one"),
        "Replaced records are priced in two steps, by way of the dataset without the record. A noise for allocation "
        f"took at most {dear:.0f} s of CPU time to find.",
        accuracy_table(runs),
    ]
    settings = {
        "records": f"n = T = {RECORDS}",
        "delta": DELTA,
        "noise": "the least multiplier found, joint of features and labels; its price is within 0.5% of the target",
        "cells": "accuracy: mean (standard deviation, runs)",
        "Poisson accuracy": "the runs that bench_discriminant.py kept, the same features, learners and target",
    }
    common.save("allocation", "Random allocation beside Poisson sampling", settings, runs, tables, again=again)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="runs of each accuracy")
    parser.add_argument("--report", action="store_true", help="tell kept runs anew and run nothing")
    given = parser.parse_args()
    runs = json.loads(RUNS.read_text()) if given.report else work(given.seeds)
    report(runs, again=given.report)


if __name__ == "__main__":
    main()
