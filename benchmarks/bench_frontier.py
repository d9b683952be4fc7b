"""Accuracy against epsilon, every method one line: releases, private training, rivals and the papers' claims.

Nothing is run: the lines are the kept runs of the benchmarks that LINES names, each at its own settings, all at delta
1e-5, add or remove one record, by PLD. Claims stand as their papers print them, with their features and accounting.

    python benchmarks/bench_frontier.py
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

import common
from privmix.reports.style import COLOURS, new_figure, save_figure

EPSILONS = (0.5, 1.0, 1.2, 2.0, 3.0, 4.0, 8.0)
OWN, PRIOR, RIVAL, CLAIM = "no public data", "procedural prior or texts", "rival, honest price", "as published"
ENCODER = "public photographs"
Line = tuple[str, str, str, Mapping[str, Any], str]
# (label, kind, runs, what these have, where their accuracy in [0, 1] is)
LINES: dict[str, list[Line]] = {
    "mnist": [
        (
            "moments, discriminant",
            OWN,
            "discriminant",
            {"dataset": "mnist", "design": "second moments, label share 0.35"},
            "discriminant",
        ),
        ("two-stage moments", OWN, "two_stage", {"dataset": "mnist", "design": "two stages"}, ""),
        ("three-stage moments", OWN, "two_stage", {"dataset": "mnist", "design": "three stages"}, ""),
        (
            "Poisson mixup, m = 64, discriminant",
            OWN,
            "discriminant",
            {"dataset": "mnist", "design": "Poisson mixup, m = 64"},
            "discriminant",
        ),
        (
            "Poisson mixup, m = 64, ridge",
            OWN,
            "utility",
            {"dataset": "mnist", "method": "ps-ridge-centred"},
            "",
        ),
        ("DP-SGD, linear", OWN, "training_linear", {"dataset": "mnist", "features": "scattering"}, ""),
        (
            "moments on digits' whitening",
            PRIOR,
            "public",
            {"dataset": "mnist", "prior": "procedural:digits", "design": "moments"},
            "",
        ),
        (
            "two-stage on digits' whitening",
            PRIOR,
            "public",
            {"dataset": "mnist", "prior": "procedural:digits", "design": "two-stage"},
            "",
        ),
        ("DP-MERF", RIVAL, "rivals", {"dataset": "mnist", "design": "DP-MERF (merf)"}, ""),
        ("DP-HP", RIVAL, "rivals", {"dataset": "mnist", "design": "DP-HP (hermite)"}, ""),
        ("class prototypes (DPPL)", RIVAL, "rivals", {"dataset": "mnist", "design": "class prototypes (DPPL)"}, ""),
        ("Iterative Hessian Mixing", RIVAL, "rivals", {"dataset": "mnist", "design": "Iterative Hessian Mixing"}, ""),
        (
            "Gaussian sketch",
            RIVAL,
            "rivals",
            {"dataset": "mnist", "design": "Gaussian sketch (Gaussian Mixing)"},
            "",
        ),
        ("AdaSSP", RIVAL, "rivals", {"dataset": "mnist", "design": "AdaSSP"}, ""),
    ],
    "cifar10": [
        ("Poisson mixup, m = 64, scattering", OWN, "utility", {"dataset": "cifar10", "method": "ps-ridge-centred"}, ""),
        ("DP-SGD, scattering, linear", OWN, "training_linear", {"features": "scattering:ycbcr,mirror"}, ""),
        ("moments, patches of leaves", PRIOR, "cifar10", {"part": "release", "how": "moments"}, ""),
        ("two-stage, patches of leaves", PRIOR, "cifar10", {"part": "release", "how": "two stages"}, ""),
        ("DP-SGD, patches of leaves", PRIOR, "cifar10", {"part": "train"}, ""),
        ("moments, EfficientNet-Lite", ENCODER, "photographs", {"how": "moments"}, ""),
        ("DP-SGD, EfficientNet-Lite, linear", ENCODER, "photographs", {"how": "DP-SGD, linear head"}, ""),
    ],
    "banking77": [
        ("moments, discriminant", OWN, "class_descriptions", {"design": "second moments"}, "nothing"),
        (
            "two-stage moments",
            OWN,
            "two_stage",
            {"dataset": "banking77", "design": "two stages, shares by simulation"},
            "",
        ),
        (
            "three-stage moments",
            OWN,
            "two_stage",
            {"dataset": "banking77", "design": "three stages"},
            "",
        ),
        ("moments, class descriptions", PRIOR, "class_descriptions", {"design": "second moments"}, "descriptions"),
        (
            "Poisson mixup, m by theory",
            OWN,
            "discriminant",
            {"dataset": "banking77", "design": "Poisson mixup, m by theory"},
            "discriminant",
        ),
        ("class sums", OWN, "class_descriptions", {"design": "class sums"}, "nothing"),
        ("DP-MERF", RIVAL, "rivals", {"dataset": "banking77", "design": "DP-MERF (merf)"}, ""),
        ("DP-HP", RIVAL, "rivals", {"dataset": "banking77", "design": "DP-HP (hermite)"}, ""),
        ("class prototypes (DPPL)", RIVAL, "rivals", {"dataset": "banking77", "design": "class prototypes (DPPL)"}, ""),
        (
            "Iterative Hessian Mixing",
            RIVAL,
            "rivals",
            {"dataset": "banking77", "design": "Iterative Hessian Mixing"},
            "",
        ),
        (
            "Gaussian sketch",
            RIVAL,
            "rivals",
            {"dataset": "banking77", "design": "Gaussian sketch (Gaussian Mixing)"},
            "",
        ),
        ("AdaSSP", RIVAL, "rivals", {"dataset": "banking77", "design": "AdaSSP"}, ""),
    ],
}
CLAIMS: dict[str, dict[str, dict[float, float]]] = {
    "mnist": {
        "DPFMix (Li et al. 2022, limit formula)": {1: 89.8, 2: 92.2, 4: 93.5, 8: 94.3},
        "NeuroMixGDP-HS (Li et al. 2024, unsound)": {1: 92.7},
        "P3GM (as in Li et al. 2022)": {1: 79.5, 2: 81.6, 4: 83.2, 8: 84.2},
        "DP-SGD on scattering (Tramèr and Boneh 2021)": {1.2: 98.1, 3: 98.7},
    },
    "cifar10": {
        "DPMix (Li et al. 2022, limit formula)": {1: 24.4, 2: 30.4, 4: 32.0, 8: 31.9},
        "DP-RandP (Tang et al. 2023), originals, network": {1: 72.3},
        "scattering, linear (Tramèr and Boneh 2021), originals": {3: 67.0},
        "PrivImage (Li et al. 2024), public photographs": {1: 74.5},
    },
    "banking77": {},
}
# What the picture shows; what is below has its figures in the table.
SHOWN = {"mnist": (89.0, 99.3), "cifar10": (20.0, 90.0), "banking77": (50.0, 95.0)}
TITLES = {
    "mnist": "MNIST, scattering",
    "cifar10": "CIFAR-10 (JPEG copy)",
    "banking77": "banking77, sentence embeddings",
}


@cache
def runs_of(name: str) -> list[dict[str, Any]]:
    path = common.RESULTS / f"{name}_runs.json"
    kept = json.loads(path.read_text()) if path.exists() else []
    return list(kept["runs"] if isinstance(kept, dict) else kept)


def values(line: Line) -> dict[float, list[float]]:
    """Accuracies in percent, by epsilon."""
    _, _, name, facts, where = line
    found: dict[float, list[float]] = defaultdict(list)
    for run in runs_of(name):
        if all(run.get(key) == value for key, value in facts.items()) and run["epsilon"] in EPSILONS:
            accuracy = float((run[where] if where else run)["accuracy"])
            found[float(run["epsilon"])].append(accuracy if accuracy > 1 else 100 * accuracy)
    return dict(sorted(found.items()))


def without_privacy(dataset: str) -> float | None:
    found = [
        100 * run["accuracy"] for run in runs_of("designs") if (run["dataset"], run["design"]) == (dataset, "none")
    ]
    return found[0] if found else None


def shown(dataset: str) -> Iterator[tuple[Line, dict[float, list[float]]]]:
    for line in LINES[dataset]:
        if found := values(line):
            yield line, found


def main() -> None:
    tables = [_table(dataset) for dataset in LINES]
    figure = new_figure(11, 15)
    for axes, dataset in zip(figure.subplots(len(LINES), 1), LINES, strict=True):
        _draw(axes, dataset)
    save_figure(figure, common.RESULTS / "frontier.svg")
    settings = {
        "delta": 1e-5,
        "cells": "test accuracy, %: mean (standard deviation, runs)",
        "accounting": "PLD, add or remove one record; what is as published keeps its own",
        "runs": "those that the benchmarks of each line have kept, with their settings",
    }
    results = [
        {"dataset": dataset, "line": line[0], "kind": line[1], "runs": line[2], "accuracy": found}
        for dataset in LINES
        for line, found in shown(dataset)
    ]
    tables.append("![Accuracy against epsilon](frontier.svg)")
    common.save("frontier", "Accuracy against epsilon, every method one line", settings, results, tables)


def _table(dataset: str) -> str:
    rows = []
    for (label, kind, name, _, _), found in shown(dataset):
        cells = [common.told(found[e]) if e in found else "" for e in EPSILONS]
        rows.append([label, kind, *cells, f"[{name}]({name}.md)"])
    for label, points in CLAIMS[dataset].items():
        rows.append([label, CLAIM, *(f"{points[e]:g}" if e in points else "" for e in EPSILONS), ""])
    base = without_privacy(dataset)
    if base is not None:
        rows.append(["without privacy", "", *[f"{base:.1f}"] * len(EPSILONS), "[designs](designs.md)"])
    head = [TITLES[dataset], "", *(f"eps {epsilon:g}" for epsilon in EPSILONS), "runs"]
    return common.table(head, rows)


def _draw(axes: Any, dataset: str) -> None:
    styles = {OWN: ("-", "o"), PRIOR: ("-", "*"), ENCODER: ("-", "D"), RIVAL: ("--", "s")}
    for place, ((label, kind, *_), found) in enumerate(shown(dataset)):
        line, marker = styles[kind]
        means = [float(np.mean(accuracies)) for accuracies in found.values()]
        colour = COLOURS[place % len(COLOURS)]
        axes.plot(list(found), means, line, marker=marker, color=colour, markersize=5, label=label)
    for marker, (label, points) in zip("xv^<", CLAIMS[dataset].items(), strict=False):
        axes.plot(list(points), list(points.values()), ":", marker=marker, color="#888888", label=f"claimed: {label}")
    base = without_privacy(dataset)
    if base is not None:
        axes.axhline(base, color="#333333", linewidth=0.8, label="without privacy")
    axes.set_xscale("log", base=2)
    axes.set_xticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
    axes.set_xlabel("epsilon (delta 1e-5)")
    axes.set_ylabel("test accuracy (%)")
    axes.set_title(TITLES[dataset], fontsize=10)
    axes.grid(alpha=0.3)
    axes.set_ylim(*SHOWN[dataset])
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))


if __name__ == "__main__":
    main()
