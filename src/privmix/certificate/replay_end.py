"""Statements that a sealed key was destroyed, by the signer and at a date; no evidence can show it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

from privmix import __version__
from privmix.certificate.about import Day
from privmix.certificate.certificate import CERTIFICATE_FILE
from privmix.certificate.keys import PrivateKey
from privmix.certificate.sealed_key import Commitment
from privmix.certificate.statement import Statement
from privmix.errors import InvalidInput
from privmix.fields import Checked, Choice, Digest, Text, read, stored

ENDED_FILE: Final = "replay-ended.dsse.json"
SAYS: Final = (
    "The signer says that the sealed key, and the private keys of the auditors listed, were overwritten and removed "
    "where they lay. That no copy of them is left, or of the key that was sealed, is not shown by this and can't be."
)
_PREDICATE_TYPE: Final = "urn:privmix:replay-ended:v1"
_MOST_BYTES: Final = 2**16


@dataclass(frozen=True)
class Ending(Checked):
    """A statement that a sealed key and ``auditor_keys`` (ids) were destroyed; ``release``: its id."""

    release: Annotated[str, Text("[0-9a-f]{32}", "32 hexadecimal digits")]
    sealed_sha256: Digest
    auditor_keys: tuple[Digest, ...]
    date: Day
    says: Annotated[str, Choice(SAYS)] = SAYS
    tool: Annotated[str, Text(r"privmix [\w.+-]{1,40}", "privmix and its version")] = f"privmix {__version__}"


@dataclass(frozen=True)
class Ended:
    """An ending that was read, with its statement, whose signature is not checked yet."""

    ending: Ending
    statement: Statement

    @property
    def key_id(self) -> str:
        """Id of the key that the signature names, unchecked."""
        return str(self.statement.key_id)


def state_end(ending: Ending, certificate_sha256: str, key: PrivateKey | None = None) -> Statement:
    """Return the statement of it, about a certificate's file."""
    return Statement.of(_PREDICATE_TYPE, {CERTIFICATE_FILE: certificate_sha256}, stored(ending), key)


def read_end(path: Path, release: str, commitment: Commitment, certificate_sha256: str) -> Ended | None:
    """Return the statement in a file, if there is one, once it is found to be about this release."""
    if not os.path.lexists(path):
        return None
    statement = Statement.read(path, ENDED_FILE, _MOST_BYTES)
    ending = read(Ending, statement.parts(_PREDICATE_TYPE, ENDED_FILE)[1], f"{ENDED_FILE} predicate")
    about = ending.release == release and ending.sealed_sha256 == commitment.sealed_sha256
    if not about or not set(ending.auditor_keys) <= set(commitment.auditors):
        raise InvalidInput(ENDED_FILE, "a statement about something else", "one about this release's sealed key")
    if statement.payload != state_end(ending, certificate_sha256).payload:
        raise InvalidInput(ENDED_FILE, "a statement about another certificate", "one about this release's")
    return Ended(ending, statement)


def sealed_state(commitment: Commitment, ended: Ended | None) -> dict[str, Any]:
    """Whether a key still exists, for whom and until when, as JSON values."""
    state: dict[str, Any] = {**stored(commitment), "ended": None}
    if ended is not None:
        state["ended"] = {"date": ended.ending.date, "by_key": ended.key_id, "checked": False}
    return state


def sealed_words(commitment: Commitment, ended: Ended | None, checked: bool = False, today: str | None = None) -> str:
    """Sentences that state whether a key still exists, for whom and until when."""
    # ended: a statement of its end, checked only where checked; today: YYYY-MM-DD, None for the clock's in UTC.
    today = today or datetime.now(UTC).date().isoformat()
    if ended is not None:
        gone = " with its auditor's key" if ended.ending.auditor_keys else ""
        known = "checked" if checked else "not checked"
        by = f"says key {ended.key_id} ({known}); that no copy is left is its word"
        return f"destroyed on {ended.ending.date}{gone}, {by}"
    if today > commitment.until:
        why = f"{commitment.until}, the day of its end, is past, and nobody states that it was destroyed"
        return f"sealed for {commitment.whom}; {why}: ask its owner for the signed statement"
    return f"it exists, sealed for {commitment.whom}, until {commitment.until}: the guarantee rests on them, too"
