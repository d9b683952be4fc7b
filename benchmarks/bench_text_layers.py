"""``minilm`` by layers, on docstrings: accuracy without privacy, and of releases at epsilon 1 and 8.

Docstrings of Python's standard library, with labels of four sorts: the module that each is of; whether it is of a class
or of a function; of something private or not; of a method or not. A quarter of them judges, in turns. Layers for users
are chosen here, on records that no release is judged by. An embedding that is a mean of layers is no longer than the
model's own, so that it costs a release nothing.

    python benchmarks/bench_text_layers.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import common
from bench_planner_constants import docstrings
from privmix.designs import Moments
from privmix.engine import PrivateRecords
from privmix.features import MiniLm
from privmix.learning import DiscriminantClassifier
from privmix.planning import ReleaseConfig
from privmix.releases import SecretStreams, release_to_memory

LAYERS: Final = ("", "3", "4", "5", "4+5+6", "3+4+5+6")
EPSILONS: Final = (1.0, 8.0)
FOLDS: Final = 4
DELTA: Final = 1e-5
# The share of X'Y of the budget: between what a planner takes for two classes and for many.
SHARE: Final = 0.5


@dataclass(frozen=True)
class Task:
    """Texts of one sort of labels."""

    what: str
    rows: NDArray[np.int64]
    labels: NDArray[np.int64]


def reached(x: NDArray[np.float32], y: NDArray[np.int64], epsilon: float | None, fold: int, spec: Any) -> float:
    judges = np.random.default_rng(0).permutation(len(y)) % FOLDS == fold
    if epsilon is None:
        model: Any = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(x[~judges], y[~judges])
        return float(model.score(x[judges], y[judges]))
    classes = tuple(map(str, range(int(y.max()) + 1)))
    plan = ReleaseConfig(int((~judges).sum()), x.shape[1], classes, Moments(label_share=SHARE), rows=1)
    release = release_to_memory(
        plan.calibrate(epsilon, DELTA),
        PrivateRecords(x[~judges], y[~judges]),
        SecretStreams.from_seed(fold),
        extractor=spec,
        input_shape=(1,),
    )
    return float((DiscriminantClassifier().fit(release).predict(x[judges]) == y[judges]).mean())


def main() -> None:
    texts, kinds = docstrings()
    tasks = [Task(what, np.flatnonzero(labels >= 0), labels[labels >= 0]) for what, labels in kinds.items()]
    found = []
    for layers in LAYERS:
        encoder = MiniLm(layers)
        embedded = encoder.transform(texts)
        for task in tasks:
            for epsilon in (None, *EPSILONS):
                runs = [reached(embedded[task.rows], task.labels, epsilon, k, encoder.spec()) for k in range(FOLDS)]
                found.append({"layers": layers, "task": task.what, "epsilon": epsilon, "accuracy": runs})
        print(layers or "the model's own", flush=True)

    def cells(epsilon: float | None) -> list[list[str]]:
        return [
            [
                layers or "the model's own",
                *(
                    common.told([100 * value for value in run["accuracy"]])
                    for run in found
                    if run["layers"] == layers and run["epsilon"] == epsilon
                ),
            ]
            for layers in LAYERS
        ]

    header = [task.what for task in tasks]
    tables = [
        common.table([f"accuracy, %, {words}", *header], cells(epsilon))
        for epsilon, words in ((None, "without privacy"), (1.0, "epsilon 1"), (8.0, "epsilon 8"))
    ]
    settings = {
        "texts": len(texts),
        "delta": DELTA,
        "cells": "mean (standard deviation, folds)",
        "release": f"moments, X'Y {SHARE} of the budget; PLD, add or remove one record",
        "without privacy": "discriminant analysis with Ledoit-Wolf shrinkage",
    }
    common.save("text_layers", "minilm by layers, on docstrings", settings, found, tables)


if __name__ == "__main__":
    main()
