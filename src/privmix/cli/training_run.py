"""Run a training job for the command line: charge first, then read and train, in one process or several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import typer

from privmix.cli.app import err, plain
from privmix.cli.progress import progress_bars
from privmix.data import Source
from privmix.data.overlap import Contents
from privmix.errors import InvalidInput, StorageError, check_integer
from privmix.features import Extractor
from privmix.jobs.budget import Charge, charge
from privmix.jobs.columns import Columns
from privmix.jobs.dataset import Dataset
from privmix.jobs.features import features_in_memory, features_on_disk
from privmix.jobs.overlap import refuse_overlap
from privmix.jobs.places import check_writable
from privmix.mechanisms.plan import check_price
from privmix.mechanisms.streams import SecretStreams
from privmix.training import TrainedModel, TrainingJob, TrainingRecords, TrainingRun, read_run
from privmix.training.views.bank import extract_bank
from privmix.training.world import World

_GO, _FAILED = b"go", b"failed"
_HIGHEST_SEED: Final = 2**64 - 1


@dataclass(frozen=True)
class Order:
    """What a run reads, writes and charges."""

    data: str
    split: str
    out: Path
    store: Path | None
    ledger: str | None
    dataset: str | None
    seed: int | None
    resume: bool
    overwrite: bool
    bank: int
    dry_run: bool

    def opened(self, source: Source) -> Dataset:
        """The private dataset."""
        return Dataset(source, self.data, self.split, Columns())

    def check(self) -> None:
        """Raise where options don't go together or places can't be written; reads no data.

        Raises:
            InvalidInput: options don't go together.
            StorageError: a place can't be written.
        """
        if (self.ledger is None) != (self.dataset is None):
            raise InvalidInput("--ledger, --dataset", (self.ledger, self.dataset), "both or none of them")
        if self.seed is not None:
            check_integer("--seed", self.seed, low=0, high=_HIGHEST_SEED)
        if self.ledger is not None and self.seed is not None:
            raise InvalidInput(
                "--seed", self.seed, "no seed with --ledger: a model that anyone can re-create has no price"
            )
        if self.bank and self.store is not None:
            raise InvalidInput("--store", str(self.store), "none with --bank: its views are drawn anew for each run")
        for flag, place in (("--out", self.out.parent), ("--store", self.store)):
            if place is not None and not self.dry_run:
                check_writable(flag, place)


def run_job(
    job: TrainingJob,
    source: Source,
    extractor: Extractor,
    order: Order,
    world: World,
    public: Mapping[str, Contents] | None = None,
) -> TrainedModel:
    """Charge, read, train; processes beside the head read and compute, and neither charge nor write.

    Formal guarantees:
        * Paid first: no process reads a private row before the head has charged the cost.
        * Charged once: an interrupted run that goes on is not charged again, nor is a run of several processes.
        * Apart: ``public`` records that are the private ones end the run, after the charge and before it computes.
        * Together: where the head fails before the private phase, all processes end.
    """
    if not world.is_head:
        # Nothing private is read before the head has paid.
        _wait(world)
        with progress_bars(quiet=True) as progress:
            return job.run(_records(job, source, extractor, order, progress, world, None), world=world)
    with _others_wait(world):
        charged, streams = _prepared(job, order, source)
        refuse_overlap(public or {}, source)
        run = TrainingRun(
            order.out,
            job.settings(),
            streams=streams,
            extra={"reservation": charged.note(), "seed": order.seed},
            overwrite=order.overwrite,
            resume=order.resume,
        )
    with progress_bars(percent=job.plan.records_declared) as progress, run:
        found = _records(job, source, extractor, order, progress, world, run)
        made = job.run(found, run=run, reservation=charged.reserved, progress=progress, world=world)
    try:
        charged.done(f"model {made.certificate['model_id']}")
    except StorageError as error:
        err.print(
            f"[yellow]warning:[/] the model is written and charged, but not noted as done: {plain(error)}",
            soft_wrap=True,
        )
    return made


def _prepared(job: TrainingJob, order: Order, source: Source) -> tuple[Charge, SecretStreams | None]:
    """Charge the budget, or find that it was charged before; the streams of a seed."""
    TrainingRun.check_target(order.out, overwrite=order.overwrite)
    # A run that is to be discarded need not be readable.
    interrupted = None if order.overwrite and not order.resume else read_run(order.out)
    if interrupted is None:
        if order.resume:
            raise InvalidInput("--resume", True, "the --out of an interrupted run; there is none")
        check_price(job.plan)
        # Before the first private row is read: a crash from here on leaves the budget spent.
        event, relation = job.plan.event, job.plan.adjacency
        charged = charge(order.ledger, order.dataset, event, relation, "training", order.opened(source))
        return charged, None if order.seed is None else SecretStreams.from_seed(order.seed)
    if not order.resume:
        allowed = f"--resume or --overwrite: an interrupted run was making {order.out}"
        raise InvalidInput("--resume", False, allowed)
    TrainingRun.check_settings(interrupted, job.settings())
    _check_seed(interrupted, order)
    note = interrupted["extra"].get("reservation")
    return Charge.again(order.ledger, order.dataset, note, order.opened(source)), None


def _check_seed(interrupted: dict[str, Any], order: Order) -> None:
    """The run goes on with its own key, so another seed would be said and not used."""
    before = interrupted["extra"].get("seed")
    if before != order.seed:
        given = "no seed" if before is None else str(before)
        raise InvalidInput("--seed", order.seed, f"{given}, as in the interrupted run")


def _records(
    job: TrainingJob,
    source: Source,
    extractor: Extractor,
    order: Order,
    progress: Callable[[str, int, int], None],
    world: World,
    run: TrainingRun | None,
) -> TrainingRecords:
    """Read the private records: features in memory or in a store, or a bank of views."""
    classes, config = source.schema.num_classes, job.config
    if config.bank_views:
        bank = world.share_streams(None if run is None else run.streams.derive("view bank"))
        return extract_bank(source, extractor, config.bank_augmentations, config.bank_views, bank, progress)
    if order.store is None:
        found = features_in_memory(source, extractor, progress)
        return TrainingRecords.of(found.features, found.labels, classes=classes)
    if world.is_head:
        # One process writes the store, the others find it finished.
        with _others_wait(world):
            kept = features_on_disk(order.opened(source), extractor, order.store, progress)
    else:
        _wait(world)
        kept = features_on_disk(order.opened(source), extractor, order.store, progress)
    return TrainingRecords.of(kept.features, kept.labels, classes=classes)


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
    """Wait for the head; end without a message where it failed, for it gives one."""
    if world.share(b"") != _GO:
        raise typer.Exit(1)
