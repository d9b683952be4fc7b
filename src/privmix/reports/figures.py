"""Figures of a report page as inline SVG. Texts of records stand in legends and descriptions, never in drawings."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from privmix.reports.pictures import BLUE, GREEN, INK, MUTED, PAPER, VERMILION, drawing, inline
from privmix.reports.sentences import SUPERSCRIPTS, percent
from privmix.reports.sentences import figure as number_text
from privmix.rounding import percent_up, rounded_down, rounded_up

_LEAST_DELTA = 1e-12
_HALO: dict[str, Any] = {"markeredgecolor": PAPER, "markeredgewidth": 1.4, "clip_on": False, "zorder": 5}


@dataclass(frozen=True)
class FigureLine:
    """One attack's curve: false-alarm rates, detection rates, and their confidence band."""

    name: str
    colour: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


def draw_epsilon_delta(
    name: str, epsilons: Sequence[float], deltas: Sequence[float], at: tuple[float, float]
) -> Markup:
    epsilon, delta = at
    # Smaller deltas would stretch the axis by hundreds of powers of ten.
    kept = [(x, y) for x, y in zip(epsilons, deltas, strict=True) if y >= _LEAST_DELTA]
    with drawing() as (figure, axes):
        axes.set_yscale("log")
        if kept:
            axes.plot(*zip(*kept, strict=True), color=BLUE)
        _powers_of_ten(axes, [y for _, y in kept] + [delta])
        if delta > 0:
            axes.plot(
                [epsilon, epsilon, 0], [axes.get_ylim()[0], delta, delta], color=MUTED, linewidth=0.8, dashes=(2, 2)
            )
            axes.plot([epsilon], [delta], "o", color=VERMILION, markersize=8, **_HALO)
            _label(axes, epsilon, delta, f"ε = {rounded_up(epsilon)}", (8, 8))
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel("epsilon (ε)")
        axes.set_ylabel("delta (δ)")
        return inline(
            figure,
            name,
            "Delta against epsilon",
            f"A falling curve: delta decreases as epsilon increases. The stated guarantee is the point epsilon "
            f"{rounded_up(epsilon)}, delta {rounded_up(delta)}.",
        )


def draw_tradeoff(
    name: str,
    alphas: Sequence[float],
    betas: Sequence[float],
    at: tuple[float, float],
    sides: tuple[str, str] = ("absent", "present"),
) -> Markup:
    """Draw most detections against false alarms, with the stated point ``at``; ``sides``: names of both worlds."""
    order = np.argsort(alphas)
    alpha, found = np.asarray(alphas)[order], 1 - np.asarray(betas)[order]
    with drawing() as (figure, axes):
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.9, dashes=(4, 3))
        axes.fill_between(alpha, found, 1, color=BLUE, alpha=0.12, linewidth=0)
        axes.plot(alpha, found, color=BLUE)
        axes.plot([at[0]], [at[1]], "o", color=VERMILION, markersize=8, **_HALO)
        above = at[1] > 0.6
        text = f"at {percent(at[0], 0)} false alarms\nat most {percent_up(at[1])} detected"
        _label(axes, *at, text, (14, -30) if above else (30, -16))
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.02)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
        axes.set_xlabel(f"false alarms ({sides[0]} records accused)")
        axes.set_ylabel(f"detected ({sides[1]} records)")
        return inline(
            figure,
            name,
            "Trade-off curve",
            f"The largest share of those present that an attack detects, against its false alarms. Guessing is the "
            f"straight line from bottom left to top right. At {percent(at[0], 0)} false alarms at most "
            f"{percent_up(at[1])} are detected.",
        )


