"""``privmix keygen``: make a key to sign releases and models with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from privmix import certificate
from privmix.cli.app import app, out, plain
from privmix.cli.passphrase import VARIABLE, new_passphrase
from privmix.cli.verb import verb
from privmix.errors import InvalidInput

# Folders with one of these are handed to others.
_PUBLISHED: Final = ("certificate.json", "model.json")


@verb(app)
def keygen(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Path without ending: NAME.pem and NAME.pub.pem.")],
    passphrase: Annotated[
        bool, typer.Option("--passphrase", help=f"Encrypt the private key; asked for, or taken from {VARIABLE}.")
    ] = False,
) -> None:
    """Make a key to sign with: NAME.pem for you alone, NAME.pub.pem for those who check.

    Publish the public key where partners find it without you: your site, a paper, a contract. Keep the private key out
    of every folder that you hand over.

    Example: privmix keygen ana
    """
    private, public = Path(f"{name}.pem"), Path(f"{name}.pub.pem")
    _keep_out(private)
    key = certificate.new_key_files(private, public, new_passphrase() if passphrase else None)
    out.print(f"private key: {plain(private)} (yours alone)", soft_wrap=True)
    out.print(f"public key: {plain(public)} (publish it)", soft_wrap=True)
    out.print(f"key id: {key.key_id}", soft_wrap=True)


def _keep_out(private: Path) -> None:
    for parent in private.resolve().parents:
        if any((parent / mark).is_file() for mark in _PUBLISHED):
            raise InvalidInput("name", str(private), "a place outside of releases and models, which others will get")
