"""DP-InstaHide at its true price, by k: what a model learns of rows that average k records under Laplace noise.

Borgnia et al. 2021 take k = 4 and 1 for the diameter of the data, and get both accuracy and a small epsilon. Here
records are clipped in l1, labels are noised and paid for, and the noise is what the true diameter asks for: 20,000
records of MNIST, images averaged down to 7 x 7 (49 numbers: the fewer, the less noise a record gets), as many rows as
records, the learner that `privmix fit` takes for these rows, MNIST's 10,000 test images. Pure (delta 0, by the paper's
Theorem 2) and at delta 1e-5, by PLD. Second moments of the same records (one added or removed) stand beside. All
values of k are shown; nothing was chosen. Runs are kept in results/instahide_runs.json, so a broken-off benchmark goes
on where it stopped.

    python benchmarks/bench_instahide.py [--seeds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from functools import cache
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from numpy.typing import NDArray

import common
from privmix.data import open_dataset
from privmix.designs import Fixed, Moments
from privmix.engine import PrivateRecords
from privmix.learning import LEARNERS
from privmix.planning import ReleaseConfig
from privmix.plans import Plan, made_by
from privmix.releases import SecretStreams, release_to_memory

RUNS = common.RESULTS / "instahide_runs.json"
RECORDS, SIDE, BLOCK = 20_000, 7, 4
DEGREES = (1, 4, 16, 64, 256, 512, 1024)
EPSILONS, DELTAS = (1.0, 8.0), (0.0, 1e-5)
CLASSES = tuple("0123456789")
# In place of k: second moments of the same records, for comparison.
MOMENTS = 0


@cache
def pooled(split: str, count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """(n, 49) in [0, 1] and labels, of the first images."""
    found, labels = [], []
    for batch in open_dataset(common.data_root() / "mnist", split=split, classes=CLASSES).batches(1000):
        blocks = batch.x.reshape(-1, SIDE, BLOCK, SIDE, BLOCK).astype(np.float32) / 255
        found.append(blocks.mean(axis=(2, 4)).reshape(-1, SIDE**2))
        labels.append(batch.y)
        if len(found) * 1000 >= count:
            break
    return np.concatenate(found)[:count], np.concatenate(labels)[:count]


@cache
def planned(degree: int, epsilon: float, delta: float) -> Plan:
    design = Moments() if degree == MOMENTS else Fixed(mixup_degree=degree, noise="laplace")
    return ReleaseConfig(records=RECORDS, dim=SIDE**2, classes=CLASSES, design=design).calibrate(epsilon, delta)


def one_run(degree: int, epsilon: float, delta: float, seed: int) -> dict[str, Any]:
    start = time.process_time()
    plan = planned(degree, epsilon, delta)
    facts = {"extractor": {"name": "identity"}, "input_shape": (SIDE**2,)}
    released = release_to_memory(
        plan, PrivateRecords(*pooled("train", RECORDS)), SecretStreams.from_seed(seed), **facts
    )
    x, y = pooled("test", 10_000)
    accuracy = float((LEARNERS[made_by(plan).learner]().fit(released).predict(x) == y).mean())
    return {
        "degree": degree,
        "epsilon": epsilon,
        "delta": delta,
        "seed": seed,
        "accuracy": round(100 * accuracy, 2),
        "noise_multiplier": plan.noise_multiplier,
        "cpu_seconds": round(time.process_time() - start, 1),
    }


def report(runs: list[dict[str, Any]]) -> None:
    rows = []
    for degree in (*DEGREES, MOMENTS):
        cells = []
        for epsilon, delta in ((epsilon, delta) for epsilon in EPSILONS for delta in DELTAS):
            mine = [r for r in runs if (r["degree"], r["epsilon"], r["delta"]) == (degree, epsilon, delta)]
            values = [run["accuracy"] for run in mine]
            cells.append(
                f"{np.mean(values):.1f} ({min(values):.1f} to {max(values):.1f}, {len(values)})" if mine else "-"
            )
        rows.append(["second moments, for comparison" if degree == MOMENTS else degree, *cells])
    header = ["k", *(f"eps {e:g}, {'pure' if d == 0 else f'delta {d:g}'}" for e in EPSILONS for d in DELTAS)]
    plan = planned(DEGREES[0], EPSILONS[0], DELTAS[0])
    facts = {
        "records": f"{RECORDS:,} of MNIST, averaged down to {SIDE} x {SIDE}, clipped to l1 norm 1; {plan.rows:,} rows",
        "cells": "test accuracy, %: mean (least to greatest, runs); guessing has about 10",
        "guarantee": f"one record replaced, {plan.adjacency.value}; labels noised and paid for",
        "learner": made_by(plan).learner,
        "cpu_seconds": round(sum(run["cpu_seconds"] for run in runs)),
    }
    note = (
        "Only k was varied. Image size, clipping and learner were not tuned: rows are no best that the method reaches."
    )
    common.save("instahide", "DP-InstaHide at its true price, by k", facts, runs, [note, common.table(header, rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="runs of each cell")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    runs: list[dict[str, Any]] = json.loads(RUNS.read_text()) if RUNS.exists() else []
    done = {(run["degree"], run["epsilon"], run["delta"], run["seed"]) for run in runs}
    for seed in range(asked.seeds):
        for epsilon, delta in ((epsilon, delta) for epsilon in reversed(EPSILONS) for delta in reversed(DELTAS)):
            # Moments have no pure form.
            for degree in (*DEGREES, *([MOMENTS] if delta else [])):
                if (degree, epsilon, delta, seed) not in done:
                    runs.append(one_run(degree, epsilon, delta, seed))
                    print(runs[-1], flush=True)
                    RUNS.write_text(json.dumps(runs, indent=0) + "\n")
    report(runs)


if __name__ == "__main__":
    main()
