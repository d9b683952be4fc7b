"""How the discriminant does by the way in which it takes the classes' sizes from noisy counts, on held-out records.

The same releases of moments, fitted with shares of classes that are estimated in six ways: as told; equal; by the
likeliest spread alone (James and Stein 1961), which the learner took at first; by all spreads that the counts allow,
cut off at a tenth of an equal share; by what these leave above that bound
(:func:`privmix.publication.second_moments.estimated_shares`); and by the latter with its errors allowed for, which is
what the learner does. A fifth of the training records is held out and classified: test sets have no part in it.

Runs are kept in results/class_shares_runs.json, so a broken-off benchmark goes on where it stopped.

    python benchmarks/bench_class_shares.py
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import common
from bench_calibration import data
from privmix.designs import Moments
from privmix.engine import PrivateRecords
from privmix.learning import DiscriminantClassifier
from privmix.planning import ReleaseConfig
from privmix.publication.dataset import ReleasedDataset
from privmix.publication.second_moments import SecondMoments, estimated_shares
from privmix.releases import SecretStreams, release_to_memory

RUNS = common.RESULTS / "class_shares_runs.json"
DELTA = 1e-5
FIRST_SEED = 900
FEWEST = 0.1
# (dataset, epsilons, seeds)
SCHEDULE = [("digits", (0.5, 1.0, 2.0, 8.0), 16), ("banking77", (1.0, 8.0), 5)]
Reals = NDArray[np.float64]
Way = Callable[[Reals, float], tuple[Reals, Reals]]


def as_told(told: Reals, deviation: float) -> tuple[Reals, Reals]:
    shares = np.maximum(told, FEWEST / len(told))
    return shares / shares.sum(), np.zeros(len(told))


def equal(told: Reals, deviation: float) -> tuple[Reals, Reals]:
    return np.full(len(told), 1 / len(told)), np.zeros(len(told))


def likeliest_spread(told: Reals, deviation: float) -> tuple[Reals, Reals]:
    """By James and Stein: one spread, the one under which the counts are likeliest."""
    apart = told - 1 / len(told)
    energy = float(np.square(apart).sum())
    kept = max(0.0, 1 - len(told) * deviation**2 / energy) if energy > 0 else 0.0
    return as_told(1 / len(told) + kept * apart, deviation)


def cut_off(told: Reals, deviation: float) -> tuple[Reals, Reals]:
    """The posterior's mean, cut off, and errors as if it were not: what the learner did before the bound was known."""
    classes = len(told)
    apart = told - 1 / classes
    spreads = np.square(np.geomspace(0.01, max(1.0, math.sqrt(classes - 1)), 60) / classes)
    total = spreads + deviation**2
    likelihood = -0.5 * ((classes - 1) * np.log(total) + float(np.square(apart).sum()) / total)
    weights = np.exp(likelihood - likelihood.max())
    weights /= weights.sum()
    kept = spreads / total
    mean = float(weights @ kept)
    shares = as_told(1 / classes + mean * apart, deviation)[0]
    variance = mean * deviation**2 + float(weights @ np.square(kept - mean)) * np.square(apart)
    return shares, variance / np.square(shares)


def above_bound(told: Reals, deviation: float) -> tuple[Reals, Reals]:
    return estimated_shares(told, deviation)[0], np.zeros(len(told))


WAYS: dict[str, Way] = {
    "as told": as_told,
    "equal": equal,
    "likeliest spread": likeliest_spread,
    "all spreads, cut off, errors allowed for": cut_off,
    "all spreads": above_bound,
    "all spreads, errors allowed for": estimated_shares,
}


@dataclass(frozen=True, eq=False)
class Counted(SecondMoments):
    """Released moments whose classes' shares are estimated in another way."""

    way: Way = field(kw_only=True)

    def known_shares(self, label_offset: float) -> tuple[Reals, Reals]:
        told = self.label_sums.astype(np.float64) / self.records + label_offset
        return self.way(told, self.noise_std_counts / self.records)


