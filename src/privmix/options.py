"""Options: fields of frozen dataclasses, each with one text that help, docstrings, signatures and documents show.

    @described
    @dataclass(frozen=True)
    class Update:
        rate: Positive = option(0.1, "Learning rate.")

A field's type states its range (:mod:`privmix.fields`); a field without a text is no option.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, field, fields
from difflib import get_close_matches
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from privmix.errors import WITHHELD, InvalidInput, Unquoted

Kind = TypeVar("Kind", bound=type[Any])
P = ParamSpec("P")
R = TypeVar("R")
EXPERT: Final = "Expert"
"""The panel of options that few people need."""
# Signatures that are longer than a line of documentation go over several lines.
_WIDTH: Final = 100


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


def described(kind: Kind) -> Kind:
    """Return a class decorator: the docstring of a dataclass lists its fields, each by its own text or its type."""
    # Python keeps no docstrings with -OO.
    if kind.__doc__ is not None:
        head, rest = _halves(kind.__doc__)
        # Attributes of the class stand before those of its objects.
        titled = head if "\n\nAttributes:\n" in head else f"{head}\n\nAttributes:"
        listed = [f"    {item.name}: {_text_of(item)}" for item in fields(kind) if item.init]
        kind.__doc__ = "\n".join([titled, *listed]) + rest
    return kind


def _halves(text: str) -> tuple[str, str]:
    """Split a docstring where its results, errors and examples begin."""
    head, *rest = re.split(r"(?=\n\n(?:Returns|Raises|Example):\n)", inspect.cleandoc(text), maxsplit=1)
    return head, "".join(rest)


def _text_of(item: Field[Any]) -> str:
    if item.metadata.get("help") is None:
        return f":class:`{item.type if isinstance(item.type, str) else item.type.__name__}`."
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


class _Signature(inspect.Signature):
    """A signature that goes over several lines where it is long."""

    def __str__(self) -> str:
        whole = super().__str__()
        if len(whole) <= _WIDTH:
            return whole
        lines, kind = [], None
        for one in self.parameters.values():
            if kind is inspect.Parameter.POSITIONAL_ONLY is not one.kind:
                lines.append("/")
            if one.kind is inspect.Parameter.KEYWORD_ONLY and kind not in (one.kind, inspect.Parameter.VAR_POSITIONAL):
                lines.append("*")
            kind = one.kind
            lines.append(str(one))
        returned = "" if self.return_annotation is self.empty else f" -> {self.return_annotation}"
        return "(\n" + "".join(f"    {line},\n" for line in lines) + f"){returned}"


def readable(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function, types as they are written.

    Example:
        >>> def draw(share: float = 0.1) -> list[int]: ...
        >>> print(readable(draw))
        (share: float = 0.1) -> list[int]
    """
    found = inspect.signature(function)

    def plain(annotation: Any) -> Any:
        return Unquoted(annotation) if isinstance(annotation, str) else annotation

    made = [one.replace(annotation=plain(one.annotation)) for one in found.parameters.values()]
    return _Signature(made, return_annotation=plain(found.return_annotation))


def taking(function: Callable[P, R], kind: type[Any]) -> Callable[P, R]:
    """Return ``function`` with the options of ``kind`` as its arguments: in its signature, its help and its errors."""
    listed = {item.name: item for item in in_order(kind) if not item.metadata.get("terminal")}
    made = readable(kind).parameters
    signature = _Signature(
        [
            *(one for name, one in made.items() if name in listed and one.kind is not one.KEYWORD_ONLY),
            *(made[name] for name in listed if made[name].kind is inspect.Parameter.KEYWORD_ONLY),
        ],
        return_annotation=readable(kind.run).return_annotation,
    )

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_unknown(f"{function.__name__}()", set(kwargs) - set(listed), listed)
        signature.bind(*args, **kwargs)
        return function(*args, **kwargs)

    called.__signature__ = signature  # type: ignore[attr-defined]
    called.__doc__ = _listing(kind.__doc__, listed)
    return called


def refuse_unknown(function: str, unknown: Iterable[str], known: Iterable[str]) -> None:
    """Raise where names are no arguments of a function, with the nearest that are; weights have a reason of their own.

    Example:
        >>> refuse_unknown("draw()", ["shares"], ["share"])
        Traceback (most recent call last):
        ...
        TypeError: draw() takes no argument shares; did you mean share? help(...) lists all
    """
    unknown, known = sorted(unknown), list(known)
    for name in {"class_weight", "sample_weight"} & set(unknown):
        allowed = (
            "no value, since all records have the same weight. Report balanced accuracy (privmix.evaluate), or choose "
            "thresholds on public data; design class-wise gives all classes the same weight"
        )
        raise InvalidInput(name, WITHHELD, allowed)
    if unknown:
        close = [*dict.fromkeys(near for name in unknown for near in get_close_matches(name, known, 1))]
        hint = f"did you mean {', '.join(close)}? " if close else ""
        raise TypeError(f"{function} takes no argument {', '.join(unknown)}; {hint}help(...) lists all")


def _listing(text: str | None, options: Mapping[str, Field[Any]]) -> str | None:
    """Return a docstring with the options before the results; None (Python with -OO) stays."""
    if text is None:
        return None
    head, rest = _halves(text)
    told = [f"{name}: {_text_of(item)}" for name, item in options.items() if item.metadata.get("help")]
    wrap = textwrap.TextWrapper(112, initial_indent="    ", subsequent_indent=" " * 8, break_on_hyphens=False)
    return "\n".join([f"{head}\n\nOptions:", *map(wrap.fill, told)]) + rest
