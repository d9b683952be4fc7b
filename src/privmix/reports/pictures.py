"""Pictures that jobs draw, and one look for all of them: drawn without a display, readable in black and white."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from markupsafe import Markup, escape
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from privmix.fields import printable
from privmix.folders import new_file
from privmix.rounding import exact

# Okabe and Ito's palette: distinct for colour-blind readers.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure (inches) that needs no display and no global state."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write next to ``path`` and rename into place; the format follows the suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = path.suffix.removeprefix(".")
    # Fixed ids and no date: the same record gives the same file.
    with rc_context({"svg.hashsalt": "privmix", "svg.fonttype": "path"}), new_file(path) as stream:
        figure.savefig(stream, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)


# Parts drawn in these colours take the page's: they change with light and dark, and in print.
INK, MUTED, LINE, PAPER = "#010203", "#040506", "#070809", "#0a0b0c"
BLUE, VERMILION, GREEN, PINK, ORANGE, SKY = COLOURS[:6]
SERIES: Final = {"blue": BLUE, "vermilion": VERMILION, "green": GREEN, "pink": PINK, "orange": ORANGE, "sky": SKY}
_VARIABLES: Final = {
    INK: "var(--ink,#1b1f24)",
    MUTED: "var(--muted,#57606a)",
    LINE: "var(--line,#d0d4d9)",
    PAPER: "var(--card,#ffffff)",
    **{colour: f"var(--{name},{colour})" for name, colour in SERIES.items()},
}
_STYLE: Final[dict[str, Any]] = {
    # Texts stay texts: crisp, searchable, in the page's font. Their characters are not read as TeX.
    "svg.fonttype": "none",
    "text.parse_math": False,
    # A phone shows a figure at four fifths of its size: texts stay above 10 pixels there.
    "font.size": 13,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 13,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.7,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 12.5,
    "ytick.labelsize": 12.5,
    "xtick.minor.visible": False,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
}
_REFERENCE: Final = re.compile(r'(?:url\(#|href="#)([^)"]+)')
_POINTS: Final = 72


@contextmanager
def drawing(width: float = 4.7, height: float = 3.6) -> Iterator[tuple[Figure, Axes]]:
    """Yield an empty figure (inches) and its axes, in the page's look; draw and :func:`inline` it inside."""
    with rc_context(_STYLE):
        figure = new_figure(width, height)
        axes = figure.subplots()
        axes.grid(True)
        yield figure, axes


def inline(figure: Figure, name: str, title: str, description: str) -> Markup:
    """Return the figure as an ``<svg>`` element; ids begin with ``name``, unique in the page."""
    stream = io.StringIO()
    with rc_context({**_STYLE, "svg.hashsalt": name}):
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = stream.getvalue()
    # The prologue, the namespaces and a style sheet that would be the whole page's are left out.
    body = text[text.index("<defs>") : text.rindex("</svg>")]
    body = re.sub(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = _own_ids(body.replace("xlink:href", "href"), name)
    for colour, variable in _VARIABLES.items():
        body = re.sub(re.escape(colour), variable, body, flags=re.IGNORECASE)
    body = "\n".join(line.strip() for line in body.splitlines() if line.strip() and not line.strip().startswith("<!--"))
    width, height = (side * _POINTS for side in figure.get_size_inches())
    # Title and description may hold texts of a stranger's record.
    head = Markup(
        '<svg role="img" aria-labelledby="{0}-title {0}-desc" viewBox="0 0 {1:g} {2:g}">\n'
        '<title id="{0}-title">{3}</title>\n<desc id="{0}-desc">{4}</desc>\n'
    ).format(name, width, height, escape(printable(title)), escape(printable(description)))
    return head + Markup(body) + Markup("\n</svg>")


def _own_ids(body: str, name: str) -> str:
    """Ids that are pointed to get the figure's name in front; all others go."""
    # Every figure has the same ids, and a page has many figures.
    used = set(_REFERENCE.findall(body))

    def own(match: re.Match[str]) -> str:
        return f' id="{name}-{match[1]}"' if match[1] in used else ""

    body = re.sub(r'\sid="([^"]*)"', own, body)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", body)


_MARKERS = "os^vDPX*"


def draw_predictions(record: Mapping[str, Any], path: Path) -> None:
    """Draw the planner's predictions from ``privmix plan --json``; the chosen design is thick, with its range."""
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
    known = record.get("class_shares")
    between = record.get("ranges", {}).get(record["chosen"]) if known is None else known["auc"][record["chosen"]][1:]
    figure_of = "accuracy" if known is None else "AUC"
    if between is not None:
        low, high = (100 * value for value in between)
        names = list(record["curves"])
        colour = COLOURS[names.index(record["chosen"]) % len(COLOURS) if record["chosen"] in names else 0]
        # A factor and no difference: the axis is logarithmic.
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
    axes.set_ylabel(f"predicted {figure_of} (%)")
    axes.set_title(f"Predicted {figure_of} of each design, from a public simulation", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    save_figure(figure, path)


_MOST_NUMBERS = 20
_LONGEST = 28


def draw_confusion(
    matrix: NDArray[Any],
    classes: Sequence[str],
    accuracy: float,
    path: Path,
    reliability: tuple[NDArray[Any], NDArray[Any], NDArray[Any]] | None = None,
) -> None:
    """Draw a (K, K) confusion matrix as shares of the true class (rows)."""
    # reliability: counts, mean probability and accuracy by bins of the predicted class's probability, next to the
    # matrix.
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
    """Accuracy against the predicted probability; the larger a point, the more records."""
    known = counts > 0
    axes.plot([0, 1], [0, 1], color="#666666", linewidth=0.8)
    axes.plot(told[known], right[known], color=COLOURS[0], linewidth=0.8)
    axes.scatter(told[known], right[known], s=20 + 180 * counts[known] / counts.max(), color=COLOURS[0])
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    axes.set_xlabel("probability of the predicted class")
    axes.set_ylabel("share that is right")
    axes.set_title("below the line: overconfident")
