"""The job of a step of a series of releases, which is charged once for all steps, and how far a series is."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privmix.certificate.certificate import Certificate
from privmix.data.persons import Identities
from privmix.designs.series.plan import MOMENTS_SERIES, MomentsSeries, SeriesPlan
from privmix.errors import WITHHELD, InvalidInput
from privmix.features.spec import from_spec
from privmix.jobs.budget import Charge, JobCost, check_noted
from privmix.jobs.job import RunArguments, Work
from privmix.jobs.places import check_writable
from privmix.jobs.release import Planned, ReleaseJob, job_of, made_release
from privmix.jobs.release_folder import Release
from privmix.mechanisms.persons import NO_ONE
from privmix.mechanisms.run_folder import RunState
from privmix.planning.config import ReleaseConfig
from privmix.plans.plan import Plan
from privmix.plans.registry import made_by, plan_from_dict
from privmix.progress import Progress, silent
from privmix.releases.certificate import read_certificate
from privmix.releases.run import ReleaseRun
from privmix.releases.series import Series, SeriesStep, is_remnant, place_of_step, private_place
from privmix.rounding import exact
from privmix.shown import Shown

_NOT_IN_SERIES: Final = ("private_count", "person_quantile", "most_per_person", "replay_for")


@dataclass(frozen=True, eq=False, repr=False)
class SeriesJob(ReleaseJob):
    """A step of a series: :meth:`plan` it, then :meth:`carry_out` the plan.

    Formal guarantees (in addition to those of :class:`ReleaseJob` and :class:`privmix.releases.series.Series`):
        * One charge: the first step is charged for all of them, before a record is read. Later steps are charged
          nothing, and only go on where that charge is, in the same ledger and for the same dataset.
    * One plan: a later step has the plan of the first, but for the number of its records.

    ``folder`` is the series', and ``begins`` states whether this is the first step.
    """

    folder: Path = Path()
    begins: bool = True

    in_series: ClassVar[bool] = True

    @cached_property
    def series(self) -> Series | None:
        """The series, once it began: with a charge, a run, or records that a step is of."""
        found = Series.find(self.folder)
        if found is None or not found.is_idle or ReleaseRun.interrupted(place_of_step(self.folder, 1)) is not None:
            return found
        # Its records were refused before anything was drawn for them: another plan may take its place.
        return None

    @property
    def known_shape(self) -> tuple[int, ...] | None:
        return None if self.begins or self.series is None else self.series.notes.input_shape

    def check_options(self) -> None:
        for name in _NOT_IN_SERIES:
            if getattr(self, name) not in (None, False):
                raise InvalidInput(name, "given", "no value in a series")
        if self.of_persons and self.records is None:
            raise InvalidInput("records", None, "the public number of persons with records in this step")
        super().check_options()
        if not self.dry_run:
            check_writable("series", self.folder.absolute().parent)
        if self.series is None:
            return
        notes = self.series.notes
        if self.seed != notes.seed:
            begun = "no seed" if notes.seed is None else notes.seed
            raise InvalidInput("seed", self.seed, f"{begun}, as at the start of the series")
        if not self.series.is_idle and (self.ledger is None) != (notes.charge is None):
            told = None if self.ledger is None else "a ledger"
            raise InvalidInput("ledger", told, "the ledger of the first step, which was charged for all steps")
        if notes.charge is not None and notes.charge["dataset"] != self.dataset:
            raise InvalidInput("dataset", self.dataset, "the dataset that the first step was charged to")
        if (self.records is not None) is not self.series.first.records_declared:
            allowed = "given" if self.series.first.records_declared else "left out"
            raise InvalidInput("records", self.records, f"{allowed} in every step, as at the start of the series")
        if self.of_persons is (self.series.first.per_person is None):
            allowed = "left out" if self.of_persons else "given"
            raise InvalidInput("person", WITHHELD, f"{allowed} in every step, as at the start of the series")
        if notes.steps and self.persons.named(self.declared.person) != notes.steps[0].named:
            # Other columns, or these in another order, would make others of the same persons.
            raise InvalidInput("person", WITHHELD, "the same columns, or pattern, as at the start of the series")

    def plan(self, progress: Progress = silent, made: Planned | None = None) -> Planned:
        found = super().plan(progress, made)
        if self.series is not None:
            notes, shape = self.series.notes, tuple(self.opened.schema.input_shape)
            if (classes := tuple(self.opened.schema.classes)) != (first := tuple(found.plan.classes)):
                raise InvalidInput("classes", list(classes), f"{', '.join(first)}, as at the start of the series")
            if found.extractor.spec() != notes.extractor:
                allowed = "the extractor of the first step, with its options and columns"
                raise InvalidInput("features", "another extractor", allowed)
            if shape != notes.input_shape:
                raise InvalidInput(
                    "data", f"inputs of shape {shape}", f"shape {notes.input_shape}, as in the first step"
                )
        return found

    def _calibrated(self, config: ReleaseConfig) -> Plan:
        """Return the first step's plan, with the number of this step's records."""
        if self.series is None:
            return super()._calibrated(config)
        plan = self.series.plan_of_next(config.records)
        # A first step that resumes: its options must still be those that the series began with.
        if self.begins:
            options = super()._calibrated(config)
            for name in ("epsilon", "delta", *vars(options)):
                if (value := getattr(options, name)) != (first := getattr(plan, name)):
                    raise InvalidInput(name, value, f"{first}, as at the start of the series")
        return plan

    def note(self, state: RunState | None, what: str = "reservation") -> Mapping[str, Any] | None:
        made = None if self.series is None else self.series.notes.charge
        if made is None:
            return super().note(state, what)
        check_noted(self.ledger, self.dataset, made)
        return made

    def charge(self, cost: JobCost, note: Mapping[str, Any] | None) -> Charge:
        charged = super().charge(cost, note)
        assert self.series is not None
        # After a kill in between, the run's own note finds the charge by its id.
        if note is not None and self.series.notes.charge is None:
            self.series.charged(note)
        return charged

    def whose(self) -> NDArray[np.int64] | None:
        """See :meth:`Job.whose`; persons who counted in K steps before count no more, and are no one."""
        if not self.of_persons:
            return None
        assert self.series is not None
        step = self.series.made + 1
        known = Identities(self.series.key_for("persons"), step)
        found = self.persons.read(self.opened, known=known)
        named = self.persons.named(self.declared.person)
        assert named is not None
        counted = self.series.admitted(step, list(known.met), named)
        return np.where(counted, np.cumsum(counted) - 1, NO_ONE)[found]

    def settled(self, planned: Planned, charged: Charge) -> Sequence[Charge]:
        assert isinstance(planned.plan, SeriesPlan)
        # One charge pays for all steps: the last one uses it up.
        return super().settled(planned, charged) if planned.plan.is_last else ()

    def open_run(self, planned: Planned, in_ledger: str, given: RunArguments) -> ReleaseRun:
        plan, folder = planned.plan, self.folder
        assert isinstance(plan, SeriesPlan)
        if self.series is None:
            # Its records were refused: nothing was drawn with its key.
            if (idle := Series.find(folder)) is not None:
                idle.end(folder)
            # Replaces the cached value, by which there was no series; the object is not changed otherwise.
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
        certificate = super().compute(planned, work, records, progress)
        made = self._step_for(planned)
        # Noted before the key ends: after a kill in between, `next_step` ends it.
        made.series.done(made.step, hashlib.sha256(certificate.to_bytes()).hexdigest())
        if made.plan.is_last:
            made.series.end(self.folder)
        return certificate


def first_step(folder: Path, asked: Any, design: MomentsSeries) -> SeriesJob:
    found = Series.find(folder)
    # A dry run changes nothing on a disk.
    if found is not None and not asked.dry_run:
        found.reconcile()
    if found is not None and found.made:
        raise InvalidInput(
            "series", str(folder), "a new folder: this series has begun. Continue it with privmix series step"
        )
    return job_of(SeriesJob, asked, design=design, folder=folder, out=place_of_step(folder, 1))


def next_step(folder: Path, asked: Any, number: int | None = None) -> SeriesJob:
    """Return the job of the next step, as the series began; raises if `number` is not the next."""
    found = Series.find(folder)
    if found is not None:
        found.reconcile()
    if found is None or not found.made:
        raise InvalidInput(
            "series", str(folder), "the folder of a series that has begun: privmix series begin starts one"
        )
    first, notes, following = found.first, found.notes, found.made + 1
    if following > first.steps:
        # A kill came between the last release and the end of the key.
        found.end(folder)
        raise InvalidInput("series", str(folder), f"a series with steps left: all {first.steps} are made")
    if number is not None and number != following:
        made = f"steps up to {following - 1} are made, each once"
        raise InvalidInput("number", number, f"{following}, the next step of this series: {made}")
    assert first.epsilon is not None
    assert first.delta is not None
    return job_of(
        SeriesJob,
        asked,
        folder=folder,
        begins=False,
        out=place_of_step(folder, following),
        epsilon=first.epsilon,
        delta=first.delta,
        design=MOMENTS_SERIES,
        features=from_spec(notes.extractor, asked.features_model),
        classes=list(first.classes),
        clip_norm=first.clip_norm,
        dataset=None if notes.charge is None else notes.charge["dataset"],
        seed=notes.seed,
    )


def carried_out(job: SeriesJob, progress: Progress) -> Release:
    found = made_release(job, None, progress)
    place = f"its key is kept next to {job.folder}, in a folder that only you can open, until the last step"
    step = made_by(found.plan).shown(found.plan)["step"]
    return Release(job.out or "", details=(*found.details, f"step {step}; {place}"))


@dataclass(frozen=True, repr=False)
class SeriesState(Shown):
    """Progress of a series: newest (or first) plan, steps made, whether its key is there and a step interrupted."""

    plan: SeriesPlan
    made: int
    key: bool
    interrupted: bool

    def to_dict(self) -> dict[str, Any]:
        plan, counts = self.plan, list(self.plan.counts[: self.made])
        told = {"made": self.made, "steps": plan.steps, "records": counts, "epsilon": plan.epsilon, "delta": plan.delta}
        return {**told, "key": self.key, "interrupted": self.interrupted}

    def shown(self) -> tuple[str, Mapping[str, object]]:
        assert self.plan.epsilon is not None
        assert self.plan.delta is not None
        counts = ", ".join(f"{count:,}" for count in self.plan.counts[: self.made])
        key = "kept for the next step" if self.key else "destroyed: no step can follow"
        return f"Series: {self.made} of {self.plan.steps} steps", {
            f"{self.plan.counted}, by step": counts or "none yet",
            "guarantee of all steps": f"epsilon {exact(self.plan.epsilon)}, delta {exact(self.plan.delta)}, at most",
            "key": key,
            **({"interrupted": f"step {self.made + 1}: finish it with `resume`"} if self.interrupted else {}),
        }


def state_of(folder: Path) -> SeriesState:
    """Progress of a series, by its certificates and, for its owner, its notes."""
    made = 0
    plan: Plan | None = None
    while (place := place_of_step(folder, made + 1)).is_dir():
        plan, made = plan_from_dict(read_certificate(place)["plan"]), made + 1
    there = private_place(folder).exists() and not is_remnant(folder)
    key = there and (found := Series.find(folder)) is not None
    if plan is None and key:
        assert found is not None
        plan = found.first
    if not isinstance(plan, SeriesPlan):
        raise InvalidInput("series", str(folder), "the folder of a series")
    interrupted = key and ReleaseRun.interrupted(place_of_step(folder, made + 1)) is not None
    return SeriesState(plan, made, key, interrupted)


def end(folder: Path) -> SeriesState:
    """End a series before its last step: its key is overwritten and removed; return how far it came."""
    if private_place(folder).exists() and is_remnant(folder):
        Series.end(folder)
        return state_of(folder)
    # Before the end, which removes the notes that describe a series without releases.
    state, found = state_of(folder), Series.find(folder)
    if found is None:
        raise InvalidInput("series", str(folder), "a series that has not ended")
    found.reconcile()
    if ReleaseRun.interrupted(place_of_step(folder, found.made + 1)) is not None:
        raise InvalidInput(
            "series", str(folder), f"a series without an interrupted step: finish step {found.made + 1} first"
        )
    found.end(folder)
    return replace(state, key=False)
