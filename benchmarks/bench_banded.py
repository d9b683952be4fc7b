"""Banded matrix factorisation beside DP-SGD: the error of sums, what it costs, and accuracy on MNIST.

Errors are of prefix sums of all steps' sums, in units of the noise that hides one record: what training adds up.
Finished training runs are kept in results/banded_runs.json and not repeated.

    python benchmarks/bench_banded.py [--errors] [--seeds 3] [--report]
"""

from __future__ import annotations

import argparse
import json
import time
from functools import cache
from typing import Any

import numpy as np

import common
from privmix.data import open_dataset
from privmix.mechanisms.factorisation import square_root
from privmix.mechanisms.streams import SecretStreams
from privmix.training import ModelFacts, Trainer, TrainingConfig, TrainingRecords
from privmix.training.mechanisms.banded.draws import best_factor, errors, normalised
from privmix.training.mechanisms.base import mechanism_of

RUNS = common.RESULTS / "banded_runs.json"
DELTA = 1e-5
CLASSES = tuple(map(str, range(10)))
RECORDS = 60_000
STEPS = (64, 512, 2048)
BANDS = (1, 2, 4, 8, 16, 32, 64)
EPSILONS = (1.0, 8.0)
# batch, epochs, bands that training compares; batches of n / 7 are the default of linear heads.
TRAININGS = [(8192, 30.0, (1, 2, 7)), (1024, 10.0, (1, 4, 16))]


def variances() -> list[dict[str, Any]]:
    """The factor alone, at noise of one on C x with columns of norm 1 and a turn for each record."""
    found = []
    for steps in STEPS:
        for bands in (count for count in BANDS if count <= steps):
            for name, factor in (
                ("best", best_factor(steps, bands)),
                ("square root, cut", tuple(normalised(square_root(bands)))),
            ):
                error = errors(factor, steps)
                row = {"steps": steps, "bands": bands, "factor": name}
                found.append({**row, "mean": float(error.mean()), "max": float(error.max())})
    return found


def priced() -> list[dict[str, Any]]:
    """What is left of the error at a budget, where more bands also mean less amplification by sampling."""
    found = []
    for batch, epochs, _ in TRAININGS:
        for epsilon in EPSILONS:
            base = None
            for bands in (count for count in BANDS if count * batch <= RECORDS):
                config = config_of(batch, epochs, epsilon, bands)
                plan = config.plan(RECORDS)
                factor = getattr(plan, "coefficients", (1.0,))
                error = errors(factor, plan.steps) * plan.noise_multiplier**2
                moved = errors(factor, plan.steps, config.optimiser.momentum) * plan.noise_multiplier**2
                base = base or (error.mean(), error.max(), moved.mean())
                found.append(
                    {
                        "batch": batch,
                        "steps": plan.steps,
                        "epsilon": epsilon,
                        "bands": bands,
                        "noise_multiplier": plan.noise_multiplier,
                        "mean": error.mean() / base[0],
                        "max": error.max() / base[1],
                        "momentum": moved.mean() / base[2],
                    }
                )
    return found


def config_of(batch: int, epochs: float, epsilon: float, bands: int) -> TrainingConfig:
    """A linear head's, by DP-SGD where there is one band."""
    own: dict[str, Any] = {} if bands == 1 else {"mechanism": f"banded:bands={bands}"}
    return TrainingConfig.for_model(
        "linear", records=RECORDS, epsilon=epsilon, delta=DELTA, batch_size=batch, epochs=epochs, **own
    )


@cache
def digits(split: str) -> TrainingRecords:
    source = open_dataset(common.data_root() / "mnist", split=split, classes=CLASSES, input_shape=(28, 28))
    records = source.read()
    return TrainingRecords.of(records.x.reshape(len(records.x), -1), records.y, classes=10)


def one_run(batch: int, epochs: float, epsilon: float, bands: int, seed: int) -> dict[str, Any]:
    records, test = digits("train"), digits("test")
    config = config_of(batch, epochs, epsilon, bands)
    facts = ModelFacts(CLASSES, {"name": "identity"}, (records.dim,), records.dim)
    start = time.perf_counter()
    trainer = Trainer(config, facts, len(records))
    model = trainer.run(records, streams=SecretStreams.from_seed(seed))
    return {
        "batch": batch,
        "epsilon": epsilon,
        "bands": bands,
        "seed": seed,
        "mechanism": mechanism_of(trainer.plan).name,
        "steps": trainer.plan.steps,
        "accuracy": round(100 * float((model.predict(test.x) == test.labels).mean()), 2),
        "spent": model.certificate["guarantee"]["epsilon"],
        "seconds": round(time.perf_counter() - start, 1),
    }


