"""Accuracy against epsilon, every method one line: releases, private training, earlier methods and papers' claims.

Nothing is run, and no line is chosen by hand. A line is a method of a benchmark, with all its kept runs of a data set
at a budget: every record in results/*_runs.json with a data set of TITLES, an epsilon and an accuracy, but those that
IGNORED leaves out with a reason. A line is ours if its name begins as OURS; others are earlier methods, or DP-SGD.
`frontier.svg` has a panel for each kind of data, and there the best mean of each kind: the best over all lines.

    python benchmarks/bench_frontier.py
"""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

import common
from privmix.reports.pictures import COLOURS, new_figure, save_figure

EPSILONS = (0.5, 1.0, 1.2, 2.0, 3.0, 4.0, 8.0)
OWN, PRIOR, TRAINED, BASELINE, CLAIM = (
    "privmix",
    "privmix, public texts",
    "one model",
    "earlier release",
    "as published",
)
OURS = re.compile("(second |corrected[- ])?moments|(one|two|three)[- ]stage|auto|goal table")
# Runs without the name of their data set.
UNNAMED = {
    "class_descriptions": "banking77",
    "noise_comparison": "cifar10",
    "instahide": "mnist",
    "hierarchical": "banking77",
}
ALIASES = {"cifar10-encoder": "cifar10", "mnist-pixels": "mnist", "mnist-scattering": "mnist"}
# Records that are no line, and the reason: of a benchmark, or by what the name of a method has in it.
IGNORED = {
    "membership": "half of the records",
    "persons": "persons are the units",
    "training_linear_again": "repeats",
    "photograph_views": "3,000 records",
}
NO_BOUND = re.compile("published|not protected|without privacy|^none")
# Adult's panel is of rows of a table: other releases of it have none.
ROWS = {"adult": "tables"}
# Lines that are tried settings of one method: the best at each epsilon is shown.
SWEEPS = {"degree": "Poisson mixup, best m"}
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
    "eurosat": {
        "DP-Mix, fine-tuned ViT-B-16 (Bao et al. 2023)": {1: 94.3, 8: 95.6},
        "DP-Mix, fine-tuned ConvNeXt (Bao et al. 2023)": {1: 94.6, 8: 95.5},
        "DP-LoRA (Tsai et al. 2024), public photographs": {1: 70.7},
    },
}
TITLES = {
    "mnist": "MNIST",
    "banking77": "banking77, sentence embeddings",
    "cifar10": "CIFAR-10 (JPEG copy)",
    "eurosat": "EuroSAT (JPEG copy), public photographs",
    "adult": "Adult, a tree trained on the rows",
}
# The panels for a first look: kind of data, where y begins and ends, and where a note stands (parts of the panel).
FIRST: dict[str, tuple[str, tuple[float, float], tuple[float, float]]] = {
    "mnist": ("Digits (MNIST)", (96, 99.5), (0.5, 0.1)),
    "banking77": ("Questions (banking77)", (65, 95), (0.68, 0.4)),
    "eurosat": ("Satellite photos (EuroSAT)", (91, 97.5), (0.5, 0.1)),
    "adult": ("Table rows (Adult)", (82, 88), (0.5, 0.2)),
}
NAMES = {OWN: "privmix\nrelease ", TRAINED: "one model,\nDP-SGD ", BASELINE: "earlier\nrelease "}
# Runs that a line of ours needs for the picture: others need one.
LEAST = 5
# Points by which a mean may fall by the noise of its runs.
SLACK = 1.0
_NOISE = 0.2
LEARNERS = {"nothing": ""}
Line = tuple[str, str, str]


def kept_runs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every kept run, and its benchmark."""
    for place in sorted(common.RESULTS.glob("*_runs.json")):
        kept = json.loads(place.read_text())
        kept = kept.get("runs", list(kept.values())) if isinstance(kept, dict) else kept
        yield from ((place.stem.removesuffix("_runs"), run) for run in kept if isinstance(run, dict))


def scores(run: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Accuracies in percent of a run, and their learners where it has several."""
    found = {"": run["accuracy"]} if "accuracy" in run else {}
    found |= {key: part["accuracy"] for key, part in run.items() if isinstance(part, dict) and "accuracy" in part}
    if "quality" in run:
        found[""] = run["quality"]["trees"]["rows"]["accuracy"]
    for key, accuracy in found.items():
        yield key, float(accuracy) if accuracy > 1 else 100 * float(accuracy)


