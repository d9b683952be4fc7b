"""One look for every figure: drawn without a display, saved atomically, readable in black and white."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup, escape
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from privmix.fields import printable
from privmix.held_folders import new_file

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
    head = Markup(
        '<svg role="img" aria-labelledby="{0}-title {0}-desc" viewBox="0 0 {1:g} {2:g}">\n'
        '<title id="{0}-title">{3}</title>\n<desc id="{0}-desc">{4}</desc>\n'
    ).format(name, width, height, escape(printable(title)), escape(printable(description)))
    return head + Markup(body) + Markup("\n</svg>")


def _own_ids(body: str, name: str) -> str:
    """Ids that are pointed to get the figure's name in front; all others go, as every figure has the same ones."""
    used = set(_REFERENCE.findall(body))

    def own(match: re.Match[str]) -> str:
        return f' id="{name}-{match[1]}"' if match[1] in used else ""

    body = re.sub(r'\sid="([^"]*)"', own, body)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", body)