def draw_utility(
    name: str, points: Sequence[tuple[float, float, float, float]], reference: float | None, metric: str
) -> Markup:
    """Accuracy against epsilon: (epsilon, accuracy, low, high) with intervals, next to that without privacy."""
    epsilons, values, lows, highs = zip(*points, strict=True)
    with drawing() as (figure, axes):
        axes.set_xscale("log", base=2)
        spread = [
            [v - low for v, low in zip(values, lows, strict=True)],
            [h - v for v, h in zip(values, highs, strict=True)],
        ]
        axes.errorbar(epsilons, values, yerr=np.maximum(spread, 0), color=BLUE, elinewidth=1, capsize=3, zorder=3)
        axes.plot(epsilons, values, "o", color=BLUE, markersize=7, **_HALO)
        if reference is not None:
            axes.axhline(reference, color=INK, linewidth=1.1, dashes=(5, 3))
        _label(axes, epsilons[-1], values[-1], percent(values[-1]), (-4, -16), "right")
        low = min(*lows, *([] if reference is None else [reference]), *values)
        axes.set_ylim(max(0.0, low - 0.08), 1.0)
        axes.xaxis.set_major_locator(FixedLocator(list(epsilons)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
        axes.set_xlabel("epsilon (ε)")
        axes.set_ylabel("accuracy")
        known = f" Without privacy it is {percent(reference)}." if reference is not None else ""
        stated = ", ".join(
            f"{percent(value)} at epsilon {number_text(at)}" for at, value in zip(epsilons, values, strict=True)
        )
        return inline(figure, name, f"{metric} against epsilon", f"{metric}: {stated}.{known}")


def draw_bounds(name: str, proven: float, claimed: float | None, published: float | None, violated: bool) -> Markup:
    """On one scale of epsilon: what an attack proved, what is claimed, and what the papers' formula would claim."""
    most = max(value for value in (proven, claimed, published, 0.1) if value is not None)
    with drawing(4.7, 1.6) as (figure, axes):
        axes.grid(False)
        axes.barh([0], [proven], height=0.5, color=VERMILION if violated else GREEN, linewidth=0)
        for value, colour, dashes in ((claimed, INK, ()), (published, VERMILION, (2, 1.5))):
            if value is not None:
                axes.plot([value, value], [-0.42, 0.42], color=colour, linewidth=2.4, dashes=dashes or (None, None))
        if claimed is not None:
            side = "right" if claimed > 0.6 * most else "left"
            _label(axes, claimed, 0.42, f"claimed {rounded_up(claimed)}", (0, 4), side)
        axes.set_ylim(-0.5, 0.95)
        axes.set_xlim(0, most * 1.06)
        axes.yaxis.set_visible(False)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("epsilon (ε)")
        published_text = "" if published is None else f" The published formula gives {number_text(published)}."
        stated = "nothing" if claimed is None else rounded_up(claimed)
        return inline(
            figure,
            name,
            "Proven and claimed epsilon",
            f"The attack proves that epsilon is at least {rounded_down(proven)}; claimed is {stated}.{published_text}",
        )


def draw_audit_points(
    name: str, measured: Sequence[Sequence[float]], limit: tuple[Sequence[float], Sequence[float]] | None
) -> Markup:
    """Measured false-alarm and miss rates with upper confidence bounds, against the claim's limit, on log scales."""
    floor = _floor([*measured[0], *measured[1]])
    order = np.argsort(measured[0])
    # A logarithmic axis has no place for 0.
    alpha, beta, alpha_high, beta_high = (np.clip(values, floor, 1) for values in measured)
    with drawing() as (figure, axes):
        _log_log(axes, floor)
        if limit is not None:
            x, least = (np.clip(values, floor, 1) for values in limit)
            axes.fill_between(x, floor, least, color=BLUE, alpha=0.12, linewidth=0)
            axes.plot(x, least, color=BLUE)
        axes.plot(alpha[order], beta[order], color=VERMILION, linewidth=1.4)
        axes.plot(alpha_high, beta_high, "s", color=INK, markersize=3, linewidth=0, zorder=4)
        axes.set_xlabel("absent records accused (false alarms)")
        axes.set_ylabel("records missed")
        return inline(
            figure,
            name,
            "Measured error rates of the attack",
            f"{len(alpha)} thresholds of the attack: its error rates, with upper confidence bounds. Each bound holds "
            f"for one threshold only: a single one below the claim's limit refutes nothing.",
        )


def draw_roc(name: str, lines: Sequence[FigureLine], limit: tuple[Sequence[float], Sequence[float]] | None) -> Markup:
    """Return detection against false alarms on log scales: attacks with bands, guessing, and the limit that DP sets."""
    floor = _floor([x for line in lines for x in line.x], least=1e-4)
    with drawing(4.7, 4.2) as (figure, axes):
        _log_log(axes, floor)
        # A straight line between two points would bend on logarithmic axes.
        grid = np.geomspace(floor, 1, 50)
        axes.plot(grid, grid, color=MUTED, linewidth=0.9, dashes=(4, 3))
        if limit is not None:
            x, most = (np.clip(values, floor, 1) for values in limit)
            axes.plot(x, most, color=INK, linewidth=1.4, dashes=(5, 1.5, 1, 1.5))
        for line in lines:
            x = np.clip(line.x, floor, 1)
            if line.low and line.high:
                low, high = np.clip(line.low, floor, 1), np.clip(line.high, floor, 1)
                axes.fill_between(x, low, high, color=line.colour, alpha=0.16, linewidth=0)
            axes.plot(x, np.clip(line.y, floor, 1), color=line.colour)
        axes.set_xlabel("non-members accused (false alarms)")
        axes.set_ylabel("members caught")
        return inline(
            figure,
            name,
            "Membership attacks: members caught against false alarms",
            "Curves of "
            + ", ".join(line.name for line in lines)
            + " on logarithmic scales, with guessing as the diagonal"
            + (" and the limit set by the guarantee." if limit is not None else "."),
        )


def draw_shares(name: str, shares: Any, title: str) -> Markup:
    """Return a large confusion matrix as shades; rows are true classes."""
    rgba = np.empty((*np.shape(shares), 4))
    # Opacity and not colour, so that it is readable on light and on dark.
    rgba[..., :3] = [0.0, 0.447, 0.698]
    rgba[..., 3] = np.clip(shares, 0, 1)
    with drawing(4.7, 4.4) as (figure, axes):
        axes.grid(False)
        axes.imshow(rgba, interpolation="nearest")
        axes.set_xlabel("predicted class")
        axes.set_ylabel("true class")
        return inline(figure, name, title, f"{len(rgba)} classes; a darker diagonal means more correct predictions.")


def _label(axes: Axes, x: float, y: float, text: str, offset: tuple[float, float], side: str = "left") -> None:
    # On the card's own colour, so that no line runs through it.
    box = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.5}
    axes.annotate(
        text, (x, y), offset, textcoords="offset points", ha=side, color=INK, annotation_clip=False, bbox=box, zorder=6
    )


def _log_log(axes: Axes, floor: float) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(floor, 1)
    axes.set_ylim(floor, 1.05)
    # Less a little: the logarithm of a power of ten may be a last bit too large.
    ticks = [10.0**power for power in range(math.ceil(math.log10(floor) - 1e-9), 1)]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))


def _floor(values: Sequence[float], least: float = 1e-6) -> float:
    """Return the power of ten at or below the least positive value, within reason: where a logarithmic axis begins."""
    positive = [value for value in values if value > 0]
    smallest = min(positive, default=0.1)
    return float(10.0 ** math.floor(math.log10(min(max(smallest, least), 0.1))))


def _powers_of_ten(axes: Axes, values: Sequence[float]) -> None:
    positive = [max(value, _LEAST_DELTA) for value in values if value > 0]
    low = math.floor(math.log10(min(positive, default=0.1)))
    axes.set_ylim(10.0**low, 2)
    step = max(1, -low // 5)
    axes.yaxis.set_major_locator(FixedLocator([10.0**power for power in range(0, low - 1, -step)]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(
        FuncFormatter(
            lambda value, _: "1" if value == 1 else "10" + f"{round(math.log10(value))}".translate(SUPERSCRIPTS)
        )
    )
