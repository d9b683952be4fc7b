"""``privmix sharpness``: curvature of a trained model's loss on public data."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privmix.cli.app import app
from privmix.cli.verb import add_command
from privmix.commands.base import Command
from privmix.jobs.columns import Columns
from privmix.jobs.options import MODULE_HELP, ModelFiles
from privmix.options import EXPERT, option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.research.curvature.job import SharpnessResult as Found


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sharpness(Columns, ModelFiles, Command["Found"]):
    """Measure how sharp a trained model's minimum is.

    Reports eigenvalues and trace of the Hessian on PUBLIC data that the certificate names. Other data need
    `ledger`, which must not know their files. The same figures of private records would reveal something about
    them.
    """

    example = "privmix sharpness MODEL --public PUBLIC.npz --json"
    panel = "Research"

    model: Path = option(MISSING, "Folder of a model from privmix train.", argument=True)
    public: Any = option(MISSING, "PUBLIC labelled dataset: file, folder, pattern or address.")
    ledger: str | None = option(None, "Ledger of private files to refuse, for data outside the certificate.")
    iterations: int = option(100, "Upper limit on Lanczos steps, each of two data gradients.")
    probes: int = option(20, "Number of random sign vectors for the trace.")
    module: Any = option(None, MODULE_HELP, EXPERT)

    def run(self, progress: Progress) -> Found:
        from privmix.research.curvature.job import sharpness

        return sharpness(
            self.model,
            self.public,
            columns=self.as_columns(),
            features_model=self.features_model,
            module=self.module,
            ledger=self.ledger,
            iterations=self.iterations,
            probes=self.probes,
        )


add_command(app, Sharpness, Sharpness.panel)
