"""What the library calls by the name of an argument has a flag on the command line: translated here, nowhere else.

The library names fields in its errors: ``InvalidInput("out", ...)``, two of them as ``"ledger, dataset"``, and inside
texts between backticks: "a folder that does not exist yet (or `overwrite`)".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from privmix.errors import WITHHELD, InvalidInput, PrivmixError

_MARKED: Final = re.compile(r"`([a-z]\w*)`")
_FIELDS: Final = re.compile(r"[a-z]\w*(?:, [a-z]\w*)*")
# How messages go on after the field, where nothing was given or where the value is private.
_NOT_GIVEN: Final = ": got None;"
_NOTHING: Final = (_NOT_GIVEN, ": got False;")
_PRIVATE: Final = str(InvalidInput("", WITHHELD, "")).removesuffix(" allowed: ")


def with_flags(text: str, flags: Mapping[str, str] | None = None) -> str:
    """The text, with the flags of the fields that it marks.

    Args:
        text: with fields between backticks.
        flags: field -> flag, of a command: other fields keep their names. None: whatever a field's flag would be.

    Example:
        >>> with_flags("a folder that does not exist yet (or `overwrite`)")
        'a folder that does not exist yet (or --overwrite)'
        >>> with_flags("`image_size` and `colour`", {"colour": "--colour"})
        'image_size and --colour'
    """

    def flag(field: str) -> str:
        return "--" + field.replace("_", "-") if flags is None else flags.get(field, field)

    return _MARKED.sub(lambda found: flag(found[1]), text)


def message(error: PrivmixError, command: Any, arguments: Sequence[str]) -> str:
    """What an error says, in the words of the command that met it.

    A field is the command's option where that was given, or where nothing was: a plan that is read from a file has
    fields of the same names, and so have records.

    Args:
        error: from the library.
        command: the application, as Typer makes it.
        arguments: of the command line.

    Returns:
        One line.
    """
    options = _options(command, arguments)
    flags = {field: _flag(option) for field, option in options.items()}
    # Errors of one part of a job are said to be of that part: their texts begin with its name.
    if isinstance(error, InvalidInput) and not error.about:
        field, shown, allowed = error.field, f": got {error.shown}; allowed: ", error.allowed
    else:
        text = str(error)
        field, _, _ = text.partition(": ")
        shown, allowed = "", text[len(field) :]
    if _FIELDS.fullmatch(field) and all(
        _meant(options.get(name), field, shown, arguments) for name in field.split(", ")
    ):
        field = ", ".join(flags[name] for name in field.split(", "))
        if shown.startswith(_NOT_GIVEN):
            # Whoever left an option out has given no None.
            shown = ": not given; needed: "
    return with_flags(field, flags) + shown + with_flags(allowed, flags)


def _meant(option: Any, field: str, shown: str, arguments: Sequence[str]) -> bool:
    """Whether a field is this option of the command, and no other thing of its name."""
    if option is None or "," in field or option.param_type_name == "argument":
        return option is not None
    pairs = zip(arguments, [*arguments[1:], ""], strict=True)
    flag = _flag(option)
    given = [word.partition("=")[2] or after for word, after in pairs if word == flag or word.startswith(f"{flag}=")]
    if shown.startswith(_PRIVATE):
        # A number that was given is not what is private.
        return bool(given) and not any(value.isdigit() for value in given)
    return bool(given) or shown.startswith(_NOTHING)


def _options(command: Any, arguments: Sequence[str]) -> dict[str, Any]:
    """Field -> option or argument, for the command that these words run."""
    found = _own_options(command)
    for word in arguments:
        inner = getattr(command, "commands", {}).get(word)
        if inner is not None:
            command = inner
            found |= _own_options(command)
    return found


def _own_options(command: Any) -> dict[str, Any]:
    found = {option.name: option for option in command.params}
    # An option may have another name than its flag.
    return found | {
        _flag(option)[2:].replace("-", "_"): option for option in command.params if option.opts[0][0] == "-"
    }


def _flag(option: Any) -> str:
    """The option's flag; of an argument what help calls it."""
    long = [name for name in option.opts if name.startswith("--")]
    return str(long[0] if long else (option.metavar or option.name).upper())
