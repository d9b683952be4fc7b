"""How near scikit-learn's learners come to `privmix fit`, by what they are given of a release.

Rows as they are, with the class of the largest label value, and test records as they are: what a reader of the Parquet
files tries first. Then the same with test records in the rows' space (`release.transform`), and least squares on the
soft labels. Then the card's own example: records that `release.sample()` draws from the release, with the classes that
its learner gives them. Nothing here spends privacy but the release.

`C=100` of the card's logistic regression was chosen without test records: of 1, 10, 100 and 1000 it and its neighbours
agree best with the release's own learner on sampled records that were held out (digits and banking77, epsilon 4).

Runs are kept in results/cards_runs.json, so a broken-off run goes on where it ended.

    python benchmarks/bench_cards.py
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.svm import SVC

import common
import privmix as pm
from bench_calibration import data

RUNS = common.RESULTS / "cards_runs.json"
EPSILON, DELTA = 4.0, 1e-5
# dataset -> designs, seeds
CELLS: dict[str, tuple[list[str], int]] = {
    "digits": (["moments", "two-stage", "poisson", "classwise"], 5),
    "banking77": (["moments", "poisson"], 3),
    "mnist": (["moments"], 3),
}
FEATURES = {"digits": "pixels", "banking77": "sentence embeddings", "mnist": "pixels"}
COLUMNS = {
    "fit": "`privmix fit`",
    "raw": "rows, no transform: logistic",
    "rows": "rows: logistic",
    "squares": "rows: least squares",
    "sampled": "**sampled: logistic, C=100**",
    "sampled_1": "sampled: logistic, C=1",
    "sampled_lda": "sampled: LDA",
    "sampled_svc": "sampled: SVC",
}


def one_run(dataset: str, design: str, seed: int) -> dict[str, Any]:
    (x, y), (test_x, test_y) = data(dataset, "train"), data(dataset, "test")
    with warnings.catch_warnings():
        # A seed is no secret, and this is a benchmark.
        warnings.simplefilter("ignore")
        release = pm.release(
            (x, y),
            classes=int(y.max()) + 1,
            features="identity",
            design=design,
            epsilon=EPSILON,
            delta=DELTA,
            seed=seed,
        )
    near, hard = release.transform(test_x), release.y.argmax(axis=1)
    on_rows = LogisticRegression(max_iter=1000).fit(release.x, hard)
    least = LinearRegression().fit(release.x, release.y)
    records, labels = release.sample()

    def reached(learner: Any) -> float:
        return float(learner.fit(records, labels).score(near, test_y))

    return {
        "dataset": dataset,
        "design": design,
        "seed": seed,
        "fit": pm.fit(release).score(test_x, test_y),
        "raw": float(on_rows.score(test_x, test_y)),
        "rows": float(on_rows.score(near, test_y)),
        "squares": float((least.predict(near).argmax(axis=1) == test_y).mean()),
        "sampled": reached(LogisticRegression(C=100, max_iter=1000)),
        "sampled_1": reached(LogisticRegression(max_iter=1000)),
        "sampled_lda": reached(LinearDiscriminantAnalysis()),
        "sampled_svc": reached(SVC()),
    }


def jobs() -> Iterator[tuple[str, str, int]]:
    for dataset, (designs, seeds) in CELLS.items():
        for seed in range(300, 300 + seeds):
            for design in designs:
                yield dataset, design, seed


def report(runs: list[dict[str, Any]]) -> str:
    rows = []
    for dataset, (designs, _) in CELLS.items():
        for design in designs:
            found = [run for run in runs if (run["dataset"], run["design"]) == (dataset, design)]
            if found:
                cells = [common.told([100 * run[name] for run in found]) for name in COLUMNS]
                rows.append([f"{dataset} ({FEATURES[dataset]})", design, *cells])
    return common.table(["data", "design", *COLUMNS.values()], rows)


if __name__ == "__main__":
    kept: list[dict[str, Any]] = json.loads(RUNS.read_text()) if RUNS.exists() else []
    done = {(run["dataset"], run["design"], run["seed"]) for run in kept}
    for job in jobs():
        if job not in done:
            kept.append(one_run(*job))
            RUNS.write_text(json.dumps(kept, indent=1) + "\n")
            print(job, {name: round(kept[-1][name], 3) for name in COLUMNS}, flush=True)
    gaps = [100 * (run["sampled"] - run["fit"]) for run in kept]
    words = (
        f"Accuracy on the test set, %, at epsilon {EPSILON:g}: means over seeds, in brackets standard deviation "
        "and number of runs. In bold the example of every release's card; it is "
        f"{np.mean(gaps):+.1f} points from `privmix fit` on average over all runs, {min(gaps):+.1f} at worst."
    )
    settings = {"epsilon": EPSILON, "delta": DELTA, "sampled records": 10_000}
    common.save("cards", "Learning from a release with scikit-learn", settings, kept, [words, report(kept)])
