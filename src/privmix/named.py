"""Objects chosen by name, with options of their own, as people write it: ``poisson:mixup_degree=64,person_mean``."""

import re
import types
from collections.abc import Callable, Mapping
from dataclasses import Field, fields, replace
from difflib import get_close_matches
from enum import Enum
from typing import Any, Final, TypeVar, Union, get_args, get_origin

from privmix.errors import InvalidInput, in_terms_of
from privmix.fields import bare, hints_of

Made = TypeVar("Made")
# A comma outside of double quotes: an even number of quotes follows.
_COMMA: Final = re.compile(r',(?=(?:[^"]*"[^"]*")*[^"]*$)')
_WORDS: Final = {"true": True, "false": False}


def chosen(field: str, text: str, kinds: Any) -> Any:
    """Return the object that ``NAME`` or ``NAME:KEY=VALUE,...`` describes; ``field`` is its name in errors."""
    # A key is a field with a text of its own (:func:`privmix.options.option`); one that is true or false may stand
    # alone. An unknown name is refused by ``kinds``, or here where they are a dictionary.
    name, _, rest = text.partition(":")
    if isinstance(kinds, dict) and name not in kinds:
        raise InvalidInput(field, name, f"one of {', '.join(kinds)}")
    kind = kinds[name]
    return kind(**options_in(field, rest, kind, of=name))


def varied(
    field: str,
    given: Any,
    kind: type[Made],
    named: Callable[[str], Made],
    own: tuple[str, Callable[[str], Any]] = ("", lambda _: ()),
) -> tuple[Made, set[str]]:
    """Return the object, or what ``NAME:KEY=VALUE,...`` makes of the one of that name; and the keys that were given."""
    # named: gives the object of a name. own: a field of the object, and what gives the dataclasses that it holds, whose
    # keys may be given, too. InvalidInput also where an option changes nothing, as ``unused`` of the object reports.
    if isinstance(given, kind):
        return given, {item.name for item in keys(kind)}
    if not isinstance(given, str):
        raise InvalidInput(field, given, f"NAME, NAME:KEY=VALUE,..., or a {kind.__name__}")
    name, _, rest = given.partition(":")
    with in_terms_of(part=field):
        made, kinds = named(name), own[1](name)
    said = options_in(field, rest, kind, *kinds, of=name)
    known = set(said)
    with in_terms_of(part=field):
        others = [one(**{item.name: said.pop(item.name) for item in keys(one) if item.name in said}) for one in kinds]
        made = replace(made, **said, **({own[0]: tuple(others)} if others else {}))  # type: ignore[type-var]
    for key, why in made.unused().items() if hasattr(made, "unused") else ():
        if key in said:
            raise InvalidInput(f"{field} {key}", said[key], why)
    return made, known


def options_in(field: str, text: str, *kinds: type[Any], of: str = "") -> dict[str, Any]:
    """Return the options of dataclasses, by name, from ``KEY=VALUE,...``; see :func:`chosen`."""
    known = {item.name: item for kind in kinds for item in keys(kind)}
    hints, found = {name: hint for kind in kinds for name, hint in hints_of(kind).items()}, {}
    for part in filter(None, parts_of(text)):
        word, equals, value = part.partition("=")
        key = word.strip().replace("-", "_")
        if key not in known:
            near = get_close_matches(key, known, 1)
            listed = ", ".join(known) or "no options"
            raise InvalidInput(field, word, f"{listed} for {of}{f'; nearest: {near[0]}' if near else ''}")
        if key in found:
            raise InvalidInput(field, word, "each option once")
        if read := known[key].metadata.get("read"):
            with in_terms_of({key: f"{field} {key}"}):
                found[key] = read(value.strip('"'))
        else:
            found[key] = _read(f"{field} {key}", value if equals else "true", bare(hints[key]))
    return found


def parts_of(text: str) -> list[str]:
    """Split a text at the commas that are not in double quotes.

    Example:
        >>> parts_of('proxy="a,b.csv",attainable=0.9')
        ['proxy="a,b.csv"', 'attainable=0.9']
    """
    return _COMMA.split(text)


def in_words(name: str, options: Mapping[str, Any]) -> str:
    parts = [key if value is True else f"{key}={value}" for key, value in options.items() if value is not None]
    return ":".join([name, *([",".join(parts)] if parts else [])])


def keys(kind: type[Any]) -> tuple[Field[Any], ...]:
    """Return the fields of a dataclass that are options of what it is the name of."""
    return tuple(
        item for item in fields(kind) if item.init and item.metadata.get("help") and not item.metadata.get("python")
    )


def _read(place: str, text: str, hint: Any) -> Any:
    kinds = [*get_args(hint)] if get_origin(hint) in (Union, types.UnionType) else [hint]
    text = text.strip()
    if bool in kinds and text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        if kind in kinds:
            try:
                return kind(text)
            except ValueError:
                continue
    enum = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Enum)), None)
    if enum is not None:
        if text not in [one.value for one in enum]:
            raise InvalidInput(place, text, f"one of {', '.join(str(one.value) for one in enum)}")
        return enum(text)
    if str in kinds:
        return text
    words = {bool: "true or false", int: "an integer", float: "a number"}
    raise InvalidInput(place, text, " or ".join(words[kind] for kind in kinds if kind in words))
