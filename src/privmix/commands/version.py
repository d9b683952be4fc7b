"""Which version this is."""

from __future__ import annotations

from dataclasses import dataclass

from privmix import __version__
from privmix.commands.base import Command, Facts
from privmix.progress import Progress


@dataclass(frozen=True, eq=False, repr=False)
class Version(Command[Facts]):
    """Print the version."""

    example = "privmix version"

    def run(self, progress: Progress) -> Facts:
        return Facts(__version__, values={"version": __version__})
