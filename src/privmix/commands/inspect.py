"""A release or a trained model, shown to a person."""

from __future__ import annotations

from dataclasses import KW_ONLY, MISSING, dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from privmix.commands.base import Command, function
from privmix.options import option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.jobs.inspection import Inspection, RegistryEntry


@dataclass(frozen=True, eq=False, repr=False)
class Inspect(Command["Inspection | RegistryEntry"]):
    """Show what a release or a model is and what it guarantees.

    In words and numbers. In JSON: the certificate; of a model fitted on a release, the model. With `registry`: a draft
    of the third tier as YAML; what its curator has to state goes to the standard error.

    Raises:
        InvalidInput: the folder is none of these, or has no certificate to make an entry of.
        StorageError: a file is missing or can't be read.
    """

    example = "privmix inspect REL; for the registry: privmix inspect REL --registry > entry.yaml"

    folder: str | PathLike[str] = option(MISSING, "Folder that privmix release, train or fit wrote.", argument=True)
    _: KW_ONLY
    registry: bool = option(False, "An entry for the registry of DP deployments (registry.opendp.org).")

    def run(self, progress: Progress) -> Inspection | RegistryEntry:
        """Read."""
        from privmix.jobs.inspection import entry_of, inspection_of

        return entry_of(Path(self.folder)) if self.registry else inspection_of(Path(self.folder))


inspect = function(Inspect)
