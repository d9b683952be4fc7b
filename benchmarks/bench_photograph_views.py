"""Views of photographs before a public encoder: Bao et al. 2023, Table 3, with the network as it is.

Bao et al. fine-tune networks that were trained on public images, with Self-Aug, DP-MIX_SELF and DP-MIX_DIFF. Here the
network stays as it is: features of eight augmented copies of each of 2,000 training images are extracted once, and a
linear head is trained on views drawn from them. Mixes are thus mixes of features. Public examples of DP-MIX_DIFF are
600 other training images: the paper's come from a diffusion model.

Every method has its rate and epochs searched alike, at epsilon 1 and 8, on 3,000 further training images. Epsilon 2
takes the setting for 1, and epsilon 4 that for 8. Methods are paired by seed: batches, noise and initial weights.

Copies take three minutes of CPU time a data set and are kept in benchmarks/cache, or the folder that
PRIVMIX_BENCH_CACHE names; runs in results/photograph_views_runs.json, the search in photograph_views_search.json.

    python benchmarks/bench_photograph_views.py [--data eurosat,cifar10] [--seeds 5] [--report]
"""

from __future__ import annotations

import argparse
import time
from functools import cache
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

import common
from bench_photographs import CLASSES, DATA, DELTA, STAGES, data
from privmix.data import ArraySource, open_dataset
from privmix.features.base import parse_features
from privmix.mechanisms.streams import SecretStreams
from privmix.training.config import TrainingConfig
from privmix.training.dp_sgd import TrainingRecords
from privmix.training.examples import ModelFacts, PublicData
from privmix.training.trainer import Trainer
from privmix.training.views.augment import Crop, Flip
from privmix.training.views.config import ViewConfig
from privmix.training.views.pipeline import ViewBank

RUNS = common.RESULTS / "photograph_views_runs.json"
SEARCH = common.RESULTS / "photograph_views_search.json"
PRIVATE, PUBLIC, HELD_OUT, COPIES = 2_000, 600, 3_000, 8
# Budgets, and that at which the setting of each was searched.
EPSILONS: Final = {1.0: 1.0, 2.0: 1.0, 4.0: 8.0, 8.0: 8.0}
CLIP: Final = 0.1
AXES: Final = {"rate": (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2), "epochs": (2, 5, 10, 20, 40)}
START: Final = {1.0: {"rate": 0.2, "epochs": 10}, 8.0: {"rate": 0.4, "epochs": 20}}
PLAIN, BASE, ALONE = "DP-SGD, no augmentation", "Self-Aug", "public images alone"
METHODS: Final[dict[str, ViewConfig]] = {
    PLAIN: ViewConfig.plain(),
    BASE: ViewConfig.self_aug(8, ()),
    "DP-MIX_SELF": ViewConfig.dp_mix_self(8, 8, ()),
    "DP-MIX_DIFF": ViewConfig.dp_mix_diff(8, 8, 1, ()),
}
# Bao et al. 2023, Table 3: fine-tuned networks.
PAPER: Final = {"eurosat": {"ViT-B-16": (94.3, 95.6), "ConvNeXt": (94.6, 95.5)}, "cifar10": {}}


