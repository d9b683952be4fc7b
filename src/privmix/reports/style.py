"""One look for every figure: drawn without a display, saved atomically, readable in black and white."""

from __future__ import annotations

from pathlib import Path

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from privmix.held_folders import new_file

# Okabe and Ito's palette: distinct for colour-blind readers.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")


def new_figure(width: float, height: float) -> Figure:
    """An empty figure (inches) that needs no display and no global state."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write beside ``path`` and rename into place; the format follows the suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = path.suffix.removeprefix(".")
    # Fixed ids and no date: the same record gives the same file.
    with rc_context({"svg.hashsalt": "privmix", "svg.fonttype": "path"}), new_file(path) as stream:
        figure.savefig(stream, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
