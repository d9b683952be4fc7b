"""Options that several verbs share, so that a flag means and says the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from privmix.cli.verb import help_of
from privmix.jobs.release_options import ReleaseOptions

Data = Annotated[str, typer.Option(help=help_of(ReleaseOptions, "data"))]

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
