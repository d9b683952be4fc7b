"""What is known of a run from its folder: an interrupted one's state, and what a whole one's certificate states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RunState:
    """What an interrupted run left.

    Attributes:
        id: names the result that it makes.
        settings: as the run was opened with; of a complete run, what its certificate states of them.
        extra: what the caller gave; empty if the kill came after the key was gone, for nothing shows any more that the
            run's notes are its own.
        complete: everything is written; resuming reads no record and uses no key, it only puts the folder in place.
        refused: its records were refused before anything was drawn for them: others may take their place, under a fresh
            key.
    """

    id: str
    settings: Mapping[str, Any]
    extra: Mapping[str, Any]
    complete: bool
    refused: bool = False


@dataclass(frozen=True)
class Stated:
    """What the certificate of a whole result states.

    Attributes:
        id: names the result.
        settings: of the run, as far as the certificate has them.
        files: all files of the result, with their SHA-256 where the certificate has it.
    """

    id: str
    settings: Mapping[str, Any]
    files: Mapping[str, str | None]
