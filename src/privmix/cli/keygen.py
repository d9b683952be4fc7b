"""``privmix keygen``: make a key to sign releases and models with, or to replay releases with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from privmix import certificate
from privmix.cli.app import app
from privmix.cli.console import out, plain
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
    auditor: Annotated[
        bool,
        typer.Option(
            "--auditor",
            help="Make an auditor's key: it opens what privmix release --replay-for seals to it. It signs nothing.",
        ),
    ] = False,
) -> None:
    """Make a key to sign with, or an auditor's.

    NAME.pem is for you alone, NAME.pub.pem for others.

    Publish the public key where partners find it without you: your site, a paper, a contract. Keep the private key out
    of every folder that you hand over.

    An auditor makes a key of their own (--auditor), one for each release: whoever has its private half and a sealed key
    can take all noise off, and destroying it ends every copy of what was sealed to it.

    Example: privmix keygen ana

    For an auditor: privmix keygen auditor --auditor --passphrase
    """
    private, public = Path(f"{name}.pem"), Path(f"{name}.pub.pem")
    _keep_out(private)
    made = certificate.AuditorKey.new() if auditor else certificate.PrivateKey.new()
    key = certificate.new_key_files(private, public, new_passphrase() if passphrase else None, made)
    out.print(f"private key: {plain(private)} (yours alone)", soft_wrap=True)
    others = "for whoever releases" if auditor else "publish it"
    out.print(f"public key: {plain(public)} ({others})", soft_wrap=True)
    out.print(f"key id: {key.key_id}", soft_wrap=True)


def _keep_out(private: Path) -> None:
    for parent in private.resolve().parents:
        if any((parent / mark).is_file() for mark in _PUBLISHED):
            raise InvalidInput("name", str(private), "a place outside of releases and models, which others will get")
