"""Passes over private records: what each record adds to which exact sums, and where a pass is carried out."""
# Sums are whole numbers: made in parts, on any machine, in any order, they have the same bits. Noise is added once.

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from privmix.engine.records import RecordSource, RecordTiles, cores, record_tiles, tiles_of
from privmix.engine.rows import Engine, RowBlock, RowEngine, default_memory
from privmix.engine.tiles import TileReader
from privmix.errors import WITHHELD, InvalidInput, check_integer
from privmix.folders import no_core_dumps
from privmix.mechanisms.membership import Secret
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.plan import BasePlan
from privmix.progress import Progress, silent

EXACT_FLOAT64: Final = 2**53
# Rows a block of sampled rows: those of a shard.
_BLOCK_ROWS: Final = 8192


class Sums(Protocol):
    """Exact sums over some records. Secret."""

    def merge(self, other: Self) -> None:
        """Add the sums over other records, as if these had been added here."""


AnySums = TypeVar("AnySums", bound=Sums)
Released = TypeVar("Released")


class Pass(ABC, Generic[AnySums]):
    """Definition of the sums of one pass: a function of the records and of released numbers. It travels."""

    stage: ClassVar[str]

    @abstractmethod
    def empty(self) -> AnySums:
        """Return sums over no record."""

    @abstractmethod
    def add(self, reader: TileReader, index: int, sums: AnySums, done: Callable[[int], None]) -> None:
        """Add the records of a tile; ``done`` is called with how many of them are in."""


class Passes(ABC):
    """Carries out passes over the records of one release. Secret."""

    def __init__(self, plan: BasePlan, records: RecordTiles, *, workers: int | None) -> None:
        self.reader: Final = TileReader(plan, records, workers=workers or cores())
        # Before any noise: a refusal in the midst of a pass would follow on answers.
        self.reader.check_labels()

    @contextmanager
    def open(self) -> Iterator[None]:
        """Be ready for passes while the block lasts."""
        yield

    @abstractmethod
    def over(self, one: Pass[AnySums], tell: Progress) -> AnySums:
        """Return the sums of a pass over all records."""


class PassMaker(Protocol):
    """The machines that carry out passes, before the records are known."""

    def passes(self, plan: BasePlan, records: RecordTiles, *, workers: int | None) -> Passes:
        """Return passes over these records."""

    def memory(self) -> int:
        """Default for the bytes that the sums of a pass may take."""


class LocalPasses(Passes):
    def over(self, one: Pass[AnySums], tell: Progress) -> AnySums:
        sums, before, count = one.empty(), 0, self.reader.records.count
        for index in range(record_tiles(self.reader.records)):

            def done(records: int, before: int = before) -> None:
                tell(one.stage, before + records, count)

            one.add(self.reader, index, sums, done)
            before += self.reader.records.length(index)
        return sums


class ThisMachine:
    def passes(self, plan: BasePlan, records: RecordTiles, *, workers: int | None) -> Passes:
        return LocalPasses(plan, records, workers=workers)

    def memory(self) -> int:
        return default_memory()


class SumEngine(Engine, Generic[Released]):
    """Releases noisy sums, then rows that are sampled from them, a shard at a time."""

    def __init__(
        self,
        plan: BasePlan,
        records: RecordSource,
        streams: SecretStreams,
        *,
        workers: int | None = None,
        memory_bytes: int | None = None,
        cluster: PassMaker | None = None,
    ) -> None:
        # A dump of this process would hold records and the key of the noise.
        no_core_dumps()
        place = cluster or ThisMachine()
        self._plan, self._streams = plan, streams
        self._memory = place.memory() if memory_bytes is None else check_integer("memory", memory_bytes, low=1)
        self._passes = place.passes(plan, tiles_of(records), workers=workers)
        self._released: Released | None = None

    @property
    def beside(self) -> Released:
        """The released numbers; known once the first block of rows is out."""
        if self._released is None:
            raise RuntimeError("released numbers are known once rows are being released")
        return self._released

    def rows(self, progress: Progress | None = None, *, first: int = 0) -> Iterator[RowBlock]:
        """Release the numbers, then yield rows sampled from them, from row ``first`` on."""
        if check_integer("first row", first, low=0) % _BLOCK_ROWS and first < self._plan.rows:
            raise InvalidInput("first row", first, f"a multiple of {_BLOCK_ROWS}")
        # Claimed at the call: a generator would wait for its first row.
        self._streams.claim()
        return self._run(progress or silent, first)

    def _run(self, tell: Progress, first: int) -> Iterator[RowBlock]:
        with self._passes.open():
            self._released = self._release(tell)
        rows = self._plan.rows
        if first >= rows:
            return
        # Rows follow from released numbers alone, so the passes over the records are closed before.
        x, y = self._sampled(tell)
        for start in range(first, rows, _BLOCK_ROWS):
            yield RowBlock(start, x[start : start + _BLOCK_ROWS], y[start : start + _BLOCK_ROWS])
            tell("rows", min(start + _BLOCK_ROWS, rows), rows)

    @abstractmethod
    def _release(self, tell: Progress) -> Released:
        """Set the transform, and return the released numbers."""

    @abstractmethod
    def _sampled(self, tell: Progress) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """All rows, made from the released numbers alone."""


class Room:
    """Remaining range of exact float64 sums of whole numbers below 2^53, where one unit adds ``steps`` at most."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self.taken: int = 0

    def take(self, units: int) -> None:
        """Count more units; raise where sums could leave the range of exact integers."""
        self.taken += units
        # The bound counts units: a check of the sums themselves could fail for some records and not for others.
        if self.taken * self._steps >= EXACT_FLOAT64:
            raise InvalidInput("lattice sums", WITHHELD, "below 2**53 steps: use fewer lattice bits")


class VectorSum(Secret):
    def __init__(self, dim: int) -> None:
        self.total: NDArray[np.float64] = np.zeros(dim)

    def merge(self, other: "VectorSum") -> None:
        self.total += other.total


@dataclass(frozen=True, eq=False)
class ClippedSum(Pass[VectorSum]):
    """The sum of clipped records, before centring, in lattice steps of the clipping bound."""

    dim: int
    stage: ClassVar[str] = "mean"

    def empty(self) -> VectorSum:
        return VectorSum(self.dim)

    def add(self, reader: TileReader, index: int, sums: Any, done: Callable[[int], None]) -> None:
        sums.total += reader.clipped_sum(index, done)


class PassedRows(RowEngine):
    """The engine for rows, with its sums over the records by passes."""

    _passes: Passes

    def _run(self, progress: Progress | None, first: int) -> Iterator[RowBlock]:
        with self._passes.open():
            yield from super()._run(progress, first)

    def _clipped_sum(self, progress: Progress | None) -> NDArray[np.float64]:
        return self._passes.over(ClippedSum(self._plan.dim), progress or silent).total
