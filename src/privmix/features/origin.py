"""Allowed origins of a model: a path that the user of this machine gives, never the content of a spec."""

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
_TRUST: Final = ":trust"


@dataclass(frozen=True)
class OwnModel:
    """A model file or folder that the user of this machine named; ``trusted``: it may run, where it is a program."""

    path: Path
    trusted: bool = False

    @classmethod
    def of(cls, given: OwnModel | str | Path) -> OwnModel:
        """Return a path, with ``:trust`` behind it where the file may run."""
        if isinstance(given, OwnModel):
            return given
        text = str(given)
        return cls(Path(text.removesuffix(_TRUST)), text.endswith(_TRUST))


def bare_name(value: Any) -> str:
    """Return a plain file or folder name, which a spec may show; refuse anything with a path."""
    if not isinstance(value, str) or not _BARE.fullmatch(value) or ".." in value:
        raise InvalidInput("extractor's model", value, "a name without a path")
    return value


def is_hub_name(value: Any) -> bool:
    """Whether ``value`` is OWNER/NAME, as the Hugging Face hub names models."""
    return isinstance(value, str) and len(value) <= _LONGEST and _HUB.fullmatch(value) is not None


def is_commit(value: Any) -> bool:
    """Whether ``value`` is a commit of the hub, and no branch that changes."""
    return isinstance(value, str) and _COMMIT.fullmatch(value) is not None
