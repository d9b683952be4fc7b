"""``privmix demo``: the whole path on data that ships with scikit-learn."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from privmix.cli.app import app
from privmix.cli.verb import verb
from privmix.errors import InvalidInput


@verb(app)
def demo(
    out_folder: Annotated[Path, typer.Option("--out", help="Folder to create.")] = Path("demo-output"),
    overwrite: Annotated[bool, typer.Option(help="Replace an existing --out.")] = False,
) -> None:
    """Release, fit, attack and report on scikit-learn's digits.

    The release is at epsilon 8. A classifier is fitted to it, both are attacked, and a report is written.

    Example: privmix demo --out demo-output
    """
    from privmix.cli.demo_run import run

    if out_folder.exists():
        if not overwrite:
            raise InvalidInput("out", str(out_folder), "a folder that does not exist yet (or `overwrite`)")
        if not (out_folder / "release" / "certificate.json").is_file():
            raise InvalidInput("out", str(out_folder), "a folder that an earlier demo made, to overwrite it")
        shutil.rmtree(out_folder)
    run(out_folder)