def train(seeds: int) -> None:
    runs = kept()
    done = {(run["batch"], run["epsilon"], run["bands"], run["seed"]) for run in runs}
    for seed in range(seeds):
        for batch, epochs, all_bands in TRAININGS:
            for epsilon in EPSILONS:
                for bands in all_bands:
                    if (batch, epsilon, bands, seed) in done:
                        continue
                    runs.append(one_run(batch, epochs, epsilon, bands, seed))
                    print(runs[-1], flush=True)
                    RUNS.write_text(json.dumps(runs, indent=1) + "\n")


def kept() -> list[dict[str, Any]]:
    return json.loads(RUNS.read_text()) if RUNS.exists() else []


def accuracy_table(runs: list[dict[str, Any]]) -> str:
    rows = []
    for batch, epochs, all_bands in TRAININGS:
        for epsilon in EPSILONS:
            cell = {
                bands: {
                    run["seed"]: run["accuracy"]
                    for run in runs
                    if (run["batch"], run["epsilon"], run["bands"]) == (batch, epsilon, bands)
                }
                for bands in all_bands
            }
            for bands in all_bands:
                if not cell[bands]:
                    continue
                both = sorted(cell[bands].keys() & cell[1].keys())
                gaps = [cell[bands][seed] - cell[1][seed] for seed in both]
                gap = "" if bands == 1 or not gaps else f"{np.mean(gaps):+.2f} ({np.std(gaps):.2f}, {len(gaps)})"
                name = "DP-SGD" if bands == 1 else f"banded, {bands} bands"
                rows.append(
                    [batch, f"{epochs:g}", epsilon, name, common.told(list(cell[bands].values()), digits=2), gap]
                )
    header = ["batch", "epochs", "epsilon", "mechanism", "accuracy, mean (std, runs)", "beside DP-SGD, paired"]
    return common.table(header, rows)


def report() -> None:
    ran = kept()
    alone, costs = variances(), priced()
    text = [
        "Squared error of prefix sums over T steps for noise of variance 1 on C x, the columns of C of norm 1. `best` "
        "is what privmix trains with (here without momentum); `square root, cut` are binom(2k, k) / 4^k, cut to "
        "the bands and scaled, which jax_privacy's `optimal_max_error_strategy_coefs` gives and from which its "
        "optimiser starts (google-deepmind/jax_privacy, `matrix_factorization/toeplitz.py`). With one band this is "
        "independent noise. That repository speaks of `mean_error` and `max_error` in this sense and prints no table.",
        common.table(
            ["T", "bands", "factor", "mean squared error", "max squared error", "root of the mean"],
            [
                [
                    row["steps"],
                    row["bands"],
                    row["factor"],
                    f"{row['mean']:.2f}",
                    f"{row['max']:.2f}",
                    f"{row['mean'] ** 0.5:.3f}",
                ]
                for row in alone
            ],
        ),
        f"At a budget, delta {DELTA:g}, n = {RECORDS:,}: more bands correlate noise over more steps, and leave each "
        "record fewer turns at a higher rate. Errors are shares of DP-SGD's; the last column is of sums as SGD with "
        "momentum 0.9 adds them up, for which the factor is made.",
        common.table(
            ["batch", "T", "epsilon", "bands", "noise multiplier", "mean error", "max error", "mean, momentum"],
            [
                [
                    row["batch"],
                    row["steps"],
                    row["epsilon"],
                    row["bands"],
                    f"{row['noise_multiplier']:.3f}",
                    f"{row['mean']:.3f}",
                    f"{row['max']:.3f}",
                    f"{row['momentum']:.3f}",
                ]
                for row in costs
            ],
        ),
    ]
    if ran:
        text += [
            "MNIST, raw digits, a linear head at privmix's defaults but for batch and epochs:",
            accuracy_table(ran),
        ]
    results = {"errors": alone, "priced": costs, "runs": ran}
    common.save("banded", "Banded matrix factorisation beside DP-SGD", {"delta": DELTA}, results, text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--errors", action="store_true", help="no training")
    parser.add_argument("--report", action="store_true", help="only write the page anew")
    given = parser.parse_args()
    if not (given.errors or given.report):
        train(given.seeds)
    report()
