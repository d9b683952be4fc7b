"""The whole path on data that ships with scikit-learn."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privmix.commands.base import Command
from privmix.errors import InvalidInput
from privmix.jobs.options import NewFile
from privmix.options import option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.commands.demo.path import Demonstration


@dataclass(frozen=True, eq=False, repr=False)
class Demo(NewFile, Command["Demonstration"]):
    """Release, fit, attack and report on scikit-learn's digits.

    Releases the digits at epsilon 2, fits a classifier to the release, attacks both, and writes a report.
    """

    example = "privmix demo --out demo-output"

    out: Path = option(Path("demo-output"), "Folder to create.")

    def run(self, progress: Progress) -> Demonstration:
        if self.out.exists():
            if not self.overwrite:
                raise InvalidInput("out", str(self.out), "a folder that does not exist yet (or `overwrite`)")
            if not (self.out / "release" / "certificate.json").is_file():
                raise InvalidInput("out", str(self.out), "the folder of an earlier demo to overwrite, or a new folder")
            shutil.rmtree(self.out)
        from privmix.commands.demo.path import demonstrated

        return demonstrated(self.out, progress)

    def then(self, found: Any) -> str:
        return f"open {self.out / 'report.html'} in a browser"
