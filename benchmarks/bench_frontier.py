"""Accuracy against epsilon, every method one line: releases, private training, rivals and the papers' claims.

Nothing is run: the lines are the kept runs of the benchmarks that LINES names, each at its own settings, all at delta
1e-5, add or remove one record, by PLD. Claims stand as their papers print them, with their features and accounting.
`frontier.svg` has four lines a dataset: without privacy, the best release that needs no public data and the best
baseline at the epsilons that all were run at, and one private model by DP-SGD. `frontier_all.svg` has every line.

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
        ("DP-CDA", RIVAL, "rivals", {"dataset": "mnist", "design": "DP-CDA (classwise)"}, ""),
        ("Gaussian Mixing", RIVAL, "rivals", {"dataset": "mnist", "design": "Gaussian Mixing (gaussian-mixing)"}, ""),
        ("GH-OFL's statistics", RIVAL, "rivals", {"dataset": "mnist", "design": "GH-OFL's statistics, LDA"}, ""),
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
        ("DP-SGD, linear", OWN, "training_linear", {"dataset": "banking77"}, ""),
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
        ("DP-MERF, width 0.7", RIVAL, "rivals", {"dataset": "banking77", "design": "DP-MERF, width 0.7"}, ""),
        (
            "Gaussian Mixing",
            RIVAL,
            "rivals",
            {"dataset": "banking77", "design": "Gaussian Mixing (gaussian-mixing)"},
            "",
        ),
        (
            "Gaussian Mixing, 10,000 rows",
            RIVAL,
            "rivals",
            {"dataset": "banking77", "design": "Gaussian Mixing, 10,000 rows"},
            "",
        ),
        ("GH-OFL's statistics", RIVAL, "rivals", {"dataset": "banking77", "design": "GH-OFL's statistics, LDA"}, ""),
        (
            "DP-CDA",
            RIVAL,
            "discriminant",
            {"dataset": "banking77", "design": "class-wise Poisson mixup, m = 16"},
            "discriminant",
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
# The picture for a first look: datasets with rivals at an honest price, and what is no release.
FIRST = {"mnist": (94.0, 99.6), "banking77": (64.0, 95.0)}
COMMON = (1.0, 8.0)
TRAINED = "DP-SGD, linear"
NO_RELEASE = (TRAINED, "class sums")
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
    _draw_all()
    _draw_first()
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
    first = "![The best release, the best baseline, DP-SGD, and no privacy](frontier.svg)\n\n"
    first += "Each point is the best of its kind at that epsilon: " + "; ".join(_named(dataset) for dataset in FIRST)
    first += ". DP-SGD is one private model and no release. DP-CDA, DP-MERF and Gaussian Mixing are learnt from by "
    first += "privmix's learner. Every line is in [frontier_all.svg](frontier_all.svg)."
    tables.append("![Every method](frontier_all.svg)")
    title = "Accuracy against epsilon, every method one line"
    common.save("frontier", title, settings, results, [first, *tables], again=True)


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


def best_of(dataset: str, kind: str) -> dict[float, tuple[float, str]]:
    """At each epsilon the best mean of the lines of a kind, and whose it is."""
    found: dict[float, tuple[float, str]] = {}
    for line, accuracies in shown(dataset):
        if line[1] == kind and line[0] not in NO_RELEASE:
            for epsilon, runs in accuracies.items():
                found[epsilon] = max(found.get(epsilon, (0.0, "")), (float(np.mean(runs)), line[0]))
    return dict(sorted(found.items()))


def _named(dataset: str) -> str:
    words = [
        f"{label} at {epsilon:g} {one[1]}"
        for kind, label in ((OWN, "release"), (RIVAL, "baseline"))
        for epsilon, one in best_of(dataset, kind).items()
        if epsilon in COMMON
    ]
    return f"{TITLES[dataset]}: {', '.join(words)}"


def _draw_first() -> None:
    figure = new_figure(8.6, 4.0)
    for axes, dataset in zip(figure.subplots(1, len(FIRST)), FIRST, strict=True):
        base = without_privacy(dataset)
        assert base is not None
        axes.axhline(base, color="#333333", linewidth=1.6, linestyle=(0, (5, 3)), label="without privacy")
        axes.annotate(f"{base:.1f}", (2.83, base), (0, 5), textcoords="offset points", ha="center", fontsize=11)
        for kind, words, colour, marker in (
            (OWN, "privmix: the best release, no public data", COLOURS[0], "o"),
            (RIVAL, "the best baseline with a valid price", COLOURS[1], "s"),
        ):
            points = {epsilon: one[0] for epsilon, one in best_of(dataset, kind).items() if epsilon in COMMON}
            x, y = list(points), list(points.values())
            axes.plot(x, y, marker=marker, color=colour, linewidth=2.6, markersize=8, label=words)
            for at, value in points.items():
                below = {"xytext": (0, -18), "textcoords": "offset points", "ha": "center", "fontsize": 11}
                axes.annotate(f"{value:.1f}", (at, value), color=colour, **below)
        # One private model and no release: at the epsilons at which it was run.
        trained = next(found for line, found in shown(dataset) if line[0] == TRAINED)
        points = {epsilon: float(np.mean(runs)) for epsilon, runs in trained.items() if epsilon >= COMMON[0]}
        style = {"linestyle": ":", "marker": "^", "color": "#777777", "linewidth": 2}
        axes.plot(list(points), list(points.values()), label="one private model: DP-SGD, linear", **style)
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        axes.set_xlim(0.8, 10)
        axes.set_xlabel("epsilon (delta 1e-5): smaller is more private")
        axes.set_ylabel("test accuracy (%)")
        axes.set_title(TITLES[dataset], fontsize=11)
        axes.grid(alpha=0.3)
        axes.set_ylim(*FIRST[dataset])
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=10)
    save_figure(figure, common.RESULTS / "frontier.svg")


def _draw_all() -> None:
    """As wide as a page shows it, so that its texts are as large as the page's."""
    figure = new_figure(8.6, 25)
    for axes, dataset in zip(figure.subplots(len(LINES), 1), LINES, strict=True):
        _draw(axes, dataset)
    save_figure(figure, common.RESULTS / "frontier_all.svg")


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
    axes.set_title(TITLES[dataset], fontsize=12)
    axes.grid(alpha=0.3)
    axes.set_ylim(*SHOWN[dataset])
    axes.legend(fontsize=10, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.12), frameon=False)


if __name__ == "__main__":
    main()
