"""Second moments of features that are too many for them, through a public random projection: time and accuracy.

Datasets: CIFAR-10 (scattering of three colours, 15,552 features, of which moments would hold 242 million products) and
MNIST (scattering, 3,969 features, which moments take as they are: there it can be seen what a projection costs).
Settings are fixed beforehand. Runs are kept in results/wide_runs.json and features in cache/, so a broken-off run goes
on where it ended; some ten CPU minutes.

    python benchmarks/bench_wide.py [--only "mnist,cifar10,random records"]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import common
from bench_designs import data as stored_features
from privmix.data import open_dataset
from privmix.designs import Moments
from privmix.engine import PrivateRecords
from privmix.features import Identity, parse_features
from privmix.features.projected import Projected
from privmix.learning import DiscriminantClassifier
from privmix.planning import ReleaseConfig
from privmix.releases import SecretStreams, release_to_memory

RUNS = common.RESULTS / "wide_runs.json"
CACHE = common.RESULTS.parent / "cache"
DELTA = 1e-5
SCATTERED = {"cifar10": 15_552, "mnist": 3_969}
# 10,000 records without a meaning, for times alone: as wide as moments may be, and half as wide.
NOISE = "random records"
# (dataset, numbers projected to, runs)
SCHEDULE = [
    ("mnist", 1024, 3),
    ("mnist", 2048, 3),
    ("cifar10", 1024, 3),
    ("cifar10", 2048, 3),
    (NOISE, 4096, 1),
    (NOISE, 8192, 1),
]
EPSILONS = (1.0, 8.0)


def scattered(dataset: str, split: str) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Features and labels, a thousand records at a time."""
    if dataset == "mnist":
        x, y = stored_features(dataset, split)
        yield from ((x[start : start + 1000], y[start : start + 1000]) for start in range(0, len(x), 1000))
    else:
        extractor = parse_features("scattering")
        for batch in open_dataset(
            common.data_root() / dataset, split=split, classes=10, image_size=32, colour="rgb"
        ).batches(1000):
            yield extractor.transform(batch.x), batch.y


def extract(dataset: str) -> None:
    """Projected features of all widths, each record at norm 1, kept on disk: scattering takes the time."""
    dims = [dim for name, dim, _ in SCHEDULE if name == dataset]
    CACHE.mkdir(exist_ok=True)
    projections = {dim: Projected(Identity(), dim) for dim in dims}
    for split in ("train", "test"):
        found: dict[int, list[NDArray[np.float32]]] = {dim: [] for dim in dims}
        labels = []
        for features, y in scattered(dataset, split):
            features = features / np.linalg.norm(features, axis=1, keepdims=True)
            for dim in dims:
                found[dim].append(projections[dim].transform(features))
            labels.append(y)
        np.save(CACHE / f"{dataset}-{split}.wide-labels.npy", np.concatenate(labels))
        for dim in dims:
            np.save(CACHE / f"{dataset}-{dim}-{split}.npy", np.concatenate(found.pop(dim)))


@lru_cache(maxsize=2)
def data(dataset: str, dim: int, split: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    if dataset == NOISE:
        rng = np.random.default_rng(0)
        return rng.standard_normal((10_000, dim), dtype=np.float32), rng.integers(0, 10, 10_000)
    if not (CACHE / f"{dataset}-{dim}-{split}.npy").exists():
        extract(dataset)
    return np.load(CACHE / f"{dataset}-{dim}-{split}.npy"), np.load(CACHE / f"{dataset}-{split}.wide-labels.npy")


def one_run(dataset: str, dim: int, epsilon: float, seed: int) -> dict[str, Any]:
    x, y = data(dataset, dim, "train")
    # Rows sampled from moments are for other learners: one is enough here.
    design = Moments(label_share=0.35, count_share=0.01)
    config = ReleaseConfig(records=len(x), dim=dim, classes=tuple(map(str, range(10))), design=design, rows=1)
    start = time.process_time()
    release = release_to_memory(
        config.calibrate(epsilon, DELTA),
        PrivateRecords(x, y),
        SecretStreams.from_seed(seed),
        extractor=Identity().spec() if dataset == NOISE else Projected(parse_features("scattering"), dim).spec(),
        input_shape=(32, 32, 3) if dataset == "cifar10" else (28, 28),
    )
    released = time.process_time()
    model = DiscriminantClassifier().fit(release)
    fitted = time.process_time()
    test_x, test_y = data(dataset, dim, "test")
    return {
        "dataset": dataset,
        "dim": dim,
        "epsilon": epsilon,
        "seed": seed,
        "accuracy": float((model.predict(test_x) == test_y).mean()),
        "release_cpu_seconds": released - start,
        "fit_cpu_seconds": fitted - released,
        "peak_memory_gib": common.peak_memory_gib(),
    }


def kept() -> list[dict[str, Any]]:
    return json.loads(RUNS.read_text()) if RUNS.exists() else []


def keep(new: list[dict[str, Any]]) -> None:
    RUNS.write_text(json.dumps(kept() + new, indent=1) + "\n")
    print(*new, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=f"mnist,cifar10,{NOISE}", help="datasets, separated by commas")
    only = set(parser.parse_args().only.split(","))
    for dataset, dim, seeds in SCHEDULE:
        if dataset not in only:
            continue
        done = {(run["dataset"], run["dim"], run.get("epsilon"), run.get("seed")) for run in kept()}
        for seed in range(seeds):
            for epsilon in EPSILONS[:1] if dataset == NOISE else EPSILONS:
                if (dataset, dim, epsilon, seed) not in done:
                    keep([one_run(dataset, dim, epsilon, seed)])
    report(kept())


def report(runs: list[dict[str, Any]]) -> None:
    rows = []
    for dataset, dim in sorted({(run["dataset"], run["dim"]) for run in runs}):
        own = [run for run in runs if (run["dataset"], run["dim"]) == (dataset, dim)]
        cells = []
        for epsilon in EPSILONS:
            found = 100 * np.array([run["accuracy"] for run in own if run.get("epsilon") == epsilon])
            told = len(found) > 0 and dataset != NOISE
            cells.append(f"{found.mean():.1f} ({found.std():.1f}, {len(found)})" if told else "")
        parts = [float(np.median([run[name] for run in own])) for name in ("release_cpu_seconds", "fit_cpu_seconds")]
        speed = [f"{part:.0f}" for part in parts]
        which = dataset if dataset == NOISE else f"{dataset}, {SCATTERED[dataset]:,}"
        memory = max(run["peak_memory_gib"] for run in own)
        rows.append([which, f"{dim:,}", *cells, *speed, f"{memory:.1f}"])
    header = ["scattering of, features", "projected to", *(f"eps {epsilon:g}, %" for epsilon in EPSILONS)]
    settings = {
        "delta": DELTA,
        "cells": "test accuracy: mean (standard deviation, runs)",
        "design": "moments, label share 0.35, count share 0.01, private centring; learner discriminant",
        "all of MNIST's features": "97.6% at epsilon 1, 98.5% at epsilon 8, in the table of the discriminant learner",
        "all of CIFAR-10's features": "too many for the design",
        "projection": "subsampled randomised Hadamard transform, seed 0",
        "times": "CPU seconds from features in memory, one thread",
        "peak": "memory of the process, features and earlier runs in it",
    }
    table = common.table([*header, "release, s", "fit, s", "peak, GiB"], rows)
    common.save("wide", "Second moments of wide features", settings, {"runs": runs}, [table])


if __name__ == "__main__":
    main()
