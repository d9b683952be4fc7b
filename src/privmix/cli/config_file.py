"""Options of a command in a TOML file: ``--config`` reads it, and ``--print-config`` writes it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from privmix.errors import InvalidInput, StorageError

_NONE: Final = ("help_all", "config", "print_config", "help")


def read_toml(file: Path, context: Any) -> dict[str, Any]:
    """Return the values of a file, by the names of a command's parameters; InvalidInput if a key is no option."""
    place = f"--config {file}"
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise StorageError(f"{place}: {error.strerror}") from None
    except ValueError as error:
        raise InvalidInput(place, "another text", f"TOML in UTF-8: {error}") from None
    known = {key: one for one in context.command.params for key in _keys(one)}
    found: dict[str, Any] = {}
    for key, value in content.items():
        option = known.get(key.replace("_", "-"))
        if option is None:
            near = get_close_matches(key.replace("_", "-"), known, 3)
            nearest = f"; nearest: {', '.join(near)}" if near else ""
            raise InvalidInput(place, key, f"options of {context.command_path}, without their dashes{nearest}")
        if option.name in found:
            raise InvalidInput(place, key, "each option once")
        found[option.name] = _value(option, value, f"{place}: {key}")
    return found


def as_toml(context: Any) -> str:
    """Return the options of a command that were given, as a file."""
    lines = [f"# {context.command_path} --config FILE"]
    for option in context.command.params:
        given = str(context.get_parameter_source(option.name)).rpartition(".")[2]
        keys = list(_keys(option))
        if keys and given in ("COMMANDLINE", "DEFAULT_MAP"):
            lines.append(f"{keys[0]} = {_written(context.params[option.name])}")
    return "\n".join(lines) + "\n"


def _keys(option: Any) -> Iterator[str]:
    if option.name in _NONE:
        return
    flags = [one for one in option.opts if one.startswith("--")]
    yield from (one.lstrip("-") for one in flags) if flags else (option.name.replace("_", "-"),)


def _value(option: Any, value: Any, place: str) -> Any:
    """Return a value of the file, as the command line has it."""
    if getattr(option, "is_flag", False):
        if not isinstance(value, bool):
            raise InvalidInput(place, value, "true or false")
        return value
    several = option.multiple or option.nargs < 0
    if several != isinstance(value, list) and (several or any("," in str(one) for one in value)):
        raise InvalidInput(place, value, "a list" if several else "one text: a list cannot hold names with commas")
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, bool | list | dict):
            raise InvalidInput(place, one, "a text or a number")
    return [str(one) for one in value] if several else ",".join(map(str, value)) if isinstance(value, list) else value


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Iterable) and not isinstance(value, str):
        return f"[{', '.join(map(_written, value))}]"
    # JSON's texts are TOML's, but for this character.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
