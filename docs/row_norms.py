"""Command ``row-norms``: norms of a release's rows."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path

import numpy as np

import privmix as pm
from privmix.commands.base import Command, function
from privmix.jobs.options import Recorded
from privmix.jobs.recording import Measured, Measurement
from privmix.options import option
from privmix.progress import Progress


@dataclass(frozen=True)
class RowNorms(Recorded, Command[Measured]):
    """Measure how long the rows of a release are."""

    panel = "Row norms"
    example = "privmix row-norms REL --record RUN"

    release: str | Path = option(MISSING, "Folder that privmix release wrote.", argument=True)

    def run(self, progress: Progress) -> Measured:
        """Measure the norms."""
        self.check_record()
        release = pm.load(self.release)
        assert isinstance(release, pm.Release)
        norms = np.linalg.norm(release.x, axis=1)
        measurement = Measurement(
            "row-norms",
            {"kind": "release", "id": release.certificate.id},
            {"rows": len(norms), "median": float(np.median(norms)), "largest": float(norms.max())},
            private=False,
            settings={"release": Path(self.release).name},
            title="Norms of the rows",
        )
        return Measured(measurement)


row_norms = function(RowNorms)