@cache
def parted(dataset: str) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[Any], NDArray[np.int64]]:
    """Training records that are released, and those that are held out."""
    x, y = data(dataset, "train")
    order = np.random.default_rng(5).permutation(len(x))
    kept, held = np.split(order, [int(0.8 * len(x))])
    return x[kept], y[kept], x[held], y[held]


def released(dataset: str, epsilon: float, seed: int) -> ReleasedDataset:
    x, y = parted(dataset)[:2]
    classes = tuple(map(str, range(int(y.max()) + 1)))
    plan = ReleaseConfig(len(x), x.shape[1], classes, Moments(), rows=1).calibrate(epsilon, DELTA)
    return release_to_memory(
        plan,
        PrivateRecords(x, y),
        SecretStreams.from_seed(FIRST_SEED + seed),
        extractor={"name": "identity"},
        input_shape=x.shape[1:],
    )


def one_run(dataset: str, epsilon: float, seed: int) -> dict[str, Any]:
    release, (_, _, x, y) = released(dataset, epsilon, seed), parted(dataset)
    accuracies = {}
    for name, way in WAYS.items():
        counted = replace(release, beside=Counted(**vars(release.beside), way=way))
        accuracies[name] = float((DiscriminantClassifier().fit(counted).predict(x) == y).mean())
    return {"dataset": dataset, "epsilon": epsilon, "seed": seed, "accuracies": accuracies}


def jobs() -> Iterator[tuple[str, float, int]]:
    for dataset, epsilons, seeds in SCHEDULE:
        for epsilon in epsilons:
            for seed in range(seeds):
                yield dataset, epsilon, seed


def main() -> None:
    runs: list[dict[str, Any]] = json.loads(RUNS.read_text()) if RUNS.exists() else []
    # Runs of fewer ways are of an earlier build.
    runs = [run for run in runs if set(run["accuracies"]) == set(WAYS)]
    done = {(run["dataset"], run["epsilon"], run["seed"]) for run in runs}
    for job in jobs():
        if job not in done:
            runs.append(one_run(*job))
            print(job, *(f"{value:.3f}" for value in runs[-1]["accuracies"].values()), flush=True)
            RUNS.write_text(json.dumps(runs, indent=1) + "\n")
    report(runs)


def report(runs: list[dict[str, Any]]) -> None:
    rows, summary = [], []
    for dataset, epsilon in dict.fromkeys(job[:2] for job in jobs()):
        own = [run["accuracies"] for run in runs if (run["dataset"], run["epsilon"]) == (dataset, epsilon)]
        if not own:
            continue
        cells = []
        for name in WAYS:
            found = 100 * np.array([run[name] for run in own])
            cells.append(f"{found.mean():.1f} ({found.std():.1f}; {found.min():.1f})")
            summary.append({"dataset": dataset, "epsilon": epsilon, "way": name, "runs": len(own)})
            summary[-1] |= {"mean": float(found.mean()), "std": float(found.std()), "worst": float(found.min())}
        rows.append([f"{dataset}, {len(parted(dataset)[0]):,} records", f"{epsilon:g}", len(own), *cells])
    settings = {
        "delta": DELTA,
        "cells": "held-out accuracy, %: mean (standard deviation; worst)",
        "held out": "a fifth of the training records; test sets are not read",
        "design": "moments at its defaults: half of the budget to X'Y, 0.002 to the counts",
        "features": "digits: pixels; banking77: sentence embeddings",
        "releases": "the same for every way",
        "accounting": "PLD, add or remove one record; the mean is released first and paid for",
    }
    tables = [common.table(["data", "eps", "releases", *WAYS], rows)]
    common.save("class_shares", "Classes' sizes from noisy counts", settings, {"runs": summary}, tables)


if __name__ == "__main__":
    main()
