"""Fitting a classifier to a release: post-processing, at no cost of privacy."""

from __future__ import annotations

import shlex
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privmix.commands.base import Command, function
from privmix.jobs.options import FitOptions
from privmix.options import option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.jobs.models import Model
    from privmix.publication.dataset import HasDataset, ReleasedDataset


@dataclass(frozen=True, eq=False, repr=False)
class Fit(FitOptions, Command["Model"]):
    """Train a classifier on a release.

    Reads no private data and spends no privacy, however often you run it. For a release of pixels, `features`
    passes the images through a public extractor.

    Raises:
        InvalidInput: a setting is out of range, `out` exists, descriptions do not fit the classes, or the folder is no
            release as it was certified.
        StorageError: a file of it is missing or can't be read, or `out` can't be written.
    """

    example = "privmix fit REL --learner noise-aware-ridge --out MODEL"

    release: HasDataset | ReleasedDataset | str | Path = option(
        MISSING, "Folder of a release, or of a series.", in_python="Also a release.", argument=True
    )

    def run(self, progress: Progress) -> Model:
        from privmix.jobs.fitting import fitted

        return fitted(self.release, self, progress)

    def then(self, found: Any) -> str:
        return f"privmix evaluate {shlex.quote(str(self.out))} --data DIR --split test"


fit = function(Fit)
