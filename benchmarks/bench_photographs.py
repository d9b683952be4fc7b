"""CIFAR-10 by a public image encoder: every design that releases, and DP-SGD on a linear head, at six epsilons.

Features are those of ``--features efficientnet:160,lite2``: four stages of a network that was trained on ImageNet-1k,
1.28 million public photographs. ImageNet has photographs of most of CIFAR-10's classes. Second moments are released of
larger features as well, all layers of the image and of its mirror image. Size, model and layers were chosen on training
images of CIFAR-10, which development pays nothing for and no guarantee covers; designs and learners have what they take
by default, moments a label share from other datasets. The test set was only read for the figures here.

Features take 16 minutes of CPU time, the larger ones 33; they are kept in benchmarks/cache, runs in
results/photographs_runs.json, so a broken-off benchmark goes on where it stopped.

    python benchmarks/bench_photographs.py [--only release,larger,train] [--seeds 5]
"""

from __future__ import annotations

import argparse
import json
import time
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import common
from privmix.data import open_dataset
from privmix.designs import Classwise, Fixed, Hierarchical, Moments, Poisson, ThreeStage, TwoStage
from privmix.engine import PrivateRecords
from privmix.features import parse_features
from privmix.learning import LEARNERS
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.releases import release_to_memory
from privmix.reports.style import new_figure, save_figure
from privmix.research.rivals import GaussianMixing
from privmix.training import ModelFacts, Trainer, TrainingConfig, TrainingRecords

RUNS = common.RESULTS / "photographs_runs.json"
CACHE = common.RESULTS.parent / "cache"
DELTA: Final = 1e-5
CLASSES = tuple("0123456789")
SHAPE = (32, 32, 3)
EPSILONS: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 10.0)
STAGES, ALL = "efficientnet:160,lite2", "efficientnet:160,lite2,all,mirror"
FILES: Final = {STAGES: "cifar10-lite2", ALL: "cifar10-lite2-all-mirror"}
DESIGNS: dict[str, Any] = {
    "moments": Moments(label_share=0.35),
    "three stages": ThreeStage(),
    "two stages": TwoStage(),
    "class sums": Classwise(full_batch=True),
    "class-wise mixup": Classwise(),
    "Poisson mixup": Poisson(),
    "mixup of fixed size": Fixed(),
    "hierarchical mixup": Hierarchical(expected_classes=2.0),
    "Gaussian mixing": GaussianMixing(),
}
# What is released of the larger features.
LARGER: Final = {"moments, all layers and mirror": "moments", "two stages, all layers and mirror": "two stages"}
LINEAR: Final = "DP-SGD, linear head"
# Classifiers of released images, with public images; DPImageBench, table of January 2026.
PUBLISHED = [
    ["PrivImage (Li et al. 2024), release of images", "74.5", "78.4"],
    ["DP-LoRA (Tsai et al. 2024), release of images", "64.6", "77.2"],
    ["Private Evolution (Lin et al. 2024), release of images", "64.6", "75.3"],
]


