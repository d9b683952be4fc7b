"""Releases in two and three stages beside one, and where the defaults of the design come from.

Datasets: MNIST (scattering; one stage of moments is in results/discriminant.md), banking77 (sentence embeddings), UCI
Adult (declared ranges). Settings are fixed beforehand: the design's defaults, but for the shares on banking77. In one
stage these are what the planner takes for X'Y with many classes; in two and three what simulated mixtures of 77
classes, whose variances fall with power 1, like best at epsilon 8. What defaults do is shown on Gaussian mixtures,
simulated with spectra that fall as those of public features do, with and without axes. Runs are kept in
results/two_stage_runs.json, so a broken-off benchmark goes on where it stopped.

    python benchmarks/bench_two_stage.py [--only simulated,mnist,banking77,adult] [--seeds 5]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import common
from bench_designs import data as stored_features
from privmix.designs import Moments, ThreeStage, TwoStage
from privmix.engine.rows import PrivateRecords
from privmix.learning.base import LEARNERS
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.releases.api import release_to_memory

RUNS = common.RESULTS / "two_stage_runs.json"
DELTA = 1e-5
Data = tuple[NDArray[np.float32], NDArray[np.int64]]

# Dataset -> designs by name.
DESIGNS: dict[str, dict[str, Any]] = {
    "mnist": {
        "two stages": TwoStage(),
        "two stages, features without axes": TwoStage(),
        # What simulated mixtures like best at epsilon 8, by little: 97.2% against 97.0 by the defaults, mean of three.
        "two stages, half in the first": TwoStage(first_share=0.5),
        "three stages": ThreeStage(),
    },
    "banking77": {
        "one stage": Moments(label_share=0.9),
        "two stages": TwoStage(),
        "two stages, most in the first": TwoStage(first_share=0.8, first_label_share=0.95),
        "two stages, shares by simulation": TwoStage(first_share=0.6, first_label_share=0.9),
        "three stages": ThreeStage(first_share=0.6, first_label_share=0.9),
    },
    "adult": {"one stage": Moments(label_share=0.5), "two stages": TwoStage(), "three stages": ThreeStage()},
}
# Channels of features that lie on two axes.
CHANNELS = {("mnist", name): 81 for name in ("two stages", "two stages, half in the first", "three stages")}
EPSILONS = (1.0, 8.0)
# Runs of what is no more than a comparison.
FEWER = {("mnist", "two stages, features without axes"): 2}

# What is varied, one at a time, about the defaults.
VARIED: dict[str, tuple[float, ...]] = {
    "first_share": (0.1, 0.2, 0.35, 0.5),
    "first_label_share": (0.2, 0.35, 0.5, 0.7),
    "directions": (100, 200, 400),
    "whitening": (0.0, 0.5, 0.75, 1.0),
    "clip_quantile": (0.05, 0.4, 0.8),
    "norm_share": (0.001, 0.005, 0.02),
}
# Of variances, as a power; 0 stands for features on two axes of 20, whose variances fall with power 1.4 along each.
DECAYS = (1.0, 1.9, 0.0)
_AXIS = 20
SIMULATED = {"records": 20_000, "dim": 400, "classes": 10}


def one_run(dataset: str, design: str, epsilon: float, seed: int) -> dict[str, Any]:
    (x, y), (test_x, test_y) = (stored_features(dataset, split) for split in ("train", "test"))
    return {
        "dataset": dataset,
        "design": design,
        "epsilon": epsilon,
        "seed": seed,
        **released(x, y, test_x, test_y, DESIGNS[dataset][design], epsilon, seed, CHANNELS.get((dataset, design), 1)),
    }


def released(
    x: NDArray[Any],
    y: NDArray[np.int64],
    test_x: NDArray[Any],
    test_y: NDArray[np.int64],
    design: Any,
    epsilon: float,
    seed: int,
    channels: int = 1,
) -> dict[str, float]:
    classes = tuple(map(str, range(int(y.max()) + 1)))
    # Rows sampled from moments are for other learners: one is enough here.
    config = ReleaseConfig(len(x), x.shape[1], classes, design, rows=1, channels=channels)
    plan = config.calibrate(epsilon, DELTA)
    start = time.process_time()
    release = release_to_memory(
        plan,
        PrivateRecords(x, y),
        SecretStreams.from_seed(seed),
        extractor={"name": "identity"},
        input_shape=(x.shape[1],),
    )
    made = time.process_time()
    learner = LEARNERS[design.learner]().fit(release)
    fitted = time.process_time()
    accuracy = float((learner.predict(test_x) == test_y).mean())
    return {"accuracy": accuracy, "release_cpu_seconds": made - start, "fit_cpu_seconds": fitted - made}


@cache
def mixture(decay: float) -> tuple[Data, Data]:
    """Records of a Gaussian mixture whose variances fall with the given power, as public features' do."""
    rng = np.random.default_rng(round(10 * decay))
    count, dim, classes = SIMULATED["records"], SIMULATED["dim"], SIMULATED["classes"]
    variance = (np.arange(dim) + 2.0) ** -decay
    turned = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    if not decay:
        along = (np.arange(_AXIS) + 2.0) ** -1.4
        variance = np.kron(along, along)
        turned = np.kron(*(np.linalg.qr(rng.normal(size=(_AXIS, _AXIS)))[0] for _ in range(2)))
    deviation = np.sqrt(variance / variance.sum())
    # Classes differ most where records do. Two of them are 6 standard deviations apart: 1 in 100 records can't be told.
    spread = variance**1.4
    means = rng.normal(size=(classes, dim)) * np.sqrt(18 * spread / (spread / deviation**2).sum())

    def draw() -> Data:
        labels = rng.integers(0, classes, count)
        x = means[labels] + rng.normal(size=(count, dim)) * deviation
        return (0.5 * x @ turned).astype(np.float32), labels

    return draw(), draw()


