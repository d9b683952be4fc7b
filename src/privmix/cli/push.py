"""``privmix push``: a release or a trained model to the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privmix import jobs
from privmix.cli.app import app
from privmix.cli.console import out, plain
from privmix.cli.verb import verb
from privmix.rounding import exact, rounded_up


@verb(app)
def push(
    folder: Annotated[Path, typer.Argument(help="Folder that privmix release or privmix train wrote.")],
    to: Annotated[str, typer.Option(help="OWNER/NAME on the hub.")],
    public: Annotated[
        bool, typer.Option("--public", help="Make the repository for all to see. Default: private.")
    ] = False,
    licence: Annotated[
        str | None, typer.Option(help="Licence of a model, such as apache-2.0; a release has its own.")
    ] = None,
    message: Annotated[str | None, typer.Option(help="Of the commit.")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="A repository that holds other files loses them.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Verify, and list what would be sent.")] = False,
) -> None:
    """Send a release or model to the Hugging Face hub.

    It is sent once it verifies.

    Only the files that its certificate accounts for go out, and of a model a card with epsilon, delta, adjacency and
    unit; whatever is no release or model, such as a feature store, a run, a key or a ledger, is refused. Your own login
    is used (hf auth login, or HF_TOKEN); HF_ENDPOINT names another hub. privmix pull takes it back and verifies it.

    Example: privmix push REL --to ana/digits --dry-run
    """
    found = jobs.hub.push(
        folder, to, public=public, licence=licence, message=message, overwrite=overwrite, dry_run=dry_run
    )
    does = "would push" if found.url is None else "pushed"
    out.print(
        f"{does}: {found.kind} {plain(to)}, epsilon {rounded_up(found.epsilon, 4)} at delta {exact(found.delta)} "
        f"({plain(found.relation)})",
        soft_wrap=True,
    )
    for name in found.files:
        out.print(f"- {plain(name)}", soft_wrap=True)
    if found.url is not None:
        out.print(f"commit: {plain(found.url)}", soft_wrap=True)
