"""The planner's picture: predicted accuracy against epsilon, a line a design."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from privmix.reports.style import COLOURS, new_figure, save_figure
from privmix.rounding import exact

_MARKERS = "os^vDPX*"


def draw_predictions(record: Mapping[str, Any], path: Path) -> None:
    """Draw what the planner predicted; the chosen design is thick, with its range at the budget that was asked for.

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
    drawn = [100 * value for values in record["curves"].values() for value in values]
    if (between := record.get("ranges", {}).get(record["chosen"])) is not None:
        low, high = (100 * value for value in between)
        names = list(record["curves"])
        colour = COLOURS[names.index(record["chosen"]) % len(COLOURS) if record["chosen"] in names else 0]
        width = record["epsilon"] * np.array([0.93, 1 / 0.93])
        words = f"its range: {low:.0f} to {high:.0f}%"
        axes.fill_between(width, low, high, color=colour, alpha=0.25, linewidth=0, label=words)
        drawn += [low, high]
    axes.set_xscale("log", base=2)
    axes.set_xticks(record["epsilons"], [f"{value:g}" for value in record["epsilons"]])
    axes.minorticks_off()
    least, most = min(drawn, default=0.0), max(drawn, default=100.0)
    margin = 0.06 * (most - least) + 0.5
    axes.set_ylim(max(0.0, least - margin), min(101.0, most + margin))
    axes.set_xlabel(f"epsilon (delta {exact(record['delta'])}); dotted: the budget asked for")
    axes.set_ylabel("predicted accuracy (%)")
    axes.set_title("Predicted accuracy of each design, from a public simulation", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    save_figure(figure, path)
