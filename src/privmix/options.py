"""Options: fields of frozen dataclasses, each with one text that help, docstrings and documents show."""

from __future__ import annotations

import inspect
import re
from dataclasses import field, fields
from typing import Any, TypeVar

Kind = TypeVar("Kind", bound=type[Any])


def said(text: str, panel: str | None = None, **more: str) -> dict[str, str]:
    """Metadata of a field.

    Args:
        text: what the option is; other fields stand between backticks.
        panel: under which help shows it.
        more: ``flag`` and ``off``, as :mod:`privmix.cli.verb` reads them.
    """
    return {"help": text, **({"panel": panel} if panel else {}), **more}


def option(default: Any, text: str, panel: str | None = None, **more: str) -> Any:
    """A field of a dataclass that says what it is; see :func:`said`."""
    return field(default=default, metadata=said(text, panel, **more))


def described(kind: Kind) -> Kind:
    """A class decorator: the docstring of a dataclass lists its fields, each by its own text or else its type.

    Example:
        >>> from dataclasses import dataclass
        >>> @described
        ... @dataclass(frozen=True)
        ... class Draw:
        ...     '''How records are drawn.'''
        ...
        ...     share: float = option(0.1, "Share of all records.")
        >>> print(Draw.__doc__)
        How records are drawn.
        <BLANKLINE>
        Attributes:
            share: Share of all records. Default: 0.1.
    """
    if kind.__doc__ is None:
        # Python was told to keep no docstrings.
        return kind
    listed = "\n".join(["Attributes:", *(f"    {item.name}: {_of(item)}" for item in fields(kind) if item.init)])
    head, *rest = re.split(r"\n\n(?=(?:Raises|Example):\n)", inspect.cleandoc(kind.__doc__), maxsplit=1)
    kind.__doc__ = "\n\n".join([head, listed, *rest])
    return kind


def _of(item: Any) -> str:
    text = item.metadata.get("help")
    if text is None:
        return f":class:`{item.type}`." if isinstance(item.type, str) else f":class:`{item.type.__name__}`."
    tells = "Default" in text or "default" in text
    plain = isinstance(item.default, bool | int | float | str) and item.default is not False and item.default != ""
    return f"{text} Default: {item.default}." if plain and not tells else str(text)