def simulated_run(option: str, value: float, decay: float, epsilon: float, seed: int) -> dict[str, Any]:
    design = TwoStage(**{"directions": 400, option: int(value) if option == "directions" else value})
    (x, y), (test_x, test_y) = mixture(decay)
    found = released(x, y, test_x, test_y, design, epsilon, seed, 1 if decay else _AXIS)
    return {
        "dataset": "simulated",
        "design": f"{option} {value:g}",
        "decay": decay,
        "epsilon": epsilon,
        "seed": seed,
    } | found


def jobs(only: set[str], seeds: int) -> Iterator[tuple[Any, ...]]:
    if "simulated" in only:
        for option, values in VARIED.items():
            for value in values:
                for decay in DECAYS:
                    for seed in range(3):
                        yield "simulated", f"{option} {value:g}", 1.0, seed, decay, option, value
    for seed in range(seeds):
        for dataset in (name for name in DESIGNS if name in only):
            for design in DESIGNS[dataset]:
                for epsilon in EPSILONS:
                    if seed < FEWER.get((dataset, design), seeds):
                        yield dataset, design, epsilon, seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="simulated,mnist,banking77,adult", help="datasets, separated by commas")
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    for job in jobs(set(asked.only.split(",")), asked.seeds):
        if {job[:5], job[:4]} & {key(run) for run in kept()}:
            continue
        if job[0] == "simulated":
            _, _, epsilon, seed, decay, option, value = job
            found = simulated_run(option, value, decay, epsilon, seed)
        else:
            found = one_run(*job)
        print(key(found), f"{found['accuracy']:.4f}", flush=True)
        # Read again: another process may have added some.
        RUNS.write_text(json.dumps([*kept(), found], indent=1) + "\n")
    report(kept())


def kept() -> list[dict[str, Any]]:
    return json.loads(RUNS.read_text()) if RUNS.exists() else []


def key(run: dict[str, Any]) -> tuple[Any, ...]:
    own = (run["dataset"], run["design"], run["epsilon"], run["seed"])
    return (*own, run["decay"]) if "decay" in run else own


def report(runs: list[dict[str, Any]]) -> None:
    tables = []
    for dataset, designs in DESIGNS.items():
        rows = []
        for epsilon in EPSILONS:
            for design in designs:
                found = [run for run in runs if key(run)[:3] == (dataset, design, epsilon)]
                if found:
                    seconds = [
                        f"{np.median([run[which] for run in found]):.1f}"
                        for which in ("release_cpu_seconds", "fit_cpu_seconds")
                    ]
                    rows.append([f"{epsilon:g}", design, _cell([run["accuracy"] for run in found]), *seconds])
        if rows:
            header = ["eps", "design", f"{dataset}: test accuracy, %", "release, CPU seconds", "fit, CPU seconds"]
            tables.append(common.table(header, rows))
    rows = []
    for option, values in VARIED.items():
        for value in values:
            cells = []
            for decay in DECAYS:
                found = [
                    run["accuracy"]
                    for run in runs
                    if run["dataset"] == "simulated" and (run["design"], run["decay"]) == (f"{option} {value:g}", decay)
                ]
                cells.append(_cell(found) if found else "")
            rows.append([option, f"{value:g}", *cells])
    header = [
        "simulated mixtures, eps 1: option",
        "value",
        *(f"accuracy, %, {f'decay {decay:g}' if decay else 'two axes'}" for decay in DECAYS),
    ]
    tables.append(common.table(header, rows))
    settings = {
        "delta": DELTA,
        "cells": "mean (standard deviation, runs)",
        "accounting": "PLD, add or remove one record",
        "centring": "private; every query is paid for",
        "learners": "discriminant for one stage, two-stage for two, three-stage for three",
        "simulated": f"{SIMULATED}, other options at their defaults, directions 400; releases of one mixture",
    }
    common.save("two_stage", "Moments in two stages", settings, runs, tables)


def _cell(values: list[float]) -> str:
    return common.told([100 * value for value in values], 2)


if __name__ == "__main__":
    main()
