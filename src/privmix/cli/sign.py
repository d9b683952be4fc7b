"""``privmix keygen`` and ``privmix sign``: vouch for every file of a release or model."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from privmix import certificate, jobs
from privmix.cli.app import app, err, out, plain
from privmix.cli.verb import verb
from privmix.errors import InvalidInput
from privmix.untrusted import open_plain

_VARIABLE: Final = "PRIVMIX_KEY_PASSPHRASE"
# Folders with one of these are handed to others.
_PUBLISHED: Final = ("certificate.json", "model.json")
_HEAD: Final = 256


@verb(app)
def keygen(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Path without ending: NAME.pem and NAME.pub.pem.")],
    passphrase: Annotated[
        bool, typer.Option("--passphrase", help=f"Encrypt the private key; asked for, or taken from {_VARIABLE}.")
    ] = False,
) -> None:
    """Make a key to sign with: NAME.pem for you alone, NAME.pub.pem for those who check.

    Publish the public key where partners find it without you: your site, a paper, a contract. Keep the private key out
    of every folder that you hand over.

    Example: privmix keygen ana
    """
    private, public = Path(f"{name}.pem"), Path(f"{name}.pub.pem")
    _keep_out(private)
    key = certificate.new_key_files(private, public, _new_passphrase() if passphrase else None)
    out.print(f"private key: {plain(private)} (yours alone)", soft_wrap=True)
    out.print(f"public key: {plain(public)} (publish it)", soft_wrap=True)
    out.print(f"key id: {key.key_id}", soft_wrap=True)


@verb(app)
def sign(
    folder: Annotated[Path, typer.Argument(help="Folder that privmix release, privmix train or privmix fit wrote.")],
    key: Annotated[Path, typer.Option(help=f"Private key (PEM); its passphrase is asked for, or in {_VARIABLE}.")],
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier signature.")] = False,
) -> None:
    """Sign every file of a release or model, once it verifies: others then see that it is yours and unchanged.

    The signature is one more file in the folder: an in-toto statement in a DSSE envelope, Ed25519. It says who vouches;
    it does not make the guarantee any stronger. Any later change of the folder needs a new signature.

    Example: privmix sign REL --key ana.pem
    """
    if folder.resolve() in key.resolve().parents:
        raise InvalidInput("key", str(key), "a key outside of the folder, which others will get")
    found = certificate.sign_folder(
        folder,
        certificate.PrivateKey.read(key, _passphrase_of(key)),
        jobs.checking.remembered([]),
        overwrite=overwrite,
    )
    place = plain(folder / certificate.ATTESTATION_FILE)
    out.print(f"[green]signed:[/] {found.files} files by key {found.key_id}, in {place}", soft_wrap=True)


def _keep_out(private: Path) -> None:
    for parent in private.resolve().parents:
        if any((parent / mark).is_file() for mark in _PUBLISHED):
            raise InvalidInput("name", str(private), "a place outside of releases and models, which others will get")


def _passphrase_of(key: Path) -> bytes | None:
    from privmix.certificate.keys import is_locked

    with open_plain(key, "key") as stream:
        if not is_locked(stream.read(_HEAD)):
            return None
    if given := os.environ.get(_VARIABLE):
        return given.encode()
    _check_terminal()
    return str(typer.prompt("passphrase", hide_input=True, err=True)).encode()


def _new_passphrase() -> bytes:
    if given := os.environ.get(_VARIABLE):
        return given.encode()
    _check_terminal()
    err.print("The key is lost if you forget this.")
    return str(typer.prompt("passphrase", hide_input=True, confirmation_prompt=True, err=True)).encode()


def _check_terminal() -> None:
    if not sys.stdin.isatty():
        raise InvalidInput("passphrase", "none", f"one in {_VARIABLE}, or a terminal to ask at")
