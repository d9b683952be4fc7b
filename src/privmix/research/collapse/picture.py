"""Histograms of mixed labels before and after noise: are classes still told apart (Li et al. 2024, Figure 2)?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from privmix.reports.style import COLOURS, new_figure, save_figure
from privmix.rounding import rounded_up


def draw_collapse(record: Mapping[str, Any], path: Path) -> None:
    """Draw, for each design, how often each value occurs in mixed labels, clean and noisy.

    Args:
        record: content of a run record of kind ``collapse``.
        path: .svg, .png or .pdf file to write.
    """
    panels = record["histograms"]
    figure = new_figure(0.6 + 4.2 * len(panels), 3.6)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        edges = np.asarray(panel["edges"])
        for name, colour, style in (("clean", COLOURS[0], "-"), ("noisy", COLOURS[1], "--")):
            axes.stairs(panel[name], edges, color=colour, linestyle=style, fill=False, linewidth=1.6, label=name)
        axes.axvline(1 / record["labels"], color="#666666", linestyle=":", linewidth=1)
        axes.set_yscale("log")
        axes.set_title(
            f"{panel['design']}, m = {panel['m']}: top class kept {100 * panel['top_kept']:.0f}%", fontsize=10
        )
        axes.set_xlabel(f"entry of a mixed label (dotted: 1/K = {1 / record['labels']:.3g})")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.axes[0].set_ylabel("share of entries")
    figure.suptitle(_title(record), fontsize=10)
    save_figure(figure, path)


def _title(record: Mapping[str, Any]) -> str:
    budget = "" if record["epsilon"] is None else f", noise for ε = {rounded_up(record['epsilon'])}"
    return f"Mixed labels of {record['labels']} classes{budget}"
