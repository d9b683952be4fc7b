"""``privmix verify``: recompute what a release's certificate claims."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privmix.cli.app import app, err, out, plain, print_json
from privmix.release import verify_release


@app.command()
def verify(
    release: Annotated[Path, typer.Argument(help="Folder that privmix release wrote.")],
    json_output: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Recompute epsilon from the event and check every file's hash; exit code 2 if anything does not hold.

    Example: privmix verify REL
    """
    result = verify_release(release)
    if json_output:
        print_json({**vars(result), "warnings": list(result.warnings)})
        return
    out.print(
        f"[green]holds:[/] epsilon {result.epsilon:.6g} at delta {result.delta:g} ({result.adjacency}), "
        f"recomputed {result.recomputed_epsilon:.6g}; {result.files} files have their hashes",
        soft_wrap=True,
    )
    out.print(
        "not checked: that the rows came from running this plan, that its key was kept secret, that a ledger was "
        "charged, and the planner's predictions and picture, if there are any",
        soft_wrap=True,
    )
    for warning in result.warnings:
        err.print(f"[yellow]warning:[/] {plain(warning)}", soft_wrap=True)