@cache
def bank(dataset: str) -> TrainingRecords:
    """Eight copies of each private image; one bank for all runs."""
    path = common.CACHE / f"{dataset}-lite2-views.npy"
    y = data("train", dataset)[1][:PRIVATE]
    if not path.exists():
        source = open_dataset(
            common.data_root() / dataset, split="train", classes=CLASSES, input_shape=DATA[dataset].shape
        )
        x: NDArray[Any] = next(iter(source.batches(PRIVATE))).x
        changes = (Crop(padding=4 * DATA[dataset].shape[0] // 32), Flip())
        own = ArraySource(x, y, CLASSES)
        streams = SecretStreams.from_seed(0)
        views = ViewBank(parse_features(STAGES), changes, COPIES, streams, 0)
        np.save(path, np.concatenate([x.reshape(len(x), COPIES, -1) for x, _ in views.rows(own)]))
    return TrainingRecords.of(np.load(path), y, classes=len(CLASSES))


def one_run(
    dataset: str, method: str, epsilon: float, seed: int, setting: dict[str, Any], *, search: bool = False
) -> dict[str, Any]:
    (x, y), (test_x, test_y) = data("train", dataset), data("test", dataset)
    if search:
        judged = slice(PRIVATE + PUBLIC, PRIVATE + PUBLIC + HELD_OUT)
        test_x, test_y = x[judged], y[judged]
    views = METHODS[method]
    config = TrainingConfig.for_model(
        "linear",
        records=PRIVATE,
        epsilon=epsilon,
        delta=DELTA,
        optimiser=f"sgd:learning_rate={setting['rate'] / CLIP:g}",
        epochs=float(setting["epochs"]),
        clip_norm=CLIP,
        views=views,
        model_seed=seed,
    )
    others = slice(PRIVATE, PRIVATE + PUBLIC)
    public = PublicData.of(x[others], torch.from_numpy(y[others]), classes=len(CLASSES))
    facts = ModelFacts(CLASSES, {"name": "identity", "version": 1, "options": {}}, (x.shape[1],), x.shape[1])
    records = bank(dataset)
    if method == PLAIN:
        records = TrainingRecords.of(x[:PRIVATE], y[:PRIVATE], classes=len(CLASSES))
    start = time.process_time()
    work = Trainer(config, facts, PRIVATE, pool=public if views.k_diff else None)
    model = work.run(records, streams=SecretStreams.from_seed(seed))
    seconds = time.process_time() - start
    accuracy = 100 * float((model.predict(test_x) == test_y).mean())
    return {"accuracy": round(accuracy, 3), "cpu_seconds": round(seconds, 1)}


def chosen(dataset: str, method: str, epsilon: float) -> dict[str, Any]:
    """Rate and epochs with the best accuracy on held-out images."""

    def score(setting: dict[str, Any]) -> float:
        cell = {"dataset": dataset, "method": method, "epsilon": epsilon, "setting": setting}
        for run in common.kept(SEARCH):
            if all(run[key] == cell[key] for key in cell):
                return float(run["accuracy"])
        found = one_run(dataset, method, epsilon, 0, setting, search=True)["accuracy"]
        common.keep(SEARCH, {**cell, "accuracy": found})
        return float(found)

    return common.walk(AXES, START[epsilon], score)


@cache
def public_alone(dataset: str) -> dict[str, Any]:
    """Logistic regression on the public images, without any private one; C is searched on the held-out images."""
    (x, y), (test_x, test_y) = data("train", dataset), data("test", dataset)
    own, judged = slice(PRIVATE, PRIVATE + PUBLIC), slice(PRIVATE + PUBLIC, PRIVATE + PUBLIC + HELD_OUT)

    def model(c: float) -> Any:
        return LogisticRegression(C=c, max_iter=300).fit(x[own], y[own])

    best = max((1, 10, 100, 1000), key=lambda c: float(model(c).score(x[judged], y[judged])))
    accuracy = round(100 * float(model(best).score(test_x, test_y)), 3)
    return {"dataset": dataset, "method": ALONE, "epsilon": 0.0, "setting": {"C": best}, "accuracy": accuracy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="eurosat,cifar10", help="data sets, separated by commas")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--report", action="store_true", help="tables alone, of the runs that are kept")
    options = parser.parse_args()
    cells = ("dataset", "method", "epsilon", "seed")
    done = {tuple(run[key] for key in cells): run["setting"] for run in common.kept(RUNS)}
    for dataset in () if options.report else options.data.split(","):
        # Every method once before any twice.
        for seed in range(options.seeds):
            for epsilon, searched in EPSILONS.items():
                for method in METHODS:
                    cell = (dataset, method, epsilon, seed)
                    setting = chosen(dataset, method, searched)
                    if done.get(cell) != setting:
                        run = dict(zip(cells, cell, strict=True)) | {"setting": setting}
                        common.keep(RUNS, run | one_run(*cell, setting), cells)
                        print(cell, flush=True)
    report(common.kept(RUNS))


def report(runs: list[dict[str, Any]]) -> None:
    """results/photograph_views.md: accuracies, differences from Self-Aug paired by seed, and chosen settings."""
    tables = []
    for dataset in ("eurosat", "cifar10"):
        found: dict[tuple[str, float], dict[int, float]] = {}
        settings: dict[tuple[str, float], dict[str, Any]] = {}
        for run in (run for run in runs if run["dataset"] == dataset):
            found.setdefault((run["method"], run["epsilon"]), {})[run["seed"]] = run["accuracy"]
            settings[run["method"], run["epsilon"]] = run["setting"]
        if not found:
            continue
        head = [DATA[dataset].title, *(f"epsilon {epsilon:g}" for epsilon in EPSILONS)]
        rows, gaps, best = [], [], []
        for method in METHODS:
            mine = [found.get((method, epsilon), {}) for epsilon in EPSILONS]
            rows.append([method, *(common.told(list(cell.values())) if cell else "" for cell in mine)])
            pairs = [
                [cell[seed] - base[seed] for seed in sorted(cell.keys() & base.keys())]
                for cell, base in zip(mine, (found.get((BASE, epsilon), {}) for epsilon in EPSILONS), strict=True)
            ]
            if method != BASE:
                gaps.append([method, *(common.gap(pair) if len(pair) > 1 else "" for pair in pairs)])
            each = (settings.get((method, epsilon)) for epsilon in EPSILONS)
            best.append(
                [method, *("" if one is None else f"rate {one['rate']:g}, {one['epochs']} epochs" for one in each)]
            )
        rows.append(
            [f"{PUBLIC} public images alone, logistic regression", *[f"{public_alone(dataset)['accuracy']:.1f}"] * 4]
        )
        rows += [
            [f"DP-Mix, fine-tuned {network}, all images (Bao et al. 2023, Table 3)", f"{low:g}", "", "", f"{high:g}"]
            for network, (low, high) in PAPER[dataset].items()
        ]
        tables += [
            f"## {DATA[dataset].title}\n\nTest accuracy, %: mean (standard deviation, runs).\n\n"
            + common.table(head, rows),
            "Difference from Self-Aug with the same seed, points: mean (95% interval).\n\n" + common.table(head, gaps),
            "Settings chosen on held-out training images.\n\n" + common.table(head, best),
        ]
    facts = {
        "records": f"{PRIVATE} private, {PUBLIC} public and {HELD_OUT} held out for the search, all of the training "
        "images; all test images",
        "features": f"{STAGES}; {COPIES} copies of each image by crops (padding an eighth of the side) and flips",
        "views": "Self-Aug: 8; DP-MIX_SELF: and 8 mixes of these; DP-MIX_DIFF: and one public example. Views are "
        "features, and so are their mixes",
        "training": f"linear head, C = {CLIP}; PLD, add or remove one record",
        "searched": "; ".join(f"{name} {', '.join(map(str, axis))}" for name, axis in AXES.items())
        + ": each axis moves to the next value while accuracy rises, until none moves; one training each, at epsilon 1 "
        "and 8. Rate is the learning rate times C",
        "public images alone": "no private record, so it costs nothing; C of 1, 10, 100 and 1000 searched on the "
        "held-out images. A line with a pool gains from the private records what it has above this one",
        "delta": DELTA,
        "one bank": "copies are drawn once; seeds change batches, noise, choice of views and initial weights",
    }
    results = [*runs, *map(public_alone, dict.fromkeys(run["dataset"] for run in runs))]
    common.save("photograph_views", "Views of photographs before a public encoder", facts, results, tables)


if __name__ == "__main__":
    main()
