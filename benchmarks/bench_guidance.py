"""Discriminator guidance by its weight (Park et al. 2024, Table 2; Kim et al. 2023), on MNIST's digits.

EDM is trained on the 600 public digits of bench_synthesis.py, once for each seed, and 1,000 images are drawn of it
with each weight: the same model, the same noise. A weight of 2 is the whole step of the derivation; Park et al. find 20
best on CIFAR-10. Every set is measured against MNIST's 10,000 test images, which nothing was made of or chosen by, as
bench_synthesis.py does: CAS (accuracy on the test images of a small CNN that has seen the set alone), a linear
classifier's, inception score by a linear classifier of the 600, precision, recall and FID in scattering features.

Park et al. 2024, Table 13, is the same under augmentation: the CNN then sees new crops and cutouts of the set at every
step. With --swept images are drawn of the swept model of bench_ladder.py as well, from where that has left it.

An hour of CPU time a model. A broken-off run goes on: models and images in --cache, measures in
results/guidance_runs.json.

    python benchmarks/bench_guidance.py [--device cuda] [--seeds 3] [--jobs 3] [--swept] [--cache FOLDER]
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

import common
from bench_ladder import CACHE, SWEPT
from bench_synthesis import CNN_SEEDS, CNN_STEPS, WARM_UP, accuracy_of_cnn, public_part
from privmix import research
from privmix.data import open_dataset
from privmix.reports.style import new_figure, save_figure
from privmix.research.synthesis.metrics import (
    LinearClassifier,
    classification_accuracy,
    frechet_distance,
    inception_score,
    precision_recall,
)
from privmix.research.synthesis.quality import LabelledImages, Measure

RUNS = common.RESULTS / "guidance_runs.json"
WEIGHTS = (0.0, 3.0, 10.0, 20.0, 30.0)
IMAGES, STEPS = 1000, 12
# Half the images a step of bench_synthesis.py's, in the precision that every processor has.
MODEL: dict[str, Any] = {"steps": 3000, "batch_size": 32, "precision": "float32"}


SWEPT_MODEL = "swept"


def one_seed(cache: Path, seed: int | str, device: str, images: int) -> dict[str, Any]:
    """Train, draw with every weight, measure; what is there already is not made again."""
    torch.set_num_threads(1)
    place = cache / f"measured-{seed}.json"
    found: dict[str, Any] = json.loads(place.read_text()) if place.exists() else {}
    real = public_part(cache)
    test = LabelledImages.of(open_dataset(common.data_root() / "mnist", split="test"))
    measure = Measure.of("scattering", test.pixels.shape[1:], tuple("0123456789"))
    theirs, known = measure.extractor.transform(test.pixels), measure.extractor.transform(real.pixels)
    judge = LinearClassifier.of(known, real.labels)
    for weight in WEIGHTS:
        if f"{weight:g}" in found:
            continue
        start, out = time.perf_counter(), cache / f"pool-{seed}-{weight:g}"
        if not out.exists():
            how = {"guidance": weight, "images": images, "device": device}
            how |= {"draw_batch": 100 if device == "cpu" else 1000}
            if seed == SWEPT_MODEL:
                how |= {**SWEPT, "work": CACHE / "synthesis" / "work-swept"}
            else:
                how |= {**MODEL, "seed": seed, "work": cache / f"work-{seed}", "sampler_steps": STEPS}
            research.synthesise(cache / "public.npz", out=out, **how)
        given = LabelledImages.of(open_dataset(out, split="train"))
        ours = measure.extractor.transform(given.pixels)
        manifold = precision_recall(theirs, ours)
        plain = [accuracy_of_cnn(given, test, one) for one in range(CNN_SEEDS)]
        cut = [accuracy_of_cnn(given, test, one, WARM_UP) for one in range(CNN_SEEDS)]
        found[f"{weight:g}"] = {
            "cas cnn": float(np.mean(plain)),
            "cas cnn cut": float(np.mean(cut)),
            "each cnn": plain,
            "each cnn cut": cut,
            "cas scattering": classification_accuracy(ours, given.labels, theirs, test.labels),
            "inception score": inception_score(judge.logits(ours)),
            "precision": manifold.precision,
            "recall": manifold.recall,
            "fid": frechet_distance(theirs, ours),
            "images": len(given.labels),
            "seconds": round(time.perf_counter() - start, 1),
        }
        print(seed, weight, found[f"{weight:g}"], flush=True)
        place.write_text(json.dumps(found, indent=1) + "\n")
    return found


NAMES = {
    "cas cnn": ("CAS, CNN (%)", 100, 1),
    "cas cnn cut": ("CAS, CNN under crops and cutout (%)", 100, 1),
    "cas scattering": ("CAS, linear on scattering (%)", 100, 1),
    "inception score": ("inception score", 1, 2),
    "precision": ("precision", 1, 3),
    "recall": ("recall", 1, 3),
    "fid": ("FID", 1, 1),
}


def rows_of(runs: dict[str, Any], names: tuple[str, ...]) -> list[list[str]]:
    """Means over models by weight, and their range."""
    rows = []
    for weight in (f"{one:g}" for one in WEIGHTS):
        cells = [weight]
        for name in names:
            _, factor, digits = NAMES[name]
            values = factor * np.array([run[weight][name] for run in runs.values() if name in run.get(weight, {})])
            spread = f" ({values.min():.{digits}f} to {values.max():.{digits}f})" if len(values) > 1 else ""
            cells.append(f"{values.mean():.{digits}f}{spread}" if len(values) else "")
        rows.append(cells)
    return rows


def report(found: dict[str, Any], device: str) -> None:
    """results/guidance.md."""
    runs = {key: run for key, run in found.items() if key != SWEPT_MODEL}
    known = tuple(name for name in NAMES if any(name in one for run in runs.values() for one in run.values()))
    rows = rows_of(runs, known)
    count = len(runs)
    whose = (
        "One model: what another would show is not known. Its images have low precision, so the page says little about "
        "guidance."
        if count == 1
        else f"Means of {count} models, and their range."
    )
    text = f"{whose} CAS by the mean of {CNN_SEEDS} CNNs. Weight 0 draws without guidance; all bend the same paths."
    paired = []
    for weight in (f"{one:g}" for one in WEIGHTS[1:]):
        gaps = 100 * np.array([run[weight]["cas cnn"] - run["0"]["cas cnn"] for run in runs.values()])
        error = f" ± {gaps.std(ddof=1) / count**0.5:.2f}" if count > 1 else ""
        paired.append([weight, f"{gaps.mean():+.2f}{error}"])
    draw(runs)
    settings = {"images": f"{IMAGES:,} a weight and model", "network": "small", **MODEL, "device": device}
    settings |= {"CNN": f"{CNN_STEPS} steps, mean of {CNN_SEEDS} seeds", "noise levels": STEPS}
    tables = [
        text,
        common.table(["weight", *(NAMES[name][0] for name in known)], rows),
        "CAS of a CNN against weight 0, points:",
        common.table(["weight", "difference"], paired),
        "![Guidance](guidance.svg)",
    ]
    if SWEPT_MODEL in found:
        says = (
            f"Another model, which bench_ladder.py trains ({SWEPT['steps']:,} steps of {SWEPT['batch_size']}, noise "
            f"levels around exp({SWEPT['noise_mean']:g})), one draw. Park et al. 2024, Table 13: CAS under crops and "
            "cutout 80.40 without guidance, 80.44, 80.62, 79.69 and 78.89 with weights of 3, 10, 20 and 30."
        )
        one = {SWEPT_MODEL: found[SWEPT_MODEL]}
        tables.append(
            f"{says}\n\n" + common.table(["weight", *(h for h, _, _ in NAMES.values())], rows_of(one, tuple(NAMES)))
        )
        tables.append(against_none(found[SWEPT_MODEL]))
    common.save("guidance", "Discriminator guidance by its weight", settings, found, tables)


def against_none(run: dict[str, Any]) -> str:
    """One draw a weight: how far CNNs with the same start differ from weight 0, and what that does not say."""
    rows = []
    for weight in (f"{one:g}" for one in WEIGHTS[1:]):
        cells = [weight]
        for name in ("each cnn", "each cnn cut"):
            gaps = 100 * (np.array(run[weight][name]) - np.array(run["0"][name]))
            cells.append(f"{gaps.mean():+.2f} ({gaps.min():+.2f} to {gaps.max():+.2f}; {len(gaps)})")
        rows.append(cells)
    says = (
        "CAS against weight 0, points: mean (least to most; CNNs, paired by their initial weights and batches). It is "
        "one draw a weight of one model: the spread is the classifiers' alone."
    )
    return f"{says}\n\n" + common.table(["weight", "plain", "under crops and cutout"], rows)


def draw(runs: dict[str, Any]) -> None:
    """CAS, precision and recall against the weight, every model a line."""
    figure = new_figure(11, 3.4)
    for axes, name in zip(figure.subplots(1, 3), ("cas cnn", "precision", "recall"), strict=True):
        for run in runs.values():
            axes.plot(WEIGHTS, [run[f"{weight:g}"][name] for weight in WEIGHTS], marker="o", markersize=3)
        axes.set_title(NAMES[name][0].replace(" (%)", ""))
        axes.set_xlabel("weight of the guidance")
    save_figure(figure, common.RESULTS / "guidance.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--seeds", type=int, default=1, help="models")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time")
    parser.add_argument("--swept", action="store_true", help="of the swept model of bench_ladder.py, too")
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--cache", type=Path, default=Path(__file__).parent / "cache" / "guidance")
    asked = parser.parse_args()
    public_part(asked.cache)
    runs: dict[str, Any] = json.loads(RUNS.read_text()) if RUNS.exists() else {}
    models: list[int | str] = [*range(asked.seeds), *[SWEPT_MODEL] * asked.swept]
    missing = [seed for seed in models if str(seed) not in runs]
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn")) as pool:
        asks = {seed: pool.submit(one_seed, asked.cache, seed, asked.device, asked.images) for seed in missing}
        for seed, asks_one in asks.items():
            runs[str(seed)] = asks_one.result()
            RUNS.write_text(json.dumps(runs, indent=1) + "\n")
    if runs:
        report(runs, asked.device)


if __name__ == "__main__":
    main()
