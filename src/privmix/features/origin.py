"""Where a model may come from: from the user of this machine, by a path; never from what a spec says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from privmix.errors import InvalidInput

# No separator, no start with a dot or tilde, no control character: nothing that could be taken for a path.
_BARE: Final = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.+ -]{0,199}")
_PART: Final = r"[0-9A-Za-z][0-9A-Za-z_-]*(?:\.[0-9A-Za-z_-]+)*"
_HUB: Final = re.compile(rf"{_PART}/{_PART}")
_COMMIT: Final = re.compile(r"[0-9a-f]{7,64}")
_LONGEST: Final = 200


@dataclass(frozen=True)
class OwnModel:
    """A model that the user of this machine named on their own command line.

    Attributes:
        path: its file or folder.
        trusted: the user says that it may run: needed where the file is a program, and not only numbers.
    """

    path: Path
    trusted: bool = False


def bare_name(value: Any) -> str:
    """``value`` if it is a plain name of a file or folder; a spec may show it, and nothing is opened by it.

    Raises:
        InvalidInput: it is no text, or a path: absolute, relative or from the home folder.

    Example:
        >>> bare_name("net.safetensors")
        'net.safetensors'
        >>> bare_name("../net.safetensors")
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: extractor's model: got '../net.safetensors'; allowed: a name without a path
    """
    if not isinstance(value, str) or not _BARE.fullmatch(value) or ".." in value:
        raise InvalidInput("extractor's model", value, "a name without a path")
    return value


def is_hub_name(value: Any) -> bool:
    """Whether ``value`` is OWNER/NAME, as the Hugging Face hub calls models.

    Example:
        >>> is_hub_name("facebook/dinov2-small"), is_hub_name("../name"), is_hub_name("a/b/c")
        (True, False, False)
    """
    return isinstance(value, str) and len(value) <= _LONGEST and _HUB.fullmatch(value) is not None


def is_commit(value: Any) -> bool:
    """Whether ``value`` is a commit of the hub, and no branch that changes.

    Example:
        >>> is_commit("0123abcd"), is_commit("main")
        (True, False)
    """
    return isinstance(value, str) and _COMMIT.fullmatch(value) is not None