def kind_of(name: str) -> str:
    if "DP-SGD" in name:
        return TRAINED
    return PRIOR if re.search("names|descriptions|of other", name) else OWN if OURS.match(name) else BASELINE


@cache
def lines(dataset: str) -> dict[Line, dict[float, list[float]]]:
    """Accuracies by epsilon of each line: its name, kind and benchmark."""
    found: dict[Line, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    tried: dict[tuple[Line, float], dict[Any, list[float]]] = defaultdict(lambda: defaultdict(list))
    for source, run in kept_runs():
        data = run.get("dataset") or run.get("data") or UNNAMED.get(source)
        if ALIASES.get(data, data) != dataset or source in IGNORED or run.get("epsilon") not in EPSILONS:
            continue
        if run.get("held_out"):
            continue
        proven = run.get("proven_epsilon") or run.get("true_epsilon") or run["epsilon"]
        if ROWS.get(dataset, source) != source or proven > 1.001 * run["epsilon"]:
            continue
        name = next((str(run[key]) for key in ("how", "design", "method", "label") if key in run), source)
        if source == "training_linear":
            name = "DP-SGD, linear, " + run["features"] + (", tuned" if "tuned" in run else "")
        if source == "hierarchical":
            name = f"{run['method']} mixup, searched, {run['learner']}"
        for learner, accuracy in scores(run):
            full = ", ".join(part for part in (name, LEARNERS.get(learner, learner)) if part)
            if NO_BOUND.search(f"{full} {run.get('setting', '')}"):
                continue
            if "sweep" in run:
                full = SWEEPS.get(run["sweep"], f"mixup, best of {run['sweep']}") + f" ({data})"
            line = (full, kind_of(full), source)
            if "sweep" in run or source == "instahide":
                tried[line, float(run["epsilon"])][str(sorted(one for one in run.items() if _is_setting(*one)))].append(
                    accuracy
                )
            else:
                found[line][float(run["epsilon"])].append(accuracy)
    for (line, epsilon), settings in tried.items():
        found[line][epsilon] = max(settings.values(), key=np.mean)
    return {line: dict(sorted(points.items())) for line, points in sorted(found.items(), key=lambda one: one[0][1:])}


def _is_setting(key: str, value: Any) -> bool:
    return key in ("setting", "value", "learner", "epochs", "degree", "sweep")


@cache
def without_privacy(dataset: str) -> float:
    """The best accuracy in percent without privacy that the benchmarks of these lines have."""
    if dataset == "adult":
        kept = json.loads((common.RESULTS / "tables.json").read_text())["results"]
        return 100 * float(kept["without privacy"]["adult"])
    return max(
        accuracy
        for _, run in kept_runs()
        if run.get("dataset") == dataset
        and str(run.get("how", run.get("design"))).startswith(("none", "without privacy"))
        for _, accuracy in scores(run)
    )


def main() -> None:
    shown = [dataset for dataset in TITLES if lines(dataset)]
    _draw_first()
    settings = {
        "delta": 1e-5,
        "cells": "test accuracy, %: mean (standard deviation, runs)",
        "accounting": "PLD, add or remove one record; what is as published keeps its own",
        "lines": "every kept run of these data with a valid bound. "
        + "; ".join(f"not those of {name}: {reason}" for name, reason in IGNORED.items()),
        "ours": "second moments, in one or more stages; every other release counts as an earlier method, mixup as well",
    }
    results = [
        {"dataset": dataset, "line": name, "kind": kind, "runs": source, "accuracy": found}
        for dataset in shown
        for (name, kind, source), found in lines(dataset).items()
    ]
    first = "![No privacy, best release, best earlier release method, DP-SGD, for four kinds of data](frontier.svg)\n\n"
    first += (
        "Each point is the best mean of its kind over all lines below at that epsilon: a rule picks it from every "
        "kept run. Lines of privmix need five runs for that, others one. A point is left out if a smaller epsilon is "
        "more than a point better.\n\n"
    ) + "\n".join(_named(dataset) for dataset in FIRST)
    first += (
        "\n\nPhotos: all lines use the last layers of a network trained on public photographs. On EuroSAT every line "
        "has settings searched alike on held-out records. DP-SGD trains one private model and publishes no data. Its "
        "settings were searched on held-out records. Models are trained on DP-CDA, DP-MERF, Gaussian Mixing and mixup "
        "rows by privmix's learner. On digits and questions these lines have their published or default settings, and "
        "the best of those tried."
    )
    title = "Accuracy against epsilon, every method one line"
    common.save("frontier", title, settings, results, [first, *map(_table, shown)])


def _table(dataset: str) -> str:
    rows = []
    for (name, kind, source), found in lines(dataset).items():
        cells = [common.told(found[e]) if e in found else "" for e in EPSILONS]
        rows.append([name, kind, *cells, f"[{source}]({source}.md)"])
    for label, points in CLAIMS.get(dataset, {}).items():
        rows.append([label, CLAIM, *(f"{points[e]:g}" if e in points else "" for e in EPSILONS), ""])
    source = {"cifar10": "photographs", "eurosat": "photographs", "adult": "tables"}.get(dataset, "designs")
    base = [f"{without_privacy(dataset):.1f}"] * len(EPSILONS)
    rows.append(["without privacy", "", *base, f"[{source}]({source}.md)"])
    head = [TITLES[dataset], "", *(f"eps {epsilon:g}" for epsilon in EPSILONS), "runs"]
    return common.table(head, rows)


def best_of(dataset: str, kind: str) -> dict[float, tuple[float, str]]:
    """The best mean of the lines of a kind, and whose it is, where no smaller epsilon is clearly better."""
    found: dict[float, tuple[float, str]] = {}
    for (name, own, _), accuracies in lines(dataset).items():
        for epsilon, runs in accuracies.items() if own == kind else ():
            if kind != OWN or len(runs) >= LEAST:
                found[epsilon] = max(found.get(epsilon, (0.0, "")), (float(np.mean(runs)), name))
    # A release at a smaller epsilon has the larger epsilon's guarantee as well.
    return {
        epsilon: one
        for epsilon, one in sorted(found.items())
        if one[0] >= max(found[e][0] for e in found if e <= epsilon) - SLACK
    }


def _named(dataset: str) -> str:
    names = []
    for kind, label in ((OWN, "release"), (TRAINED, "one model"), (BASELINE, "earlier method")):
        for line, points in itertools.groupby(best_of(dataset, kind).items(), key=lambda point: point[1][1]):
            names.append(f"{label} at epsilon {', '.join(f'{epsilon:g}' for epsilon, _ in points)}: {line}")
    return f"- {FIRST[dataset][0]}: {'; '.join(names)}."


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
        "A release keeps most accuracy at epsilon 1.\nFrom there, DP-SGD keeps a little more on photos.",
        fontsize=13,
        fontweight="bold",
    )
    styles = {OWN: (COLOURS[0], "o-", 3), TRAINED: (COLOURS[1], "^--", 2), BASELINE: ("#333333", "s:", 2)}
    for axes, (dataset, (title, limits, place)) in zip(figure.subplots(2, 2).flat, FIRST.items(), strict=True):
        best = {kind: {e: one[0] for e, one in best_of(dataset, kind).items()} for kind in NAMES}
        base = without_privacy(dataset)
        axes.axhline(base, color="#666666", linewidth=6, alpha=0.35)
        ends = [("no privacy\n", base, "#555555")]
        for kind, points in best.items():
            colour, style, width = styles[kind]
            axes.plot(list(points), list(points.values()), style, color=colour, linewidth=width, markersize=6)
            ends += [(NAMES[kind], list(points.values())[-1], colour)] if points else []
        _label(axes, ends, limits)
        note = {"xytext": place, "textcoords": "axes fraction", "ha": "center", "va": "center", "fontsize": 11}
        if crossing := _crossing(best[OWN], best[TRAINED]):
            axes.plot(*crossing, "o", markersize=16, markerfacecolor="none", markeredgecolor="black")
            arrow = {"arrowstyle": "-", "shrinkB": 8}
            axes.annotate(f"cross near\n{crossing[0]:.1g}", crossing, arrowprops=arrow, **note)
        elif not best[TRAINED]:
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


if __name__ == "__main__":
    main()
