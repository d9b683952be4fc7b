"""Releases of data that grow, for one budget: ``privmix series`` and ``pm.series``."""

from __future__ import annotations

import shlex
from dataclasses import KW_ONLY, MISSING, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from privmix.commands.base import Command, function
from privmix.jobs.options import DATA_HELP, ModelFiles
from privmix.jobs.persons import PERSONS_PANEL
from privmix.jobs.release_options import OnceOptions, RecordsOptions, RunOptions, TermsOptions
from privmix.options import described, option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.jobs.release_folder import Release
    from privmix.jobs.series import SeriesState

__all__ = ["begin", "end", "show", "step"]


@described
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _StepOptions(RecordsOptions, RunOptions):
    """Options of every step."""

    @property
    def count_is_private(self) -> bool:
        return self.records is not None

    def then(self, found: Any) -> str | None:
        folder: Any = self.folder  # type: ignore[attr-defined]
        return None if getattr(self, "dry_run", False) else f"privmix fit {shlex.quote(str(folder))} --out MODEL"


@dataclass(frozen=True, eq=False, repr=False)
class Begin(_StepOptions, TermsOptions, OnceOptions, Command["Release"]):
    """Begin a series of releases of growing data, for one budget.

    The first release covers the first records; later steps cover all records so far. The ledger is charged once,
    now. The noise key stays next to the folder, for you only, until the last step.

    Raises:
        InvalidInput: the series has its first step, or options are out of range or do not go together.
        BudgetExceeded: the ledger does not hold the cost; nothing was read.
        StorageError: reading or writing failed.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> import privmix as pm
        >>> folder = f"{tempfile.mkdtemp()}/visits"
        >>> data = np.eye(300)[:, :9], np.arange(300) % 2
        >>> _ = pm.series.begin(folder, data, steps=3, classes=2, features="identity", epsilon=1, delta=1e-4)
        >>> pm.series.step(folder, data).certificate.plan["counts"]
        [300, 300]
        >>> pm.series.end(folder).made
        2
    """

    example = "privmix series begin visits --data january.csv --steps 12 --epsilon 4 --delta 1e-5 ..."

    folder: str | Path = option(MISSING, "New folder for the releases step-001, step-002, and so on.", argument=True)
    data: Any = option(MISSING, DATA_HELP)
    _: KW_ONLY
    steps: int = option(12, "Number of releases in the series, T.")
    label_share: float = option(0.5, "Share of the budget for label sums.", "Expert")
    count_share: float = option(0.002, "Share of the budget for class counts.", "Expert")
    steps_per_person: int = option(
        1, "Steps in which a `person` counts at most, K; later records do not.", PERSONS_PANEL
    )

    def run(self, progress: Progress) -> Release:
        from privmix.designs.series.plan import MomentsSeries
        from privmix.jobs.series import carried_out, first_step

        design = MomentsSeries(
            steps=self.steps,
            label_share=self.label_share,
            count_share=self.count_share,
            steps_per_person=self.steps_per_person,
        )
        job = first_step(Path(self.folder), self, design)
        return cast("Release", job.plan(progress)) if self.dry_run else carried_out(job, progress)


@dataclass(frozen=True, eq=False, repr=False)
class Step(_StepOptions, ModelFiles, Command["Release"]):
    """Release all records so far, as the next step.

    `data` holds the new records only. Price, plan, extractor, classes and ledger are the first step's; nothing more
    is charged.

    Raises:
        InvalidInput: the series has no first step, or no step left; or the data are not as in the first step.
        StorageError: reading or writing failed.
    """

    example = "privmix series step visits --data february.csv --label-column readmitted"

    folder: str | Path = option(MISSING, "Folder of the series.", argument=True)
    data: Any = option(MISSING, DATA_HELP)
    _: KW_ONLY
    number: int | None = option(None, "Step in which `data` are new; must be the next.")
    # The first step decides these for all steps.
    classes: Any = field(default=None, init=False)
    feature_length: int | None = field(default=None, init=False)
    image_size: int | None = field(default=None, init=False)
    colour: str | None = field(default=None, init=False)

    def run(self, progress: Progress) -> Release:
        from privmix.jobs.series import carried_out, next_step

        return carried_out(next_step(Path(self.folder), self, self.number), progress)


@dataclass(frozen=True, eq=False, repr=False)
class Show(Command["SeriesState"]):
    """Show the progress of a series.

    Lists released steps, the records of each, the guarantee of all steps, and whether the key exists. Use privmix
    verify to check them.

    Raises:
        InvalidInput: there is no series.
        StorageError: it can't be read.
    """

    example = "privmix series show visits"

    folder: str | Path = option(MISSING, "Folder of the series.", argument=True)

    def run(self, progress: Progress) -> SeriesState:
        from privmix.jobs.series import state_of

        return state_of(Path(self.folder))


@dataclass(frozen=True, eq=False, repr=False)
class End(Command["SeriesState"]):
    """End a series early, by destroying its key.

    The releases and the charge for all steps stay. A finished series needs no such end. No check can show that no
    copy of the key is left.

    Raises:
        InvalidInput: there is no series that goes on, or an interrupted step is there: finish or discard it first.
        StorageError: it can't be done.
    """

    example = "privmix series end visits"

    folder: str | Path = option(MISSING, "Folder of the series.", argument=True)

    def run(self, progress: Progress) -> SeriesState:
        from privmix.jobs.series import end

        return end(Path(self.folder))


begin: Final = function(Begin)
step: Final = function(Step)
show: Final = function(Show)
end: Final = function(End)
