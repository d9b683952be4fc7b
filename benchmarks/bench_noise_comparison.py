"""The noise that each accountant asks for, at n = T = 50,000, epsilon 1 (Li et al. 2022, Figure 1), and what it costs.

The second table is Li et al. 2024, Table 6, on the features of CIFAR-10 by the public image encoder of
bench_photographs.py: mixtures of 64 with as much noise as each accountant asks for, not centred, learnt from by the
discriminant. Every release is priced by PLD as well: what a formula that is no bound leaves unpaid.

Features take 16 minutes of CPU time and are kept (bench_photographs.py), runs in results/noise_comparison_runs.json;
the second table takes 5 minutes of CPU time, and is left out where neither is there.

    python benchmarks/bench_noise_comparison.py [--seeds 3]
"""

from __future__ import annotations

import argparse
import json
import math
import time
from typing import Any, Final

import numpy as np

import common
from privmix.accounting import calibrate, get_accountant
from privmix.designs import Fixed, Poisson
from privmix.engine.rows import PrivateRecords
from privmix.errors import InvalidInput
from privmix.learning.discriminant import DiscriminantClassifier
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.releases.run import release_to_memory
from privmix.reports.pictures import COLOURS, new_figure, save_figure
from privmix.rounding import rounded_up

RUNS = common.RESULTS / "noise_comparison_runs.json"
EPSILONS, DELTA, DEGREE = (1.0, 8.0), 1e-5, 64
RECORDS, POINTS, MARKERS = 50_000, 13, "os^vDPX*"
# Label, design, accountant. Fixed-size draws are the papers' "uniform" sampling.
CURVES: Final = (
    ("uniform RDP (replace-one)", "fixed", "rdp"),
    ("uniform RDP as published", "fixed", "as_published"),
    ("uniform GDP (limit)", "fixed", "gdp_clt"),
    ("Poisson MA", "poisson", "moments"),
    ("Poisson RDP", "poisson", "rdp"),
    ("Poisson GDP (as published)", "poisson", "as_published"),
    ("uniform PLD (replace-one)", "fixed", "pld"),
    ("Poisson PLD", "poisson", "pld"),
)
# Label, design, accountant: those of the first table that differ at m = 64.
PRICED: Final = (
    ("uniform RDP (replace-one)", Fixed(mixup_degree=DEGREE), "rdp"),
    ("uniform PLD (replace-one)", Fixed(mixup_degree=DEGREE), "pld"),
    ("uniform RDP as published", Fixed(mixup_degree=DEGREE), "as_published"),
    ("Poisson MA", Poisson(mixup_degree=DEGREE), "moments"),
    ("Poisson RDP", Poisson(mixup_degree=DEGREE), "rdp"),
    ("Poisson PLD", Poisson(mixup_degree=DEGREE), "pld"),
    ("Poisson GDP (as published)", Poisson(mixup_degree=DEGREE), "as_published"),
)


def noise_comparison() -> dict[str, Any]:
    """Noise over degree, sqrt(2) s / m with s_x = s_y, for every curve; None where no noise meets the target."""
    degrees = sorted({round(value) for value in np.geomspace(1, RECORDS, POINTS)})
    facts = {"records": RECORDS, "rows": RECORDS, "epsilon": EPSILONS[0], "delta": DELTA, "mixup_degrees": degrees}
    curves = [
        {
            "label": label,
            "design": design,
            "accountant": accountant,
            "is_upper_bound": get_accountant(accountant).is_upper_bound,
            "noise_over_degree": [noise_over(degree, design, accountant) for degree in degrees],
        }
        for label, design, accountant in CURVES
    ]
    return {**facts, "curves": curves}


def noise_over(degree: int, design: str, accountant: str) -> float | None:
    config = ReleaseConfig(RECORDS, 1, ("0", "1"), design=design, mixup_degree=degree, rows=RECORDS, centre="none")
    adjacency = config.draft().adjacency
    try:
        found = calibrate(
            lambda s: config.with_noise(s).event, EPSILONS[0], DELTA, accountant=accountant, adjacency=adjacency
        )
    except InvalidInput:
        return None
    return math.sqrt(2) * found.noise_multiplier / degree


