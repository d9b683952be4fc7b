"""``efficientnet``: accuracy against seconds by size, layers, model, mirror; speed against the package's own network.

Accuracy is that of ridge regression without privacy on CIFAR-10's TRAINING images alone: a random 2,000 are learnt
from, another 2,000 are held out; the test set is not opened. The ridge is chosen on a third of those learnt from. The
extractor's default comes from this table. Features of a cell take one pass for all layers. Finished cells are kept in
results/image_features_runs.json.

Speed: the network of ``efficientnet-lite-pytorch`` with the same weights, in batches of 32, on the same resized images,
and the extractor, first one, then the other, then the other way round, in one thread; a round that warms up both does
not count.

    python benchmarks/bench_image_features.py [--only speed,table]
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
from torch.nn.functional import interpolate

import common
from privmix.data import open_dataset
from privmix.features import EfficientNet
from privmix.features.efficientnet import LAYERS, MODELS

RUNS = common.RESULTS / "image_features_runs.json"
LEARNT: Final = 2000
RIDGES: Final = np.geomspace(1e-5, 1.0, 16)
SPEED_SIZES: Final = (96, 160)
SPEED_IMAGES: Final = 64
# (model, size, mirror), the most telling ones first.
CELLS: Final = [
    ("lite0", 160, False), ("lite0", 96, False), ("lite0", 128, False), ("lite2", 160, False), ("lite0", 160, True),
    ("lite2", 160, True), ("lite2", 192, False), ("lite2", 224, False), ("lite1", 160, False), ("lite0", 224, False),
]  # fmt: skip


@cache
def images() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Training images, those to learn from first."""
    source = open_dataset(common.data_root() / "cifar10", classes=[str(k) for k in range(10)], input_shape=(32, 32, 3))
    chosen = np.random.default_rng(0).permutation(source.schema.records)[: 2 * LEARNT]
    parts = [(batch.x, batch.y) for batch in source.batches(5000)]
    x, y = (np.concatenate([part[at] for part in parts]) for at in range(2))
    return x[chosen], y[chosen].astype(np.int64)


def accuracy(x: NDArray[np.float32], y: NDArray[np.int64]) -> float:
    """Of ridge regression on the held-out half, %."""

    def scores(upto: int, start: int, stop: int, ridges: NDArray[np.float64]) -> list[float]:
        mean = x[:upto].mean(axis=0, dtype=np.float64)
        learn, held = x[:upto] - mean, x[start:stop] - mean
        values, vectors = np.linalg.eigh(learn.T @ learn)
        towards = vectors.T @ (learn.T @ (np.eye(10)[y[:upto]] - 0.1))
        turned = held @ vectors
        found = [turned @ (towards / (values + ridge * values[-1])[:, None]) for ridge in ridges]
        return [100 * float((one.argmax(axis=1) == y[start:stop]).mean()) for one in found]

    part = LEARNT * 2 // 3
    best = RIDGES[int(np.argmax(scores(part, part, LEARNT, RIDGES)))]
    return scores(LEARNT, LEARNT, 2 * LEARNT, np.array([best]))[0]


