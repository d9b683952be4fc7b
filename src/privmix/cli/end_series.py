"""``privmix end-series``: overwrite the key of a series before its last step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privmix import jobs
from privmix.cli.app import app
from privmix.cli.console import out, plain
from privmix.cli.verb import verb


@verb(app)
def end_series(
    series: Annotated[Path, typer.Argument(help="Folder of the series, as privmix release --series has it.")],
) -> None:
    """Overwrite and remove the key of a series of releases before its last step: no step can follow.

    Its releases stay what they are, and what a ledger was charged for all steps stays charged. After the last step
    the key ends by itself.

    Example: privmix end-series visits
    """
    made = jobs.series.end_series(series)
    out.print(f"ended: the key of {plain(series)} is overwritten and removed; {made} releases were made")
