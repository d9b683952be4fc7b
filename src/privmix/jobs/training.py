"""One DP-SGD training, from a dataset and a budget to a model, in the order that makes its certificate true."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Unpack

from privmix.data import Source
from privmix.data.overlap import Sketch
from privmix.errors import InvalidInput, PrivmixError, StorageError, in_terms_of
from privmix.features import Extractor, parse_features
from privmix.jobs.arguments import TrainingArguments
from privmix.jobs.budget import Charge, charge
from privmix.jobs.checks import check_budget, check_device, check_same_seed
from privmix.jobs.columns import Columns
from privmix.jobs.dataset import Dataset, open_dataset
from privmix.jobs.features import features_in_memory, features_on_disk
from privmix.jobs.models import Model
from privmix.jobs.overlap import refuse_overlap
from privmix.jobs.places import check_writable
from privmix.jobs.planned_training import PlannedTraining
from privmix.jobs.progress import Asked, Progress, callback, shows_bars, silent
from privmix.jobs.public_data import contents_of, named, origins_of, pool_options, refuse_private, sources_of
from privmix.jobs.spending import Spending, telling
from privmix.jobs.training_options import TrainingOptions
from privmix.mechanisms.plan import check_price
from privmix.mechanisms.streams import SecretStreams
from privmix.options import names_of
from privmix.private_files import no_core_dumps
from privmix.training import (
    ModelFacts,
    PublicData,
    TrainedModel,
    Trainer,
    TrainingConfig,
    TrainingRecords,
    TrainingRun,
)
from privmix.training.shared_streams import share_streams
from privmix.training.views.bank import extract_bank
from privmix.world import World, current_world

_GO, _FAILED = b"go", b"failed"
_SHARED: Final = ("pool", "public", "synthetic")
_NAMES: Final = names_of(TrainingConfig)


class HeadFailed(PrivmixError):
    """The first of several processes failed, and says why; the others end."""


@dataclass(frozen=True)
class Trained:
    """A training that is done.

    Attributes:
        model: with its certificate.
        not_noted: why the charge for it could not be noted as done, though it was made.
    """

    model: TrainedModel
    not_noted: StorageError | None = None


@dataclass(frozen=True, eq=False)
class TrainingJob(TrainingOptions):
    """A training on one private dataset: join its :meth:`processes`, :meth:`plan` it, then :meth:`train`.

    Formal guarantees:
        * Paid first: no process reads a private row before the head has charged the cost, durably.
        * Charged once: an interrupted run that goes on is not charged again, nor is a run of several processes; one
          whose records were refused before anything was drawn goes on with mended ones, under a fresh key.
        * Told: an error after the charge says what was charged, what is left and how to go on (:class:`Spent`).
        * Checked first: options that don't go together, places that can't be written, models that mix records and
          budgets that no noise meets are refused before anything is charged.
        * Apart: public records that are private ones end the run, after the charge and before it computes.
        * Nothing for nothing: with epsilon 0 no private record is read, not even to compare it with public ones.
        * Together: where the head fails before the private phase, all processes end.
    """

    @cached_property
    def extractor(self) -> Extractor:
        """The public extractor."""
        return parse_features(self.features)

    @cached_property
    def opened(self) -> Dataset:
        """The dataset; opening it reads no record."""
        return open_dataset(self.data, self.extractor, split=self.split, classes=self.classes, columns=self.columns)

    @cached_property
    def facts(self) -> ModelFacts:
        """Public facts of the dataset."""
        schema, extractor = self.opened.schema, self.extractor
        shape = tuple(schema.input_shape)
        return ModelFacts(tuple(schema.classes), extractor.spec(), shape, extractor.output_dim(shape))

    @property
    def _shared(self) -> dict[str, Any]:
        """What is called public, by the option that names it."""
        return {name: getattr(self, name) for name in _SHARED}

    @cached_property
    def _opened_public(self) -> dict[str, Source]:
        """The same, opened."""
        return sources_of(self._shared, self.extractor, self.facts, self.columns)

    @cached_property
    def _origins(self) -> list[tuple[str, Sketch]]:
        """What public data were made of, where they are synthetic."""
        return origins_of(self._opened_public)

    def check(self) -> None:
        """Raise where options don't go together or places can't be written; reads no record.

        Raises:
            InvalidInput: options don't go together, or are not for this machine.
            StorageError: a place can't be written.
        """
        check_budget(self.ledger, self.dataset, self.seed, "a model")
        if self.epsilon == 0:
            self._check_without_steps()
        if self.given.get("bank") and self.store is not None:
            raise InvalidInput("store", str(self.store), "none with `bank`: its views are drawn anew for each run")
        if self.out is None and self.resume:
            raise InvalidInput("resume", True, "the `out` of an interrupted run")
        for name, place in (("out", None if self.out is None else Path(self.out).parent), ("store", self.store)):
            if place is not None and not self.dry_run:
                check_writable(name, Path(place))
        check_device(self.device)
        refuse_private(self._shared, self.data, self.split)

    def _check_without_steps(self) -> None:
        """Raise :class:`InvalidInput` where an option is for private records, of which none is read."""
        given = {"ledger": None if self.ledger is None else "a ledger", "seed": self.seed, "store": self.store}
        for name, value in given.items():
            if value is not None:
                raise InvalidInput(name, value, "none with `epsilon` 0, for which no private record is read")

    def processes(self) -> AbstractContextManager[World]:
        """The processes that do it: each of several has its own CUDA device from here on; a plan alone needs one."""
        return nullcontext(World()) if self.dry_run else current_world(self.device)

    @in_terms_of(_NAMES)
    def plan(self, world: World) -> PlannedTraining:
        """Check everything, and make the plan from public facts.

        Raises:
            InvalidInput: as :meth:`check`; or settings, data and public data do not fit, or no noise meets the budget.
            StorageError, MissingExtra: something can't be read.
        """
        self.check()
        facts = self.facts
        records = self.opened.schema.records if self.records is None else self.records
        trainer = Trainer(
            self.config(facts, records),
            facts,
            records,
            pool=self._public("pool"),
            public=self._public("public"),
            synthetic=self._public("synthetic"),
            records_declared=self.records is not None,
            device=self.device,
        )
        trainer.check_world(world)
        # A card that can't be read is found before anything is paid for.
        _ = self._origins
        return PlannedTraining(self, trainer, world)

    @in_terms_of(_NAMES)
    def train(self, planned: PlannedTraining, progress: Progress = silent) -> Trained:
        """Charge, read, train and publish; what is planned is used up by it.

        Raises:
            BudgetExceeded: the ledger does not hold it; nothing was read.
            InvalidInput: what is planned is another job's: nothing is charged then. Or records are not as declared, or
                public records are private ones: what was charged is spent.
            StorageError: reading or writing failed. What was charged is spent; ``resume`` finishes the run.
            HeadFailed: in the processes beside the head.
        """
        if planned.job is not self:
            # Seed and ledger are those of the job that was checked.
            raise InvalidInput("planned", "another job's", "what `plan` of this job gave")
        # Before a record or a key is in memory, and not only once it trains.
        no_core_dumps()
        trainer, world = planned.trainer, planned.world
        if trainer.plan.steps == 0:
            return self._warmed_up(trainer, progress)
        if not world.is_head:
            # Nothing private is read before the head has paid.
            _wait(world)
            return Trained(trainer.run(self._records(planned, None, silent), world=world))
        with telling(Spending(self.epsilon, self.delta)) as told:
            return self._head(planned, told, progress)

    def _head(self, planned: PlannedTraining, told: Spending, progress: Progress) -> Trained:
        """What the first process does, or the only one."""
        trainer, world = planned.trainer, planned.world
        with _others_wait(world):
            shared, made_of = contents_of(self._opened_public), self._origins
            charged, streams = self._charged(trainer)
            told.charged = None if self.resume else charged
            refuse_overlap(shared, self.opened.source, made_of)
            run = told.run = self._run(trainer, charged, streams)
            told.charged = charged
            if run is not None and run.complete:
                with run:
                    self._check_alone(world)
                    return self._noted(charged, trainer.run(None, run=run))
        with _ended(streams) if run is None else run:
            streams = streams if run is None else run.streams
            found = self._records(planned, streams, progress)
            told.drawn = run is None
            made = trainer.run(
                found,
                run=run,
                streams=streams,
                reservation=charged.reserved,
                progress=progress,
                world=world,
            )
        return self._noted(charged, made)

    def _warmed_up(self, trainer: Trainer, progress: Progress) -> Trained:
        """The model that public data make; no private record is read."""
        state = None
        if self.out is not None:
            state = TrainingRun.check(self.out, overwrite=self.overwrite, resume=self.resume)
        if state is not None:
            TrainingRun.check_settings(state, trainer.settings())
        streams = SecretStreams.from_entropy() if state is None else None
        run = self._run(trainer, Charge(), streams)
        with _ended(streams) if run is None else run:
            return Trained(trainer.run(None, run=run, streams=None if run else streams, progress=progress))

    @staticmethod
    def _noted(charged: Charge, made: TrainedModel) -> Trained:
        try:
            charged.done(f"model {made.certificate.id}")
        except StorageError as error:
            return Trained(made, error)
        return Trained(made)

    @staticmethod
    def _check_alone(world: World) -> None:
        """Of a complete run nothing is left but to put the model in its place."""
        if world.size > 1:
            raise InvalidInput("resume", True, "one process for this run, which only has to be put in its place")

    def _charged(self, trainer: Trainer) -> tuple[Charge, SecretStreams | None]:
        """Charge the budget, or find that it was charged before; the streams of a new run."""
        state = None
        if self.out is not None:
            state = TrainingRun.check(self.out, overwrite=self.overwrite, resume=self.resume)
        if state is None:
            check_price(trainer.plan)
            # Before the first private row is read: a crash from here on leaves the budget spent.
            event, adjacency = trainer.plan.event, trainer.plan.adjacency
            charged = charge(self.ledger, self.dataset, event, adjacency, "training", self.opened)
            return charged, SecretStreams.from_entropy() if self.seed is None else SecretStreams.from_seed(self.seed)
        TrainingRun.check_settings(state, trainer.settings())
        if state.complete and not state.extra:
            # The kill came after the key was gone: all that is left is to rename a folder.
            return Charge(), None
        check_same_seed(state, self.seed)
        return Charge.again(self.ledger, self.dataset, state.extra.get("reservation"), self.opened), None

    def _run(self, trainer: Trainer, charged: Charge, streams: SecretStreams | None) -> TrainingRun | None:
        if self.out is None:
            return None
        return TrainingRun(
            self.out,
            trainer.settings(),
            streams=streams,
            extra={"reservation": charged.note(), "seed": self.seed},
            overwrite=self.overwrite,
            resume=self.resume,
            paid=charged.reservation is not None,
        )

    def _public(self, name: str) -> PublicData | None:
        """Public labelled examples, read as the private ones are."""
        data, facts = getattr(self, name), self.facts
        if data is None:
            return None
        with named(name):
            options = pool_options(self.extractor, self.columns)
            return PublicData.open(data, self.extractor, facts.classes, input_shape=facts.input_shape, **options)

    def _records(self, planned: PlannedTraining, streams: SecretStreams | None, progress: Progress) -> TrainingRecords:
        """Read the private records: features in memory or in a store, or a bank of views."""
        world, config, source = planned.world, planned.trainer.config, self.opened.source
        classes = source.schema.num_classes
        if config.bank_views:
            bank = share_streams(world, None if streams is None else streams.derive("view bank"))
            return extract_bank(source, self.extractor, config.bank_augmentations, config.bank_views, bank, progress)
        if self.store is None:
            found = features_in_memory(source, self.extractor, progress)
            return TrainingRecords.of(found.features, found.labels, classes=classes)
        if world.is_head:
            # One process writes the store, the others find it finished.
            with _others_wait(world):
                kept = features_on_disk(self.opened, self.extractor, Path(self.store), progress)
        else:
            _wait(world)
            kept = features_on_disk(self.opened, self.extractor, Path(self.store), progress)
        return TrainingRecords.of(kept.features, kept.labels, classes=classes)


@shows_bars
def train(
    data: Any,
    *,
    epsilon: float,
    delta: float,
    columns: Columns | str | Sequence[str] | None = None,
    label: str | None = None,
    progress: Asked = None,
    **options: Unpack[TrainingArguments],
) -> Model:
    """Train a private model with DP-SGD: mixup, augmentation, public data.

    The plan (batches, steps, noise) is made from public facts before any private record is read, and one plan serves
    the sampler, the noise and the accountant. With ``ledger`` and ``dataset`` the budget is charged before that, too.

    Args:
        data: private records: file, folder, pattern or address; ``(x, y)`` with ``classes=``, a frame or a Dataset.
        epsilon, delta: the target.
        columns: names of the columns of numbers, or :class:`privmix.Columns`.
        label: the labels' column.
        progress: called with (stage, done, total), or True for bars.
        options: fields of :class:`privmix.jobs.training_options.TrainingOptions`, such as ``features``, ``model``,
            ``classes``, ``views="dp-mix-self"``, ``out`` (a folder to write; ``resume`` finishes an interrupted run) or
            ``ledger`` and ``dataset``. In place of single options a whole config is taken, such as
            ``optimiser=OptimiserConfig(...)`` or ``views=ViewConfig(...)``:
            :class:`privmix.training.config.TrainingConfig` says which there are.

    Returns:
        a model that takes raw inputs and has its ``certificate``; without ``out`` it is in memory until it is saved.

    Raises:
        InvalidInput: options don't go together, the data are not as declared, or no noise meets the budget.
        BudgetExceeded: the ledger does not hold it; nothing was read.
        StorageError: reading or writing failed.

    Example:
        >>> import numpy as np
        >>> x = np.random.default_rng(0).normal(size=(400, 4))
        >>> y = (x[:, 0] > 0).astype(int)
        >>> model = train((x, y), epsilon=8.0, delta=1e-4, classes=range(2), features="identity", epochs=5)
        >>> model.certificate["guarantee"]["epsilon"] <= 8.0, model.predict(x).shape
        (True, (400,))
    """
    given: dict[str, Any] = dict(options)
    if given.pop("dry_run", False):
        raise InvalidInput("dry_run", True, "False: a plan alone is made by TrainingJob.plan")
    known = [item.name for item in fields(TrainingOptions)]
    if unknown := sorted(set(given) - set(known)):
        raise TypeError(f"{', '.join(unknown)}: no argument of a training; there are {', '.join(known)}")
    for name in ("out", "store"):
        if given.get(name) is not None:
            given[name] = Path(given[name])
    job = TrainingJob(data, epsilon, delta, columns=Columns.declared(columns, label), **given)
    with job.processes() as world:
        done = job.train(job.plan(world), callback(progress))
    if done.not_noted is not None:
        warnings.warn(f"the model is charged, but not noted as done: {done.not_noted}", stacklevel=3)
    model = Model(done.model)
    # The user's own, whose model may lie where a certificate may not point.
    model.__dict__["extractor"] = job.extractor
    return model


@contextmanager
def _ended(streams: SecretStreams | None) -> Iterator[None]:
    """The key ends with the block, however that ends."""
    try:
        yield
    finally:
        if streams is not None:
            streams.destroy()


@contextmanager
def _others_wait(world: World) -> Iterator[None]:
    """The head's part of :func:`_wait`: the others go on after the block, or end where it fails."""
    try:
        yield
    except Exception:
        world.share(_FAILED)
        raise
    world.share(_GO)


def _wait(world: World) -> None:
    """Wait for the head; end where it failed."""
    if world.share(b"") != _GO:
        raise HeadFailed("the first process failed, and says why")
