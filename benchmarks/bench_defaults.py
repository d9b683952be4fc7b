"""Losses by leaving everything to the defaults: release and train against the best of a few simple settings.

Releases: the planner's choice, told nothing, against second moments of features as they are and projected to 64, 256
and 1,024 numbers, and class sums. Trainings of a linear head: the defaults against three rates and sets of options. Of
these the setting is taken that reaches most on one half of the records that are held out; both are judged on the other.

Digits are scikit-learn's, drawn larger; MNIST, banking77 and EuroSAT as in the other benchmarks, fewer of them. Other
sets are read from ``--sets``, a folder with NAME.npz of arrays x, y, tx, ty (features as extracted, held-out ones too).

    python benchmarks/bench_defaults.py --sets FOLDER
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

import common
import privmix as pm
from privmix.designs import Classwise, Moments
from privmix.engine.rows import PrivateRecords
from privmix.features.base import Usual, parse_features
from privmix.features.identity import Identity
from privmix.features.projected import Projected
from privmix.learning.base import LEARNERS
from privmix.learning.data_model import DataModel
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig, choose_design
from privmix.releases.api import release_to_memory

Arrays = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]
DELTA, SEEDS, TRAININGS = 1e-5, 3, 2
WIDTHS = (None, 64, 256, 1024)
# Unprojected second moments of more features take minutes.
MOST = 4096
HEADS: dict[str, dict[str, Any]] = {
    "rate 2, 20 epochs, features to norm 4": {"optimiser": "sgd:learning_rate=2", "epochs": 20, "feature_norm": 4.0},
    "rate 2": {"optimiser": "sgd:learning_rate=2"},
    "rate 8": {"optimiser": "sgd:learning_rate=8"},
}
# Extractor, and how many features it gives where a folder holds a projection of them.
SETS: dict[str, tuple[str, int | None]] = {
    "digits": ("scattering", None),
    "digits, 64 pixels": ("pixels", None),
    "mnist": ("scattering", None),
    "banking77": ("minilm", None),
    "eurosat": ("scattering:ycbcr", 62_208),
    "ag": ("minilm", None),
    "trec": ("minilm", None),
    "vowel": ("identity", None),
    "fashion": ("scattering", None),
}


def loaded(name: str, folder: Path) -> Arrays:
    """Features and labels: of the folder where it has them."""
    place = folder / f"{name}.npz"
    if not place.exists():
        np.savez(place, **dict(zip(("x", "y", "tx", "ty"), extracted(name), strict=True)))
    found = np.load(place)
    x, y, tx, ty = (found[part] for part in ("x", "y", "tx", "ty"))
    return x.astype(np.float32), y.astype(np.int64), tx.astype(np.float32), ty.astype(np.int64)


def extracted(name: str) -> Arrays:
    x, y, tx, ty = RAW[name]()
    features, wide = SETS[name]
    extractor = parse_features(features if wide is None else f"projected:{MOST}:{features}")
    found = [
        np.concatenate([extractor.transform(part[s : s + 64]) for s in range(0, len(part), 64)]) for part in (x, tx)
    ]
    return found[0], y, found[1], ty


def digits(side: int = 28, records: int = 700) -> tuple[NDArray[Any], ...]:
    from PIL import Image
    from sklearn.datasets import load_digits

    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    made = [Image.fromarray((16 * image).clip(0, 255).astype(np.uint8)) for image in found.images[order]]
    x = np.stack([np.asarray(image.resize((side, side), Image.Resampling.BILINEAR)) for image in made])
    y = found.target[order]
    return x[:records], y[:records], x[records:], y[records:]


def mnist() -> tuple[NDArray[Any], ...]:
    def read(part: str) -> tuple[NDArray[Any], NDArray[Any]]:
        root = common.data_root() / "mnist"
        with gzip.open(root / f"{part}-images-idx3-ubyte.gz") as file:
            images = np.frombuffer(file.read(), np.uint8, offset=16)
        with gzip.open(root / f"{part}-labels-idx1-ubyte.gz") as file:
            labels = np.frombuffer(file.read(), np.uint8, offset=8)
        return images.reshape(-1, 28, 28), labels

    (x, y), (tx, ty) = read("train"), read("t10k")
    return x[:12_000], y[:12_000], tx[:2000], ty[:2000]


def banking77() -> tuple[NDArray[Any], ...]:
    import csv

    def read(part: str) -> tuple[NDArray[Any], NDArray[Any]]:
        with gzip.open(common.data_root() / "banking77" / f"{part}.csv.gz", "rt", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        return np.array([[row["text"]] for row in rows], dtype=object), np.array([int(row["label"]) for row in rows])

    return *read("train"), *read("test")


def eurosat() -> tuple[NDArray[Any], ...]:
    import io

    import pyarrow.parquet as pq
    from PIL import Image

    def read(part: str, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        table = pq.read_table(common.data_root() / "eurosat" / f"{part}_jpeg.parquet").slice(0, count)
        pictures = [Image.open(io.BytesIO(one)) for one in table["image"].to_pylist()]
        return np.stack([np.asarray(one.convert("RGB")) for one in pictures]), np.array(table["label"].to_pylist())

    return *read("train", 7680), *read("test", 1000)


RAW: dict[str, Callable[[], Any]] = {
    "digits": digits,
    "digits, 64 pixels": lambda: digits(8, 1437),
    "mnist": mnist,
    "banking77": banking77,
    "eurosat": eurosat,
}


def narrowed(x: NDArray[np.float32], width: int | None) -> NDArray[np.float32]:
    if width is None:
        return x
    projected = Projected(Identity(), width)
    return np.concatenate([projected.transform(x[start : start + 512]) for start in range(0, len(x), 512)])


def of_release(config: ReleaseConfig, epsilon: float, data: Arrays, width: int | None, seeds: int) -> list[list[float]]:
    """Accuracies on both halves of what is held out, a pair a seed."""
    x, y, tx, ty = data
    x, tx = narrowed(x, width), narrowed(tx, width)
    plan, found = config.calibrate(epsilon, DELTA), []
    for seed in range(seeds):
        release = release_to_memory(
            plan,
            PrivateRecords(x, y),
            SecretStreams.from_seed(seed),
            extractor={"name": "identity", "version": 1, "options": {}},
            input_shape=x.shape[1:],
        )
        found.append(halves(LEARNERS[config.design.learner]().fit(release).predict(tx) == ty))
    return found


def halves(right: NDArray[np.bool_]) -> list[float]:
    return [float(right[::2].mean()), float(right[1::2].mean())]


def releases(name: str, data: Arrays, epsilon: float) -> dict[str, Any]:
    x, y, _, ty = data
    features, wide = SETS[name]
    classes = tuple(map(str, range(int(max(y.max(), ty.max())) + 1)))
    usual: Usual = parse_features(features).usual
    dim = wide or x.shape[1]
    channels = 81 if features == "scattering" else 1
    start = time.process_time()
    model = DataModel.declared(dim, len(classes), np.random.default_rng(0), **usual.of(len(classes)))
    config = ReleaseConfig(len(x), dim, classes, channels=channels)
    best = choose_design(config, epsilon, DELTA, model, curve=False).best
    planning = time.process_time() - start
    narrow = x.shape[1]
    taken = best.config if best.project is not None else ReleaseConfig(len(x), narrow, classes, best.config.design)
    default = of_release(taken, epsilon, data, best.project, SEEDS)
    grid = {}
    for width in WIDTHS:
        if (width or narrow) > MOST - (width is None and wide is not None) or (
            width is not None and 2 * width > narrow
        ):
            continue
        given = ReleaseConfig(len(x), width or narrow, classes, Moments(), channels=1 if width else channels)
        grid["moments" + (f", {width}" if width else "")] = of_release(given, epsilon, data, width, SEEDS)
    given = ReleaseConfig(len(x), narrow, classes, Classwise())
    grid["classwise"] = of_release(given, epsilon, data, None, SEEDS)
    chosen = ", ".join(f"{key} {value}" for key, value in best.settings.items())
    return {"chosen": chosen, "predicted": best.accuracy, "cpu_s": planning, **judged(default, grid)}


def trainings(name: str, data: Arrays, epsilon: float) -> dict[str, Any]:
    x, y, tx, ty = data
    names = range(int(max(y.max(), ty.max())) + 1)

    def reached(**options: Any) -> list[list[float]]:
        found = []
        for seed in range(TRAININGS):
            given = {"features": "identity", "epsilon": epsilon, "delta": DELTA, "seed": seed, **options}
            model = pm.train((x, y), classes=names, **given)
            found.append(halves(np.asarray(model.predict(tx)).astype(np.int64) == ty))
        return found

    return judged(reached(), {words: reached(**options) for words, options in HEADS.items()})


def judged(default: Sequence[Sequence[float]], grid: dict[str, list[list[float]]]) -> dict[str, Any]:
    """The default's and the best simple setting's accuracies; the setting is chosen on the other half."""
    tuned = max(grid, key=lambda words: mean(half[0] for half in grid[words]))
    return {
        "default": [half[1] for half in default],
        "tuned": tuned,
        "reached": [half[1] for half in grid[tuned]],
        "grid": grid,
    }


def row(run: dict[str, Any]) -> list[str]:
    def told(values: Sequence[float]) -> str:
        return f"{100 * mean(values):.1f} ({100 * stdev(values):.1f}, {len(values)})"

    lost = 100 * (mean(run["reached"]) - mean(run["default"]))
    facts = [run["set"], f"{run['records']:,}", f"{run['dim']:,}", f"{run['epsilon']:g}"]
    shown = [told(run["default"]), run["tuned"], told(run["reached"]), f"{lost:+.1f}"]
    if run["what"] == "train":
        return facts + shown
    return [*facts, run["chosen"], f"{100 * run['predicted']:.1f}", f"{run['cpu_s']:.0f}", *shown]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=Path, required=True, help="folder of features; what it lacks is written there")
    parser.add_argument("--only", default=",".join(SETS))
    parser.add_argument("--what", default="release,train")
    args = parser.parse_args()
    args.sets.mkdir(exist_ok=True)
    place = args.sets / "runs.json"
    runs: list[dict[str, Any]] = json.loads(place.read_text()) if place.exists() else []
    for what in args.what.split(","):
        for name in args.only.split(","):
            if name not in RAW and not (args.sets / f"{name}.npz").exists():
                continue
            data = loaded(name, args.sets)
            for epsilon in (1.0, 8.0):
                facts = {"what": what, "set": name, "epsilon": epsilon}
                if any(facts.items() <= run.items() for run in runs):
                    continue
                run = releases(name, data, epsilon) if what == "release" else trainings(name, data, epsilon)
                facts |= {"records": len(data[0]), "dim": SETS[name][1] or data[0].shape[1]}
                runs.append({**facts, **run})
                place.write_text(json.dumps(runs))
                print(row(runs[-1]), flush=True)
    sides = {what: [row(run) for run in runs if run["what"] == what] for what in ("release", "train")}
    shown = ["default, %", "best simple setting", "reached, %", "lost"]
    facts = ["set", "records", "features", "eps"]
    tables = ["## Releases", common.table([*facts, "chosen", "predicted, %", "CPU s", *shown], sides["release"])]
    tables += ["## Trainings of a linear head", common.table([*facts, *shown], sides["train"])]
    settings = {
        "delta": DELTA,
        "figures": "mean (standard deviation, runs) on one half of what is held out; lost: points to the best setting",
        "simple settings of releases": f"second moments, projected to {WIDTHS}, label share 0.35; class sums",
        "simple settings of trainings": "; ".join(HEADS),
        "vowel, ag, trec, fashion": "public files: vowel sounds of The Elements of Statistical Learning, 3,000 texts "
        "of AG News' test file, TREC's questions, the 900 pictures of Fashion-MNIST's sprite",
        "EuroSAT": f"features of 7,680 images, projected to {MOST} before; trainings are of the projected ones",
    }
    common.save("defaults", "What the defaults lose to simple settings", settings, runs, tables)


if __name__ == "__main__":
    main()
