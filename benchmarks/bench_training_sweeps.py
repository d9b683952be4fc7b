"""What the papers sweep of private training, on a network and on records that two cores can train, paired by seed.

The task is that of bench_training_ablation.py: a tanh CNN (26,010 parameters) on MNIST pixels, with private records
drawn by the seed; all settings of one seed share records, initial weights, batches and noise. Sweeps, by paper:

* ``microbatch``: microbatches of 1 and 2, with mixup and Self-Aug (Bao et al. 2023, Table 1), at one learning rate;
  bench_microbatches.py has one for each size;
* ``augmentation``: single-sample augmentations beside DP-MIX_SELF (Table 4);
* ``views``: K_BASE of Self-Aug against as many views with mixes (Table 5), and the time of a record by K (Table 13);
* ``grid``: K_BASE x K_SELF x K_DIFF (Table 9), with a pool of real public images;
* ``pool``: public images as warm-up, in the mixes, both, or alone (Tables 6, 10 and 12);
* ``rho``: of weight multiplicity after a warm-up (Park et al. 2024, Table 15);
* ``public``: how many public images the warm-up has (their Table 8 sweeps synthetic ones).

Differences have Student's interval over the seeds, each by itself: of 50 that are nothing some two or three would leave
0 out. Finished runs are kept in results/training_sweeps_runs.json; a broken-off benchmark goes on where it stopped.

    python benchmarks/bench_training_sweeps.py [--only views,grid] [--seeds 5] [--report]
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
from scipy import stats

import common
from bench_training_ablation import CLASSES, CROP, DELTA, PRIVATE, features, raw, settings
from privmix.features import get_extractor
from privmix.mechanisms.streams import SecretStreams
from privmix.reports.style import COLOURS, new_figure, save_figure
from privmix.training import ExtendedConfig, ModelFacts, PublicData, Trainer, TrainingRecords, ViewConfig, WarmUpConfig
from privmix.training.views.augment import Affine, Blur, Cutout, Jitter, Noise, OneOf, Sobel

RUNS = common.RESULTS / "training_sweeps_runs.json"
# The last images of the training set are public; private records come from before them.
PUBLIC = 2400
WARM_UP = WarmUpConfig(epochs=30, batch_size=100, learning_rate=0.05)


@dataclass(frozen=True)
class Setting:
    """One training of a sweep, by what differs from Self-Aug with 4 crops at epsilon 8."""

    sweep: str
    label: str
    views: ViewConfig = field(default_factory=lambda: ViewConfig.self_aug(4, CROP))
    epsilon: float = 8.0
    public: int = 600
    changes: tuple[tuple[str, Any], ...] = ()

    def key(self, seed: int) -> str:
        return f"{self.sweep}: {self.label}: {seed}"


def schedule() -> Iterator[Setting]:
    plain, crops = ViewConfig.plain(), ViewConfig.self_aug(4, CROP)
    for size in (1, 2):
        shared: tuple[tuple[str, Any], ...] = (("microbatch_size", size),)
        yield Setting("microbatch", f"DP-SGD, microbatch {size}", plain, changes=shared)
        if size == 2:
            yield Setting("microbatch", "mixup beside its records, microbatch 2", plain, changes=(*shared, MIXES))
            only = (*shared, MIXES, ("microbatch_keep", False))
            yield Setting("microbatch", "mixup only, microbatch 2", plain, changes=only)
        yield Setting("microbatch", f"Self-Aug, microbatch {size}", crops, changes=shared)
    yield Setting("augmentation", "crops (Self-Aug)", crops, 1.0)
    for extra in (Jitter(), Affine(), Cutout(), Noise(), Blur(), Sobel(), OneOf()):
        yield Setting("augmentation", f"and {extra.name}", ViewConfig.self_aug(4, (*CROP, extra)), 1.0)
    yield Setting("augmentation", "and 4 mixes (DP-MIX_SELF)", ViewConfig.dp_mix_self(4, 4, CROP), 1.0)
    for k in (1, 2, 4, 8, 16):
        yield Setting("views", f"Self-Aug {k}", ViewConfig.self_aug(k, CROP))
    for k in (2, 4, 8):
        yield Setting("views", f"DP-MIX_SELF {k} + {k}", ViewConfig.dp_mix_self(k, k, CROP))
    for base in (2, 4):
        for mixes in (0, 2, 4):
            for diff in (0, 1, 2):
                label = f"K_BASE {base}, K_SELF {mixes}, K_DIFF {diff}"
                yield Setting("grid", label, ViewConfig(base, mixes, diff, CROP), 1.0)
    mixed = ViewConfig.dp_mix_diff(4, 4, 1, CROP)
    yield Setting("pool", "no public images", crops, 1.0)
    yield Setting("pool", "warm-up by SGD", crops, 1.0, changes=warm("sgd"))
    yield Setting("pool", "warm-up by SAM", crops, 1.0, changes=warm("sam"))
    yield Setting("pool", "in the mixes (DP-MIX_DIFF)", mixed, 1.0)
    yield Setting("pool", "warm-up by SAM and in the mixes", mixed, 1.0, changes=warm("sam"))
    yield Setting("pool", "views of public images alone", ViewConfig.pure_diff(4, 4), 1.0)
    for rho in (0.02, 0.05, 0.1, 0.2, 0.5):
        extended = ExtendedConfig(method="multiplicity", batch_size=64, perturbations=4, rho=rho, max_norm=1.0)
        changes = (*warm("sam", "extended"), ("extended", extended))
        yield Setting("rho", f"{rho:g}", crops, 2.0, changes=changes)
    for images in (100, 300, 600, 1200, 2400):
        yield Setting("public", str(images), crops, 2.0, images, warm("sam"))


MIXES = ("microbatch_mixes", 1)


def warm(optimiser: str, scenario: str = "warm") -> tuple[tuple[str, Any], ...]:
    return (("scenario", scenario), ("warm_up", replace(WARM_UP, optimiser=optimiser)))


def one_run(setting: Setting, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    config = replace(
        settings("cnn", setting.epsilon, "plain"), views=setting.views, model_seed=seed, **dict(setting.changes)
    )
    x, y = raw("train")
    mine = np.sort(np.random.default_rng(seed).choice(60_000 - PUBLIC, PRIVATE["cnn"], replace=False))
    last = slice(60_000 - setting.public, 60_000)
    held = features("cnn", last.start, last.stop)
    public = PublicData.of(held, torch.from_numpy(y[last].astype(np.int64)), classes=10)
    facts = ModelFacts(CLASSES, get_extractor("pixels").spec(), (28, 28), held.shape[1])
    start = time.process_time()
    work = Trainer(
        config,
        facts,
        len(mine),
        public=None if config.scenario == "cold" else public,
        pool=public if config.views.k_diff else None,
    )
    records = TrainingRecords.of(get_extractor("pixels").extract(x[mine]), y[mine], classes=10)
    model = work.run(records, streams=SecretStreams.from_seed(seed))
    accuracy = float((model.predict(features("cnn", 0, 10_000, "test")) == raw("test")[1]).mean())
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
    "microbatch": (
        "Microbatches",
        "DP-SGD, microbatch 1",
        "Bao et al. 2023, Table 1 (CIFAR-10, epsilon 8): DP-SGD 72.5 and 49.7, mixup 50.1, Self-Aug 78.7 and 52.8. "
        "Both sizes have one learning rate here, which is no comparison of sizes; bench_microbatches.py has one for "
        "each.",
    ),
    "augmentation": (
        "Single-sample augmentations",
        "crops (Self-Aug)",
        "Table 4 (CIFAR-10, epsilon 1): 96.5; 96.3 to 96.7 with any but Sobel (72.5); DP-MIX_SELF 97.2.",
    ),
    "views": (
        "Views of a record",
        "Self-Aug 4",
        "Table 5 (epsilon 8): Self-Aug 16 to 36 78.8 to 78.4, DP-MIX_SELF 79.8. Table 13: 2 h 12 and 7 h 33.",
    ),
    "grid": (
        "K_BASE, K_SELF and K_DIFF",
        "K_BASE 2, K_SELF 0, K_DIFF 0",
        "Table 9 (Caltech256, epsilon 1): K_DIFF adds 4 to 7 points at 2, 5 to 10 at 4; K_SELF little.",
    ),
    "pool": (
        "What public images are used for",
        "no public images",
        "Table 6 (Caltech256, epsilon 2): mixes 91.8, pretraining 81.5. Table 12: public images alone lose 1.1. Both "
        "orders are reversed here, where public images are of the private records' own distribution, labels and all; "
        "the paper's are drawn by a model from class names. With such images the order says nothing of the method. "
        "What a pool of another distribution does: [the ladder's second table](ladder.md).",
    ),
    "rho": ("rho of weight multiplicity", "0.1", "Park et al. 2024, Table 15: flat around 0.1."),
    "public": ("Public images in the warm-up", "600", "Their Table 8 finds more synthetic images better."),
}


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
    draw(runs)
    facts = {
        "task": f"tanh CNN on MNIST pixels, {PRIVATE['cnn']} private records, 5 epochs, batches of 250, PLD",
        "public images": f"600 unless said, of {PUBLIC} that no private record comes from; real ones",
        "difference": "mean of paired differences from the row without one; Student's interval over the seeds, of each "
        "difference by itself",
        "hyper-parameters": "one setting for all: after 40 steps the network is not done, so what makes a step longer "
        "gains, too; a microbatch's mean is clipped like a record's gradient",
        "delta": DELTA,
        "cpu_seconds": round(sum(run["cpu_seconds"] for run in runs.values())),
    }
    tables[:0] = short_of()
    tables.append("![Sweeps](training_sweeps.svg)")
    title = "What the papers sweep of private training"
    common.save("training_sweeps", title, facts, list(runs.values()), tables, again=again)


def short_of() -> list[str]:
    """How far the one learning rate of all sweeps is from the best one, by bench_microbatches.py's held-back images."""
    place = common.RESULTS / "microbatches_runs.json"
    found = json.loads(place.read_text()).values() if place.exists() else ()
    tried: dict[float, list[float]] = {}
    for run in found:
        if (run["on"], run["label"]) == ("held back", "DP-SGD, microbatch 1"):
            tried.setdefault(run["rate"], []).append(run["accuracy"])
    means = {rate: float(np.mean(values)) for rate, values in tried.items()}
    if 1.0 not in means:
        return []
    best = max(means, key=lambda rate: means[rate])
    return [
        f"All sweeps have a learning rate of 1, by which 40 steps are too few: on held-back images of the training "
        f"split plain DP-SGD at epsilon 8 reaches {means[1.0]:.1f}% with it and {means[best]:.1f}% with {best:g} "
        "(bench_microbatches.py). So they say what helps a training that is stopped early. What makes a step longer, "
        "or the task easier, gains in it; with a rate of its own each setting may stand elsewhere."
    ]


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


