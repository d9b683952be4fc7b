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
import time
from typing import Any, Final

import common
from privmix.accounting import calibrate, get_accountant
from privmix.commands.account.account import noise_comparison
from privmix.designs import Fixed, Poisson
from privmix.engine.rows import PrivateRecords
from privmix.learning.discriminant import DiscriminantClassifier
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.progress import silent
from privmix.releases.api import release_to_memory
from privmix.reports.pictures import draw_noise_comparison
from privmix.rounding import rounded_up

RUNS = common.RESULTS / "noise_comparison_runs.json"
EPSILONS, DELTA, DEGREE = (1.0, 8.0), 1e-5, 64
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
    record = noise_comparison(50_000, 50_000, 1.0, 1e-5, 13, silent)
    draw_noise_comparison(record, common.RESULTS / "noise_comparison.svg")
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
        {"n": 50_000, "T": 50_000, "epsilon": 1, "delta": 1e-5},
        {**record, "encoded": runs},
        tables,
    )


if __name__ == "__main__":
    main()
