"""Passes over private records: what each record adds to which exact sums, and where such a pass is carried out.

A design says what a pass is: the sums that it begins with, and what the records of a tile add to them. Sums are whole
numbers, so they may be made in parts, on whatever machine, and merged in whatever order, to the same bits. Noise is no
part of a pass: it is added once, by the engine that asked for the sums.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from privmix.engine.records import RecordTiles, cores, record_tiles
from privmix.engine.rows import default_memory
from privmix.engine.tiles import TileReader
from privmix.errors import WITHHELD, InvalidInput
from privmix.plans import BasePlan
from privmix.progress import Progress

EXACT_FLOAT64: Final = 2**53


class Sums(Protocol):
    """Exact sums over some records. Secret."""

    def merge(self, other: Self) -> None:
        """Add the sums over other records, as if these had been added here.

        Raises:
            InvalidInput: sums could leave the range of exact integers.
        """


AnySums = TypeVar("AnySums", bound=Sums)


class Pass(ABC, Generic[AnySums]):
    """What is summed in one pass over the records: a function of the records and of released numbers. It travels.

    Attributes:
        stage: what progress calls it.
    """

    stage: ClassVar[str]

    @abstractmethod
    def empty(self) -> AnySums:
        """Sums over no record."""

    @abstractmethod
    def add(self, reader: TileReader, index: int, sums: AnySums, done: Callable[[int], None]) -> None:
        """Add the records of a tile; ``done`` is called with how many of them are in."""


class Passes(ABC):
    """Carries out passes over the records of one release. Secret.

    Attributes:
        reader: reads the records here.

    Args:
        plan: the public plan.
        records: the private records.
        workers: threads that clip records; None uses every core.

    Raises:
        InvalidInput: the records don't fit the plan, or a label is none of its classes.
    """

    def __init__(self, plan: BasePlan, records: RecordTiles, *, workers: int | None) -> None:
        self.reader = TileReader(plan, records, workers=workers or cores())
        self.reader.check_labels()

    @contextmanager
    def open(self) -> Iterator[None]:
        """Be ready for passes while the block lasts."""
        yield

    @abstractmethod
    def over(self, one: Pass[AnySums], tell: Progress) -> AnySums:
        """The sums of a pass over all records."""


class PassMaker(Protocol):
    """Where passes are carried out, before it is known of which records."""

    def passes(self, plan: BasePlan, records: RecordTiles, *, workers: int | None) -> Passes:
        """Passes over these records."""

    def memory(self) -> int:
        """Bytes that the sums of a pass may take where nobody said."""


class LocalPasses(Passes):
    """Passes on this machine, tile by tile."""

    def over(self, one: Pass[AnySums], tell: Progress) -> AnySums:
        """See :meth:`Passes.over`."""
        sums, before, count = one.empty(), 0, self.reader.records.count
        for index in range(record_tiles(self.reader.records)):
            one.add(self.reader, index, sums, partial(_tell_more, tell, one.stage, before, count))
            before += self.reader.records.length(index)
        return sums


def _tell_more(tell: Progress, stage: str, before: int, total: int, done: int) -> None:
    tell(stage, before + done, total)


class ThisMachine:
    """Passes are carried out here."""

    def passes(self, plan: BasePlan, records: RecordTiles, *, workers: int | None) -> Passes:
        """See :meth:`PassMaker.passes`."""
        return LocalPasses(plan, records, workers=workers)

    def memory(self) -> int:
        """See :meth:`PassMaker.memory`."""
        return default_memory()


class Room:
    """What exact sums in float64 have room for: sums of whole numbers below 2^53.

    Args:
        steps: the most that one unit adds to an entry, in magnitude.

    Example:
        >>> room = Room(2**50)
        >>> room.take(7)
        >>> room.taken
        7
    """

    def __init__(self, steps: int) -> None:
        self._steps, self.taken = steps, 0

    def take(self, units: int) -> None:
        """Count so many more units.

        Raises:
            InvalidInput: sums could leave the range of exact integers.
        """
        self.taken += units
        if self.taken * self._steps >= EXACT_FLOAT64:
            raise InvalidInput("lattice sums", WITHHELD, "below 2**53 steps: use fewer lattice bits")


class VectorSum:
    """A sum of vectors of whole numbers. Secret."""

    def __init__(self, dim: int) -> None:
        self.total: NDArray[np.float64] = np.zeros(dim)

    def __repr__(self) -> str:
        return "<VectorSum>"

    def merge(self, other: VectorSum) -> None:
        """See :class:`Sums`. How many records there may be is checked before, by the sums that the mean serves."""
        self.total += other.total


@dataclass(frozen=True, eq=False)
class ClippedSum(Pass[VectorSum]):
    """The sum of clipped records, before centring, in lattice steps of the clipping bound."""

    dim: int
    stage: ClassVar[str] = "mean"

    def empty(self) -> VectorSum:
        """See :class:`Pass`."""
        return VectorSum(self.dim)

    def add(self, reader: TileReader, index: int, sums: Any, done: Callable[[int], None]) -> None:
        """See :class:`Pass`."""
        sums.total += reader.clipped_sum(index, done)
