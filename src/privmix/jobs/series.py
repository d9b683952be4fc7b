"""Series of releases: ``privmix.series``, and the job of a step, which is charged once for all steps."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Final

from privmix.bars import Asked, callback, shows_bars
from privmix.certificate.about import About
from privmix.certificate.certificate import Certificate
from privmix.designs.series.plan import MOMENTS_SERIES, MomentsSeries, SeriesPlan
from privmix.errors import InvalidInput
from privmix.features import from_spec
from privmix.jobs.budget import Charge, Cost, check_noted
from privmix.jobs.columns import Columns
from privmix.jobs.job import RunArguments
from privmix.jobs.options import Inputs
from privmix.jobs.places import check_writable
from privmix.jobs.release import Planned, ReleaseJob
from privmix.jobs.release_options import NOT_IN_SERIES, ReleaseOptions, StepOptions
from privmix.jobs.released import Release
from privmix.jobs.releasing import carried_out
from privmix.jobs.work import Work
from privmix.mechanisms.run_place import RunState
from privmix.planning import ReleaseConfig
from privmix.plans import Plan, plan_from_dict
from privmix.progress import Progress, silent
from privmix.releases import ReleaseRun
from privmix.releases.certificate import read_certificate
from privmix.releases.series import Series, SeriesStep, place_of_step, private_place
from privmix.rounding import exact
from privmix.shown import Shown
from privmix.signatures import spelt_out

__all__ = ["SeriesState", "begin", "end", "show", "step"]

_PERSONS: Final = (
    "no persons: one may come back in another step. Plan releases of their own for them, by a ledger of unit person "
    "(docs/series.md)"
)


@dataclass(frozen=True, eq=False)
class SeriesJob(ReleaseJob):
    """A step of a series: :meth:`plan` it, then :meth:`carry_out` the plan.

    Formal guarantees (beside those of :class:`ReleaseJob` and :class:`privmix.releases.series.Series`):
        * One charge: the first step is charged for all of them, before a record is read; later steps are charged
          nothing, and only go on where that charge is, in the same ledger and for the same dataset.
    * One plan: a later step has the plan of the first, but for the number of its records.

    ``folder`` is the series', and ``begins`` says whether this is the first step.
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

    def check_options(self) -> None:
        """See :meth:`Job.check_options`."""
        if self.of_persons:
            raise InvalidInput("person", "given", _PERSONS)
        super().check_options()
        if not self.dry_run:
            check_writable("series", self.folder.absolute().parent)
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
        if (self.records is not None) is not self.series.first.records_declared:
            allowed = "given" if self.series.first.records_declared else "left out"
            raise InvalidInput("records", self.records, f"{allowed} in every step, as when the series began")

    def plan(self, progress: Progress = silent, made: Planned | None = None) -> Planned:
        """See :meth:`ReleaseJob.plan`."""
        found = super().plan(progress, made)
        if self.series is not None:
            notes, shape = self.series.notes, tuple(self.opened.schema.input_shape)
            if (classes := tuple(self.opened.schema.classes)) != (first := tuple(found.plan.classes)):
                raise InvalidInput("classes", list(classes), f"{', '.join(first)}, as when the series began")
            if found.extractor.spec() != notes.extractor:
                allowed = "the one that the series began with, with its options and columns"
                raise InvalidInput("features", "another extractor", allowed)
            if shape != notes.input_shape:
                raise InvalidInput(
                    "data", f"inputs of shape {shape}", f"shape {notes.input_shape}, as in the first step"
                )
        return found

    def _calibrated(self, config: ReleaseConfig) -> Plan:
        """The first step's plan, with the number of this step's records."""
        if self.series is None:
            return super()._calibrated(config)
        plan = self.series.plan_of_next(config.records)
        if self.begins:
            options = super()._calibrated(config)
            for name in ("epsilon", "delta", *vars(options)):
                if (value := getattr(options, name)) != (first := getattr(plan, name)):
                    raise InvalidInput(name, value, f"{first}, as when the series began")
        return plan

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
        plan, folder = planned.plan, self.folder
        assert isinstance(plan, SeriesPlan)
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


