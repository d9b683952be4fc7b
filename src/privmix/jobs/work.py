"""What a job has in its hands: its key, its price, its plan, what its records are read with, and what came of it."""

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


class Key:
    """The key of one plan that is carried out: made when it is first needed, gone when the job ends, and made once.

    Args:
        seed: of tests and benchmarks; None: from the operating system's entropy.

    Attributes:
        run: the id of the run that has it on disk, where it served a private count.

    Example:
        >>> key = Key(None)
        >>> streams = key.streams()
        >>> key.end()
        >>> streams.live, key.used
        (False, True)
    """

    def __init__(self, seed: int | None) -> None:
        self._seed, self.used = seed, False
        self.run: str | None = None
        self._streams: SecretStreams | None = None

    def streams(self) -> SecretStreams:
        """The one key's streams."""
        if self.used:
            raise RuntimeError("this key has served its job")
        if self._streams is None:
            # Before a key is in memory.
            no_core_dumps()
            seed = self._seed
            self._streams = SecretStreams.from_entropy() if seed is None else SecretStreams.from_seed(seed)
        return self._streams

    def end(self) -> None:
        """Overwrite it."""
        self.used = True
        if self._streams is not None:
            self._streams.destroy()


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PlannedJob(ABC, Generic[J]):
    """A job that is planned: no private record was read for it, but for what ``earlier`` paid for.

    Attributes:
        job: that it is of.
        plan: public; what is charged, carried out and certified.
        key: of the one time that it is carried out.
        world: the processes that do it.
        earlier: what was charged for planning it.
    """

    job: J
    plan: Plan
    key: Key
    world: World = field(default_factory=World)
    earlier: tuple[Charge, ...] = ()

    @property
    @abstractmethod
    def count_is_private(self) -> bool:
        """Whether the real number of records is not to be shown."""


@dataclass(frozen=True, eq=False)
class Work:
    """What a job has in its hands once its records may be read.

    Attributes:
        charged: for it.
        run: where it is carried out, if it has a place.
        streams: its secret ones; None beside the head, and where a run has only to be put in its place.
    """

    charged: Charge = field(default_factory=Charge)
    run: Run | None = None
    streams: SecretStreams | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing is left but to put the result in its place: no record is read for that."""
        return self.run is not None and self.run.complete


@dataclass(frozen=True)
class Done(Generic[R]):
    """A job that is done.

    Attributes:
        result: of it.
        made: what that is.
        not_noted: why a charge for it could not be noted as done, though it was made; one error each.
    """

    result: R
    made: str
    not_noted: tuple[StorageError, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What its owner should know, a sentence each."""
        return tuple(f"the {self.made} is made and charged, but not noted as done: {one}" for one in self.not_noted)
