"""Microbatches of 1 and 2, each size at a learning rate of its own: Bao et al. 2023, Table 1, on MNIST.

The noise in a mean gradient is 2b times as large in microbatches of b > 1 records as without, so one rate for both
sizes suits one of them more. Here the rate of a size is the one by which its plain
DP-SGD does best on 5,000 images of the training split that are not among the private ones, in two trainings whose
private records no other row sees. With it all rows are trained, paired by seed: private records, initial
weights and draws are those of the seed. Test images are looked at once a run and settle nothing.

Runs are kept in results/microbatches_runs.json; a broken-off benchmark goes on where it stopped.

    python benchmarks/bench_microbatches.py [--seeds 5] [--report]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

import common
from bench_training_ablation import CLASSES, CROP, DELTA, LAST, RECORDS, features, in_words, raw, settings, student
from privmix.features.base import get_extractor
from privmix.mechanisms.streams import SecretStreams
from privmix.training.dp_sgd import TrainingRecords
from privmix.training.examples import ModelFacts
from privmix.training.trainer import Trainer
from privmix.training.views.config import ViewConfig

RUNS = common.RESULTS / "microbatches_runs.json"
RATES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
SIZES, REFERENCE = (1, 2), "DP-SGD, microbatch 1"
# Trainings that choose the rates: of no row's seed.
TUNED_ON, HELD = (100, 101), 5_000
PAPER = {
    "DP-SGD, microbatch 1": 72.5,
    "Self-Aug, microbatch 1": 78.7,
    "DP-SGD, microbatch 2": 49.7,
    "mixup only, microbatch 2": 50.1,
    "Self-Aug, microbatch 2": 52.8,
}


@dataclass(frozen=True)
class Setting:
    """A row of the table."""

    label: str
    size: int
    views: ViewConfig
    changes: tuple[tuple[str, Any], ...] = ()


def rows() -> list[Setting]:
    plain, crops, mixes = ViewConfig.plain(), ViewConfig.self_aug(4, CROP), ("microbatch_mixes", 1)
    return [
        Setting("DP-SGD, microbatch 1", 1, plain),
        Setting("Self-Aug, microbatch 1", 1, crops),
        Setting("DP-SGD, microbatch 2", 2, plain),
        Setting("mixup beside its records, microbatch 2", 2, plain, (mixes,)),
        Setting("mixup only, microbatch 2", 2, plain, (mixes, ("microbatch_keep", False))),
        Setting("Self-Aug, microbatch 2", 2, crops),
    ]


def one_run(setting: Setting, rate: float, seed: int, *, held: bool) -> dict[str, Any]:
    """A training, and its accuracy on images of the training split that are held back, or on the test images."""
    torch.set_num_threads(1)
    changes = {**dict(setting.changes), "microbatch_size": setting.size}
    config = replace(settings(8.0, rate), views=setting.views, model_seed=seed, **changes)
    y = raw("train")[1]
    order = np.random.default_rng(seed).permutation(LAST)
    mine, others = np.sort(order[:RECORDS]), np.sort(order[RECORDS:][:HELD])
    facts = ModelFacts(CLASSES, get_extractor("pixels").spec(), (28, 28), 784)
    start = time.process_time()
    records = TrainingRecords.of(features("train")[mine], y[mine], classes=10)
    model = Trainer(config, facts, len(mine)).run(records, streams=SecretStreams.from_seed(seed))
    told, labels = (features("train")[others], y[others]) if held else (features("test"), raw("test")[1])
    accuracy = float((model.predict(told) == labels).mean())
    return {
        "label": setting.label,
        "size": setting.size,
        "rate": rate,
        "seed": seed,
        "on": "held back" if held else "test",
        "accuracy": round(100 * accuracy, 2),
        "cpu_seconds": round(time.process_time() - start, 1),
    }


def key(setting: Setting, rate: float, seed: int) -> str:
    return f"{setting.label}: {rate:g}: {seed}"


def chosen(runs: Mapping[str, Any]) -> dict[int, float]:
    """The rate of each size, of those that were tried with as many seeds; none where nothing was."""
    found: dict[int, float] = {}
    for one in SIZES:
        tried = [run for run in runs.values() if run["on"] == "held back" and run["size"] == one]
        means = {
            rate: np.mean([run["accuracy"] for run in tried if run["rate"] == rate])
            for rate in RATES
            if sum(run["rate"] == rate for run in tried) == len(TUNED_ON)
        }
        if len(means) == len(RATES):
            found[one] = max(means, key=lambda rate: means[rate])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each row")
    parser.add_argument("--report", action="store_true", help="run nothing more")
    asked = parser.parse_args()
    runs: dict[str, Any] = json.loads(RUNS.read_text()) if RUNS.exists() else {}

    def run(setting: Setting, rate: float, seed: int, *, held: bool) -> None:
        name = key(setting, rate, seed)
        if name not in runs:
            runs[name] = one_run(setting, rate, seed, held=held)
            print(name, runs[name]["accuracy"], runs[name]["cpu_seconds"], flush=True)
            RUNS.write_text(json.dumps(runs, indent=0) + "\n")

    before = len(runs)
    if not asked.report:
        plain = [setting for setting in rows() if setting.label.startswith("DP-SGD")]
        for seed in TUNED_ON:
            for setting in plain:
                for rate in RATES:
                    run(setting, rate, seed, held=True)
        rates = chosen(runs)
        for seed in range(asked.seeds):
            for setting in rows():
                run(setting, rates[setting.size], seed, held=False)
    report(runs, again=len(runs) == before)


def report(runs: Mapping[str, Any], *, again: bool) -> None:
    rates, found = chosen(runs), []
    tested = [run for run in runs.values() if run["on"] == "test"]
    for setting in rows():
        mine, base = (
            {run["seed"]: run["accuracy"] for run in tested if run["label"] == label}
            for label in (setting.label, REFERENCE)
        )
        if mine:
            values = list(mine.values())
            spread = f"{np.mean(values):.1f} ({min(values):.1f} to {max(values):.1f}; {len(values)})"
            gaps = np.array([mine[seed] - base[seed] for seed in mine if seed in base])
            step = "-" if setting.label == REFERENCE else in_words(student(gaps))
            paper = f"{PAPER[setting.label]:g}" if setting.label in PAPER else ""
            found.append([setting.label, f"{rates[setting.size]:g}", spread, step, paper])
    header = ["", "rate", "test accuracy, % (least to most; seeds)", f"difference from {REFERENCE}, 95% interval"]
    tables = [common.table([*header, "Bao et al. 2023, Table 1 (CIFAR-10)"], found)]
    tried = []
    for one in SIZES:
        cells = []
        for rate in RATES:
            own = [run for run in runs.values() if (run["on"], run["size"], run["rate"]) == ("held back", one, rate)]
            cells.append(f"{np.mean([run['accuracy'] for run in own]):.1f} ({len(own)})" if own else "-")
        tried.append([f"DP-SGD, microbatch {one}", *cells])
    title = "### How rates were chosen: accuracy on held-back images of the training split, % (trainings)\n\n"
    tables.append(title + common.table(["rate", *(f"{rate:g}" for rate in RATES)], tried))
    facts = {
        "task": f"tanh CNN on MNIST pixels, {RECORDS} private records, 5 epochs, batches of 250, epsilon 8, PLD",
        "delta": DELTA,
        "clipping": "C = 1; a microbatch's mean is clipped like a record's gradient, at twice the sensitivity",
        "interval": "Student's t of paired differences over the seeds",
        "cpu_seconds": round(sum(run["cpu_seconds"] for run in runs.values())),
    }
    title = "Microbatches, each size at a learning rate of its own"
    common.save("microbatches", title, facts, list(runs.values()), tables, again=again)


if __name__ == "__main__":
    main()
