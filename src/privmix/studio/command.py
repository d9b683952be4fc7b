"""``privmix studio``: the pages, served until ctrl-C."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from privmix.commands.base import Command, Facts
from privmix.errors import MissingExtra
from privmix.options import option
from privmix.progress import Progress


@dataclass(frozen=True, eq=False, repr=False)
class StudioPages(Command[Facts]):
    """Release a dataset by pages in your browser.

    The pages show price, forecast, ledger and certificate, with the equal command and Python code. privmix reads
    private data only after you press "Release". The printed address grants access: keep it private. Ctrl-C stops
    the studio; you can resume an unfinished release later.
    """

    called = "studio"
    example = "privmix studio"

    folder: Path = option(Path(), "Base folder of the paths on its pages.", argument=True)
    port: int = option(0, "Port on this machine; 0: any free port.")
    browser: bool = option(True, "Open a browser.", off="no")

    def run(self, progress: Progress) -> Facts:
        for package in ("starlette", "uvicorn"):
            if find_spec(package) is None:
                raise MissingExtra(package, "studio")
        # Help is shown without it.
        from privmix.studio.server import run

        run(self.folder, self.port, browser=self.browser, say=_say)
        return Facts("the studio has stopped")


def _say(address: str) -> None:
    print(f"studio: {address}", flush=True)
    print(
        "any process on this machine that has this address can use the studio. Press Ctrl-C to stop",
        file=sys.stderr,
        flush=True,
    )
