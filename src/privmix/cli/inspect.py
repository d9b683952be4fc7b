"""``privmix inspect``: show a release or a trained model to a person."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privmix.cli.app import app
from privmix.cli.verb import verb


@verb(app)
def inspect(
    folder: Annotated[Path, typer.Argument(help="Folder that privmix release, train or fit wrote.")],
    json_output: Annotated[
        bool, typer.Option("--json", help="Print the certificate (of fit: the model) as JSON.")
    ] = False,
    registry: Annotated[
        bool,
        typer.Option("--registry", help="Print an entry for the registry of DP deployments (registry.opendp.org)."),
    ] = False,
) -> None:
    """Show what a release or a model is and what it guarantees.

    In words and numbers.

    With --registry: a draft of the third tier as YAML; what its curator has to state goes to the standard error.

    Examples:
    privmix inspect REL
    privmix inspect REL --registry > entry.yaml
    """
    from privmix.cli.inspection import show, show_entry

    if registry:
        show_entry(folder, json_output)
    else:
        show(folder, json_output)
