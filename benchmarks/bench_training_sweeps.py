"""Sweeps of private training at one learning rate, paired by seed: augmentations, K_BASE x K_SELF x K_DIFF, rho.

The task is that of bench_training_ablation.py, with a learning rate of 1 for every setting. Sweeps, by paper:

* ``augmentation``: single-sample augmentations compared with DP-MIX_SELF (Bao et al. 2023, Table 4);
* ``grid``: K_BASE x K_SELF x K_DIFF (their Table 9), with a pool of 600 real public images;
* ``rho``: of weight multiplicity after a warm-up (Park et al. 2024, Table 15).

Finished runs are kept in results/training_sweeps_runs.json.

    python benchmarks/bench_training_sweeps.py [--only grid,rho] [--seeds 5] [--report]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

import common
from bench_training_ablation import (
    CLASSES,
    CROP,
    DELTA,
    LAST,
    REAL,
    RECORDS,
    best_rate,
    features,
    held_out,
    in_words,
    public,
    raw,
    settings,
    student,
    warm,
)
from bench_training_ablation import RUNS as TUNED
from privmix.features.base import get_extractor
from privmix.mechanisms.streams import SecretStreams
from privmix.training.dp_sgd import TrainingRecords
from privmix.training.examples import ModelFacts
from privmix.training.public.config import ExtendedConfig
from privmix.training.trainer import Trainer
from privmix.training.views.augment import Affine, Blur, Cutout, Jitter, Noise, OneOf, Sobel
from privmix.training.views.config import ViewConfig

RUNS = common.RESULTS / "training_sweeps_runs.json"


@dataclass(frozen=True)
class Setting:
    """One training of a sweep, by what differs from Self-Aug with 4 crops at epsilon 1."""

    sweep: str
    label: str
    views: ViewConfig = field(default_factory=lambda: ViewConfig.self_aug(4, CROP))
    epsilon: float = 1.0
    changes: tuple[tuple[str, Any], ...] = ()

    def key(self, seed: int) -> str:
        return f"{self.sweep}: {self.label}: {seed}"


def schedule() -> Iterator[Setting]:
    crops = ViewConfig.self_aug(4, CROP)
    yield Setting("augmentation", "crops (Self-Aug)", crops, 1.0)
    for extra in (Jitter(), Affine(), Cutout(), Noise(), Blur(), Sobel(), OneOf()):
        yield Setting("augmentation", f"and {extra.name}", ViewConfig.self_aug(4, (*CROP, extra)), 1.0)
    yield Setting("augmentation", "and 4 mixes (DP-MIX_SELF)", ViewConfig.dp_mix_self(4, 4, CROP), 1.0)
    for base in (2, 4):
        for mixes in (0, 2, 4):
            for diff in (0, 1, 2):
                label = f"K_BASE {base}, K_SELF {mixes}, K_DIFF {diff}"
                yield Setting("grid", label, ViewConfig(base, mixes, diff, CROP), 1.0)
    for rho in (0.02, 0.05, 0.1, 0.2, 0.5):
        extended = ExtendedConfig(method="multiplicity", batch_size=64, perturbations=4, rho=rho, max_norm=1.0)
        changes = (*warm("sam", "extended"), ("extended", extended))
        yield Setting("rho", f"{rho:g}", crops, 2.0, changes=changes)


def one_run(setting: Setting, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    changes = dict(setting.changes)
    config = replace(settings(setting.epsilon, 1.0), views=setting.views, model_seed=seed, **changes)
    y = raw("train")[1]
    mine = np.sort(np.random.default_rng(seed).choice(LAST, RECORDS, replace=False))
    facts = ModelFacts(CLASSES, get_extractor("pixels").spec(), (28, 28), 784)
    start = time.process_time()
    work = Trainer(
        config,
        facts,
        len(mine),
        public=None if config.scenario == "cold" else public(REAL),
        pool=public(REAL) if config.views.k_diff else None,
    )
    records = TrainingRecords.of(features("train")[mine], y[mine], classes=10)
    model = work.run(records, streams=SecretStreams.from_seed(seed))
    accuracy = float((model.predict(features("test")) == raw("test")[1]).mean())
    return {
        "sweep": setting.sweep,
        "label": setting.label,
        "epsilon": setting.epsilon,
        "views": setting.views.views,
        "seed": seed,
        "accuracy": round(100 * accuracy, 2),
        "cpu_seconds": round(time.process_time() - start, 1),
    }


# sweep -> (what it says, the label that differences are from, what the papers found)
ABOUT = {
    "augmentation": (
        "Single-sample augmentations",
        "crops (Self-Aug)",
        "Table 4 (CIFAR-10, epsilon 1): 96.5; 96.3 to 96.7 with any but Sobel (72.5); DP-MIX_SELF 97.2.",
    ),
    "grid": (
        "K_BASE, K_SELF and K_DIFF",
        "K_BASE 2, K_SELF 0, K_DIFF 0",
        "Table 9 (Caltech256, epsilon 1): K_DIFF adds 4 to 7 points at 2, 5 to 10 at 4; K_SELF little.",
    ),
    "rho": ("rho of weight multiplicity", "0.1", "Park et al. 2024, Table 15: flat around 0.1."),
}


def note() -> str:
    """The rate of these sweeps, and what the search of bench_training_ablation.py chose for their first line."""
    found = json.loads(TUNED.read_text()) if TUNED.exists() else {}
    best = best_rate(found, "views", "Self-Aug", 1.0) if held_out(found, "views", "Self-Aug", 1.0) else None
    chosen = "" if best is None else f" For crops (Self-Aug) at epsilon 1 a search on held-out images chose {best:g}"
    if best == 1:
        chosen += ", so that the baseline of the augmentations is a tuned one; the other settings have no search."
    elif chosen:
        chosen += ", which is not the rate here."
    return (
        f"Every setting has a learning rate of 1.{chosen} At epsilon 1 the gains hold for that rate alone. [Each line "
        "at its own rate](training_ablation.md)."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(ABOUT), help="sweeps, separated by commas")
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each setting")
    parser.add_argument("--report", action="store_true", help="run nothing more")
    asked = parser.parse_args()
    runs: dict[str, Any] = json.loads(RUNS.read_text()) if RUNS.exists() else {}
    for seed in range(0 if asked.report else asked.seeds):
        for setting in schedule():
            if setting.sweep in asked.only.split(",") and setting.key(seed) not in runs:
                runs[setting.key(seed)] = found = one_run(setting, seed)
                print(setting.key(seed), found["accuracy"], found["cpu_seconds"], flush=True)
                RUNS.write_text(json.dumps(runs, indent=0) + "\n")
    report(runs, again=asked.report)


def of(runs: Mapping[str, Any], sweep: str, label: str) -> dict[int, dict[str, Any]]:
    return {run["seed"]: run for run in runs.values() if (run["sweep"], run["label"]) == (sweep, label)}


def report(runs: Mapping[str, Any], *, again: bool = False) -> None:
    tables = []
    for sweep, (title, reference, says) in ABOUT.items():
        labels = list(dict.fromkeys(run["label"] for run in runs.values() if run["sweep"] == sweep))
        rows = [row(runs, sweep, label, reference) for label in labels]
        if rows:
            epsilon = next(run["epsilon"] for run in runs.values() if run["sweep"] == sweep)
            head = [f"epsilon {epsilon:g}", "test accuracy, % (least to most; seeds)", "difference, 95% interval"]
            body = common.table([*head, "K", "CPU ms a record and epoch"], rows)
            tables.append(f"### {title}\n\n{says}\n\n{body}\n\n{verdict(runs, sweep, labels, reference)}")
    facts = {
        "task": f"tanh CNN on MNIST pixels, {RECORDS} private records, 5 epochs, batches of 250, PLD",
        "public images": "600 real digits that no private record comes from",
        "difference": "mean of paired differences from the row without one; Student's interval over the seeds, of each "
        "difference by itself",
        "hyper-parameters": "one setting for all: after 40 steps the network is not done, so longer steps gain as well",
        "delta": DELTA,
        "cpu_seconds": round(sum(run["cpu_seconds"] for run in runs.values())),
    }
    tables.insert(0, note())
    title = "Sweeps of private training at one learning rate"
    common.save("training_sweeps", title, facts, list(runs.values()), tables, again=again)


def interval(runs: Mapping[str, Any], sweep: str, label: str, reference: str) -> tuple[float, float, float] | None:
    """Mean of the paired differences from the reference and its 95% interval by Student's t; None of one seed."""
    mine, base = of(runs, sweep, label), of(runs, sweep, reference)
    return student(np.array([mine[seed]["accuracy"] - base[seed]["accuracy"] for seed in mine if seed in base]))