def draw(record: dict[str, Any]) -> None:
    """Noise over m against m (Li et al. 2022, Figure 1); curves that are no bounds are dashed and labelled."""
    figure = new_figure(7.5, 5.2)
    axes = figure.subplots()
    for curve, colour, marker in zip(record["curves"], COLOURS, MARKERS, strict=True):
        valid = curve["is_upper_bound"]
        pairs = zip(record["mixup_degrees"], curve["noise_over_degree"], strict=True)
        axes.loglog(
            *zip(*((degree, noise) for degree, noise in pairs if noise is not None), strict=True),
            color=colour,
            marker=marker,
            markersize=4,
            linewidth=1.8 if valid else 1.2,
            linestyle="-" if valid else "--",
            label=curve["label"] if valid else f"{curve['label']}: NOT a bound",
        )
    axes.set_xlabel("mixup degree m")
    axes.set_ylabel("noise over degree, sigma / m")
    axes.set_title(
        f"Noise that each accountant requires at epsilon {EPSILONS[0]:g}, delta {DELTA:g}\n"
        f"n = {RECORDS:,}, T = {RECORDS:,}; solid: valid bounds, dashed: not",
        fontsize=10,
    )
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(fontsize=8)
    save_figure(figure, common.RESULTS / "noise_comparison.svg")


def released(design: Any, accountant: str, epsilon: float, seed: int) -> dict[str, Any]:
    """Accuracy of what is learnt from a release with the noise that ``accountant`` asks for."""
    from bench_photographs import CLASSES, STAGES, data

    (x, y), (test_x, test_y) = data("train"), data("test")
    config = ReleaseConfig(records=len(x), dim=x.shape[1], classes=CLASSES, design=design, centre="none")
    start = time.process_time()
    adjacency = config.draft().adjacency
    found = calibrate(
        lambda s: config.with_noise(s).event, epsilon, DELTA, accountant=accountant, adjacency=adjacency
    ).noise_multiplier
    plan = config.with_noise(found).priced(DELTA)
    streams = SecretStreams.from_seed(seed)
    release = release_to_memory(
        plan, PrivateRecords(x, y), streams, extractor={"name": STAGES}, input_shape=(x.shape[1],)
    )
    model = DiscriminantClassifier().fit(release)
    return {
        "noise_multiplier": found,
        "costs": plan.epsilon,
        "accuracy": 100 * float((model.predict(test_x) == test_y).mean()),
        "cpu_seconds": round(time.process_time() - start, 1),
    }


def encoded(runs: list[dict[str, Any]]) -> str:
    rows = []
    for label, _, accountant in PRICED:
        row = [label + ("" if get_accountant(accountant).is_upper_bound else " (no bound)")]
        for epsilon in EPSILONS:
            mine = [run for run in runs if (run["label"], run["epsilon"]) == (label, epsilon)]
            if not mine:
                row += [""] * 3
                continue
            row += [f"{mine[0]['noise_multiplier']:.3f}", common.told([run["accuracy"] for run in mine])]
            row.append(rounded_up(mine[0]["costs"], 4))
        rows.append(row)
    head = [""]
    for epsilon in EPSILONS:
        head += [f"epsilon {epsilon:g}: noise multiplier", "test accuracy, %", "by PLD it costs"]
    says = (
        f"Mixtures of {DEGREE} of CIFAR-10's features by a public encoder ([photographs](photographs.md)), n = T = "
        "50,000, with the noise that each accountant asks for: accuracy by the discriminant, mean (standard deviation, "
        "releases). Li et al. 2024, Table 6, compare uniform draws by RDP with Poisson draws by the limit formula."
    )
    return f"{says}\n\n{common.table(head, rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="releases of each cell")
    asked = parser.parse_args()
    runs: list[dict[str, Any]] = json.loads(RUNS.read_text()) if RUNS.exists() else []
    done = {(run["label"], run["epsilon"], run["seed"]) for run in runs}
    from bench_photographs import features_file

    there = features_file("cifar10", "train").exists()
    for seed in range(asked.seeds) if there else ():
        for label, design, accountant in PRICED:
            for epsilon in EPSILONS:
                if (label, epsilon, seed) not in done:
                    facts = {"label": label, "epsilon": epsilon, "seed": seed}
                    runs.append({**facts, **released(design, accountant, epsilon, seed)})
                    RUNS.write_text(json.dumps(runs, indent=0) + "\n")
                    print(runs[-1], flush=True)
    record = noise_comparison()
    draw(record)
    header = ["m", *(c["label"] + ("" if c["is_upper_bound"] else " (no bound)") for c in record["curves"])]
    columns = [curve["noise_over_degree"] for curve in record["curves"]]
    rows = [
        (m, *("-" if value is None else f"{value:.4g}" for value in values))
        for m, *values in zip(record["mixup_degrees"], *columns, strict=True)
    ]
    tables = [common.table(header, rows), "![noise over degree against degree](noise_comparison.svg)"]
    if runs:
        tables.append(f"## On a public encoder's features\n\n{encoded(runs)}")
    common.save(
        "noise_comparison",
        "Noise over degree, sigma/m with sigma_x = sigma_y, by accountant",
        {"n": RECORDS, "T": RECORDS, "epsilon": 1, "delta": DELTA},
        {**record, "encoded": runs},
        tables,
    )


if __name__ == "__main__":
    main()