def first_step(folder: Path, **options: Any) -> SeriesJob:
    """The job of the first step.

    Raises:
        InvalidInput: the first step is made already.
        StorageError: the series can't be read.
    """
    found = Series.find(folder)
    if found is not None and not options.get("dry_run"):
        found.reconcile()
    if found is not None and found.made:
        raise InvalidInput("series", str(folder), "a new folder: this series has its first step; privmix series step")
    return SeriesJob(**{**options, "folder": folder, "out": place_of_step(folder, 1)})


def next_step(folder: Path, options: StepOptions, number: int | None = None) -> SeriesJob:
    """The job of the next step, as the series began.

    Raises:
        InvalidInput: the series has no first step, or no step left; or ``number`` is not the next.
        StorageError: the series can't be read.
    """
    found = Series.find(folder)
    if found is not None:
        found.reconcile()
    if found is None or not found.made:
        raise InvalidInput("series", str(folder), "a series with its first step: privmix series begin makes it")
    first, notes, following = found.first, found.notes, found.made + 1
    if following > first.steps:
        # A kill came between the last release and the end of the key.
        found.end()
        raise InvalidInput("series", str(folder), f"one with steps left: all {first.steps} are made")
    if number is not None and number != following:
        made = f"steps up to {following - 1} are made, each once"
        raise InvalidInput("number", number, f"{following}, the next of this series: {made}")
    assert first.epsilon is not None
    assert first.delta is not None
    inputs, own = options.inputs, {name: value for name, value in vars(options).items() if name != "inputs"}
    return SeriesJob(
        **own,
        folder=folder,
        begins=False,
        out=place_of_step(folder, following),
        epsilon=first.epsilon,
        delta=first.delta,
        design=MOMENTS_SERIES,
        features=from_spec(notes.extractor, inputs.features_model, trust_model=inputs.trust_features_model),
        classes=list(first.classes) if inputs.classes is None else inputs.classes,
        columns=inputs.columns,
        clip_norm=first.clip_norm,
        dataset=None if notes.charge is None else notes.charge["dataset"],
        seed=notes.seed,
    )


@shows_bars
@spelt_out(Columns, ReleaseOptions, About, but=(*NOT_IN_SERIES, "about", "person", "dry_run"))
def begin(
    series: str | PathLike[str],
    data: Any,
    *,
    epsilon: float,
    delta: float,
    steps: int = 12,
    label_share: float = 0.5,
    count_share: float = 0.002,
    progress: Asked = None,
    **settings: Any,
) -> Release:
    """Begin a series: release moments of data that grow, for one budget for all steps, and keep the key for the next.

    Args:
        series: a new folder, which gets step-001, step-002, ...; its key is kept next to it until the last step.
        data: the records of the first step; see :func:`privmix.release`.
        epsilon, delta: the budget of all steps together.
        steps: how many releases there will be, T.
        label_share, count_share: shares of the budget; see :class:`privmix.designs.MomentsSeries`.
        progress: called with (stage, done, total); True: bars; None: bars where somebody looks on.
        settings: the options below, as of :func:`privmix.release`. A ``ledger`` is charged for all steps.

    Returns:
        the release of the first step.

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
        >>> pm.series.end(folder)
        2
    """
    design = MomentsSeries(steps=steps, label_share=label_share, count_share=count_share)
    own = {"data": data, "epsilon": epsilon, "delta": delta, "design": design}
    job = first_step(Path(series), **own, **_with_objects(settings))
    return carried_out(job, None, callback(progress))


