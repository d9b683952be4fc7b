"""Consoles that the command line writes to."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape

from privmix.fields import printable

# Results go to standard output, everything else to standard error, so --json output can be piped.
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def plain(text: object) -> str:
    """Text from a file, safe to print: no markup, no control characters."""
    return escape(printable(str(text)))


def print_json(content: Any) -> None:
    typer.echo(json.dumps(content, indent=2))
