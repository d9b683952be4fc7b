"""What the classes of a release look like: images of class means beside the true ones, descriptions by nearness.

MNIST (60,000 training images): from releases of pixels and of scattering features, at epsilon 1 and 8, each class mean
is put back into an image by ``privmix.picture`` and compared with the true mean image of the class: by correlation, by
correlation of what sets it apart (the mean over classes taken off), and by whether its own class's true mean is the
likest of the ten. Without noise: the same search for the exact means of the features. The search has one constant that
was chosen, the weight of the total variation, on digits that privmix renders; steps, rate and start were fixed with a
look at 6,000 images of MNIST.

banking77 (77 intents, sentence embeddings of all-MiniLM-L6-v2): the public texts are the 77 descriptions of
banking77_descriptions.json, written from the names of the classes alone. Counted is the share of classes whose own
description is the nearest of the 77, or among the nearest three; beside it what the noisy class mean's cosine gives,
which takes the noise for signal. Nothing of the score was chosen by this table.

Runs are kept in results/class_pictures_runs.json, so a broken-off run goes on where it ended.

    python benchmarks/bench_class_pictures.py [--report]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import common
from bench_class_descriptions import CLASSES as INTENTS
from bench_class_descriptions import DESCRIPTIONS
from bench_designs import data
from privmix import picture
from privmix.data import open_dataset
from privmix.designs import Classwise, Moments
from privmix.engine import PrivateRecords
from privmix.features import MiniLm, get_extractor
from privmix.learning.class_means import statistics_of
from privmix.learning.inverse import inverse_images
from privmix.planning import ReleaseConfig
from privmix.releases import SecretStreams, release_to_memory

RUNS = common.RESULTS / "class_pictures_runs.json"
DELTA = 1e-5
SHAPE = (28, 28)
DESIGNS: dict[str, Any] = {
    "moments": Moments(),
    "class sums": Classwise(full_batch=True),
    "moments of texts": Moments(label_share=0.9, count_share=0.02),
}
# (features, design, epsilons, seeds)
SCHEDULE: list[tuple[str, str, tuple[float, ...], tuple[int, ...]]] = [
    ("pixels", "class sums", (0.1, 1, 8), tuple(range(200, 205))),
    ("scattering", "class sums", (0.1, 1, 8), tuple(range(200, 205))),
    ("minilm", "moments of texts", (0.5, 1, 8), tuple(range(200, 205))),
    ("pixels", "moments", (0.1, 1, 8), tuple(range(200, 205))),
    ("minilm", "class sums", (0.5, 1, 8), tuple(range(200, 205))),
    ("scattering", "moments", (1, 8), (200,)),
]


@cache
def digits() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    held = open_dataset(common.data_root() / "mnist", split="train", classes=10).read()
    return held.x, held.y


@cache
def features(name: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    if name == "minilm":
        return data("banking77", "train")
    if name == "scattering":
        return data("mnist", "train")
    x, y = digits()
    return get_extractor(name).extract(x), y


@cache
def true_means() -> NDArray[np.float64]:
    x, y = digits()
    return np.stack([x[y == place].mean(axis=0) for place in range(10)]) / 255


def likeness(images: NDArray[Any]) -> dict[str, float]:
    """Of (10, 28, 28) images to the true class means."""
    shown, true = images.reshape(10, -1), true_means().reshape(10, -1)
    across = np.corrcoef(shown, true)[:10, 10:]
    apart = np.corrcoef(shown - shown.mean(axis=0), true - true.mean(axis=0))[:10, 10:]
    return {
        "correlation": float(np.diagonal(across).mean()),
        "least": float(np.diagonal(across).min()),
        "apart": float(np.diagonal(apart).mean()),
        "own_class": float((apart.argmax(axis=1) == np.arange(10)).mean()),
    }


def released(name: str, design: str, epsilon: float, seed: int) -> Any:
    x, y = features(name)
    classes = INTENTS if name == "minilm" else tuple(map(str, range(10)))
    rows = 1 if isinstance(DESIGNS[design], Moments) else None
    config = ReleaseConfig(records=len(x), dim=x.shape[1], classes=classes, design=DESIGNS[design], rows=rows)
    return release_to_memory(
        config.calibrate(epsilon, DELTA),
        PrivateRecords(x, y),
        SecretStreams.from_seed(seed),
        extractor=(MiniLm() if name == "minilm" else get_extractor(name)).spec(),
        input_shape=(1,) if name == "minilm" else SHAPE,
    )


def one_run(name: str, design: str, epsilon: float, seed: int) -> dict[str, Any]:
    run: dict[str, Any] = {"features": name, "design": design, "epsilon": epsilon, "seed": seed}
    release = released(name, design, epsilon, seed)
    if name == "minilm":
        return {**run, **texts(release)}
    figure = common.RESULTS / f"class_pictures_{name}-{epsilon:g}.png" if (seed, design) in DRAWN else None
    found = picture(release, seed=seed, figure=figure, progress=False)
    words = {word: found.words.count(word) for word in sorted(set(found.words))}
    return {**run, "sure": float(found.sure.mean()), "words": words, **likeness(found.images)}


DRAWN = {(200, "class sums")}


def texts(release: Any) -> dict[str, Any]:
    found = picture(release, public_texts=list(DESCRIPTIONS.values()), progress=False)
    order = np.argsort(-found.log_odds, axis=1)
    statistics = statistics_of(release)
    means = statistics.means if hasattr(statistics, "means") else statistics.left * statistics.lengths
    places = release.transform(MiniLm().extract(np.array(found.texts, dtype=object)[:, None])) - statistics.origin
    plain = (means @ statistics.basis.T) @ (places / np.linalg.norm(places, axis=1, keepdims=True)).T
    own = np.arange(len(found.classes))
    return {
        "sure": float(found.sure.mean()),
        "first": float((order[:, 0] == own).mean()),
        "among_three": float((order[:, :3] == own[:, None]).any(axis=1).mean()),
        "cosine_first": float((plain.argmax(axis=1) == own).mean()),
    }


@cache
def without_noise() -> dict[str, float]:
    """What the search itself loses."""
    x, y = features("scattering")
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    means = np.stack([unit[y == place].mean(axis=0) for place in range(10)])
    function = get_extractor("scattering").differentiable(SHAPE)
    return likeness(inverse_images(function, means, np.zeros(10), SHAPE).images)


def jobs() -> Iterator[tuple[str, str, float, int]]:
    """A run of everything, then a second one."""
    for place in range(max(len(seeds) for *_, seeds in SCHEDULE)):
        for name, design, epsilons, seeds in SCHEDULE:
            for epsilon in epsilons:
                if place < len(seeds):
                    yield name, design, epsilon, seeds[place]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", action="store_true", help="only tell kept runs anew")
    again = parser.parse_args().report
    kept: dict[str, Any] = json.loads(RUNS.read_text()) if RUNS.exists() else {"runs": [], "without_noise": None}
    done = {(run["features"], run["design"], run["epsilon"], run["seed"]) for run in kept["runs"]}
    for job in jobs():
        if not again and job not in done:
            kept["runs"].append(one_run(*job))
            print(kept["runs"][-1], flush=True)
            RUNS.write_text(json.dumps(kept, indent=1) + "\n")
    if not again and kept["without_noise"] is None:
        kept["without_noise"] = without_noise()
        RUNS.write_text(json.dumps(kept, indent=1) + "\n")
    report(kept, again)


def cells(runs: list[dict[str, Any]], names: tuple[str, ...]) -> list[str]:
    return [common.told([100 * run[name] for run in runs], 1) for name in names]


def report(kept: dict[str, Any], again: bool) -> None:
    pictures, words = [], []
    for name, design, epsilons, _ in SCHEDULE:
        for epsilon in epsilons:
            wanted = (name, design, epsilon)
            runs = [run for run in kept["runs"] if (run["features"], run["design"], run["epsilon"]) == wanted]
            if not runs:
                continue
            if name == "minilm":
                words.append([design, f"{epsilon:g}", *cells(runs, ("first", "among_three", "cosine_first", "sure"))])
            else:
                row = cells(runs, ("correlation", "least", "apart", "own_class", "sure"))
                pictures.append([f"{name}, {design}", f"{epsilon:g}", *row])
    exact = kept["without_noise"]
    if exact is not None:
        row = [f"{100 * exact[part]:.1f}" for part in ("correlation", "least", "apart", "own_class")]
        pictures.append(["scattering, exact means", "none", *row, "100"])
    shown = "\n\n".join(
        f"![Class means from {name} at epsilon {epsilon}](class_pictures_{name}-{epsilon}.png)"
        for name in ("pixels", "scattering")
        for epsilon in ("0.1", "1", "8")
    )
    tables = [
        common.table(
            ["MNIST: images of class means", "eps", "correlation, %", "of the worst class", "of what sets it apart",
             "nearest to its own class, %", "said to be known, %"], pictures,
        ),
        common.table(
            ["banking77: nearest of 77 public texts", "eps", "own description first, %", "among the first three",
             "first by cosine to the noisy mean", "said to be known, %"], words,
        ),
        "Each image stands with the share that is known of what sets its class apart; below it another one that is as "
        "likely. From class sums, one run each.",
        shown,
    ]  # fmt: skip
    settings = {
        "delta": DELTA,
        "cells": "mean (standard deviation, runs)",
        "accounting": "PLD, add or remove one record",
        "chance": "own description first 1.3%, among three 3.9%; nearest to its own class 10%",
        "correlation": "of an image's points with those of the true mean image; apart: the mean over classes taken off",
    }
    common.save("class_pictures", "What classes look like, from a release alone", settings, kept, tables, again=again)


if __name__ == "__main__":
    main()