def _with_objects(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings by name as the options' dataclasses hold them."""
    about = About(**{name: settings.pop(name) for name in About.__dataclass_fields__ if name in settings})
    store = settings.pop("store", None)
    columns = Columns.taken_from(settings)
    return {**settings, "about": about, "columns": columns, "store": None if store is None else Path(store)}


@shows_bars
@spelt_out(Columns, StepOptions, About, but=("about", "inputs", "person"))
def step(
    series: str | PathLike[str],
    data: Any,
    *,
    number: int | None = None,
    features_model: str | Path | None = None,
    trust_features_model: bool = False,
    progress: Asked = None,
    **settings: Any,
) -> Release:
    """Make the next step of a series: a release of all records so far. Plan and extractor are the first step's.

    Args:
        series: its folder.
        data: the records that are new in this step, and those alone.
        number: which step you mean; any but the next is refused.
        features_model, trust_features_model: for an extractor whose model no package brings.
        progress: called with (stage, done, total); True: bars; None: bars where somebody looks on.
        settings: the options below. A ``ledger`` is the one of the first step, and is charged nothing more.

    Raises:
        InvalidInput: the series has no first step, or no step left; or the data are not as in the first step.
        StorageError: reading or writing failed.
    """
    own = _with_objects(settings)
    inputs = Inputs(
        columns=own.pop("columns"), features_model=features_model, trust_features_model=trust_features_model
    )
    options = StepOptions(data=data, inputs=inputs, **own)
    return carried_out(next_step(Path(series), options, number), None, callback(progress))


@dataclass(frozen=True, repr=False)
class SeriesState(Shown):
    """How far a series is.

    Attributes:
        plan: of the newest step, or of the first where none is released.
        made: how many steps are released.
        key: whether its key is there for a next step.
        interrupted: whether the next step was begun and not finished.
    """

    plan: SeriesPlan
    made: int
    key: bool
    interrupted: bool

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        plan, counts = self.plan, list(self.plan.counts[: self.made])
        told = {"made": self.made, "steps": plan.steps, "records": counts, "epsilon": plan.epsilon, "delta": plan.delta}
        return {**told, "key": self.key, "interrupted": self.interrupted}

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Steps, records and price."""
        assert self.plan.epsilon is not None
        assert self.plan.delta is not None
        counts = ", ".join(f"{count:,}" for count in self.plan.counts[: self.made])
        key = "kept for the next step" if self.key else "destroyed: no step can follow"
        return f"Series: {self.made} of {self.plan.steps} steps", {
            "records, by step": counts or "none yet",
            "guarantee of all steps": f"epsilon {exact(self.plan.epsilon)}, delta {exact(self.plan.delta)}, at most",
            "key": key,
            **({"interrupted": f"step {self.made + 1}: finish it with `resume`"} if self.interrupted else {}),
        }


def show(series: str | PathLike[str]) -> SeriesState:
    """Show how far a series is, by its certificates and, for its owner, its notes; nothing is verified or changed.

    Raises:
        InvalidInput: there is no series.
        StorageError: it can't be read.
    """
    folder, made = Path(series), 0
    plan: Plan | None = None
    while (place := place_of_step(folder, made + 1)).is_dir():
        plan, made = plan_from_dict(read_certificate(place)["plan"]), made + 1
    key = private_place(folder).exists() and (found := Series.find(folder)) is not None
    if plan is None and key:
        assert found is not None
        plan = found.first
    if not isinstance(plan, SeriesPlan):
        raise InvalidInput("series", str(folder), "the folder of a series")
    return SeriesState(plan, made, key, ReleaseRun.interrupted(place_of_step(folder, made + 1)) is not None)


def end(series: str | PathLike[str]) -> int:
    """End a series before its last step: its key is overwritten and removed, and no step can follow.

    The releases stay what they are; what was charged for all steps stays charged. That no copy of the key is left can
    be shown by nobody.

    Args:
        series: its folder.

    Returns:
        how many of its steps are released.

    Raises:
        InvalidInput: there is no series that goes on, or an interrupted step is there: finish or discard it first.
        StorageError: it can't be done.
    """
    folder = Path(series)
    found = Series.find(folder)
    if found is None:
        raise InvalidInput("series", str(folder), "the folder of one that goes on")
    found.reconcile()
    if ReleaseRun.interrupted(place_of_step(folder, found.made + 1)) is not None:
        raise InvalidInput("series", str(folder), f"one without an interrupted step: finish step {found.made + 1}")
    found.end()
    return found.made
