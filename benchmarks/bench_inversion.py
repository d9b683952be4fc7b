"""Model inversion of scattering features on MNIST and CIFAR-10, and of a deep network's, in numbers.

Li et al. 2022 (Figures 4, 8, 9, 10) and Li et al. 2024 (Figures 6, 15) show pictures. The network here is the public
encoder ``efficientnet:96``, where they take a ResNet-50 (Figure 8) and SimCLR (Figure 15).

Rows of m test images are attacked without noise and with the noise that a Poisson release of n = T = 60,000 (MNIST) or
50,000 (CIFAR-10, a JPEG copy) records needs at epsilon 8 and 1, by PLD. Each degree of each dataset is kept in
results/inversion_runs.json once it is finished, its pictures in benchmarks/cache, and not attacked again; 43 minutes in
all. Figures of pictures are drawn where the cache holds all of a dataset's.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import common
from privmix.data import open_dataset
from privmix.features.base import parse_features
from privmix.planning import ReleaseConfig
from privmix.research.inversion.picture import draw_inversion
from privmix.research.inversion.search import InversionConfig
from privmix.research.inversion.study import NOISY, QUIET, InversionCase, study_inversion

RUNS = common.RESULTS / "inversion_runs.json"
CACHE = common.RESULTS.parent / "cache"
DEGREES, EPSILONS, DELTA = (1, 4, 8, 16, 64), (None, 8.0, 1.0), 1e-5
CLASSES = tuple("0123456789")
# name -> data, features, records of the plan, steps of an attack, degrees
DATASETS = {
    "mnist": ("mnist", "scattering", 60_000, 500, DEGREES),
    "cifar10": ("cifar10", "scattering", 50_000, 200, DEGREES),
    "cifar10-network": ("cifar10", "efficientnet:96", 50_000, 200, (1, 4, 8)),
}
IMAGES = 8
# What the papers say of their pictures, which come without figures.
PUBLISHED = {
    (1, False): "images recovered perfectly",
    (4, False): "digits and objects still recognisable",
    (8, False): "entangled",
    (16, False): "entangled",
    (64, False): "entangled, no individual visible",
    **{(m, True): "pure noise with some random pattern" for m in DEGREES},
}


def one_run(dataset: str, degree: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """All budgets at one degree: figures, and images."""
    folder, features, records, steps, _ = DATASETS[dataset]
    data = open_dataset(common.data_root() / folder, split="test", classes=CLASSES, input_shape=(32, 32, 3)).read()
    extractor = parse_features(features)
    plans = ReleaseConfig(
        records=records, dim=extractor.output_dim(data.x.shape[1:]), classes=CLASSES, mixup_degree=degree, centre="none"
    )
    cases = [
        InversionCase(plans.with_noise(1.0) if budget is None else plans.calibrate(budget, DELTA), budget)
        for budget in EPSILONS
    ]
    # A row of 64 takes as long as eight settings of 8 images.
    steps = steps if degree < 64 else steps // 2
    start = time.perf_counter()
    generator = np.random.default_rng([degree, records])
    effort = InversionConfig(steps=steps)
    study = study_inversion(cases, data.x, data.y, extractor, generator, originals=IMAGES, config=effort)
    seconds = round(time.perf_counter() - start, 1)
    content = study.to_dict()
    run = {"dataset": dataset, "degree": degree, "steps": steps, "seconds": seconds, "cases": content["cases"]}
    return run, content["images"]


def images_of(run: dict[str, Any]) -> Path:
    """Where the images of a degree are."""
    return CACHE / f"inversion-{run['dataset']}-{run['degree']}.json"


def together(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """One record of all degrees of a dataset, with images."""
    parts = [json.loads(images_of(run).read_text()) for run in runs]
    pixels = b"".join(base64.b64decode(part["uint8"]) for part in parts)
    return {
        "cases": [case for run in runs for case in run["cases"]],
        "images": {
            "shape": [sum(part["shape"][0] for part in parts), *parts[0]["shape"][1:]],
            "uint8": base64.b64encode(pixels).decode(),
            "row_labels": [label for part in parts for label in part["row_labels"]],
            "column_labels": parts[0]["column_labels"],
        },
    }


def write_results(runs: list[dict[str, Any]], suffix: str) -> None:
    tables, kept = [], []
    for dataset in DATASETS:
        mine = sorted((run for run in runs if run["dataset"] == dataset), key=lambda run: run["degree"])
        if not mine:
            continue
        if all(images_of(run).exists() for run in mine):
            draw_inversion(together(mine), common.RESULTS / f"inversion_{dataset}{suffix}")
        cases = [case for run in mine for case in run["cases"]]
        tables.append(common.table(HEADER, [table_row(dataset, case) for case in cases]))
        kept += [{"dataset": dataset, **case} for case in cases]
    facts = {
        "rows": f"{IMAGES} test images a setting, in rows of exactly m members; for m > {IMAGES} that many of a row",
        "likeness": "each original with the recovered image of its row that is most like it, by each measure for "
        "itself; other people: matched in the same way with as many images that are in no row; mean image: of 5,000 "
        "public images",
        "noise": f"Poisson design, uncentred, C = 1, lambda = 1, delta {DELTA:g}, PLD; n = T = 60,000 (MNIST), 50,000 "
        "(CIFAR-10)",
        "cifar10-network": "features of efficientnet:96, a network trained on ImageNet-1k, in place of scattering; the "
        "papers' pictures of deep networks show noise at every degree, where ours is beside those of scattering",
        "noise / signal": "norm of a row's noise over the norm of one record's share of the row",
        "attack": "Adam, projected on [0, 1]; "
        + ", ".join(f"{name} {steps} steps" for name, (_, _, _, steps, _) in DATASETS.items())
        + ", half of it for m = 64; without noise the try that explains a row best, with noise the try that does best "
        "on rows of public images, at a quarter of the steps",
        "attempts": f"without noise {[(a.tv_weight, a.from_mean) for a in QUIET]}, with noise "
        f"{[(a.tv_weight, a.from_mean) for a in NOISY]} (weight, start at the mean image)",
        "chosen how": "attack settings were tried out on MNIST's test images, and the rule by which a row's best try "
        "is picked was changed twice after results were seen: figures of a tuned attack, on one seed",
        "papers": "Li et al. 2022 (Figures 4, 9, 10), Li et al. 2024 (Figure 6, appendix K): weight 1e-4, "
        "uniform start, 5,000 steps, "
        "noise by mu-GDP; pictures without figures",
        "seconds": {f"{run['dataset']} m = {run['degree']}": run["seconds"] for run in runs},
        "pictures": ", ".join(f"inversion_{name}.svg" for name in DATASETS),
    }
    common.save("inversion", "Model inversion of mixed scattering features", facts, kept, tables)


HEADER = ["data", "m", "ε", "noise / signal", "MSE", "other people", "mean image", "SSIM"]
HEADER += ["other people", "mean image", "papers' pictures"]


def table_row(dataset: str, case: dict[str, Any]) -> list[str]:
    budget = case["epsilon"]
    # A record's clipped features have norm 1: a row's share of one record is 1 / m.
    dim = {"mnist": 3969, "cifar10": 15552, "cifar10-network": 704}[dataset]
    ratio = case["noise_std"] * dim**0.5 * case["m"]
    own, others, mean = case, case["baseline"], case["mean_image"]
    return [
        dataset,
        str(case["m"]),
        "none" if budget is None else f"{budget:g}",
        "0" if budget is None else f"{ratio:.0f}",
        *(f"{part['mse']:.4f}" for part in (own, others, mean)),
        *(f"{part['ssim']:.3f}" for part in (own, others, mean)),
        PUBLISHED[case["m"], budget is not None],
    ]


def main() -> None:
    """Run what is missing, of all datasets or those named; with ``tables``, only write what is there.

    With ``png``, pictures are PNG.
    """
    named = [dataset for dataset in DATASETS if dataset in sys.argv] or list(DATASETS)
    CACHE.mkdir(exist_ok=True)
    runs: list[dict[str, Any]] = json.loads(RUNS.read_text()) if RUNS.exists() else []
    done = {(run["dataset"], run["degree"]) for run in runs}
    for dataset, degree in ((name, degree) for name, (*_, degrees) in DATASETS.items() for degree in degrees):
        if "tables" not in sys.argv and dataset in named and (dataset, degree) not in done:
            run, images = one_run(dataset, degree)
            print(dataset, degree, run["seconds"], flush=True)
            images_of(run).write_text(json.dumps(images) + "\n")
            runs.append(run)
            RUNS.write_text(json.dumps(runs, indent=0) + "\n")
    write_results(runs, ".png" if "png" in sys.argv else ".svg")


if __name__ == "__main__":
    main()
