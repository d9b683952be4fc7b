"""Translate the library's argument names into flags of the command line. No other module does so."""
# Errors name fields: ``InvalidInput("ledger, dataset", ...)``. Inside texts they stand between backticks.

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from privmix.errors import WITHHELD, InvalidInput, PrivmixError

_MARKED: Final = re.compile(r"`([a-z]\w*)`")
_FIELDS: Final = re.compile(r"[a-z]\w*(?:, [a-z]\w*)*")
_SPLIT: Final = re.compile(r"[:,=]")
_KEY: Final = re.compile(r"(\w+) (\w+)")
# How messages go on after the field, where nothing was given or where the value is private.
_NOT_GIVEN: Final = ": got None;"
_NOTHING: Final = (_NOT_GIVEN, ": got False;")
_PRIVATE: Final = str(InvalidInput("", WITHHELD, "")).removesuffix(" allowed: ")


def with_flags(text: str, flags: Mapping[str, str] | None = None) -> str:
    """Return the text, with the flags of the fields between backticks; of a command only those in ``flags``.

    Example:
        >>> with_flags("`image_size` and `colour`", {"colour": "--colour"})
        'image_size and --colour'
    """

    def flag(field: str) -> str:
        return "--" + field.replace("_", "-") if flags is None else flags.get(field, field)

    return _MARKED.sub(lambda found: flag(found[1]), text)


def message(error: PrivmixError, command: Any, arguments: Sequence[str]) -> str:
    """Return an error's text, one line, in the words of the command that met it."""
    # A field is the command's option if the option was given or if no value was given. Otherwise it may belong to a
    # record or to a plan file, which have fields of the same names.
    options = _own_options(command)
    for word in arguments:
        if (inner := getattr(command, "commands", {}).get(word)) is not None:
            command = inner
            options |= _own_options(command)
    flags = {field: _flag(option) for field, option in options.items()}
    # Errors of one part of a job belong to that part: their texts begin with its name.
    if isinstance(error, InvalidInput) and not error.about:
        field, shown, allowed = error.field, f": got {error.shown}; allowed: ", error.allowed
    else:
        text = str(error)
        field, _, _ = text.partition(": ")
        shown, allowed = "", text[len(field) :]
    key = ""
    named = _KEY.fullmatch(field)
    # Other fields of two words are no option: a label column is not a key of the label.
    if named and any(
        named[2] in _SPLIT.split(one.replace("-", "_")) for one in _given(options.get(named[1]), arguments)
    ):
        field, key = named[1], f" {named[2]}"
    if _FIELDS.fullmatch(field) and all(
        _meant(options.get(name), field, shown, arguments) for name in field.split(", ")
    ):
        field = ", ".join(flags[name] for name in field.split(", "))
        if shown.startswith(_NOT_GIVEN):
            # A user who left an option out has given no None.
            shown = ": not given; needed: "
    return with_flags(field, flags) + key + shown + with_flags(allowed, flags)


def _meant(option: Any, field: str, shown: str, arguments: Sequence[str]) -> bool:
    """Whether a field is this option of the command, and no other thing of its name."""
    if option is None or "," in field or option.param_type_name == "argument":
        return option is not None
    given = _given(option, arguments)
    if shown.startswith(_PRIVATE):
        # A number that was given is not what is private.
        return bool(given) and not any(value.isdigit() for value in given)
    return bool(given) or shown.startswith(_NOTHING)


def _given(option: Any, arguments: Sequence[str]) -> list[str]:
    if option is None:
        return []
    pairs, flag = zip(arguments, [*arguments[1:], ""], strict=True), _flag(option)
    return [word.partition("=")[2] or after for word, after in pairs if word == flag or word.startswith(f"{flag}=")]


def _own_options(command: Any) -> dict[str, Any]:
    """Field -> option or argument."""
    found = {option.name: option for option in command.params}
    # An option may have another name than its flag.
    return found | {
        _flag(option)[2:].replace("-", "_"): option for option in command.params if option.opts[0][0] == "-"
    }


def _flag(option: Any) -> str:
    long = [name for name in option.opts if name.startswith("--")]
    return str(long[0] if long else (option.metavar or option.name).upper())
