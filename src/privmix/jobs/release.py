"""One release, from a dataset and a budget to a folder, in the order that makes its certificate true."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from privmix.accounting import Adjacency, Bounded, Event, Gaussian
from privmix.data import FeatureStore
from privmix.data.overlap import Contents
from privmix.designs import Plan
from privmix.designs.pricing import budget_after_count
from privmix.errors import WITHHELD, InvalidInput, StorageError
from privmix.features import Extractor
from privmix.jobs.budget import Charge, charge
from privmix.jobs.dataset import Dataset
from privmix.jobs.features import features_in_memory, features_on_disk
from privmix.jobs.overlap import refuse_overlap
from privmix.mechanisms.plan import check_price
from privmix.release import (
    Choice,
    PrivateRecords,
    ReleaseConfig,
    Run,
    RunState,
    SecretStreams,
    open_run,
    read_run,
)
from privmix.release.count import private_record_count
from privmix.release.engine import Progress, default_memory


@dataclass(frozen=True)
class Chosen:
    """What the planner found, from public facts.

    Attributes:
        choice: every design's prediction, and the best.
        picture: of them, as SVG.
        public: the public records that it looked at, by the option that named them.
    """

    choice: Choice
    picture: bytes
    public: Mapping[str, Contents]


@dataclass(frozen=True)
class Planned:
    """A release that is planned: no private record was read, but for a private count, which is paid for.

    Attributes:
        plan: public.
        chosen: how the planner came to it; None where the user chose.
        engine: where it runs.
    """

    plan: Plan
    chosen: Chosen | None
    engine: str
    _state: RunState | None = field(default=None, repr=False)
    _streams: SecretStreams | None = field(default=None, repr=False)
    _counted: Charge = field(default_factory=Charge, repr=False)
    _identity: dict[str, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Released:
    """A release that is done.

    Attributes:
        certificate: as it is in the folder.
        not_noted: why a charge of it could not be noted as done, though it was made; one error each.
    """

    certificate: dict[str, Any]
    not_noted: tuple[StorageError, ...]


@dataclass(frozen=True)
class ReleaseJob:
    """A release of one private dataset: :meth:`plan` it, then :meth:`release` it.

    Formal guarantees:
        * reserve before reading: the ledger is charged, durably, before the first private record is used; a private
          count is a charge of its own, before it is drawn;
        * one charge: a run that goes on after a kill is not charged again, and only with the data, split and columns
          that it began with;
        * one plan: what is charged, released and certified is the same plan.

    Attributes:
        data: the private dataset, opened for the extractor.
        extractor: public.
        config: what the release is to be; its record count is a stand-in where the count is private.
        epsilon, delta: the target.
        out: the folder that is made.
        ledger, dataset: the budget that pays, or None of both.
        private_count: estimate the record count, and pay for that.
        choose: asks the planner, given the configuration; None takes that as it is.
        rows: as declared; the planner's own choice of rows where None.
        store: where features are kept and reused, in the clear; None keeps none.
        engine, memory_gb, workers, address: of :meth:`privmix.release.Run.release`.
        seed: for tests and benchmarks; takes the privacy away.
        overwrite, resume: of :func:`privmix.release.open_run`.
    """

    data: Dataset
    extractor: Extractor
    config: ReleaseConfig
    epsilon: float
    delta: float
    out: Path
    ledger: str | None = None
    dataset: str | None = None
    private_count: bool = False
    choose: Callable[[ReleaseConfig], Chosen] | None = None
    rows: int | None = None
    store: Path | None = None
    engine: str = "local"
    memory_gb: float | None = None
    workers: int | None = None
    address: str | None = None
    seed: int | None = None
    overwrite: bool = False
    resume: bool = False

    def plan(self, state: RunState | None) -> Planned:
        """Make the plan from public facts; ``state`` is that of the run to resume, from :func:`interrupted`."""
        identity = None
        if state is not None and state.extra:
            # What was paid for is a release of the data that the run began with: before the ledger notes any other.
            identity = self.data.identity()
            if state.extra.get("data") != identity:
                raise InvalidInput("resume", WITHHELD, "the records of the interrupted run: its data, split, columns")
        streams = None if self.resume else _streams(self.seed)
        config, counted, chosen, engine = self.config, Charge(), None, self.engine
        if self.private_count:
            # A plan with some noise shows what no plan would be made of, before the count is paid for.
            config.with_noise(1.0)
            count, counted = self._count(streams, state)
            config = replace(config, records=count)
        if self.choose is not None:
            chosen = self.choose(config)
            best = chosen.choice.best.config
            config = best if self.rows is None else replace(best, rows=self.rows)
            # Moments need no cluster, and whoever lets the planner choose does not choose against it.
            engine = engine if engine in config.design.engines else "local"
        return Planned(config.calibrate(self.epsilon, self.delta), chosen, engine, state, streams, counted, identity)

    def release(self, planned: Planned, progress: Progress) -> Released:
        """Charge, read, release and publish; what is planned is used up by it."""
        plan, state, chosen = planned.plan, planned._state, planned.chosen
        check_price(plan)
        # Before the first private row is read: a crash from here on leaves the budget spent.
        if self.resume:
            charged = self._charged_before(state, "reservation")
        else:
            charged = self._charge(self._rest(plan), plan.adjacency, "release")
        refuse_overlap({} if chosen is None else chosen.public, self.data.source)
        identity = planned._identity or self.data.identity()
        with open_run(
            self.out,
            plan,
            extractor=self.extractor.spec(),
            input_shape=self.data.schema.input_shape,
            reservation=charged.reserved,
            choice=None if chosen is None else chosen.choice.to_dict(),
            picture=None if chosen is None else chosen.picture,
            streams=planned._streams,
            extra={"reservation": charged.note(), "count": planned._counted.note(), "data": identity},
            overwrite=self.overwrite,
            resume=self.resume,
        ) as run:
            found = None if run.complete else self._records(run, progress)
            certificate = run.release(
                found,
                engine=planned.engine,
                memory_gb=self.memory_gb,
                workers=self.workers,
                address=self.address,
                progress=progress,
            )
        return Released(certificate, _note_done((planned._counted, charged), f"release {certificate['release_id']}"))

    def _rest(self, plan: Plan) -> Event:
        """What to charge for the release: its event, or the budget that it was planned for with a private count."""
        if plan.records_noise_multiplier is None:
            return plan.event
        rest = budget_after_count(plan.records_noise_multiplier, self.epsilon, self.delta)
        return Bounded(*rest, plan.adjacency.value)

    def _charge(self, event: Event, adjacency: Adjacency, purpose: str) -> Charge:
        return charge(self.ledger, self.dataset, event, adjacency, purpose, self.data)

    def _count(self, streams: SecretStreams | None, state: RunState | None) -> tuple[int, Charge]:
        """An estimate of the private record count to plan with, and what that was charged."""
        if state is not None:
            # A second estimate would be a second query.
            return state.records, self._charged_before(state, "count")
        assert streams is not None
        assert self.config.records_noise_multiplier is not None
        noise = self.config.records_noise_multiplier
        charged = self._charge(Gaussian(noise), Adjacency.ADD_REMOVE, "private record count")
        return private_record_count(self.data.schema.records, noise, streams), charged

    def _charged_before(self, state: RunState | None, what: str) -> Charge:
        """What an interrupted run was charged."""
        assert state is not None
        if state.complete and not state.extra:
            # The kill came after its notes were removed; all that is left is to rename a folder.
            return Charge()
        return Charge.again(self.ledger, self.dataset, state.extra.get(what), self.data)

    def _records(self, run: Run, progress: Progress) -> PrivateRecords | FeatureStore:
        """Features, on disk where asked for or where they would fill the memory."""
        schema = self.data.schema
        large = 4 * schema.records * self.extractor.output_dim(schema.input_shape) > default_memory() / 2
        if self.store is None and not large:
            return features_in_memory(self.data.source, self.extractor, progress)
        place = self.store or run.features_folder
        return features_on_disk(self.data, self.extractor, place, progress)


def interrupted(out: Path, *, resume: bool, overwrite: bool) -> RunState | None:
    """The run to resume; None where a new one is to begin."""
    state = None if overwrite and not resume else read_run(out)
    if state is not None and not resume:
        raise InvalidInput("resume", False, f"`resume` or `overwrite`: an interrupted run was making {out}")
    if state is None and resume:
        raise InvalidInput("resume", True, "the `out` of an interrupted run; there is none")
    return state


def _streams(seed: int | None) -> SecretStreams:
    return SecretStreams.from_entropy() if seed is None else SecretStreams.from_seed(seed)


def _note_done(charges: tuple[Charge, ...], result: str) -> tuple[StorageError, ...]:
    """Note them as done; the budget was charged before, so that what can go wrong is a missing note."""
    errors = []
    for one in charges:
        try:
            one.done(result)
        except StorageError as error:
            errors.append(error)
    return tuple(errors)
