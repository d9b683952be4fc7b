"""What the planner forecasts of tables beside what was reached in the runs that bench_tables.py kept.

The forecast takes the number of records, the budget and the declared columns; no record. Reached: mean total variation
of pairs of columns between sampled rows and private records, which holds the error of the fit and of drawing, too.

    python benchmarks/bench_table_forecast.py
"""

from __future__ import annotations

import numpy as np

import bench_tables
import common
from privmix.features.tabular import Tabular
from privmix.jobs.planner import columns_of
from privmix.planning import ReleaseConfig
from privmix.planning.table import forecast_table

RECORDS = {"adult": 32_561, "diamonds": 43_152}
SHARES = {"moments": 0.5, "moments, label share 0.15": 0.15}


def main() -> None:
    specs = {
        "adult": Tabular.from_file(bench_tables.DOCS / "adult-table.json"),
        "diamonds": Tabular(bench_tables.DIAMONDS),
    }
    found = []
    for dataset, spec in specs.items():
        columns, width = columns_of(spec), spec.output_dim((len(spec.columns),))
        for epsilon in (0.5, 1.0, 4.0, 8.0):
            for method, share in SHARES.items():
                config = ReleaseConfig(
                    records=RECORDS[dataset], dim=width, classes=("no", "yes"), design="moments", label_share=share
                )
                forecast = forecast_table(config.calibrate(epsilon, bench_tables.DELTA), columns)
                assert forecast is not None
                reached = [
                    run["quality"]["total_variation"]["two"]["mean"]
                    for run in bench_tables.kept()
                    if (run["dataset"], run["method"], run["epsilon"]) == (dataset, method, epsilon)
                ]
                found.append(
                    {
                        "dataset": dataset,
                        "epsilon": epsilon,
                        "label_share": share,
                        "forecast": forecast.variation,
                        "carried": len(forecast.pairs) - len(forecast.lost),
                        "pairs": len(forecast.pairs),
                        "reached": reached,
                    }
                )
    rows = [
        [
            one["dataset"], f"{one['epsilon']:g}", f"{one['label_share']:g}", f"{one['forecast']:.4f}",
            f"{np.mean(one['reached']):.4f}" if one["reached"] else "", _spread(one["reached"]),
            str(len(one["reached"])), f"{one['carried']} of {one['pairs']}",
        ]
        for one in found
    ]  # fmt: skip
    header = ["table", "eps", "label share", "forecast", "reached", "spread", "runs", "pairs carried"]
    settings = {
        "delta": bench_tables.DELTA,
        "forecast": "by noise alone, from public facts; mean over pairs",
        "reached": "mean over the runs of tables.md; spread is their standard deviation, none of one run",
    }
    common.save("table_forecast", "Forecast of a table", settings, {"rows": found}, [common.table(header, rows)])


def _spread(values: list[float]) -> str:
    return f"{np.std(values, ddof=1):.4f}" if len(values) > 1 else ""


if __name__ == "__main__":
    main()
