"""Logarithms of scattering coefficients in place of the coefficients, in releases of second moments.

Andén and Mallat (2014) classify logarithms of scattering coefficients. Here log(1 + |S| / floor), with S's sign, stands
before the group normalisation that privmix's features have; all else is alike: luma and two colour differences for
colours, a public projection to 1,024 numbers, and the learner that `privmix fit` takes. The floors are powers of ten
below what half of the first-order coefficients of 500 CIFAR-10 images exceed (0.0145); all are shown. Runs are kept
in results/log_scattering_runs.json, so a broken-off benchmark goes on where it stopped.

    python benchmarks/bench_log_scattering.py [--only mnist,cifar10]
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from functools import cache
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import group_norm

import common
from privmix.data import open_dataset
from privmix.designs import Moments
from privmix.engine import PrivateRecords
from privmix.features import Identity
from privmix.features.projected import Projected
from privmix.features.scattering import _YCBCR, GROUPS, scatter
from privmix.learning import DiscriminantClassifier
from privmix.planning import ReleaseConfig
from privmix.releases import SecretStreams, release_to_memory

RUNS = common.RESULTS / "log_scattering_runs.json"
DELTA, DIM, SEEDS, EPSILONS = 1e-5, 1024, 3, (1, 8)
FLOORS: dict[str, float | None] = {"coefficients": None, "logarithm, floor 0.01": 0.01, "logarithm, floor 0.001": 0.001}
# Records released and told: what a few CPU minutes carry.
SIZES = {"mnist": (6000, 4000), "cifar10": (12_000, 4000)}
OPTIONS: dict[str, dict[str, Any]] = {"mnist": {}, "cifar10": {"input_shape": (32, 32, 3)}}


@cache
def coefficients(dataset: str, split: str, count: int) -> tuple[torch.Tensor, NDArray[np.int64]]:
    """(n, 81 * colours, H / 4, W / 4) of the first records, not normalised, and their labels."""
    found, labels = [], []
    source = open_dataset(common.data_root() / dataset, split=split, classes=10, **OPTIONS[dataset])
    for batch in source.batches(1000):
        x = np.asarray(batch.x, np.float32) / np.float32(255)
        x = x[..., None] if x.ndim == 3 else x @ _YCBCR.T
        planes = torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2)))
        maps = scatter(planes.view(-1, *planes.shape[2:]))
        found.append(maps.view(len(x), -1, *maps.shape[2:]))
        labels.append(batch.y)
        if len(found) * 1000 >= count:
            break
    return torch.cat(found)[:count], np.concatenate(labels)[:count]


@cache
def features(dataset: str, split: str, count: int, how: str) -> NDArray[np.float32]:
    """(n, 1024)."""
    values, floor = coefficients(dataset, split, count)[0], FLOORS[how]
    found = []
    for part in values.split(1000):
        part = part if floor is None else part.sign() * torch.log1p(part.abs() / floor)
        found.append(Projected(Identity(), DIM).transform(group_norm(part, GROUPS, eps=1e-5).flatten(1).numpy()))
    return np.concatenate(found)


def one_run(dataset: str, how: str, epsilon: float, seed: int) -> dict[str, Any]:
    released, told = SIZES[dataset]
    x, y = features(dataset, "train", released, how), coefficients(dataset, "train", released)[1]
    design = Moments(label_share=0.35, count_share=0.01)
    # Rows sampled from moments are for other learners: one is enough here.
    config = ReleaseConfig(records=released, dim=DIM, classes=tuple(map(str, range(10))), design=design, rows=1)
    plan, facts = config.calibrate(epsilon, DELTA), {"extractor": {"name": dataset}, "input_shape": (DIM,)}
    release = release_to_memory(plan, PrivateRecords(x, y), SecretStreams.from_seed(seed), **facts)
    predicted = DiscriminantClassifier().fit(release).predict(features(dataset, "test", told, how))
    accuracy = float((predicted == coefficients(dataset, "test", told)[1]).mean())
    return {"dataset": dataset, "how": how, "epsilon": epsilon, "seed": seed, "accuracy": accuracy}


def jobs(only: set[str]) -> Iterator[tuple[str, str, float, int]]:
    for dataset in (name for name in SIZES if name in only):
        yield from ((dataset, how, epsilon, s) for s in range(SEEDS) for how in FLOORS for epsilon in EPSILONS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SIZES), help="datasets, separated by commas")
    torch.set_num_threads(1)
    runs: list[dict[str, Any]] = json.loads(RUNS.read_text()) if RUNS.exists() else []
    done = {(run["dataset"], run["how"], run["epsilon"], run["seed"]) for run in runs}
    for job in jobs(set(parser.parse_args().only.split(","))):
        if job not in done:
            runs.append(one_run(*job))
            print(*job, f"{runs[-1]['accuracy']:.4f}", flush=True)
            RUNS.write_text(json.dumps(runs, indent=1) + "\n")
    tables = [common.table(["test accuracy, %", *(f"eps {e}" for e in EPSILONS)], rows(runs, name)) for name in SIZES]
    facts = {"delta": DELTA, "features": DIM, "released, told": SIZES, "cells": "mean (standard deviation, runs)"}
    common.save("log_scattering", "Logarithms of scattering coefficients, released as moments", facts, runs, tables)


def rows(runs: list[dict[str, Any]], dataset: str) -> list[list[str]]:
    def cell(how: str, epsilon: float) -> str:
        own = [100 * r["accuracy"] for r in runs if (r["dataset"], r["how"], r["epsilon"]) == (dataset, how, epsilon)]
        return f"{np.mean(own):.1f} ({np.std(own):.1f}, {len(own)})" if own else "-"

    return [[f"{dataset}, {how}", *(cell(how, epsilon) for epsilon in EPSILONS)] for how in FLOORS]


if __name__ == "__main__":
    main()