def parts_of(encoder: EfficientNet, features: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    """Features of every choice of layers, from those of all."""
    widths = encoder._network.widths
    edges = np.cumsum([0, *widths[-4:]])
    found = {}
    for name, (stages, head) in LAYERS.items():
        start = 0 if stages else edges[-1]
        chosen = features[:, start : None if head else edges[-1]]
        found[name] = chosen / np.linalg.norm(chosen, axis=1, keepdims=True)
    return found


def cell(model: str, size: int, mirror: bool) -> dict[str, Any]:
    x, y = images()
    encoder = EfficientNet(size=size, model=model, mirror=mirror, layers="all", device="cpu")
    encoder.transform(x[:8])
    start = time.process_time()
    features = encoder.extract(x, batch_size=encoder.step)
    milliseconds = 1e3 * (time.process_time() - start) / len(x)
    found = {name: accuracy(part, y) for name, part in parts_of(encoder, features).items()}
    dims = {name: part.shape[1] for name, part in parts_of(encoder, features[:1]).items()}
    return {"model": model, "size": size, "mirror": mirror, "milliseconds": milliseconds, "dims": dims} | {
        "accuracy": found
    }


def speed(rounds: int) -> dict[str, Any]:
    """CPU milliseconds an image by size: ours and the package's, in turns."""
    from efficientnet_lite_pytorch import EfficientNet as Package

    x, _ = images()
    found: dict[str, Any] = {}
    for size in SPEED_SIZES:
        encoder = EfficientNet(size=size, layers="last", device="cpu")
        package = Package.from_name("efficientnet-lite0", image_size=size)
        package.load_state_dict(torch.load(MODELS["lite0"].path(None, "photos"), weights_only=True))
        package.eval().requires_grad_(False)

        def theirs(package: Any = package, size: int = size) -> NDArray[np.float32]:
            parts = []
            for start in range(0, SPEED_IMAGES, 32):
                images = torch.from_numpy(x[start : start + 32]).permute(0, 3, 1, 2).float()
                resized = interpolate(images, size=(size, size), mode="bicubic", antialias=True).clamp(0, 255)
                with torch.inference_mode():
                    pooled = package.extract_features((resized - 127) / 128).mean((2, 3))
                parts.append(pooled / pooled.norm(dim=1, keepdim=True))
            return torch.cat(parts).numpy()

        def ours(encoder: EfficientNet = encoder) -> NDArray[np.float32]:
            return encoder.transform(x[:SPEED_IMAGES])

        difference = float(np.abs(ours() - theirs()).max())
        pairs = []
        for number in range(rounds):
            turn = {}
            for work in sorted([ours, theirs], key=lambda work: work.__name__, reverse=number % 2 == 1):
                start = time.process_time()
                work()
                turn[work.__name__] = 1e3 * (time.process_time() - start) / SPEED_IMAGES
            pairs.append(turn)
        found[str(size)] = {"pairs": pairs, "largest_difference": difference}
    return found


def kept() -> dict[str, Any]:
    return json.loads(RUNS.read_text()) if RUNS.exists() else {"cells": [], "speed": {}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="speed,table", help="parts, separated by commas; none: tables alone")
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if "speed" in asked.only and not kept()["speed"]:
        RUNS.write_text(json.dumps(kept() | {"speed": speed(asked.rounds)}, indent=1) + "\n")
    for job in CELLS if "table" in asked.only else ():
        if not any((run["model"], run["size"], run["mirror"]) == job for run in kept()["cells"]):
            found = kept()
            found["cells"].append(cell(*job))
            RUNS.write_text(json.dumps(found, indent=1) + "\n")
            print(found["cells"][-1], flush=True)
    report()


def report() -> None:
    found, rows = kept(), []
    order = sorted(found["cells"], key=lambda run: (run["mirror"], run["model"], run["size"]))
    for run in order:
        shown = [f"{run['accuracy'][name]:.1f}" for name in LAYERS]
        mirror = "yes" if run["mirror"] else ""
        rows.append([run["model"], run["size"], mirror, *shown, f"{run['milliseconds']:.1f}"])
    header = ["model", "size", "mirror", *(f"{name}, %" for name in LAYERS), "CPU ms an image, all layers"]
    tables = [
        f"Ridge regression without privacy: {LEARNT:,} of CIFAR-10's training images (a JPEG copy) learnt from, "
        f"{LEARNT:,} others of them held out. The network was trained on ImageNet-1k, which has photographs of most of "
        "these classes. Differences of less than two points may be chance.\n\n" + common.table(header, rows)
    ]
    if found["speed"]:
        lines = []
        for size, measured in found["speed"].items():
            ours, theirs = ([pair[name] for pair in measured["pairs"]] for name in ("ours", "theirs"))
            ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
            lines.append([size, f"{common.median(ours):.1f}", f"{common.median(theirs):.1f}",
                          f"{common.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
                          f"{measured['largest_difference']:.0e}"])  # fmt: skip
        head = ["size", "efficientnet, CPU ms an image", "package", "package / efficientnet", "largest difference"]
        tables.append(
            "Speed of lite0 beside the package's own network, pair by pair, medians in one thread:\n\n"
            + common.table(head, lines)
        )
    settings = {"threads": 1, "weights": {name: weights.package for name, weights in MODELS.items()}}
    common.save("image_features", "Features of photographs: accuracy against seconds", settings, found, tables)


if __name__ == "__main__":
    main()
