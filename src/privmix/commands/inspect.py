"""A release or a trained model, shown to a person."""

from __future__ import annotations

from dataclasses import KW_ONLY, MISSING, dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final

from privmix.commands.base import Command, function
from privmix.options import option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.jobs.inspection import Inspection


@dataclass(frozen=True, eq=False, repr=False)
class Inspect(Command["Inspection"]):
    """Show what a release or a model is and what it guarantees.

    JSON is the certificate, or the model if privmix fit made it.

    Raises:
        InvalidInput: the folder is none of these.
        StorageError: a file is missing or can't be read.
    """

    example = "privmix inspect REL"

    folder: str | PathLike[str] = option(MISSING, "Folder from privmix release, train or fit.", argument=True)
    _: KW_ONLY
    full: bool = option(False, "Show all facts and statements.", common=True)

    def run(self, progress: Progress) -> Inspection:
        from privmix.jobs.inspection import inspection_of

        return inspection_of(Path(self.folder), full=self.full)


inspect: Final = function(Inspect)
