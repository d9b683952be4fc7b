"""Signatures that say every option by name, type and default, where a function takes them as ``**options``.

This module sits beside the floors, so every floor may use it. The options have their owners: dataclasses, whose fields
say what each is (:mod:`privmix.options`). What ``help`` and editors show of a function follows from these.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from privmix.errors import WITHHELD, InvalidInput
from privmix.options import in_order, with_default

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
    """The signature of a function, types as they are written.

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


def spelt_out(
    *kinds: type[Any],
    types: Any = None,
    grows: type[Any] | None = None,
    but: tuple[str, ...] = (),
    refused: tuple[str, ...] = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: the function's ``**options`` are these, in its signature, its help and its errors.

    Args:
        kinds: dataclasses whose fields the options are; where two have a field of one name, the first one says it.
        types: a TypedDict with the types of options, in their order; None: the fields of ``kinds`` as they are.
        grows: one of these to which other packages bring options, which stand in no TypedDict.
        but: fields that are no options.
        refused: options that the function refuses in words of its own.

    Example:
        >>> from dataclasses import dataclass
        >>> from privmix.options import option
        >>> @dataclass(frozen=True)
        ... class Draw:
        ...     share: float = option(0.1, "Share of all records.")
        >>> @spelt_out(Draw)
        ... def draw(data: str, **options: object) -> None:
        ...     '''Draw records.'''
        >>> print(inspect.signature(draw))
        (data: str, *, share: float = 0.1) -> None
        >>> draw("mnist", shares=1)
        Traceback (most recent call last):
        ...
        TypeError: draw() takes no argument shares; did you mean share? help(...) lists all
    """
    said: dict[str, Field[Any]] = {}
    for kind in kinds:
        said = {**{one.name: one for one in fields(kind) if one.init and one.name not in but}, **said}

    def change(function: Callable[P, R]) -> Callable[P, R]:
        own = readable(function)
        named = [one for one in own.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        taken = {one.name for one in named}
        listed = {name: kind for name, kind in _typed(said, types) if name not in taken}
        if grows is not None:
            brought = {one.name: one for one in fields(grows) if one.metadata.get("help") and one.name not in refused}
            left = {name: kind for name, kind in _typed(brought, None) if name not in {*taken, *listed}}
            listed = {**listed, **left}
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_default(said.get(name)), annotation=kind)
            for name, kind in listed.items()
        ]
        signature = _Signature([*named, *added], return_annotation=own.return_annotation)

        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            unknown = sorted(set(kwargs) - {*signature.parameters, *refused})
            refuse_unknown(f"{function.__name__}()", unknown, signature.parameters)
            return function(*args, **kwargs)

        called.__signature__ = signature  # type: ignore[attr-defined]
        called.__doc__ = _told(function.__doc__, {name: said.get(name) for name in listed})
        return called

    return change


def taking(function: Callable[P, R], kind: type[Any]) -> Callable[P, R]:
    """The function, with the options of a dataclass as its arguments: in its signature, its help and its errors.

    Args:
        function: takes what makes a ``kind``.
        kind: whose ``run`` gives what the function gives.
    """
    listed = {item.name: item for item in in_order(kind)}
    made = readable(kind).parameters
    signature = _Signature(
        sorted((made[name] for name in listed), key=lambda one: one.kind),
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
            "nothing: records all count alike. Report balanced accuracy (privmix.evaluate), or choose thresholds on "
            "public data; a release of design class-wise treats classes alike"
        )
        raise InvalidInput(name, WITHHELD, allowed)
    if unknown:
        close = [*dict.fromkeys(near for name in unknown for near in get_close_matches(name, known, 1))]
        hint = f"did you mean {', '.join(close)}? " if close else ""
        raise TypeError(f"{function} takes no argument {', '.join(unknown)}; {hint}help(...) lists all")


def _typed(said: Mapping[str, Field[Any]], types: Any) -> Iterator[tuple[str, _Type]]:
    if types is None:
        for name, item in said.items():
            kind = item.type if isinstance(item.type, str) else getattr(item.type, "__name__", "Any")
            # Without the range, which the option's text says.
            yield name, _Type(re.sub(r"Annotated\[(\w+), .*\]", r"\1", kind))
        return
    for name, kind in types.__annotations__.items():
        yield name, _Type(getattr(kind, "__forward_arg__", kind))


def _default(item: Field[Any] | None) -> Any:
    return None if item is None or item.default is MISSING else item.default


def _told(text: str | None, listed: Mapping[str, Field[Any] | None]) -> str | None:
    """The docstring, with what each option is before what it returns."""
    if text is None:
        # Python was told to keep no docstrings.
        return None
    lines = ["Options:"]
    for name, item in listed.items():
        own = "" if item is None else item.metadata.get("help", "")
        words = with_default(own, _default(item)) if own else ""
        if words:
            told = textwrap.fill(f"{name}: {words}", 112, initial_indent="    ", subsequent_indent=" " * 8)
            lines.append(told)
    paragraphs = inspect.cleandoc(text).split("\n\n")
    place = next((at for at, one in enumerate(paragraphs) if one.startswith(_SECTIONS)), len(paragraphs))
    return "\n\n".join([*paragraphs[:place], "\n".join(lines), *paragraphs[place:]])
