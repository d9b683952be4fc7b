"""How far views of training images lie from the images, and from others: Bao et al. 2023, Tables 7 and 8, on MNIST.

10,000 digits of the training split, drawn by the seed, stand for the private records. Of each record the views of a
method are made and one of them is taken, so that every set has as many images: the figure falls with their number. FID
(Heusel et al. 2017) is taken to these records and to the 10,000 test images, in scattering features projected to 512
numbers; the second table has pixels, projected to as many, beside them. Digits are not mirrored: self-augmentation is a
crop of the image padded by 2. Pools of DP-MIX_DIFF are those of bench_ladder.py: 600 public digits, digits rendered
from fonts, and images by EDM where bench_ladder.py has left them.

Five CPU minutes; finished runs are kept in results/view_fid_runs.json.

    python benchmarks/bench_view_fid.py [--seeds 3] [--pools FOLDER]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

import common
import font_digits
from bench_designs import CACHE
from bench_ladder import PUBLIC, images, rendered
from bench_synthesis import public_part
from privmix.research.synthesis.metrics import frechet_distance
from privmix.research.synthesis.quality import Measure
from privmix.training.examples import ImageLayout, PublicData
from privmix.training.views.augment import Crop, Jitter
from privmix.training.views.config import ViewConfig
from privmix.training.views.pipeline import ViewPipeline

RUNS = common.RESULTS / "view_fid_runs.json"
RECORDS, CHUNK, SIDE = 10_000, 500, 28
CROP = (Crop(padding=2),)
# The pipeline's numbers of views are the paper's.
METHODS: Final[dict[str, ViewConfig]] = {
    "none": ViewConfig.plain(),
    "Self-Aug": ViewConfig.self_aug(16, CROP),
    "Self-Aug + jitter": ViewConfig.self_aug(16, (*CROP, Jitter())),
    "DP-MIX_SELF": ViewConfig.dp_mix_self(16, 16, CROP),
}
PUBLIC_POOL, FONTS, DRAWN = "600 public digits", "digits rendered from fonts", "images by EDM"
MIX_DIFF: Final = ViewConfig.dp_mix_diff(16, 18, 2, CROP)
FEATURES: Final = ("scattering", "pixels")
# Of Bao et al. 2023, Table 7, CIFAR-10: to the training set, to the test set.
PUBLISHED = {
    "Self-Aug": (2.6, 3.1),
    "Self-Aug + jitter": (6.0, 6.4),
    "DP-MIX_SELF": (3.1, 3.5),
    f"DP-MIX_DIFF, {DRAWN}": (3.3, 3.7),
}
Pixels = NDArray[np.uint8]


@cache
def measure(features: str) -> Measure:
    return Measure.of(features, (SIDE, SIDE), tuple("0123456789"))


@cache
def test() -> Pixels:
    from bench_ladder import test as held

    return held()[0]


@cache
def test_features(features: str) -> NDArray[np.float32]:
    return np.asarray(measure(features).extractor.transform(test()))


@cache
def records(folder: Path, seed: int) -> tuple[Pixels, NDArray[np.int64]]:
    """The private ones of a seed."""
    x, y = images(folder / "private.npz")
    mine = np.sort(np.random.default_rng(seed).choice(len(x), RECORDS, replace=False))
    return x[mine], y[mine]


def pools(folder: Path) -> Iterator[tuple[str, tuple[Pixels, NDArray[np.int64]]]]:
    yield PUBLIC_POOL, images(folder / "public.npz")
    yield FONTS, rendered()
    if (folder / "pool-longer" / "train.npz").exists():
        yield DRAWN, images(folder / "pool-longer" / "train.npz")


def one_view_each(
    config: ViewConfig, mine: tuple[Pixels, NDArray[np.int64]], pool: tuple[Pixels, NDArray[np.int64]] | None, seed: int
) -> Pixels:
    """One view of each record, drawn from all of them."""
    public = None if pool is None else PublicData.of(*pool, classes=10)
    pipeline = ViewPipeline(config, ImageLayout(1, SIDE, SIDE), classes=10, pool=public)
    random = np.random.default_rng([seed, 1])
    found = []
    for start in range(0, RECORDS, CHUNK):
        x, y = (part[start : start + CHUNK] for part in mine)
        seeds = torch.from_numpy(random.integers(2**62, size=len(y)))
        views, _ = pipeline(torch.from_numpy(_flat(x)), torch.from_numpy(y), seeds)
        taken = random.integers(views.shape[1], size=len(y))
        found.append(views[torch.arange(len(y)), torch.from_numpy(taken), 0].numpy())
    return np.rint(255 * np.clip(np.concatenate(found), 0, 1)).astype(np.uint8)


def _flat(pixels: Pixels) -> NDArray[np.float32]:
    return pixels.reshape(len(pixels), -1).astype(np.float32) / np.float32(255)


def run_views(folder: Path, method: str, seed: int) -> dict[str, Any]:
    mine = records(folder, seed)
    if method in METHODS:
        views = one_view_each(METHODS[method], mine, None, seed)
    else:
        views = one_view_each(MIX_DIFF, mine, dict(pools(folder))[method.removeprefix("DP-MIX_DIFF, ")], seed)
    extractor = measure("scattering").extractor
    theirs = np.asarray(extractor.transform(views))
    return {
        "train": frechet_distance(np.asarray(extractor.transform(mine[0])), theirs),
        "test": frechet_distance(test_features("scattering"), theirs),
    }


def run_sets(folder: Path, other: str, features: str, seed: int) -> dict[str, Any]:
    """From the records of a seed to another set of images, as many of both."""
    mine, extractor = records(folder, seed)[0], measure(features).extractor
    if other.startswith("test"):
        drawn = np.random.default_rng([seed, 3]).permutation(len(test()))
        theirs = test()[np.sort(drawn[: None if other == "test" else int(other.split()[1].replace(",", ""))])]
    elif other == "letters rendered from fonts":
        theirs = font_digits.draw("letters", RECORDS, seed=seed).x
    elif other == FONTS:
        theirs = font_digits.draw("digits", RECORDS, seed=seed).x
    else:
        theirs = dict(pools(folder))[other][0]
    count = min(len(theirs), len(mine))
    order = np.random.default_rng([seed, 2]).permutation(len(mine))[:count]
    ours = np.asarray(extractor.transform(mine[order]))
    return {"images": count, "fid": frechet_distance(ours, np.asarray(extractor.transform(theirs[:count])))}


def kept() -> dict[str, Any]:
    return json.loads(RUNS.read_text()) if RUNS.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--pools", type=Path, default=CACHE / "synthesis", help="public and private images, pools")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    runs = kept()
    public_part(asked.pools)
    there = [name for name, _ in pools(asked.pools)]
    # As many test images beside each pool: FID falls with their number.
    counts = {PUBLIC, *(len(x) for name, (x, _) in pools(asked.pools) if name == DRAWN)}
    others = ["test", *(f"test, {n:,} of them" for n in sorted(counts)), *there, "letters rendered from fonts"]
    for seed in range(asked.seeds):
        for method in (*METHODS, *(f"DP-MIX_DIFF, {name}" for name in there)):
            facts = {"table": "views", "method": method, "seed": seed}
            keep(runs, facts, lambda facts=facts: run_views(asked.pools, facts["method"], facts["seed"]))
        for other in others:
            for features in FEATURES:
                facts = {"table": "sets", "other": other, "features": features, "seed": seed}
                keep(runs, facts, lambda f=facts: run_sets(asked.pools, f["other"], f["features"], f["seed"]))
    report(runs)


def keep(runs: dict[str, Any], facts: dict[str, Any], work: Any) -> None:
    key = " | ".join(str(value) for value in facts.values())
    if key not in runs:
        start = time.process_time()
        runs[key] = {**facts, **work(), "cpu_seconds": round(time.process_time() - start, 1)}
        RUNS.write_text(json.dumps(runs, indent=0) + "\n")
        print(runs[key], flush=True)


def report(runs: dict[str, Any]) -> None:
    """results/view_fid.md, of what is kept."""
    views = [run for run in runs.values() if run["table"] == "views"]
    rows = []
    for method in dict.fromkeys(run["method"] for run in views):
        mine = [run for run in views if run["method"] == method]
        cells = [common.told([run[to] for run in mine], 2) for to in ("train", "test")]
        theirs = PUBLISHED.get(method)
        rows.append([method, *cells, "" if theirs is None else " / ".join(f"{value:g}" for value in theirs)])
    sets = [run for run in runs.values() if run["table"] == "sets"]
    others = []
    sets.sort(key=lambda run: -run["images"])
    for other in dict.fromkeys(run["other"] for run in sets):
        mine = [run for run in sets if run["other"] == other]
        cells = [common.told([run["fid"] for run in mine if run["features"] == one], 2) for one in FEATURES]
        others.append([other, f"{mine[0]['images']:,}", *cells])
    tables = [
        "FID to the records that views are of, and to the test images: mean (standard deviation, seeds). One view a "
        "record, as many images on either side.\n\n"
        + common.table(["views", "to train", "to test", "Bao et al. 2023, Table 7, CIFAR-10: train / test"], rows),
        "Sets of images beside the records (Table 8 has train against test 3.2 and 0.4, train against a diffusion "
        "model's images 30.5 and 30.1, on CIFAR-10 by InceptionV3 and ViT-B-16). Sets of other sizes do not compare "
        "with one another: FID falls with the number of images.\n\n"
        + common.table(["train against", "images", *(f"FID, {measure(one).name}" for one in FEATURES)], others),
    ]
    facts = {
        "records": f"{RECORDS:,} of MNIST's training split by the seed; the {PUBLIC} public digits are not among them",
        "views": "K_BASE 16, K_SELF 16 (DIFF: 18), K_DIFF 2; crops of the image padded by 2; jitter of brightness and "
        "contrast by 0.4",
        "features": measure("scattering").name,
        "cpu_seconds": round(sum(run["cpu_seconds"] for run in runs.values())),
    }
    common.save("view_fid", "FID of views and of pools", facts, list(runs.values()), tables)


if __name__ == "__main__":
    main()
