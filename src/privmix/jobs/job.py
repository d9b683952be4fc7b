"""The order of every job on private records: check, plan, open run, charge, read, compute, publish, note."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from privmix.accounting.api import epsilon
from privmix.accounting.events import Gaussian
from privmix.data.overlap import InputHashes, Sketch
from privmix.errors import InvalidInput, StorageError
from privmix.folders import no_core_dumps
from privmix.jobs.budget import (
    Charge,
    JobCost,
    Spending,
    charge,
    charged_note,
    check_budget,
    check_held,
    check_noted,
    new_note,
    telling,
)
from privmix.jobs.dataset import Dataset
from privmix.jobs.persons import PrivateColumns
from privmix.jobs.places import check_store, check_writable
from privmix.jobs.public_data import refuse_overlap
from privmix.ledger.ledger import Ledger
from privmix.mechanisms.plan import Plan, check_price
from privmix.mechanisms.run import Run
from privmix.mechanisms.run_folder import RunState
from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress, silent
from privmix.world import World

J = TypeVar("J")
P = TypeVar("P", bound="PlannedJob[Any]")
R = TypeVar("R")


@dataclass(eq=False, repr=False)
class RunKey:
    """The key of one plan that is carried out: made once, when it is first needed, and gone when the job ends."""

    # `seed` is for tests. `run`: the id of the run that has the key on disk, where it served a private count.
    seed: int | None
    used: bool = False
    run: str | None = None
    _streams: SecretStreams | None = None

    def streams(self) -> SecretStreams:
        # Two jobs under one key would add the same noise to different sums, whose difference would have none.
        if self.used:
            raise RuntimeError("this key was used by another job already")
        if self._streams is None:
            # Before a key is in memory.
            no_core_dumps()
            self._streams = SecretStreams.from_entropy() if self.seed is None else SecretStreams.from_seed(self.seed)
        return self._streams

    def end(self) -> None:
        self.used = True
        if self._streams is not None:
            self._streams.destroy()


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PlannedJob(Generic[J]):
    """A job that is planned: no private record was read for it, except what `earlier` paid for."""

    # `key`: of the one time that it is carried out; `world`: the processes that do it.
    job: J
    plan: Plan
    key: RunKey
    world: World = field(default_factory=World)
    earlier: tuple[Charge, ...] = ()

    @property
    def count_is_private(self) -> bool:
        """Whether the real number of records is not to be shown."""
        plan: Any = self.plan
        # A count of persons is not the number of their records.
        return plan.records_declared or plan.records_noise_multiplier is not None or plan.per_person is not None


@dataclass(frozen=True, eq=False)
class Work:
    """The tools of a job once its records may be read; `streams` are secret, None outside the head."""

    charged: Charge = field(default_factory=Charge)
    run: Run | None = None
    streams: SecretStreams | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing is left but to put the result in its place: no record is read for that."""
        return self.run is not None and self.run.complete


@dataclass(frozen=True)
class Done(Generic[R]):
    """The result of a job, and warnings for its owner of charges that could not be noted as done."""

    result: R
    warnings: tuple[str, ...] = ()


class RunArguments(TypedDict):
    """Arguments that open every run; see :class:`privmix.mechanisms.run.Run`."""

    streams: SecretStreams | None
    extra: Mapping[str, Any]
    overwrite: bool
    resume: bool


