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
    from privmix.publication import ReleasedDataset
    from privmix.publication.dataset import HasDataset


@dataclass(frozen=True, eq=False, repr=False)
class Fit(FitOptions, Command["Model"]):
    """Train a classifier on a release.

    No private data is read and no privacy is spent, however often you do it.

    A release of pixels is one of images, which a public extractor may go over: `features`.

    Raises:
        InvalidInput: a setting is out of range, `out` exists, descriptions do not fit the classes, or the folder is no
            release as it was certified.
        StorageError: a file of it is missing or can't be read, or `out` can't be written.
    """

    example = "privmix fit REL --learner noise-aware-ridge --out MODEL"

    release: HasDataset | ReleasedDataset | str | Path = option(
        MISSING, "A release, or its folder; of a series: the folder of all its releases.", argument=True
    )

    def run(self, progress: Progress) -> Model:
        """Fit."""
        from privmix.jobs.fitting import fitted

        return fitted(self.release, self, progress)

    def then(self, found: Any) -> str:
        """Evaluate it."""
        return f"privmix evaluate {shlex.quote(str(self.out))} --data DIR --split test"


fit = function(Fit)