@cache
def data(split: str, features: str = STAGES) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features and labels; features are kept on disk, part by part."""
    CACHE.mkdir(exist_ok=True)
    source = open_dataset(common.data_root() / "cifar10", split=split, classes=CLASSES, input_shape=SHAPE)
    path, extractor = CACHE / f"{FILES[features]}-{split}.npy", parse_features(features)
    parts, labels = [], []
    for number, batch in enumerate(source.batches(2000)):
        labels.append(batch.y)
        if path.exists():
            continue
        piece = path.with_suffix(f".{number}.npy")
        if not piece.exists():
            start = time.process_time()
            np.save(piece, extractor.transform(batch.x))
            print(split, number, f"{1000 * (time.process_time() - start) / len(batch.y):.1f} ms an image", flush=True)
        parts.append(piece)
    if parts:
        np.save(path, np.concatenate([np.load(piece) for piece in parts]))
        for piece in parts:
            piece.unlink()
    return np.load(path), np.concatenate(labels).astype(np.int64)


def release_run(how: str, epsilon: float, seed: int) -> dict[str, Any]:
    features = ALL if how in LARGER else STAGES
    (x, y), (test_x, test_y) = data("train", features), data("test", features)
    name = LARGER.get(how, how)
    design = DESIGNS[name]
    # Rows sampled from moments are for other learners: one is enough here.
    rows = 1 if name in ("moments", "two stages", "three stages") else None
    config = ReleaseConfig(records=len(x), dim=x.shape[1], classes=CLASSES, design=design, rows=rows)
    start = time.process_time()
    release = release_to_memory(
        config.calibrate(epsilon, DELTA),
        PrivateRecords(x, y),
        SecretStreams.from_seed(seed),
        extractor={"name": features},
        input_shape=(x.shape[1],),
    )
    released = time.process_time()
    learner = LEARNERS[design.learner]().fit(release)
    return {
        "accuracy": 100 * float((learner.predict(test_x) == test_y).mean()),
        "learner": learner.name,
        "cpu_seconds": time.process_time() - start,
        "fit_cpu_seconds": time.process_time() - released,
    }


def train_run(how: str, epsilon: float, seed: int) -> dict[str, Any]:
    config = TrainingConfig.for_model("linear", records=len(data("train")[0]), epsilon=epsilon, delta=DELTA)
    (x, y), (held, labels) = data("train"), data("test")
    facts = ModelFacts(CLASSES, {"name": "identity", "version": 1, "options": {}}, (x.shape[1],), x.shape[1])
    start = time.process_time()
    records = TrainingRecords.of(x, y, classes=len(CLASSES))
    model = Trainer(config, facts, len(x)).run(records, streams=SecretStreams.from_seed(seed))
    seconds = time.process_time() - start
    return {"accuracy": 100 * float((model.predict(held) == labels).mean()), "cpu_seconds": seconds}


def without_privacy(features: str) -> dict[str, Any]:
    """Discriminant analysis of all records, the learner that most releases here are learnt from by."""
    (x, y), (test_x, test_y) = data("train", features), data("test", features)
    start = time.process_time()
    accuracy = LinearDiscriminantAnalysis().fit(x, y).score(test_x, test_y)
    return {"accuracy": 100 * float(accuracy), "cpu_seconds": time.process_time() - start}


def kept() -> list[dict[str, Any]]:
    return json.loads(RUNS.read_text()) if RUNS.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="release,larger,train", help="parts, separated by commas; none: tables alone")
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    runs = kept()
    done = {(run["how"], run["epsilon"], run["seed"]) for run in runs}
    parts: dict[str, Any] = {
        "release": (release_run, list(DESIGNS)),
        "larger": (release_run, list(LARGER)),
        "train": (train_run, [LINEAR]),
    }
    # One run of everything before the second of anything.
    jobs: list[tuple[Any, str, float, int]] = [
        (parts[part][0], how, epsilon, seed)
        for seed in range(asked.seeds)
        for part in parts
        if part in asked.only.split(",")
        for how in parts[part][1]
        for epsilon in EPSILONS
    ]
    for name, features in {"without privacy": STAGES, "without privacy, all layers and mirror": ALL}.items():
        if (name, 0.0, 0) not in done and (features == STAGES or "larger" in asked.only) and jobs:
            runs.append({"how": name, "epsilon": 0.0, "seed": 0, **without_privacy(features)})
    for run, how, epsilon, seed in jobs:
        if (how, epsilon, seed) not in done:
            runs.append({"how": how, "epsilon": epsilon, "seed": seed, **run(how, epsilon, seed)})
            RUNS.write_text(json.dumps(runs, indent=1) + "\n")
            print(runs[-1], flush=True)
    report(runs)


def report(runs: list[dict[str, Any]]) -> None:
    """results/photographs.md: means, least and most of each design at each epsilon."""
    found: dict[tuple[str, float], NDArray[np.float64]] = {}
    for run in runs:
        mine = [one["accuracy"] for one in runs if (one["how"], one["epsilon"]) == (run["how"], run["epsilon"])]
        found[run["how"], run["epsilon"]] = np.array(mine)
    rows = []
    for how in (*LARGER, *DESIGNS, LINEAR):
        cells = [found.get((how, epsilon)) for epsilon in EPSILONS]
        if any(cell is not None for cell in cells):
            seconds = common.median([run["cpu_seconds"] for run in runs if run["how"] == how])
            rows.append([how, *("" if cell is None else _cell(cell) for cell in cells), f"{seconds:.0f}"])
    draw(found)
    least = min((len(values) for (how, _), values in found.items() if not how.startswith("without")), default=0)
    tables = [
        f"Test accuracy, %: mean (least to most); {least} or more runs a cell. CIFAR-10 in a JPEG copy.\n\n"
        + common.table(["", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS), "CPU s"], rows),
        "Published, with public images and the original files (DPImageBench, January 2026):\n\n"
        + common.table(["what", "epsilon 1", "epsilon 10"], PUBLISHED),
        "![Accuracy by epsilon](photographs.svg)",
    ]
    settings = {
        "delta": DELTA,
        "privacy": "PLD, add or remove one record (fixed size: replace one); queries for the mean are paid for",
        "features": f"{STAGES}, or {ALL}: what their network has seen is ImageNet-1k",
        "features made on a graphics card": f"{sum('features' in run for run in runs)} of {len(runs)} runs (an H100, "
        "whose convolutions rounded to ten bits then: 0.2% of the largest number off the processor's)",
        **{how: f"{v[0]:.2f}% by LDA" for (how, _), v in found.items() if how.startswith("without")},
        "training": "linear head, default settings",
    }
    common.save("photographs", "CIFAR-10 by a public image encoder", settings, runs, tables)


def _cell(values: NDArray[np.float64]) -> str:
    return f"{values.mean():.1f} ({values.min():.1f} to {values.max():.1f})" if len(values) > 1 else f"{values[0]:.1f}"


def draw(found: dict[tuple[str, float], NDArray[np.float64]]) -> None:
    """A line for each design, and the accuracy without privacy."""
    figure = new_figure(7, 4)
    axes = figure.subplots()
    for how in (*LARGER, *DESIGNS, LINEAR):
        there = [epsilon for epsilon in EPSILONS if (how, epsilon) in found]
        if there:
            axes.plot(there, [found[how, epsilon].mean() for epsilon in there], marker="o", markersize=3, label=how)
    if ("without privacy", 0.0) in found:
        axes.axhline(found["without privacy", 0.0][0], linestyle="--", color="grey", label="without privacy")
    axes.set_xscale("log", base=2)
    axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    axes.set_xlabel("epsilon")
    axes.set_ylabel("test accuracy, %")
    axes.legend(fontsize=7)
    save_figure(figure, common.RESULTS / "photographs.svg")


if __name__ == "__main__":
    main()
