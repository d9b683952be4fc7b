"""The noise that each accountant asks for, at n = T = 50,000, epsilon 1 (Li et al. 2022, Figure 1)."""

from __future__ import annotations

import common
from privmix.jobs.comparison import noise_comparison
from privmix.reports.curves import draw_noise_comparison


def main() -> None:
    record = noise_comparison(50_000, 50_000, 1.0, 1e-5, 13, lambda stage, done, total: None)
    draw_noise_comparison(record, common.RESULTS / "noise_comparison.svg")
    header = ["m", *(c["label"] + ("" if c["is_upper_bound"] else " (no bound)") for c in record["curves"])]
    columns = [curve["noise_over_degree"] for curve in record["curves"]]
    rows = [
        (m, *("-" if value is None else f"{value:.4g}" for value in values))
        for m, *values in zip(record["mixup_degrees"], *columns, strict=True)
    ]
    common.save(
        "noise_comparison",
        "Noise over degree, sigma/m with sigma_x = sigma_y, by accountant",
        {"n": 50_000, "T": 50_000, "epsilon": 1, "delta": 1e-5},
        record,
        [common.table(header, rows), "![noise over degree against degree](noise_comparison.svg)"],
    )


if __name__ == "__main__":
    main()
