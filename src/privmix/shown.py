"""How results show themselves: a few lines in a terminal; in a notebook a small card with a picture.

This module sits beside the floors, so every floor may use it. What is shown is handed over in words and numbers; all of
it is escaped here, and nothing in a card runs or is fetched.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup

from privmix.fields import printable
from privmix.rounding import exact, rounded_up

_LONGEST: Final = 200
# As report pages have it: plain type, one line between rows, the reader's own colours.
_CARD: Final = Markup(
    '<div style="display:flex;flex-wrap:wrap;gap:.5em 2em;align-items:flex-start;font:14px/1.5 system-ui,sans-serif;'
    'text-align:left">{}{}</div>'
)
_TABLE: Final = Markup(
    '<table style="border-collapse:collapse;font:inherit;text-align:left;flex:0 1 34em">'
    '<caption style="text-align:left;font-weight:600;padding:.2em 0;color:inherit">{}</caption>{}</table>'
)
_ROW: Final = Markup(
    '<tr style="border-top:1px solid #8884;background:none"><th scope="row" style="text-align:left;font-weight:400;'
    'opacity:.75;padding:.2em 1em .2em 0;vertical-align:top">{}</th><td style="text-align:left;padding:.2em 0">{}</td>'
    "</tr>"
)
_SVG: Final = Markup(
    '<svg role="img" aria-label="{label}" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
    'style="flex:0 1 {width}px;max-width:100%;font:12px system-ui,sans-serif;overflow:visible" fill="currentColor">'
    '<text y="12" font-weight="600">{title}</text>{body}</svg>'
)
# Both can be told from black and from white paper, and from each other by people who see no red or no green.
STRONG, POINT = "#2f81c4", "#d55e00"
_WIDTH: Final = 300
_LINE: Final = 20
_TOP: Final = 22
_MOST_BARS: Final = 8
_MOST_LETTERS: Final = 22
_MOST_IMAGES: Final = 40
_IMAGES_A_LINE: Final = 5
_LETTERS_OF_AN_IMAGE: Final = 9
_LEAST_DELTA: Final = 1e-12
_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Bar:
    """A bar: what it is of, its length, what is written at its end, and whether it is the one that matters."""

    name: str
    length: float
    text: str
    strong: bool = True


@dataclass(frozen=True)
class Bars:
    """Bars one below the other.

    Attributes:
        title: what they show.
        bars: the first eight are drawn.
        full: the length that fills the width; default: the longest.
        mark: a length at which a line stands.
    """

    title: str
    bars: Sequence[Bar]
    full: float | None = None
    mark: float | None = None

    def svg(self) -> Markup:
        """The picture."""
        bars, start, room = self.bars[:_MOST_BARS], 118, 122
        full = self.full or max((bar.length for bar in bars), default=0.0) or 1.0

        def long(length: float) -> float:
            return round(room * min(1.0, max(0.0, length / full)), 1) if math.isfinite(length) else float(room)

        line = Markup(
            '<text y="{0}" opacity=".8">{1}</text><rect x="{2}" y="{3}" width="{4}" height="11" rx="2" fill="{5}" '
            'fill-opacity="{6}"/><text x="{7}" y="{0}">{8}</text>'
        )
        parts = []
        for place, bar in enumerate(bars):
            y, length = _TOP + _LINE * place, long(bar.length)
            ink, share = (STRONG, 1) if bar.strong else ("currentColor", 0.35)
            name = _cut(bar.name, _MOST_LETTERS)
            parts.append(line.format(y + 14, name, start, y + 4.5, length, ink, share, start + length + 6, bar.text))
        height = _TOP + _LINE * len(bars) + 4
        if self.mark is not None:
            upright = Markup('<path d="M{0} {1}V{2}" stroke="{3}" stroke-width="1.5"/>')
            parts.append(upright.format(start + long(self.mark), _TOP, height - 4, POINT))
        told = "; ".join(f"{bar.name} {bar.text}" for bar in bars)
        return _drawn(self.title, told, height, parts)


@dataclass(frozen=True)
class PriceCurve:
    """Delta against epsilon, on a logarithmic scale, and the stated guarantee.

    Attributes:
        epsilons, deltas: points of the curve, which may be none.
        at: epsilon and delta that are stated.
        said: the same, as it is printed.
    """

    epsilons: Sequence[float]
    deltas: Sequence[float]
    at: tuple[float, float]
    said: str

    def svg(self) -> Markup:
        """The picture."""
        kept = [(x, y) for x, y in zip(self.epsilons, self.deltas, strict=True) if y >= _LEAST_DELTA]
        epsilon, delta = self.at
        tens = [math.log10(y) for y in [*(y for _, y in kept), max(delta, _LEAST_DELTA)]]
        low, high = math.floor(min(tens)), max(math.ceil(max(tens)), math.floor(min(tens)) + 1)
        most = max([epsilon * 1.25, *(x for x, _ in kept)]) or 1.0
        left, right, top, bottom = 42, _WIDTH - 12, _TOP + 6, 150

        def x_of(value: float) -> float:
            return round(left + (right - left) * value / most, 1)

        def y_of(value: float) -> float:
            share = (math.log10(max(value, _LEAST_DELTA)) - low) / (high - low)
            return round(bottom - (bottom - top) * share, 1)

        x, y = x_of(epsilon), y_of(delta)
        text = Markup('<text x="{0}" y="{1}" text-anchor="{2}" opacity="{3}">{4}</text>')
        path = Markup('<path d="{0}" fill="none" stroke="{1}" stroke-width="{2}" stroke-opacity="{3}"{4}/>')
        line = "M" + "L".join(f"{x_of(a)} {y_of(b)}" for a, b in kept)
        dashed = Markup(' stroke-dasharray="2 3"')
        # Where there is more room beside the point.
        ahead = x < (left + right) / 2
        parts = [
            path.format(f"M{left} {top}V{bottom}H{right}", "currentColor", 1, 0.5, ""),
            path.format(f"M{left} {y}H{x}V{bottom}", "currentColor", 1, 0.6, dashed),
            path.format(line, STRONG, 2, 1, "") if len(kept) > 1 else Markup(""),
            Markup('<circle cx="{0}" cy="{1}" r="4.5" fill="{2}"/>').format(x, y, POINT),
            text.format(x + (9 if ahead else -9), max(y - 8, top + 6), "start" if ahead else "end", 1, self.said),
            text.format(left - 5, top + 5, "end", 0.75, f"10{str(high).translate(_SUPERSCRIPTS)}"),
            text.format(left - 5, bottom, "end", 0.75, f"10{str(low).translate(_SUPERSCRIPTS)}"),
            text.format(left, bottom + 15, "middle", 0.75, "0"),
            text.format(right, bottom + 15, "end", 0.75, f"epsilon {most:.3g}"),
        ]
        return _drawn("Delta against epsilon", f"a falling curve; guaranteed: {self.said}", bottom + 20, parts)


@dataclass(frozen=True)
class Images:
    """Small images with a name each.

    Attributes:
        title: what they show.
        images: a name and the address of a PNG that holds it (``data:image/png;base64,...``); forty are drawn at most.
    """

    title: str
    images: Sequence[tuple[str, str]]

    def svg(self) -> Markup:
        """The picture: lines of five."""
        shown = self.images[:_MOST_IMAGES]
        side, step = _WIDTH / _IMAGES_A_LINE - 6, _WIDTH / _IMAGES_A_LINE
        one = Markup(
            '<image href="{0}" x="{1}" y="{2}" width="{3}" height="{3}" style="image-rendering:pixelated"/>'
            '<text x="{1}" y="{4}">{5}</text>'
        )
        parts = []
        for place, (name, address) in enumerate(shown):
            x, y = step * (place % _IMAGES_A_LINE), _TOP + (step + 14) * (place // _IMAGES_A_LINE)
            parts.append(one.format(address, x, y, side, y + side + 13, _cut(name, _LETTERS_OF_AN_IMAGE)))
        height = _TOP + (step + 14) * -(-len(shown) // _IMAGES_A_LINE)
        return _drawn(self.title, ", ".join(name for name, _ in shown), height, parts)


Picture = Bars | PriceCurve | Images


def spent_bars(budget: float, spent: float, share: float | None = None) -> Bars:
    """A budget of epsilon, and what is gone of it; ``share`` is that of a filter, which is what an adaptive one is."""
    if share is not None:
        return Bars("Spent of the budget", [Bar("of its filter", share, f"{rounded_up(100 * share)}%")], full=1.0)
    bars = [Bar("budget", budget, exact(budget), strong=False), Bar("spent", spent, rounded_up(spent))]
    return Bars("Spent of the budget, epsilon", bars)


def _drawn(title: str, told: str, height: float, parts: Sequence[Markup]) -> Markup:
    label, body = printable(f"{title}: {told}", " "), Markup("").join(parts)
    return _SVG.format(label=label, width=_WIDTH, height=height, title=printable(title, " "), body=body)


class Shown:
    """What prints as a few facts, and not as all that it holds."""

    @abstractmethod
    def shown(self) -> tuple[str, Mapping[str, object]]:
        """What it is, and what people want to see of it first, by what each is called."""

    @property
    def details(self) -> tuple[str, ...]:
        """Lines that a terminal has below the facts."""
        return ()

    def picture(self) -> Picture | None:
        """What a notebook draws beside the facts; None: nothing. It takes no time that would be felt."""
        return None

    def __repr__(self) -> str:
        title, facts = self.shown()
        lines = ("  " + printable(name, " ") + f": {_short(value)}" for name, value in facts.items())
        return "\n".join([printable(title, " "), *lines])

    def _repr_html_(self) -> str:
        title, facts = self.shown()
        rows = Markup("").join(_ROW.format(printable(name, " "), _short(value)) for name, value in facts.items())
        drawn = self.picture()
        return str(
            _CARD.format(_TABLE.format(printable(title, " "), rows), Markup("") if drawn is None else drawn.svg())
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        # Notebooks ask for this first, which estimators of scikit-learn answer with a diagram.
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


def _short(value: object) -> str:
    return _cut(f"{value:.4g}" if isinstance(value, float) else str(value), _LONGEST)


def _cut(text: str, most: int) -> str:
    text = printable(text, " ")
    return text if len(text) <= most else text[: most - 3] + "..."
