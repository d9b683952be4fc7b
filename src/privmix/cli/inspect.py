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
) -> None:
    """Show what a release or a model is and what it guarantees, in words and numbers.

    Example: privmix inspect REL
    """
    from privmix.cli.inspection import show

    show(folder, json_output)
