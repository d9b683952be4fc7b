"""How results show themselves: a few lines in a terminal, a small table in a notebook."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from markupsafe import Markup

_LONGEST: Final = 200
# As report pages have it: plain type, one line between rows, the reader's own colours.
_TABLE: Final = Markup(
    '<table style="border-collapse:collapse;font:14px/1.5 system-ui,sans-serif;text-align:left">'
    '<caption style="text-align:left;font-weight:600;padding:.2em 0">{}</caption>{}</table>'
)
_ROW: Final = Markup(
    '<tr style="border-top:1px solid #8884;background:none"><th scope="row" style="text-align:left;font-weight:400;'
    'opacity:.75;padding:.2em 1em .2em 0">{}</th><td style="text-align:left;padding:.2em 0">{}</td></tr>'
)


class Shown:
    """What prints as a few facts, and not as all that it holds."""

    @abstractmethod
    def shown(self) -> tuple[str, Mapping[str, object]]:
        """What it is, and what people want to see of it first, by what each is called."""

    def __repr__(self) -> str:
        title, facts = self.shown()
        return "\n".join([title, *(f"  {name}: {_short(value)}" for name, value in facts.items())])

    def _repr_html_(self) -> str:
        title, facts = self.shown()
        rows = Markup("").join(_ROW.format(name, _short(value)) for name, value in facts.items())
        return str(_TABLE.format(title, rows))

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        # Notebooks ask for this first, which estimators of scikit-learn answer with a diagram.
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


def _short(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
