"""``privmix studio``: release a dataset by pages in a browser on this machine."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from privmix.cli.app import app
from privmix.cli.console import err, out, plain
from privmix.cli.verb import verb
from privmix.errors import MissingExtra


@verb(app)
def studio(
    *,
    folder: Annotated[Path, typer.Argument(help="Folder that paths on its pages are in.")] = Path(),
    port: Annotated[int, typer.Option(help="Port on this machine; 0: any free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser.")] = True,
) -> None:
    """Release a dataset by pages in your browser.

    Price, forecast, ledger and certificate. Served to this machine alone.

    Nothing private is read before "Release" is pressed there. The pages show the command and the Python of what they
    do, and verify folders that somebody sent.

    The address that it prints lets whoever has it in: keep it to yourself. ctrl-C ends the studio; a release that is
    being made then can be finished later.

    Example: privmix studio
    """
    for package in ("starlette", "uvicorn"):
        if find_spec(package) is None:
            raise MissingExtra(package, "studio")
    # Help is shown without it.
    from privmix.studio.server import run

    def say(address: str) -> None:
        out.print(f"studio: {plain(address)}", soft_wrap=True)
        err.print("for this machine and whoever has this address; ctrl-C ends it", soft_wrap=True)

    run(folder, port, browser=browser, say=say)
