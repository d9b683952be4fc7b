"""Line figures from accounting records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privmix.reports.style import COLOURS, new_figure, save_figure
from privmix.rounding import exact

_MARKERS = "os^vDPX*"


def draw_noise_comparison(record: Mapping[str, Any], path: Path) -> None:
    """Draw noise over m against m (Li et al. 2022, Figure 1); curves that are no bounds are dashed and say so.

    Args:
        record: from ``privmix account compare --json``.
        path: .svg, .png or .pdf file to write.
    """
    figure = new_figure(7.5, 5.2)
    axes = figure.subplots()
    for index, curve in enumerate(record["curves"]):
        valid = curve["is_upper_bound"]
        points = [
            (degree, noise)
            for degree, noise in zip(record["mixup_degrees"], curve["noise_over_degree"], strict=True)
            if noise is not None
        ]
        if not points:
            continue
        axes.loglog(
            *zip(*points, strict=True),
            color=COLOURS[index % len(COLOURS)],
            marker=_MARKERS[index % len(_MARKERS)],
            markersize=4,
            linewidth=1.8 if valid else 1.2,
            linestyle="-" if valid else "--",
            label=curve["label"] if valid else f"{curve['label']}: NOT a bound",
        )
    axes.set_xlabel("mixup degree m")
    axes.set_ylabel("noise over degree, sigma / m")
    axes.set_title(
        f"Noise that each accountant asks for at epsilon {exact(record['epsilon'])}, delta {exact(record['delta'])}\n"
        f"n = {record['records']:,}, T = {record['rows']:,}; solid: valid bounds, dashed: not",
        fontsize=10,
    )
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(fontsize=8)
    save_figure(figure, path)
