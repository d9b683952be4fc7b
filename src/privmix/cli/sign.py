"""``privmix sign``: vouch for every file of a release or model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privmix import certificate, jobs
from privmix.cli.app import app
from privmix.cli.console import out, plain
from privmix.cli.passphrase import VARIABLE, passphrase_of
from privmix.cli.verb import verb
from privmix.errors import InvalidInput


@verb(app)
def sign(
    folder: Annotated[Path, typer.Argument(help="Folder that privmix release, privmix train or privmix fit wrote.")],
    key: Annotated[Path, typer.Option(help=f"Private key (PEM); its passphrase is asked for, or in {VARIABLE}.")],
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier signature.")] = False,
) -> None:
    """Sign every file of a release or model, once it verifies.

    Others then see that it is yours and unchanged.

    The signature is one more file in the folder: an in-toto statement in a DSSE envelope, Ed25519. It says who vouches;
    it does not make the guarantee any stronger. Any later change of the folder needs a new signature.

    Example: privmix sign REL --key ana.pem
    """
    if folder.resolve() in key.resolve().parents:
        raise InvalidInput("key", str(key), "a key outside of the folder, which others will get")
    found = certificate.sign_folder(
        folder,
        certificate.PrivateKey.read(key, passphrase_of(key)),
        jobs.checking.remembered([]),
        overwrite=overwrite,
    )
    place = plain(folder / certificate.ATTESTATION_FILE)
    files = "1 file" if found.files == 1 else f"{found.files:,} files"
    out.print(f"[green]signed:[/] {files} by key {found.key_id}, in {place}", soft_wrap=True)
