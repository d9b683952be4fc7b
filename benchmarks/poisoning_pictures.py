"""The pictures of ``bench_poisoning.py``: Borgnia et al. 2021, Figures 1b, A.2 and A.4, in miniature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt

import common

# Laplace noise, in 255ths of the range of pixels.
SCALES = (0, 2, 4, 8, 16, 32)
WAYS = (1, 2, 4)
NOISED = ("none", "mixup:2", "mixup:4", "cutmix", "cutout", "maxup")
# Lines with all these scales; others have fewer.
FINE = ("mixup:4", "maxup")
FEW = {"mixup:2": (0, 4, 16, 32), "none": (0, 4, 16, 32)}
MAXUP = "MaxUp"
PLAIN, ADAPTIVE = "A2 2,000 CIFAR-10 gradient matching", "A2 2,000 CIFAR-10 gradient matching, adaptive"
FIGURE_1B, FIGURE_A4 = "1b 2,000 CIFAR-10 gradient matching, adaptive", "A.4 2,000 CIFAR-10 gradient matching"


def joined(change: str, scale: int) -> str:
    """A change of batches with noise on it, as privmix calls it; MaxUp stands last."""
    parts = [change] if change != "none" else []
    parts = [*parts, f"noise:{scale}"] if scale else parts
    return "+".join(reversed(parts) if change == "maxup" else parts) or "none"


def named(line: int | str) -> str:
    """A line of a figure."""
    return f"k = {line}" if isinstance(line, int) else line


def mixed(ways: int | str, scale: int) -> str:
    """DP-InstaHide's augmentation of so many ways, or MaxUp with its noise."""
    if ways == MAXUP:
        return joined("maxup", scale)
    return joined("none" if ways == 1 else f"mixup:{ways}", scale)


def scales(change: str) -> tuple[int, ...]:
    """The noise of a line's points."""
    return SCALES if change in FINE else FEW.get(change, (0, 16, 32))


def studies(study: Callable[..., Any], data: str, attack: str) -> list[Any]:
    """What the figures need beside the tables."""
    lines = ("none", "mixup:2", "mixup:4", "maxup")
    grid = [joined(change, scale) for change in lines for scale in scales(change) if (change, scale) != ("none", 0)]
    noised = [joined(change, scale) for change in NOISED for scale in scales(change)]
    return [
        study("1b", data, "gradient matching, adaptive", attack, 100, 10, grid, True),
        study("A.4", data, "gradient matching", attack, 100, 10, noised),
    ]


def points(runs: dict[str, Any], key: str) -> dict[str, Any]:
    """Results of a figure by defence; where a table has more trials of one, the table's."""
    # Where nothing changes batches there is nothing to train through: the adaptive attack is the plain one.
    tables = [PLAIN, key, *([ADAPTIVE] if key == FIGURE_1B else [])]
    return {one["defence"]: one for table in tables for one in runs.get(table, {"results": []})["results"]}


def draw(runs: dict[str, Any], tables: Sequence[Any]) -> list[str]:
    """Write what can be drawn, and return the text that shows it."""
    found = []
    for key, change, made, title, picture in (
        (FIGURE_1B, mixed, (*WAYS, MAXUP), "Figure 1b", "poisoning_1b.svg"),
        (FIGURE_A4, joined, NOISED, "Figure A.4", "poisoning_a4.svg"),
    ):
        if key in runs:
            shares = points(runs, key)
            _lines(shares, made, change, title, picture)
            found.append(_told(shares, made, change, title, picture, runs[key]["results"][0]["trials"]))
    against = [study for study in tables if study.table == "A2" and study.key in runs]
    if against:
        _scatter([(study.label, runs[study.key]["results"]) for study in against])
        words = "Success against validation error, of Table A2; the numbers stand there."
        found.append(f"## Figure A.2\n\n{words}\n\n![Figure A.2](poisoning_a2.svg)")
    return found


def _told(
    results: dict[str, Any], series: Any, change: Callable[[Any, int], str], title: str, picture: str, trials: int
) -> str:
    """A figure of success over noise, and its numbers."""
    rows = []
    for one in series:
        cells = []
        for scale in SCALES:
            result = results.get(change(one, scale))
            cells.append("" if result is None else _cell(result))
        rows.append([named(one), *cells])
    header = [title, *(f"s = {scale}" for scale in SCALES)]
    knows = (
        "an attacker who trains through the defence" if change is mixed else "an attacker who does not know the defence"
    )
    words = (
        f"Gradient matching, {knows}, {trials} trials a point but where more are said. Cells: successes (95% "
        "interval), accuracy."
    )
    if change is mixed:
        words += (
            " Where nothing is mixed and no noise is added there is nothing to train through: that point is Table A2's."
        )
    return f"## {title}\n\n{words}\n\n{common.table(header, rows)}\n\n![{title}]({picture})"


def _cell(result: dict[str, Any]) -> str:
    low, high = (100 * limit for limit in result["interval"])
    accuracy = 100 * result["accuracy"]
    return f"{result['successes']} of {result['trials']} ({low:.0f} to {high:.0f}%), {accuracy:.1f}%"


def _lines(results: dict[str, Any], series: Any, change: Callable[[Any, int], str], title: str, picture: str) -> None:
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for number, one in enumerate(series):
        points = [(scale, results[name]) for scale in SCALES if (name := change(one, scale)) in results]
        rates = [100 * result["success_rate"] for _, result in points]
        low = [rate - 100 * result["interval"][0] for rate, (_, result) in zip(rates, points, strict=True)]
        high = [100 * result["interval"][1] - rate for rate, (_, result) in zip(rates, points, strict=True)]
        # Moved apart, so that intervals can be told from each other.
        places = [scale * (1 + 0.03 * (number - len(series) / 2)) for scale, _ in points]
        axes.errorbar(places, rates, yerr=[low, high], marker="o", capsize=2, label=named(one))
    axes.set(xlabel="Laplace noise s, in 255ths", ylabel="success of the attack, %", ylim=(-3, 103))
    axes.set_title(f"{title} in miniature (95% intervals)")
    axes.set_xscale("symlog", linthresh=2, linscale=0.5)
    axes.set_xticks(SCALES, [str(scale) for scale in SCALES])
    figure.legend(loc="outside right upper")
    figure.savefig(common.RESULTS / picture)
    plt.close(figure)


def _scatter(studies: list[tuple[str, list[dict[str, Any]]]]) -> None:
    figure, axes = plt.subplots(figsize=(6.5, 5), layout="constrained")
    for marker, (label, results) in zip("os^", studies, strict=False):
        errors = [100 * (1 - one["accuracy"]) for one in results]
        rates = [100 * one["success_rate"] for one in results]
        axes.scatter(errors, rates, marker=marker, label=label)
        for error, rate, one in zip(errors, rates, results, strict=True):
            axes.annotate(
                one["defence"], (error, rate), xytext=(4, 3), textcoords="offset points", fontsize=6, rotation=35
            )
    axes.set(xlabel="validation error, %", ylabel="success of the attack, %", ylim=(-3, 118))
    axes.set_title("Figure A.2 in miniature")
    figure.legend(loc="outside lower center", ncols=2)
    axes.margins(x=0.15)
    figure.savefig(common.RESULTS / "poisoning_a2.svg")
    plt.close(figure)
