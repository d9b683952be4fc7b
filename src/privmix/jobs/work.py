"""State of a job: its key, its price, its plan, the readers of its records, and its result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from privmix.errors import StorageError
from privmix.jobs.budget import Charge
from privmix.mechanisms.plan import Plan
from privmix.mechanisms.run import Run
from privmix.mechanisms.streams import SecretStreams
from privmix.private_files import no_core_dumps
from privmix.world import World

J = TypeVar("J")
R = TypeVar("R")


class RunKey:
    """The key of one plan that is carried out: made once, when it is first needed, and gone when the job ends."""

    # `seed` is for tests. `run`: the id of the run that has the key on disk, where it served a private count.

    def __init__(self, seed: int | None) -> None:
        self._seed = seed
        self.used: bool = False
        self.run: str | None = None
        self._streams: SecretStreams | None = None

    def streams(self) -> SecretStreams:
        if self.used:
            raise RuntimeError("this key was used by another job already")
        if self._streams is None:
            # Before a key is in memory.
            no_core_dumps()
            seed = self._seed
            self._streams = SecretStreams.from_entropy() if seed is None else SecretStreams.from_seed(seed)
        return self._streams

    def end(self) -> None:
        self.used = True
        if self._streams is not None:
            self._streams.destroy()


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PlannedJob(ABC, Generic[J]):
    """A job that is planned: no private record was read for it, except what `earlier` paid for."""

    # `key`: of the one time that it is carried out; `world`: the processes that do it.
    job: J
    plan: Plan
    key: RunKey
    world: World = field(default_factory=World)
    earlier: tuple[Charge, ...] = ()

    @property
    @abstractmethod
    def count_is_private(self) -> bool:
        """Whether the real number of records is not to be shown."""


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
    """A job that is done: result, what it is, and the errors of charges that could not be noted as done."""

    result: R
    made: str
    not_noted: tuple[StorageError, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the owner, a sentence each."""
        return tuple(
            f"the {self.made} is made and charged, but the ledger does not list it as done: {one}"
            for one in self.not_noted
        )
