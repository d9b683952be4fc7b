"""One step of a series of releases, charged once for all steps; and what else is done with a series."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Final

from privmix.accounting.pricing import small_query_noise
from privmix.certificate.certificate import Certificate
from privmix.designs.series.plan import MOMENTS_SERIES, SeriesPlan
from privmix.errors import WITHHELD, InvalidInput
from privmix.features import Extractor
from privmix.jobs.budget import Charge, Cost, check_noted
from privmix.jobs.job import RunArguments
from privmix.jobs.options import AUTO
from privmix.jobs.places import check_writable
from privmix.jobs.release import Planned, ReleaseJob
from privmix.jobs.work import Work
from privmix.mechanisms.run_place import RunState
from privmix.planning import ReleaseConfig
from privmix.plans import Plan
from privmix.progress import Progress, silent
from privmix.releases import ReleaseRun
from privmix.releases.series import Series, SeriesStep, place_of_step

# What a later step's records decide, or the first step's already did.
_OWN = frozenset({"counts", "records", "rows", "lattice_bits", "centre_noise_multiplier"})

_PERSONS: Final = (
    "no persons: one may come back in another step. Plan releases of their own for them, by a ledger of unit person "
    "(docs/series.md)"
)


def job_of(**options: Any) -> ReleaseJob:
    """The job of these options: a step of a series where they name one, with its place in the series' folder.

    Raises:
        InvalidInput: ``series`` and other options do not go together.
        StorageError: the series can't be read.
    """
    job = ReleaseJob(**options)
    folder = job.terms.folder
    if folder is None:
        return job
    if job.out is not None:
        raise InvalidInput("out", str(job.out), f"nothing with `series`: releases go to {place_of_step(folder, 1)} ...")
    design = MOMENTS_SERIES if job.design == AUTO else job.design
    return SeriesJob(**{**options, "design": design, "out": place_of_step(folder, _step_of(job, folder))})


def _step_of(job: ReleaseJob, folder: Path) -> int:
    """Which step is to be made: the next, and no other."""
    series = Series.find(folder)
    if series is not None and not job.dry_run:
        series.reconcile()
    following = 1 if series is None else series.made + 1
    asked = job.terms.step
    if series is not None and following > series.first.steps:
        # A kill came between the last release and the end of the key.
        series.end()
        raise InvalidInput("series", str(folder), f"one with steps left: all {series.first.steps} are made")
    if asked is not None and asked != following:
        made = "none is made yet" if following == 1 else f"steps up to {following - 1} are made, each once"
        raise InvalidInput("step", asked, f"{following}, the next of this series: {made}")
    return following


@dataclass(frozen=True, eq=False)
class SeriesJob(ReleaseJob):
    """A step of a series: :meth:`plan` it, then :meth:`carry_out` the plan.

    Formal guarantees (beside those of :class:`ReleaseJob` and :class:`privmix.releases.series.Series`):
        * One charge: the first step is charged for all of them, before a record is read; later steps are charged
          nothing, and only go on where that charge is, in the same ledger and for the same dataset.
        * One plan: a later step has the plan of the first, but for the number of its records; what would change any
          other part of it is refused by name, before a record is read.
    """

    runs: ClassVar = ReleaseRun

    @cached_property
    def series(self) -> Series | None:
        """The series, once it began: with a charge, a run, or records that a step is of."""
        folder = self.terms.folder
        assert folder is not None
        found = Series.find(folder)
        if found is None or not found.is_idle or ReleaseRun.interrupted(place_of_step(folder, 1)) is not None:
            return found
        # Its records were refused before anything was drawn for them: another plan may take its place.
        return None

    @property
    def step(self) -> int:
        """t."""
        return 1 if self.series is None else self.series.made + 1

    def check_options(self) -> None:
        """See :meth:`Job.check_options`."""
        refused = {
            "private_count": (self.private_count, "none of a series: declare `records`"),
            "replay_for": (self.replay.given, "none of a series, whose key serves steps to come"),
            "public": (self.prior.public is not None, "none of a series so far"),
            # It would have to hold for the records of all steps together, which no step's data say.
            "most_per_person": (self.most_per_person is not None, "none of a series: a person may come back"),
            "person": (self.of_persons, _PERSONS),
        }
        for name, (given, allowed) in refused.items():
            if given:
                raise InvalidInput(name, "given", allowed)
        assert self.terms.folder is not None
        if self.out != place_of_step(self.terms.folder, self.step):
            raise InvalidInput("plan", f"one for {self.out}", f"one made for step {self.step}, the next of the series")
        super().check_options()
        if not self.dry_run:
            check_writable("series", self.terms.folder.absolute().parent)
        if self.series is None:
            return
        notes = self.series.notes
        if self.seed != notes.seed:
            begun = "no seed" if notes.seed is None else notes.seed
            raise InvalidInput("seed", self.seed, f"{begun}, as when the series began")
        if not self.series.is_idle and (self.ledger is None) != (notes.charge is None):
            told = None if self.ledger is None else "a ledger"
            raise InvalidInput("ledger", told, "the same as in the first step, which was charged for all steps")
        if notes.charge is not None and notes.charge["dataset"] != self.dataset:
            raise InvalidInput("dataset", self.dataset, "the dataset that the first step was charged to")

    def plan(self, progress: Progress = silent, made: Planned | None = None) -> Planned:
        """See :meth:`ReleaseJob.plan`; ``made`` must have led to the same plan."""
        if made is not None and not isinstance(made.plan, SeriesPlan):
            raise InvalidInput("plan", f"one of design {made.plan.design}", f"one of design {MOMENTS_SERIES}")
        found = super().plan(progress)
        if made is not None and made.plan != found.plan:
            raise InvalidInput("plan", WITHHELD, f"one made for step {self.step} of this series and its data")
        self._check_same_source(found)
        return found

    def _calibrated(self, config: ReleaseConfig) -> Plan:
        """The first step's plan, with the number of this step's records."""
        if self.series is None:
            return super()._calibrated(config)
        first = self.series.first
        drafted = config.with_noise(first.noise_multiplier, small_query_noise(self.epsilon))
        target = {"epsilon": float(self.epsilon), "delta": float(self.delta)}
        asked = {**target, **vars(drafted), **target}
        free = _OWN if self.rows is None else _OWN - {"rows"}
        for name, value in asked.items():
            if name not in free and value != vars(first)[name]:
                raise InvalidInput(name, value, f"{vars(first)[name]}, as when the series began")
        return self.series.plan_of_next(config.records)

    @cached_property
    def reader(self) -> Extractor:
        """See :attr:`ReleaseJob.reader`; a series goes on with the decoder of images that it began with."""
        found = super().reader
        begun = None if self.series is None else self.series.notes.extractor
        if begun is not None and '"decoder"' not in json.dumps(begun) and found.reads.decoder > 1:
            found = copy.deepcopy(found)
            found.reads.decoder = 1
        return found

    def _check_same_source(self, planned: Planned) -> None:
        if self.series is None:
            return
        notes, shape = self.series.notes, tuple(self.opened.schema.input_shape)
        if planned.extractor.spec() != notes.extractor:
            raise InvalidInput("features", "another extractor", "the one that the series began with, with its options")
        if shape != notes.input_shape:
            raise InvalidInput("data", f"inputs of shape {shape}", f"shape {notes.input_shape}, as in the first step")

    def note(self, state: RunState | None, what: str = "reservation") -> Mapping[str, Any] | None:
        """See :meth:`Job.note`: the first step's charge is for all."""
        made = None if self.series is None else self.series.notes.charge
        if made is None:
            return super().note(state, what)
        check_noted(self.ledger, self.dataset, made)
        return made

    def charge(self, cost: Cost, note: Mapping[str, Any] | None) -> Charge:
        """See :meth:`Job.charge`."""
        charged = super().charge(cost, note)
        assert self.series is not None
        if note is not None and self.series.notes.charge is None:
            self.series.charged(note)
        return charged

    def settled(self, planned: Planned, charged: Charge) -> Sequence[Charge]:
        """See :meth:`Job.settled`: the charge is used up by the last step."""
        assert isinstance(planned.plan, SeriesPlan)
        return super().settled(planned, charged) if planned.plan.is_last else ()

    def open_run(self, planned: Planned, in_ledger: str, given: RunArguments) -> ReleaseRun:
        """See :meth:`Job.open_run`. The series begins here: its key is on disk before it is charged."""
        plan, folder = planned.plan, self.terms.folder
        assert isinstance(plan, SeriesPlan)
        assert folder is not None
        if self.series is None:
            if (idle := Series.find(folder)) is not None:
                idle.end()
            # What is kept in memory of an object that is not changed otherwise: that there was no series.
            self.__dict__["series"] = Series.begin(
                folder,
                plan,
                extractor=planned.extractor.spec(),
                input_shape=self.opened.schema.input_shape,
                seed=self.seed,
            )
        return super().open_run(planned, in_ledger, given)

    def _step_for(self, planned: Planned) -> SeriesStep:
        assert self.series is not None
        assert isinstance(planned.plan, SeriesPlan)
        return SeriesStep(self.series, planned.plan)

    def compute(self, planned: Planned, work: Work, records: Any, progress: Progress) -> Certificate:
        """See :meth:`Job.compute`; the key ends with the last step."""
        certificate = super().compute(planned, work, records, progress)
        assert self.series is not None
        assert isinstance(planned.plan, SeriesPlan)
        self.series.done(planned.plan.step, hashlib.sha256(certificate.to_bytes()).hexdigest())
        if planned.plan.is_last:
            self.series.end()
        return certificate


def end_series(folder: str | PathLike[str]) -> int:
    """End a series before its last step: its key is overwritten and removed, and no step can follow.

    The releases stay what they are; what was charged for all steps stays charged. That no copy of the key is left can
    be shown by nobody.

    Args:
        folder: of the series.

    Returns:
        how many of its steps are released.

    Raises:
        InvalidInput: there is no series that goes on, or an interrupted step is there: finish or discard it first.
        StorageError: it can't be done.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> import privmix as pm
        >>> folder = f"{tempfile.mkdtemp()}/visits"
        >>> data = np.eye(300)[:, :9], np.arange(300) % 2
        >>> given = {"classes": 2, "features": "identity", "epsilon": 1, "delta": 1e-4}
        >>> _ = pm.release(data, series=folder, design=pm.designs.MomentsSeries(steps=3), **given)
        >>> pm.end_series(folder)
        1
    """
    series = Series.find(Path(folder))
    if series is None:
        raise InvalidInput("series", str(folder), "the folder of one that goes on")
    series.reconcile()
    if ReleaseRun.interrupted(place_of_step(series.folder, series.made + 1)) is not None:
        raise InvalidInput("series", str(folder), f"one without an interrupted step: finish step {series.made + 1}")
    series.end()
    return series.made