class Job(PrivateColumns, ABC, Generic[P, R]):
    """A job on one private dataset: plan it, then :meth:`carry_out` the plan.

    Each kind of job has a method that makes the plan (type P) from its options and public facts, after :meth:`check`.
    The kind comes before this class among the bases of a dataclass that has the options. It fills in steps,
    called in this order. Before the charge: ``check_options``, ``check_resumed``, ``cost``, ``called_public``,
    ``equip``, ``open_run``. The charge: ``charge``, ``extra``. After it: ``whose``, ``read``, ``compute`` (type R),
    ``settled``, ``noted``. Before it no value of a private record is used. Files are opened, counted and hashed, and
    hashes go to the ledger and the run alone.

    Formal guarantees:
        * Checked first: options that don't go together, places that can't be written and public data that can't be read
          are refused before anything is charged. So are plans that cost more than was asked.
        * Reserve before reading: the ledger is charged, durably, before the first private record is read. A charge that
          a budget does not hold is refused, and nothing was read.
        * One charge: a run is on disk before it is charged, under an id of its own. However it ends, it goes on, and is
          charged once; and only with the data that it began with. One whose records were refused before anything was
          drawn goes on with corrected ones, under a fresh key. A job without a place is charged again after a kill.
        * The charged data: files that are not those of the charge once they were read end the job.
        * One plan: what is charged, carried out and certified is the same plan, which this very job made, and it is
          carried out once.
        * One seed: a run goes on with the seed that it began with, or without one; none goes with a ledger.
        * Reported: an error after a charge states what was charged, what is left and how to go on: see
          :func:`privmix.jobs.budget.spent_of`.
        * Apart: public records that are private ones end the job, after the charge and before it computes.
        * Nothing for nothing: where nothing is charged for records, none is read, not even to compare it.
        * No core dumps: before a record or a key is in memory, dumps of it are forbidden.
        * The key ends with the job, however that ends; a run that others can go on with has its own, on disk.
        * Done is done: where the ledger can't note at the end what came of it, the result is there, and
          :attr:`Done.warnings` report it.
        * Together: of several processes the head alone is charged and has the key. The others read nothing before it
          has paid, and where it fails before, all end (:class:`privmix.errors.HeadFailed`).
    """

    made: ClassVar[str]
    """Its product: "release", "model"."""
    runs: ClassVar[type[Run] | None] = None
    """How that is made where it has a place; None: nothing of it is kept."""

    # Its options.
    epsilon: float
    delta: float
    ledger: str | Ledger | None
    dataset: str | None
    seed: int | None
    most_per_person: int | None = None
    out: Path | None = None
    store: str | Path | None = None
    overwrite: bool = False
    resume: bool = False
    dry_run: bool = False

    @property
    @abstractmethod
    def opened(self) -> Dataset:
        """The private dataset; opening it reads no record."""

    def check(self) -> None:
        """Raise where options do not go together or places cannot be written; reads no record."""
        made = f"{'an' if self.made[0] in 'aeiou' else 'a'} {self.made}"
        check_budget(self.ledger, self.dataset, self.seed, made, self.most_per_person)
        self.check_options()
        places = {"out": None if self.out is None else Path(self.out).parent, "store": self.store}
        for name, place in places.items():
            if place is not None and not self.dry_run:
                check_writable(name, Path(place))
        check_store(self.store)

    def left(self, own: str | None = None) -> RunState | None:
        """Return the interrupted run to resume, or None. `own`: the run that this job began itself."""
        if self.runs is None or self.out is None:
            return None
        state = self.runs.check(self.out, overwrite=self.overwrite, resume=self.resume, own=own)
        # A run resumes with its own key, so another seed would be stated and not used. A complete run that lost its
        # notes draws nothing.
        if state is not None and (state.extra or not state.complete):
            before = state.extra.get("seed")
            if before != self.seed:
                first = "no seed" if before is None else before
                raise InvalidInput("seed", self.seed, f"{first}, as in the interrupted run")
        return state

    def note(self, state: RunState | None, what: str = "reservation") -> Mapping[str, Any] | None:
        """Return the id of a charge, and whether it is made; None without a ledger."""
        if state is None:
            return new_note(self.dataset)
        note: Mapping[str, Any] | None = state.extra.get(what)
        check_noted(self.ledger, self.dataset, note)
        return note

    def charge(self, cost: JobCost, note: Mapping[str, Any] | None) -> Charge:
        """Charge it now, unless that was done under this id."""
        return charge(self.ledger, note, cost, self.opened, self.most_per_person)

    def carry_out(self, planned: P, progress: Progress = silent) -> Done[R]:
        """Charge, read, compute and publish; a plan is carried out once."""
        # A job charges no budget if the ledger lacks it, if the plan is another job's or used up, or if its place is
        # taken. The charge is spent if a record is refused, public records are private ones, or reading or writing
        # fails.
        if planned.job is not self:
            # Seed, target and ledger are those of the job that was checked.
            raise InvalidInput("planned", "another job's", "the plan that this job's `plan` returned")
        if planned.key.used:
            raise InvalidInput("planned", "used up", "a plan that was not carried out yet: call `plan` again")
        no_core_dumps()
        if not planned.world.is_head:
            planned.world.wait_for_head()
            # Without a run, a charge or a key: the head alone has these.
            return Done(self._computed(planned, Work(), silent))
        with telling(self.spending(planned)) as told, ExitStack() as ends:
            # The other processes read nothing before the head has paid, and end if it fails.
            with planned.world.others_wait():
                work = self._begin(planned, told, ends)
            result = self._computed(planned, work, progress, told)
        # Outside the block: the result is there and its charge stands, so a note that fails is a warning and no error.
        warnings = []
        for one in self.settled(planned, work.charged):
            try:
                one.done(self.noted(result))
            except StorageError as error:
                lost = f"the {self.made} is made and charged, but the ledger does not list it as done"
                warnings.append(f"{lost}: {error}")
        return Done(result, tuple(warnings))

    def _begin(self, planned: P, told: Spending, ends: ExitStack) -> Work:
        """Charge, and open the run, which ends with ``ends``."""
        # The last place before the charge to refuse a plan above its target.
        check_price(planned.plan)
        # Looked up again: since the plan was made, another process may have ended the run or begun one.
        state = self.left(planned.key.run)
        if state is not None:
            self.check_resumed(planned, state)
        cost, whole = self.cost(planned), state is not None and state.complete
        # Before the charge: public data that cannot be read then cost nothing.
        public, made_of = ({}, []) if cost is None or whole else self.called_public(planned)
        # Before the charge: a cluster that cannot be reached then costs nothing.
        if not whole:
            self.equip(planned, ends)
        # A complete run that lost its notes to a kill only needs its folder renamed.
        free = cost is None or (state is not None and whole and not state.extra)
        note, in_ledger = None if free else self.note(state), "none"
        if cost is not None and not free:
            new = state is None and note is not None and not note.get("charged", True)
            # A charge that was made is in the budget: to check it again would count it twice.
            in_ledger = check_held(self.ledger, self.dataset, cost if new else None, self.most_per_person)
        # Registered before the key is made: no error leaves it in memory.
        ends.callback(planned.key.end)
        streams, run = planned.key.streams() if state is None else None, None
        if self.out is not None:
            kept = {"reservation": note, "seed": self.seed} if state is None else dict(state.extra)
            given = RunArguments(streams=streams, extra=kept, overwrite=self.overwrite, resume=state is not None)
            # The id of the charge is on disk before the charge: after a kill in between, it is made once.
            run = ends.enter_context(self.open_run(planned, in_ledger, given))
            if state is not None and run.id != state.id:
                # Neither its charge nor its records were looked at.
                raise StorageError(
                    "out: another run replaced the interrupted one meanwhile; this one stopped and changed no file"
                )
            streams = None if run.complete else run.streams
            # If records are refused as it is charged again, corrected records may finish it, too.
            run.paid = state is not None and note is not None and note.get("charged", True)
        charged = Charge()
        if cost is not None and not free:
            # Before the first private row is read: a crash from here on leaves the budget spent.
            told.asked = self.dataset
            # `asked` is set first: after a lost connection the charge may be made or not.
            charged = self.charge(cost, note)
            # Until here a private count alone was spent.
            if state is None or planned.key.run is not None:
                told.epsilon = cost.epsilon
        if cost is not None:
            told.charged, told.run = charged, run
        if run is not None and not whole:
            # After a refusal, only a run that was paid for is kept.
            run.paid = charged.reservation is not None or bool(planned.earlier)
            run.bind_steps = charged.bind_steps
            run.note(reservation=charged_note(note), **self.extra(planned))
        # After the charge: the comparison reads private records.
        refuse_overlap(public, self.opened.source, made_of, self.whose)
        work = Work(charged, run, streams)
        if work.complete and planned.world.size > 1:
            raise InvalidInput("resume", True, "one process: this run only has to be moved to its folder")
        return work

    def _computed(self, planned: P, work: Work, progress: Progress, told: Spending | None = None) -> R:
        found = None
        if not work.complete:
            found = self.read(planned, work, progress)
            # After reading: a file may have changed since it was hashed.
            self.opened.check_charged(work.charged.files)
        # Without a run, nothing on disk shows whether noise was drawn: count it as drawn.
        if told is not None and work.run is None:
            told.drawn = True
        return self.compute(planned, work, found, progress)

    def check_options(self) -> None:
        """Raise :class:`InvalidInput` where options do not go together; called by :meth:`check`."""

    def spending(self, planned: P) -> Spending:
        """Return the cost to report before the job itself is charged."""
        if planned.earlier:
            plan: Any = planned.plan
            return self.count_spending(plan.records_noise_multiplier, planned.earlier[0])
        cost = self.cost(planned)
        return Spending(0.0, 0.0) if cost is None else Spending(cost.epsilon, cost.delta, self.left_over)

    def count_spending(self, noise_multiplier: float | None, counted: Charge | None) -> Spending:
        """Return the same where a private count was drawn for it."""
        if counted is None or self.resume:
            return Spending(self.epsilon, self.delta, self.left_over)
        assert noise_multiplier is not None
        price = epsilon(Gaussian(noise_multiplier), self.delta).epsilon
        return Spending(price, self.delta, self.left_over, counted, drawn=True)

    def left_over(self) -> RunState | None:
        """Return the run at the job's place that can be resumed, whether or not this job began it."""
        return None if self.runs is None or self.out is None else self.runs.interrupted(self.out)

    def check_resumed(self, planned: P, state: RunState) -> None:
        """Raise :class:`InvalidInput` unless an interrupted run is the one that was planned."""

    def equip(self, planned: P, ends: ExitStack) -> None:
        """Have what the work needs of other machines, until ``ends``; raise where that is not there. Reads nothing."""

    @abstractmethod
    def cost(self, planned: P) -> JobCost | None:
        """Return the charge, or None where no private record is read."""

    def called_public(self, planned: P) -> tuple[Mapping[str, InputHashes], Iterable[tuple[str, Sketch]]]:
        """Return what is called public and must not be the private data."""
        return {}, []

    def whose(self) -> NDArray[np.int64] | None:
        """(n,) whose each private record is, where persons are the unit; else None. Read after the charge; secret."""
        return self.persons.read(self.opened) if self.of_persons else None

    def extra(self, planned: P) -> dict[str, Any]:
        """Return notes that a run keeps with its charge and seed, once it is charged."""
        return {}

    def open_run(self, planned: P, in_ledger: str, given: RunArguments) -> Run:
        """Return the run at ``out``, which is to be charged; ``in_ledger`` is how its budget counts."""
        raise NotImplementedError

    @abstractmethod
    def read(self, planned: P, work: Work, progress: Progress) -> Any:
        """Read the private records; None where nothing is charged for any."""

    @abstractmethod
    def compute(self, planned: P, work: Work, records: Any, progress: Progress) -> R:
        """Return the result, made of the records and published; records are None where none are needed."""

    def settled(self, planned: P, charged: Charge) -> Sequence[Charge]:
        """Return the charges that are used up once it is done."""
        return (*planned.earlier, charged)

    @abstractmethod
    def noted(self, result: R) -> str:
        """As the ledger is to note it."""