def effects(runs: Mapping[str, Any]) -> str:
    """What each number of the grid adds, the others being equal: means of a seed's cells, Student's interval."""
    cells: dict[int, dict[tuple[int, ...], float]] = {}
    for run in runs.values():
        if run["sweep"] == "grid":
            place = tuple(int(part.split()[1]) for part in run["label"].split(", "))
            cells.setdefault(run["seed"], {})[place] = run["accuracy"]
    whole = [found for found in cells.values() if len(found) == max(map(len, cells.values()))]
    parts = []
    steps = (0, "K_BASE", 2, 4), (1, "K_SELF", 0, 2), (1, "K_SELF", 0, 4), (2, "K_DIFF", 0, 1), (2, "K_DIFF", 0, 2)
    for axis, name, low, high in steps:
        pairs = [((*at[:axis], low, *at[axis + 1 :]), at) for at in whole[0] if at[axis] == high]
        gaps = np.array([np.mean([found[to] - found[since] for since, to in pairs]) for found in whole])
        parts.append(f"{name} {high} in place of {low} {in_words(student(gaps))}")
    return f"The others being equal, means over the grid of {len(whole)} seeds: {'; '.join(parts)}."


def verdict(runs: Mapping[str, Any], sweep: str, labels: Sequence[str], reference: str) -> str:
    """Which settings differ from the reference by more than chance."""
    if sweep == "grid":
        return effects(runs)
    known = {label: interval(runs, sweep, label, reference) for label in labels if label != reference}
    better = [label for label, one in known.items() if one is not None and one[1] > 0]
    worse = [label for label, one in known.items() if one is not None and one[2] < 0]
    silent = [label for label in known if label not in (*better, *worse)]
    parts = [f"{words}: {'; '.join(found)}." for words, found in (("Better", better), ("Worse", worse)) if found]
    if silent:
        parts.append(f"May be nothing, by these seeds: {'; '.join(silent)}.")
    return f"Compared with '{reference}'. " + " ".join(parts)


def row(runs: Mapping[str, Any], sweep: str, label: str, reference: str) -> list[str]:
    mine = of(runs, sweep, label)
    values = [run["accuracy"] for run in mine.values()]
    step = interval(runs, sweep, label, reference)
    seconds = float(np.median([run["cpu_seconds"] for run in mine.values()]))
    return [
        label,
        f"{np.mean(values):.1f} ({min(values):.1f} to {max(values):.1f}; {len(values)})",
        "-" if label == reference else in_words(step),
        str(next(iter(mine.values()))["views"]),
        f"{1000 * seconds / (5 * RECORDS):.2f}",
    ]


if __name__ == "__main__":
    main()
