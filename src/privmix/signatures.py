"""Signatures that list every option by name, type and default, for functions that take them as ``**options``."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field
from difflib import get_close_matches
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from privmix.errors import WITHHELD, InvalidInput
from privmix.options import full_text, in_order, with_default

P = ParamSpec("P")
R = TypeVar("R")
_WIDTH: Final = 100
_SECTIONS: Final = ("Returns:", "Raises:", "Example:")


class _Type(str):
    """A type as it is written in the source, which shows without quotation marks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


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
        return _Type(annotation) if isinstance(annotation, str) else annotation

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
    called.__doc__ = _told(kind.__doc__, listed)
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
            "no value, since all records have the same weight. Report balanced accuracy (privmix.evaluate), or "
            "choose thresholds on "
            "public data; design class-wise gives all classes the same weight"
        )
        raise InvalidInput(name, WITHHELD, allowed)
    if unknown:
        close = [*dict.fromkeys(near for name in unknown for near in get_close_matches(name, known, 1))]
        hint = f"did you mean {', '.join(close)}? " if close else ""
        raise TypeError(f"{function} takes no argument {', '.join(unknown)}; {hint}help(...) lists all")


def _told(text: str | None, listed: Mapping[str, Field[Any] | None]) -> str | None:
    """Return the docstring, with what each option is before what it returns."""
    if text is None:
        # Python keeps no docstrings (-OO).
        return None
    lines = ["Options:"]
    for name, item in listed.items():
        if item is not None and item.metadata.get("help"):
            words = with_default(full_text(item), None if item.default is MISSING else item.default)
            told = textwrap.fill(f"{name}: {words}", 112, initial_indent="    ", subsequent_indent=" " * 8)
            lines.append(told)
    paragraphs = inspect.cleandoc(text).split("\n\n")
    place = next((at for at, one in enumerate(paragraphs) if one.startswith(_SECTIONS)), len(paragraphs))
    return "\n\n".join([*paragraphs[:place], "\n".join(lines), *paragraphs[place:]])
