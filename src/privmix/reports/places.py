"""Public names of files and addresses: their last name alone, never the way to them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

_SCHEME: Final = re.compile(r"[A-Za-z][\w+.:-]*://")
# `@FILE` and `extractor:FILE`; one letter and a colon is a drive.
_PREFIX: Final = re.compile(r"@|[A-Za-z][\w.+-]+:")

# Fields whose lists are names that certificates publish as well.
_NAMES: Final = ("classes", "columns")


def last_name(text: str) -> str:
    """Return a file, folder or address without the way to it; other text as it is.

    Formal guarantees:
        * nothing before the last separator of a path is kept, and no host, user, password or query of an address. The
          same applies after ``@``, ``name:`` or a comma.

    Example:
        >>> last_name("scattering:ycbcr,mirror"), last_name("s3://ann:secret@bucket/hiv/train.csv?token=1")
        ('scattering:ycbcr,mirror', 'train.csv')
    """
    if scheme := _SCHEME.search(text):
        _, slash, path = re.split(r"[?#]", text[scheme.end() :], maxsplit=1)[0].rstrip("/").partition("/")
        # A password may hold a slash.
        return path.rpartition("/")[2].rpartition("@")[2] if slash else text[: scheme.end()]
    return ",".join(_last(part) for part in text.split(","))


def public_command(command: str) -> str:
    """Return a command line with places as last names; a text that is no command line is dropped."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    shown = []
    for word in words:
        option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        shown.append(option + equals + last_name(value))
    return shlex.join(shown)


def public_values(values: Any) -> Any:
    """Return JSON values with every text as a last name, at any depth."""
    # Classes and columns stay whole: certificates hold them too, and `n/a` or `BMI (kg/m2)` are no paths.
    if isinstance(values, str):
        return last_name(values)
    if isinstance(values, Mapping):
        return {key: value if _are_names(key, value) else public_values(value) for key, value in values.items()}
    return [public_values(value) for value in values] if isinstance(values, Sequence) else values


def _are_names(key: Any, value: Any) -> bool:
    # As one text they may be `@FILE`.
    return key in _NAMES and isinstance(value, Sequence) and not isinstance(value, str)


def _last(text: str) -> str:
    prefix = found.group() if (found := _PREFIX.match(text)) else ""
    rest = text[len(prefix) :]
    if rest.startswith("~") and not re.search(r"[/\\]", rest):
        # A user's home.
        return prefix + "~"
    if not re.search(r"[/\\]", rest):
        return text
    return prefix + (re.split(r"[/\\]", rest.rstrip("/\\"))[-1])
