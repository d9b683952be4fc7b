"""``privmix attack``: attacks that measure what a release or a model gives away."""

from __future__ import annotations

import typer

from privmix.cli.app import app

attack = typer.Typer(no_args_is_help=True, help="Attack a release or a model, to see what it gives away.")
app.add_typer(attack, name="attack")
