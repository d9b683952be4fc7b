"""Accuracy against epsilon, every method one line: releases, private training, baselines and the papers' claims.

Nothing is run: the lines are the kept runs of the benchmarks that LINES names, each at its own settings, all at delta
1e-5, add or remove one record, by PLD. Claims stand as their papers print them, with their features and accounting.
`frontier.svg` has a panel for each kind of data: without privacy, the best release, the best earlier release method,
and one private model by DP-SGD. `frontier_all.svg` has every line.

    python benchmarks/bench_frontier.py
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

import common
from privmix.reports.style import COLOURS, new_figure, save_figure

EPSILONS = (0.5, 1.0, 1.2, 2.0, 3.0, 4.0, 8.0)
OWN, PRIOR, RIVAL, CLAIM = "no public data", "public texts", "baseline, valid bound", "as published"
ENCODER = "public photographs"
# Features that the other lines of the panel do not have.
WIDER = "public photographs, all layers"
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
        ("DP-SGD, linear", OWN, "training_linear", {"dataset": "mnist", "how": "tuned"}, ""),
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
        ("moments, EfficientNet-Lite", ENCODER, "photographs", {"how": "moments"}, ""),
        ("DP-SGD, EfficientNet-Lite, linear", ENCODER, "photographs", {"how": "DP-SGD, linear head"}, ""),
        (
            "moments, EfficientNet-Lite, all layers",
            WIDER,
            "photographs",
            {"how": "moments, all layers and mirror"},
            "",
        ),
        ("Gaussian Mixing, EfficientNet-Lite", RIVAL, "photographs", {"how": "Gaussian mixing"}, ""),
        ("DP-CDA, EfficientNet-Lite", RIVAL, "photographs", {"how": "class-wise mixup"}, ""),
        ("DPMix, EfficientNet-Lite", RIVAL, "photographs", {"how": "mixup of fixed size"}, ""),
        ("NeuroMixGDP-HS, EfficientNet-Lite", RIVAL, "photographs", {"how": "hierarchical mixup"}, ""),
    ],
    "adult": [
        ("rows of second moments", OWN, "tables", {"dataset": "adult", "method": "goal table"}, "quality/trees/rows"),
        ("AIM's rows, fewer rounds", RIVAL, "tables", {"dataset": "adult", "method": "aim"}, "quality/trees/rows"),
        ("MST's rows", RIVAL, "tables", {"dataset": "adult", "method": "mst"}, "quality/trees/rows"),
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
        ("DP-SGD, linear", OWN, "training_linear", {"dataset": "banking77", "how": "tuned"}, ""),
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
    "adult": {},
}
# What `frontier_all.svg` shows; what is below has its figures in the table.
SHOWN = {"mnist": (89.0, 99.3), "cifar10": (20.0, 90.0), "banking77": (50.0, 95.0), "adult": (80.0, 88.0)}
# The panels for a first look: kind of data, releases, one private model, where y begins and ends,
# and where a note stands (parts of the panel).
FIRST: dict[str, tuple[str, str, str | None, tuple[float, float], tuple[float, float]]] = {
    "mnist": ("Digits (MNIST)", OWN, "DP-SGD, linear", (96, 99.5), (0.5, 0.1)),
    "banking77": ("Questions (banking77)", OWN, "DP-SGD, linear", (65, 95), (0.68, 0.4)),
    "cifar10": ("Photos (CIFAR-10)", ENCODER, "DP-SGD, EfficientNet-Lite, linear", (74, 88), (0.33, 0.87)),
    "adult": ("Table rows (Adult)", OWN, None, (82, 88), (0.5, 0.2)),
}
NAMES = {"release": "privmix\nrelease ", "DP-SGD": "one model,\nDP-SGD ", "earlier": "earlier\nrelease "}
# Points by which a mean may fall by the noise of its runs.
SLACK = 1.0
_NOISE = 0.2
NO_RELEASE = ("class sums",)
TITLES = {
    "mnist": "MNIST, scattering",
    "cifar10": "CIFAR-10 (JPEG copy)",
    "banking77": "banking77, sentence embeddings",
    "adult": "Adult, a tree trained on the rows",
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
            epsilon = float(run["epsilon"])
            for part in where.split("/") if where else ():
                run = run[part]
            accuracy = float(run["accuracy"])
            found[epsilon].append(accuracy if accuracy > 1 else 100 * accuracy)
    return dict(sorted(found.items()))


def without_privacy(dataset: str) -> float:
    """The best accuracy in percent without privacy that the benchmarks of these lines have."""
    if dataset == "adult":
        kept = json.loads((common.RESULTS / "tables.json").read_text())["results"]
        return 100 * float(kept["without privacy"]["adult"])
    if dataset == "cifar10":
        return max(run["accuracy"] for run in runs_of("photographs") if run["how"].startswith("without privacy"))
    return 100 * next(
        run["accuracy"] for run in runs_of("designs") if (run["dataset"], run["design"]) == (dataset, "none")
    )


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
    first = "![No privacy, best release, best earlier release method, DP-SGD, for four kinds of data](frontier.svg)\n\n"
    first += (
        "Each point is the best mean of its kind at that epsilon. A point is left out if a smaller epsilon is more "
    )
    first += "than a point better.\n\n" + "\n".join(_named(dataset) for dataset in FIRST)
    first += (
        "\n\nPhotos: all lines but that without privacy use the last layer of a network trained on public photographs. "
    )
    first += "DP-SGD trains one private model and publishes no data. On digits and questions its rate, epochs "
    first += "and clipping bound were chosen on records held out of training; on photos it has defaults of an earlier "
    first += (
        "build. AIM runs fewer rounds than its authors use. Models are trained on DP-CDA, DP-MERF and Gaussian Mixing "
    )
    first += "by privmix's learner. "
    first += "Every line is in [frontier_all.svg](frontier_all.svg)."
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
    source = {"cifar10": "photographs", "adult": "tables"}.get(dataset, "designs")
    base = [f"{without_privacy(dataset):.1f}"] * len(EPSILONS)
    rows.append(["without privacy", "", *base, f"[{source}]({source}.md)"])
    head = [TITLES[dataset], "", *(f"eps {epsilon:g}" for epsilon in EPSILONS), "runs"]
    return common.table(head, rows)


def best_of(dataset: str, kind: str) -> dict[float, tuple[float, str]]:
    """The best mean of the lines of a kind, and whose it is, where no smaller epsilon is clearly better."""
    found: dict[float, tuple[float, str]] = {}
    for line, accuracies in shown(dataset):
        if line[1] == kind and line[0] not in NO_RELEASE and not line[0].startswith("DP-SGD"):
            for epsilon, runs in accuracies.items():
                found[epsilon] = max(found.get(epsilon, (0.0, "")), (float(np.mean(runs)), line[0]))
    # A release at a smaller epsilon has the larger epsilon's guarantee as well.
    return {
        epsilon: one
        for epsilon, one in sorted(found.items())
        if one[0] >= max(found[e][0] for e in found if e <= epsilon) - SLACK
    }


def _named(dataset: str) -> str:
    title, own, *_ = FIRST[dataset]
    names = []
    for kind, label in ((own, "release"), (RIVAL, "earlier method")):
        for line, points in itertools.groupby(best_of(dataset, kind).items(), key=lambda point: point[1][1]):
            names.append(f"{label} at epsilon {', '.join(f'{epsilon:g}' for epsilon, _ in points)}: {line}")
    return f"- {title}: {'; '.join(names)}."


def _crossing(one: Mapping[float, float], other: Mapping[float, float]) -> tuple[float, float] | None:
    """Where `other` overtakes `one`, between epsilons at which both were run; straight lines in log epsilon."""
    both = sorted(one.keys() & other.keys())
    for left, right in itertools.pairwise(both):
        before, after = one[left] - other[left], one[right] - other[right]
        # A difference within the noise of the runs is no crossing.
        if before > 0 >= after and after < -_NOISE:
            part = before / (before - after)
            return left * (right / left) ** part, one[left] + part * (one[right] - one[left])
    return None


def _draw_first() -> None:
    figure = new_figure(6.2, 6.6)
    figure.suptitle(
        "A release keeps most accuracy at epsilon 1.\nFrom there, DP-SGD keeps more on questions and photos.",
        fontsize=13,
        fontweight="bold",
    )
    for axes, (dataset, (title, own, trained, limits, place)) in zip(
        figure.subplots(2, 2).flat, FIRST.items(), strict=True
    ):
        lines = {
            "release": {epsilon: one[0] for epsilon, one in best_of(dataset, own).items()},
            "DP-SGD": {
                epsilon: float(np.mean(runs))
                for line, found in shown(dataset)
                if line[0] == trained
                for epsilon, runs in found.items()
            },
            "earlier": {epsilon: one[0] for epsilon, one in best_of(dataset, RIVAL).items()},
        }
        base = without_privacy(dataset)
        axes.axhline(base, color="#666666", linewidth=6, alpha=0.35)
        ends = [("no privacy\n", base, "#555555")]
        styles = {"release": (COLOURS[0], "o-", 3), "DP-SGD": (COLOURS[1], "^--", 2), "earlier": ("#333333", "s:", 2)}
        for words, points in lines.items():
            colour, style, width = styles[words]
            axes.plot(list(points), list(points.values()), style, color=colour, linewidth=width, markersize=6)
            ends += [(NAMES[words], list(points.values())[-1], colour)] if points else []
        _label(axes, ends, limits)
        note = {"xytext": place, "textcoords": "axes fraction", "ha": "center", "va": "center", "fontsize": 11}
        if crossing := _crossing(lines["release"], lines["DP-SGD"]):
            axes.plot(*crossing, "o", markersize=16, markerfacecolor="none", markeredgecolor="black")
            arrow = {"arrowstyle": "-", "shrinkB": 8}
            axes.annotate(f"cross near\n{crossing[0]:.1g}", crossing, arrowprops=arrow, **note)
        elif not lines["DP-SGD"]:
            axes.annotate("DP-SGD\ngives no rows", (0.5, base), **note)
        axes.set_xscale("log", base=2)
        axes.set_xticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"], fontsize=11)
        axes.set_xlim(0.42, 9.5)
        axes.set_ylim(*limits)
        axes.set_xlabel("epsilon", fontsize=11)
        axes.set_ylabel("accuracy (%), zoomed", fontsize=11)
        axes.set_title(title, fontsize=12, loc="left")
        axes.grid(alpha=0.3)
    figure.supxlabel("Delta 1e-5. A smaller epsilon is more private.", fontsize=11)
    save_figure(figure, common.RESULTS / "frontier.svg")


def _label(axes: Any, ends: list[tuple[str, float, str]], limits: tuple[float, float]) -> None:
    """Names and last values right of the lines, at least a line of text apart."""
    low, high = limits
    place = 2.0
    for words, value, colour in sorted(ends, key=lambda one: -one[1]):
        place = min(place - 0.17, (value - low) / (high - low))
        axes.annotate(
            f"{words}{value:.1f}",
            (1.03, place),
            xycoords="axes fraction",
            color=colour,
            fontsize=11,
            va="center",
            linespacing=0.95,
        )


def _draw_all() -> None:
    """As wide as a page shows it, so that its texts are as large as the page's."""
    figure = new_figure(8.6, 33)
    for axes, dataset in zip(figure.subplots(len(LINES), 1), LINES, strict=True):
        _draw(axes, dataset)
    save_figure(figure, common.RESULTS / "frontier_all.svg")


def _draw(axes: Any, dataset: str) -> None:
    styles = {OWN: ("-", "o"), PRIOR: ("-", "*"), ENCODER: ("-", "D"), WIDER: ("-", "P"), RIVAL: ("--", "s")}
    for place, ((label, kind, *_), found) in enumerate(shown(dataset)):
        line, marker = styles[kind]
        means = [float(np.mean(accuracies)) for accuracies in found.values()]
        colour = COLOURS[place % len(COLOURS)]
        axes.plot(list(found), means, line, marker=marker, color=colour, markersize=5, label=label)
    for marker, (label, points) in zip("xv^<", CLAIMS[dataset].items(), strict=False):
        axes.plot(list(points), list(points.values()), ":", marker=marker, color="#888888", label=f"claimed: {label}")
    axes.axhline(without_privacy(dataset), color="#333333", linewidth=0.8, label="without privacy")
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
