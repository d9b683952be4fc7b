"""The planner's picture: predicted accuracy against epsilon, a line a design."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privmix.reports.style import COLOURS, new_figure, save_figure
from privmix.rounding import exact

_MARKERS = "os^vDPX*"


def draw_predictions(record: Mapping[str, Any], path: Path) -> None:
    """Draw what the planner predicted; the chosen design is thick, and its operating point is marked.

    Args:
        record: from ``privmix plan --json``.
        path: .svg, .png or .pdf file to write.
    """
    figure = new_figure(7.0, 4.6)
    axes = figure.subplots()
    for index, (name, values) in enumerate(record["curves"].items()):
        chosen = name == record["chosen"]
        axes.plot(
            record["epsilons"],
            [100 * value for value in values],
            color=COLOURS[index % len(COLOURS)],
            marker=_MARKERS[index % len(_MARKERS)],
            markersize=5,
            linewidth=2.6 if chosen else 1.2,
            label=record["labels"][name] + (" (chosen)" if chosen else ""),
        )
    axes.axvline(record["epsilon"], color="#666666", linestyle=":", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_xticks(record["epsilons"], [f"{value:g}" for value in record["epsilons"]])
    axes.minorticks_off()
    axes.set_ylim(0, 101)
    axes.set_xlabel(f"epsilon (delta {exact(record['delta'])}); dotted: the budget asked for")
    axes.set_ylabel("predicted accuracy (%)")
    axes.set_title("Predicted accuracy of each design, from a public simulation", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    save_figure(figure, path)
