"""The confusion matrix as a picture, and whether probabilities hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.reports.style import COLOURS, new_figure, save_figure

_MOST_NUMBERS = 20
_LONGEST = 28


def draw_confusion(
    matrix: NDArray[Any],
    classes: Sequence[str],
    accuracy: float,
    path: Path,
    reliability: tuple[NDArray[Any], NDArray[Any], NDArray[Any]] | None = None,
) -> None:
    """Draw how often each true class (rows) was given each label (columns), as shares of the true class.

    Args:
        matrix: (K, K) counts.
        classes: K names.
        accuracy: overall, for the title.
        path: file to write; the format follows its suffix.
        reliability: counts, mean probability and accuracy of the predicted class by bins of that probability; drawn
            beside the matrix.
    """
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    size = min(14.0, max(4.5, 0.45 * len(classes) + 2))
    figure = new_figure(size + 1 + (0 if reliability is None else size), size)
    axes, *beside = figure.subplots(1, 1 if reliability is None else 2, squeeze=False)[0]
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    few = len(classes) <= _MOST_NUMBERS
    if few:
        for row, column in np.ndindex(*shares.shape):
            if matrix[row, column]:
                colour = "white" if shares[row, column] > 0.5 else "black"
                axes.text(column, row, f"{matrix[row, column]}", ha="center", va="center", color=colour, fontsize=7)
        # Long names are turned about their ends, so that none lies over its neighbour.
        turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if max(map(len, classes)) > 3 else {}
        axes.set_xticks(range(len(classes)), [_short(name) for name in classes], fontsize=8, **turned)
        axes.set_yticks(range(len(classes)), [_short(name) for name in classes], fontsize=8)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    axes.set_title(f"accuracy {100 * accuracy:.2f}% on {int(matrix.sum()):,} records")
    figure.colorbar(image, label="share of the true class", shrink=0.8)
    if reliability is not None:
        _draw_reliability(beside[0], *reliability)
    save_figure(figure, path)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _draw_reliability(axes: Any, counts: NDArray[Any], told: NDArray[Any], right: NDArray[Any]) -> None:
    """Accuracy against the probability that was told; the larger a point, the more records."""
    known = counts > 0
    axes.plot([0, 1], [0, 1], color="#666666", linewidth=0.8)
    axes.plot(told[known], right[known], color=COLOURS[0], linewidth=0.8)
    axes.scatter(told[known], right[known], s=20 + 180 * counts[known] / counts.max(), color=COLOURS[0])
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    axes.set_xlabel("probability of the predicted class")
    axes.set_ylabel("share that is right")
    axes.set_title("below the line: too sure")
