"""``privmix pull``: a release or a trained model from the Hugging Face hub."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from privmix import jobs
from privmix.cli.app import app
from privmix.cli.console import err, out, plain
from privmix.cli.verb import verb
from privmix.rounding import exact, rounded_up


@verb(app)
def pull(
    source: Annotated[str, typer.Argument(help="OWNER/NAME on the hub.")],
    folder: Annotated[Path, typer.Option("--out", help="Folder to create.")],
    revision: Annotated[str | None, typer.Option(help="Commit, branch or tag. Default: the newest.")] = None,
    max_gb: Annotated[float, typer.Option(help="Largest download, in GB.")] = 10.0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a release or model that is there.")] = False,
) -> None:
    """Take a release or model from the Hugging Face hub.

    It is kept if it verifies.

    Nothing that comes with it is run. Who made it is not checked: for that it has to
    be signed (privmix verify --key).

    Example: privmix pull ana/digits --out REL
    """
    found = jobs.hub.pull(source, folder, revision=revision, max_gb=max_gb, overwrite=overwrite)
    relation = "" if found.held is None else f" ({plain(found.held.relation)})"
    out.print(
        f"[green]holds:[/] {found.subject.kind} {plain(found.subject.id)}, epsilon "
        f"{rounded_up(found.found['epsilon'], 6)} at delta {exact(found.found['delta'])}{relation}, in "
        f"{plain(shlex.quote(str(folder)))}",
        soft_wrap=True,
    )
    for warning in found.warnings:
        err.print(f"[yellow]warning:[/] {plain(warning)}", soft_wrap=True)
