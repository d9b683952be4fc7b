"""Planning and making a release: ``pm.plan``, ``pm.release`` and ``privmix release``."""

from __future__ import annotations

import shlex
from dataclasses import KW_ONLY, MISSING, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from privmix.commands.base import Command, function
from privmix.errors import InvalidInput
from privmix.fields import value_is_default
from privmix.jobs.options import DATA_HELP, DATA_IN_PYTHON, DELTA_HELP, EPSILON_HELP, TABLE
from privmix.jobs.release_options import PlanOptions, ReleaseOptions
from privmix.options import option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.jobs.release import Planned, ReleaseJob
    from privmix.jobs.release_folder import Release

_PLANNED: Final = {*(item.name for item in fields(PlanOptions)), "private_count", "person_quantile"} - {"data"}
"""Options that a plan excludes."""


@dataclass(frozen=True, eq=False, repr=False)
class PlanRelease(PlanOptions, Command["Planned"]):
    """Plan a release from public facts: what it will cost, and with which noise.

    No private record is read. Give the plan to :func:`release`.

    In Python `data` may be ``(x, y)`` of arrays, tensors or lists, a pandas or polars frame, or a Hugging Face
    ``Dataset``; `classes` integers or names; `design` an object such as ``pm.designs.Moments()``; `features` a
    ``Extractor``; `public`, and `proxy` of `assume`, data in memory. `person` is the name of a
    column, or an array of identifiers: privacy is then for persons with all their records, and `records` is how many
    there are.

    Raises:
        InvalidInput: options are out of range or do not go together, or the data do not open.
        StorageError: the private or public data cannot be read.

    Example:
        >>> import numpy as np
        >>> import privmix as pm
        >>> data = np.eye(300)[:, :9], np.arange(300) % 2
        >>> planned = pm.plan(data, classes=2, features="identity", epsilon=1, delta=1e-4)
        >>> planned.cost.epsilon <= 1, planned.plan.design == planned.choice.best.plan.design
        (True, True)
    """

    called = "plan"
    example = "privmix release --dry-run ..."

    def run(self, progress: Progress) -> Planned:
        from privmix.jobs.release import ReleaseJob, job_of

        return job_of(ReleaseJob, self, dry_run=True).plan(progress)


@dataclass(frozen=True, eq=False, repr=False)
class MakeRelease(ReleaseOptions, Command["Release"]):
    """Turn a private dataset into a differentially private release.

    Plans design, noise and guarantee from public facts, checks everything, charges the ledger, then reads the
    records. If a later step fails, the budget is spent; `resume` finishes the run without a second charge. The
    result is a folder to share: Parquet shards, certificate.json and a data card.

    Formal guarantees:
        * the same job from Python and from the command line: with a seed, the same rows bit for bit;
        * without `out`, the run is in a private temporary folder; its key and features are gone when it ends, and the
          release, which is public, when the returned object is;
        * a plan is of its dataset: other record counts, features or classes than it was made for are refused.

    Raises:
        InvalidInput: options are out of range or do not go together, a record is not as declared.
        BudgetExceeded: the ledger does not hold the cost; nothing was read.
        StorageError: reading or writing failed.

    Example:
        >>> import numpy as np
        >>> import privmix as pm
        >>> data = np.eye(300)[:, :9], np.arange(300) % 2
        >>> found = pm.release(data, classes=2, features="identity", design=pm.designs.Moments(), epsilon=1, delta=1e-4)
        >>> found.x.shape, found.certificate.epsilon <= 1
        ((300, 9), True)
    """

    called = "release"
    example = (
        "privmix release --data mnist --features scattering --epsilon 1 --delta 1e-5 --out REL\n"
        "privmix release --data train.csv.gz --columns text --classes 77 --features minilm ...\n"
        "privmix release --data adult --label-column income --features tabular:adult.json ...\n"
        "privmix release --design poisson:mixup_degree=64 ..."
    )

    data: Any = option(MISSING, DATA_HELP, in_python=DATA_IN_PYTHON)
    plan: Planned | None = option(None, "Plan from pm.plan, instead of a budget and settings.", python=True)
    _: KW_ONLY
    epsilon: float | None = option(None, EPSILON_HELP, needed=True)  # type: ignore[assignment]
    delta: float | None = option(None, DELTA_HELP, needed=True)  # type: ignore[assignment]

    @property
    def count_is_private(self) -> bool:
        planned = self.plan is not None and self.plan.count_is_private
        return planned or self.records is not None or self.private_count

    def run(self, progress: Progress) -> Release:
        # Imported here: help is made without them.
        from privmix.jobs.budget import not_kept
        from privmix.jobs.release import made_release
        from privmix.scratch import ScratchFolder

        job = self._job()
        if self.dry_run:
            # A command line has this alone; Python has pm.plan.
            return cast("Release", job.plan(progress, self.plan))
        if job.out is not None:
            return made_release(job, self.plan, progress)
        if job.auditor is not None:
            raise InvalidInput("out", None, "a folder, with `replay_for`: the sealed key is written next to it")
        scratch = ScratchFolder()
        try:
            return made_release(replace(job, out=scratch.path / "release"), self.plan, progress, scratch)
        except BaseException as error:
            # It could not be resumed.
            scratch.remove()
            not_kept(error)
            raise

    def _job(self) -> ReleaseJob:
        from privmix.jobs.release import ReleaseJob, job_of

        # A run without `out` is in a temporary folder, which no later call can find.
        if self.out is None and (self.resume or self.overwrite):
            raise InvalidInput("out", None, "a folder, with `resume` or `overwrite`")
        if self.plan is None:
            for name in ("epsilon", "delta"):
                if getattr(self, name) is None:
                    raise InvalidInput(name, None, "a budget (`epsilon` and `delta`) or a plan")
            return job_of(ReleaseJob, self)
        planned = [item for item in fields(self) if item.init and item.name in _PLANNED]
        if given := [item.name for item in planned if not value_is_default(item, getattr(self, item.name))]:
            raise InvalidInput("plan", given, "no such options with a plan")
        running = {item.name: getattr(self, item.name) for item in fields(ReleaseOptions) if item.init}
        # Noise and price were calibrated for the plan's settings, so options of this call cannot change these.
        running = {name: value for name, value in running.items() if name not in _PLANNED}
        return replace(self.plan.job, **{**running, "out": None if self.out is None else Path(self.out)})

    def then(self, found: Any) -> str | None:
        if self.dry_run:
            return None
        label = self.as_columns().label
        if label is None:
            return f"privmix sample {shlex.quote(str(self.out))} --out rows.csv"
        learn, rows = (
            f"privmix fit {shlex.quote(str(self.out))} --out MODEL",
            f"privmix sample {shlex.quote(str(self.out))} --out rows.csv --label-column {shlex.quote(label)}",
        )
        if self.goal == TABLE:
            return rows
        of_table = found.certificate["extractor"]["name"] == "tabular"
        return f"{learn}, or {rows} for rows of the table" if of_table else learn


plan: Final = function(PlanRelease)
release: Final = function(MakeRelease)
