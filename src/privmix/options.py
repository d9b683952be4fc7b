"""Options: fields of frozen dataclasses, each with one text that help, docstrings and documents show.

    @described
    @dataclass(frozen=True)
    class Update:
        rate: Positive = option(0.1, "Learning rate.")

A field's type states its range (:mod:`privmix.fields`); a field without a text is no option.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import Field, field, fields
from typing import Any, Final, TypeVar

Kind = TypeVar("Kind", bound=type[Any])
EXPERT: Final = "Expert"
"""The panel of options that few people need."""


def said(text: str, panel: str | None = None, **more: Any) -> dict[str, Any]:
    """Metadata of a field.

    Args:
        text: what the option is; other fields stand between backticks.
        panel: under which all of help shows it; without one it stands on the first screen of help, too.
        more: ``common`` (stands on that screen in any panel), ``argument`` (given by its place on the command line).
            ``several`` (given once or more there; how one looks), ``needed`` (must be given there), ``python`` (Python
            alone), ``terminal`` (command line alone). ``kinds`` (MODULE:NAME of the dataclasses by name that
            NAME:KEY=VALUE means, see :mod:`privmix.named`), ``read`` (makes the field's value of such a VALUE).
            ``names`` (that the option takes, for the full help), ``in_python`` (a sentence for Python alone).
            ``flag`` and ``off``, as :mod:`privmix.cli.verb` reads them. ``where_used`` and ``stored``, as
            :mod:`privmix.fields` does.
    """
    return {"help": text, **({"panel": panel} if panel else {}), **more}


def option(default: Any, text: str, panel: str | None = None, **more: Any) -> Any:
    """Return a field of a dataclass with its description; see :func:`said`. MISSING: it must be given."""
    return field(default=default, metadata=said(text, panel, **more))


def in_order(kind: type[Any]) -> list[Field[Any]]:
    """Return the options of a dataclass: its own, then those of the dataclasses that it inherits, in their order."""
    known = {item.name: item for item in fields(kind) if item.init}
    names = dict.fromkeys(name for base in kind.__mro__ for name in inspect.get_annotations(base) if name in known)
    return [known[name] for name in names]


def options_for(kinds: Sequence[type[Any]], held: Sequence[Any]) -> tuple[Any, ...]:
    """For each dataclass the object of it that is held, or one by default."""
    return tuple(next((one for one in held if type(one) is kind), None) or kind() for kind in kinds)


def described(kind: Kind) -> Kind:
    """Return a class decorator: the docstring of a dataclass lists its fields, each by its own text or its type."""
    if kind.__doc__ is None:
        # Python keeps no docstrings (-OO).
        return kind
    listed = "\n".join(["Attributes:", *(f"    {item.name}: {_of(item)}" for item in fields(kind) if item.init)])
    head, *rest = re.split(r"\n\n(?=(?:Raises|Example):\n)", inspect.cleandoc(kind.__doc__), maxsplit=1)
    if "\n\nAttributes:\n" in head:
        # Attributes of the class; those of its objects come after them.
        head, own = head.split("\n\nAttributes:\n")
        listed = f"Attributes:\n{own}{listed.removeprefix('Attributes:')}"
    kind.__doc__ = "\n\n".join([head, listed, *rest])
    return kind


def _of(item: Any) -> str:
    if item.metadata.get("help") is None:
        return f":class:`{item.type}`." if isinstance(item.type, str) else f":class:`{item.type.__name__}`."
    return with_default(full_text(item), item.metadata.get("shown", item.default))


def full_text(item: Field[Any], *, python: bool = True) -> str:
    """Return the text of an option with the names that it takes, and for Python its sentence about Python."""
    more = item.metadata.get("in_python") if python else None
    names = item.metadata.get("names")
    return " ".join(filter(None, [item.metadata["help"], f"Names: {names}." if names else None, more]))


def with_default(text: str, default: Any) -> str:
    """Return the text and the default, unless the text names it."""
    tells = "Default" in text or "default" in text
    plain = isinstance(default, bool | int | float | str) and default is not False and default != ""
    return f"{text} Default: {default}." if plain and not tells else text
