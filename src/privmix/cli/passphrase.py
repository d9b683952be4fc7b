"""Read a key's passphrase from the environment or the terminal, never from the command line, which others can see."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import typer

from privmix.cli.console import err
from privmix.errors import InvalidInput
from privmix.untrusted import open_plain

VARIABLE: Final = "PRIVMIX_KEY_PASSPHRASE"
_HEAD: Final = 256


def passphrase_of(key: Path) -> bytes | None:
    """Return the passphrase of a key file, or None if the file is not locked."""
    from privmix.certificate.keys import is_locked

    with open_plain(key, "key") as stream:
        if not is_locked(stream.read(_HEAD)):
            return None
    if given := os.environ.get(VARIABLE):
        return given.encode()
    _check_terminal()
    return str(typer.prompt("passphrase", hide_input=True, err=True)).encode()


def new_passphrase() -> bytes:
    """One for a key that is being made."""
    if given := os.environ.get(VARIABLE):
        return given.encode()
    _check_terminal()
    err.print("Without this passphrase the key cannot be used.")
    return str(typer.prompt("passphrase", hide_input=True, confirmation_prompt=True, err=True)).encode()


def with_passphrase(command: Any) -> Any:
    """Return the command with its missing passphrase, for the key that it reads or makes."""
    if not hasattr(command, "passphrase"):
        return command
    if hasattr(command, "sign_key"):
        return replace(command, passphrase=passphrase_of)
    key = getattr(command, "key", None)
    passphrase = new_passphrase() if command.passphrase else None if key is None else passphrase_of(Path(key))
    return replace(command, passphrase=passphrase)


def _check_terminal() -> None:
    if not sys.stdin.isatty():
        raise InvalidInput("passphrase", "none", f"a passphrase in {VARIABLE}, or an interactive terminal")