def student(gaps: Any) -> tuple[float, float, float] | None:
    """Mean of differences and its 95% interval by Student's t; None of one seed."""
    if len(gaps) < 2:
        return None
    half = float(stats.t.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / len(gaps) ** 0.5)
    return float(gaps.mean()), float(gaps.mean()) - half, float(gaps.mean()) + half


def in_words(found: tuple[float, float, float] | None) -> str:
    return "one seed" if found is None else f"{found[0]:+.2f} ({found[1]:+.2f} to {found[2]:+.2f})"


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
    if sweep == "views":
        steps = ((k, interval(runs, sweep, f"DP-MIX_SELF {k} + {k}", f"Self-Aug {2 * k}")) for k in (2, 4, 8))
        told = [f"{2 * k}: {in_words(step)}" for k, step in steps if step is not None]
        parts.append(f"DP-MIX_SELF beside Self-Aug of as many views: {'; '.join(told)}." if told else "")
    return f"Beside '{reference}'. " + " ".join(parts)


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
        f"{1000 * seconds / (5 * PRIVATE['cnn']):.2f}",
    ]


def draw(runs: Mapping[str, Any]) -> None:
    """Paired differences from each sweep's reference, every seed a dot."""
    sweeps = [sweep for sweep in ABOUT if any(run["sweep"] == sweep for run in runs.values())]
    figure = new_figure(12, 3.2 * ((len(sweeps) + 1) // 2))
    grid = np.atleast_1d(figure.subplots((len(sweeps) + 1) // 2, 2)).ravel()
    for axes, sweep in zip(grid, sweeps, strict=False):
        title, reference, _ = ABOUT[sweep]
        base = of(runs, sweep, reference)
        labels: Sequence[str] = list(dict.fromkeys(run["label"] for run in runs.values() if run["sweep"] == sweep))
        for place, label in enumerate(labels):
            mine = of(runs, sweep, label)
            gaps = [run["accuracy"] - base[seed]["accuracy"] for seed, run in mine.items() if seed in base]
            axes.plot(gaps, [place] * len(gaps), "o", color=COLOURS[0], alpha=0.5, markersize=4)
            axes.plot([np.mean(gaps)] * 2, [place - 0.3, place + 0.3], color=COLOURS[1], linewidth=2)
        axes.axvline(0.0, color="#666666", linewidth=0.8)
        axes.set_yticks(range(len(labels)), labels, fontsize=6 if len(labels) > 10 else 7)
        axes.invert_yaxis()
        axes.set_title(title, fontsize=9)
        axes.set_xlabel(f"points from '{reference}' (line: mean)", fontsize=8)
        axes.grid(True, axis="x", alpha=0.3)
    for axes in grid[len(sweeps) :]:
        axes.set_axis_off()
    save_figure(figure, common.RESULTS / "training_sweeps.svg")


if __name__ == "__main__":
    main()
