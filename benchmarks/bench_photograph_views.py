"""Views of photographs before a public encoder: fine-tuning a linear head as DP-Mix does, in miniature.

Bao et al. (2023, Tables 2 and 4) fine-tune networks that were trained on public images, with Self-Aug, DP-MIX_SELF and
DP-MIX_DIFF. Here the network stays as it is, so that its features of eight augmented copies of each of 10,000 training
images are extracted once, and the head is trained on views drawn from them. Public examples of DP-MIX_DIFF are 600
other training images, in the place of those that a diffusion model would draw. Methods are paired by seed: batches,
noise and initial weights are the same.

Features take ten minutes of CPU time and are kept in benchmarks/cache, runs in results/photograph_views_runs.json.

    python benchmarks/bench_photograph_views.py [--seeds 5] [--report]
"""

from __future__ import annotations

import argparse
import json
import time
from functools import cache
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

import common
from bench_photographs import CLASSES, DELTA, SHAPE
from privmix.data import ArraySource, open_dataset
from privmix.features import parse_features
from privmix.mechanisms.streams import SecretStreams
from privmix.training import ModelFacts, PublicData, Trainer, TrainingConfig, TrainingRecords, ViewConfig
from privmix.training.views.augment import Crop, Flip
from privmix.training.views.bank import extract_bank

RUNS = common.RESULTS / "photograph_views_runs.json"
CACHE = common.RESULTS.parent / "cache"
FEATURES: Final = "efficientnet:96"
PRIVATE, PUBLIC, COPIES, TEST = 10_000, 600, 8, 10_000
EPSILONS: Final = (1.0, 2.0, 4.0, 8.0)
CHANGES: Final = (Crop(padding=4), Flip())
PLAIN: Final = "no augmentation"
METHODS: dict[str, ViewConfig] = {
    PLAIN: ViewConfig.plain(),
    "Self-Aug": ViewConfig.self_aug(8, ()),
    "DP-MIX_SELF": ViewConfig.dp_mix_self(8, 8, ()),
    "DP-MIX_DIFF": ViewConfig.dp_mix_diff(8, 8, 1, ()),
}


@cache
def images(split: str, count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The first images of a split."""
    source = open_dataset(common.data_root() / "cifar10", split=split, classes=CLASSES, input_shape=SHAPE)
    x, y, found = [], [], 0
    for batch in source.batches(1000):
        x.append(batch.x)
        y.append(batch.y)
        found += len(batch.y)
        if found >= count:
            break
    return np.concatenate(x)[:count], np.concatenate(y)[:count].astype(np.int64)


@cache
def features(split: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Of the images as they are: training and public ones, or test ones."""
    x, y = images(split, PRIVATE + PUBLIC if split == "train" else TEST)
    path = CACHE / f"photograph-views-{split}.npy"
    if not path.exists():
        np.save(path, parse_features(FEATURES).transform(x))
    return np.load(path), y


@cache
def bank() -> TrainingRecords:
    """Eight copies of each private image; one bank for all runs."""
    x, y = (part[:PRIVATE] for part in images("train", PRIVATE + PUBLIC))
    path = CACHE / "photograph-views-bank.npy"
    if not path.exists():
        source = ArraySource(x, y, CLASSES)
        streams = SecretStreams.from_seed(0)
        np.save(path, extract_bank(source, parse_features(FEATURES), CHANGES, COPIES, streams, told).x)
    return TrainingRecords.of(np.load(path), y, classes=len(CLASSES))


def told(stage: str, done: int, total: int) -> None:
    if done % 2560 == 0:
        print(stage, done, total, flush=True)


def one_run(method: str, epsilon: float, seed: int) -> dict[str, Any]:
    (x, y), (test_x, test_y) = features("train"), features("test")
    views = METHODS[method]
    config = TrainingConfig.for_model(
        "linear", records=PRIVATE, epsilon=epsilon, delta=DELTA, epochs=20.0, views=views, model_seed=seed
    )
    public = PublicData.of(x[PRIVATE:], torch.from_numpy(y[PRIVATE:]), classes=len(CLASSES))
    facts = ModelFacts(CLASSES, {"name": "identity", "version": 1, "options": {}}, (x.shape[1],), x.shape[1])
    records = TrainingRecords.of(x[:PRIVATE], y[:PRIVATE], classes=len(CLASSES)) if method == PLAIN else bank()
    start = time.process_time()
    work = Trainer(config, facts, PRIVATE, pool=public if views.k_diff else None)
    model = work.run(records, streams=SecretStreams.from_seed(seed))
    seconds = time.process_time() - start
    return {"accuracy": 100 * float((model.predict(test_x) == test_y).mean()), "cpu_seconds": round(seconds, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--report", action="store_true", help="tables alone, of the runs that are kept")
    asked = parser.parse_args()
    CACHE.mkdir(exist_ok=True)
    runs: list[dict[str, Any]] = json.loads(RUNS.read_text()) if RUNS.exists() else []
    done = {(run["method"], run["epsilon"], run["seed"]) for run in runs}
    # Every method once before any twice.
    for seed in range(0 if asked.report else asked.seeds):
        for epsilon in EPSILONS:
            for method in METHODS:
                if (method, epsilon, seed) not in done:
                    job = {"method": method, "epsilon": epsilon, "seed": seed}
                    runs.append(job | one_run(method, epsilon, seed))
                    RUNS.write_text(json.dumps(runs, indent=1) + "\n")
                    print(runs[-1], flush=True)
    report(runs, again=asked.report)


def report(runs: list[dict[str, Any]], *, again: bool) -> None:
    """results/photograph_views.md: accuracies, and differences from Self-Aug paired by seed."""
    found: dict[tuple[str, float], dict[int, float]] = {}
    for run in runs:
        found.setdefault((run["method"], run["epsilon"]), {})[run["seed"]] = run["accuracy"]
    rows = []
    for method in METHODS:
        cells = []
        for epsilon in EPSILONS:
            mine, base = found.get((method, epsilon), {}), found.get(("Self-Aug", epsilon), {})
            gaps = [mine[seed] - base[seed] for seed in sorted(set(mine) & set(base))]
            cells.append(common.told(list(mine.values())) if mine else "")
            cells.append("" if method == "Self-Aug" or not gaps else common.told(gaps, 2))
        seconds = [run["cpu_seconds"] for run in runs if run["method"] == method]
        rows.append([method, *cells, f"{common.median(seconds):.0f}" if seconds else ""])
    head = [text for epsilon in EPSILONS for text in (f"epsilon {epsilon:g}", "from Self-Aug")]
    words = (
        "Test accuracy, %: mean (standard deviation, runs); beside it the mean difference from Self-Aug with the "
        "same seed. CIFAR-10 in a JPEG copy; the network was trained on ImageNet-1k, which has photographs of most of "
        "these classes.\n\n"
    )
    settings = {
        "records": f"{PRIVATE} private, {PUBLIC} public (others of the training images), {TEST} test",
        "features": f"{FEATURES}; {COPIES} copies of each image by crops (padding 4) and flips",
        "views": "Self-Aug: 8; DP-MIX_SELF: and 8 mixes of these; DP-MIX_DIFF: and one public example",
        "training": "linear head, default settings but 20 epochs; PLD, add or remove one record",
        "delta": DELTA,
        "one bank": "copies are drawn once; seeds change batches, noise, choice of views and initial weights",
    }
    tables = [words + common.table(["method", *head, "CPU s"], rows)]
    common.save("photograph_views", "Views of photographs before a public encoder", settings, runs, tables, again=again)


if __name__ == "__main__":
    main()
