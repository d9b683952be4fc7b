"""Views of results: a few lines in a terminal, a small card with a picture in a notebook. All is escaped here."""

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
# Both stand out from black and from white paper, and from each other for people who see no red or no green.
STRONG, POINT = "#2f81c4", "#d55e00"
_WIDTH: Final = 320
_LINE: Final = 20
_TOP: Final = 22
_MOST_BARS: Final = 8
_MOST_LETTERS: Final = 22


@dataclass(frozen=True)
class Bar:
    """A bar: what it is of, its length, what is written at its end, and whether it is the one that matters."""

    name: str
    length: float
    text: str
    strong: bool = True


@dataclass(frozen=True)
class Bars:
    """Bars one below the other, at most eight; ``full``: the length of the width; ``mark``: a vertical line."""

    title: str
    bars: Sequence[Bar]
    full: float | None = None
    mark: float | None = None

    def svg(self) -> Markup:
        bars, start, room = self.bars[:_MOST_BARS], 138, 122
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
        label, body = printable(f"{self.title}: {told}", " "), Markup("").join(parts)
        return _SVG.format(label=label, width=_WIDTH, height=height, title=printable(self.title, " "), body=body)


def spent_bars(budget: float, spent: float, share: float | None = None) -> Bars:
    """Return a budget of epsilon and what is spent of it; ``share`` is that of an adaptive one's filter."""
    if share is not None:
        return Bars("Spent of the budget", [Bar("of its filter", share, f"{rounded_up(100 * share)}%")], full=1.0)
    bars = [Bar("budget", budget, exact(budget), strong=False), Bar("spent", spent, rounded_up(spent))]
    return Bars("Spent of the budget, epsilon", bars)


class Shown:
    """Objects that print as a few facts, and not as all that they hold."""

    @abstractmethod
    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Title, and the facts that users look for first, by name."""

    @property
    def details(self) -> tuple[str, ...]:
        """Lines that a terminal has below the facts."""
        return ()

    def picture(self) -> Bars | None:
        """Picture that a notebook draws next to the facts, or None. It takes no time that would be felt."""
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
