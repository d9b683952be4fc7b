"""Engines on a Ray cluster: sums are made by tasks, merged by tasks, and noise is added once, at the head.

Workers get the pass (the plan, the released mean, for rows the key of the membership streams) and the records. The
records come as the path of a feature store on a shared file system, or through Ray's object store. The noise key stays
in the process that made the engine. Passes, records and sums without noise are private. In the object store, which Ray
spills to disk, they are encrypted under a key of this connection (:mod:`privmix.engine.cluster`). Workers have
them, and that key, in memory: the cluster must be as trusted as the machine with the data. Its traffic must be
encrypted (Ray's ``RAY_USE_TLS``) unless its network is private. See :mod:`privmix.engine.cluster` for who can reach it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from privmix.engine.cluster import KEPT, ClusterLost, ObjectKey, Sealed, check_ray, connected, lost, reason_of
from privmix.engine.passes import AnySums, Pass, PassedRows, Passes
from privmix.engine.records import PersonStoreTiles, RecordSource, RecordTiles, StoreTiles, Tile, record_tiles
from privmix.engine.tiles import TileReader, TileSummer, empty_sums
from privmix.errors import WITHHELD, InvalidInput, check_integer
from privmix.folders import no_core_dumps
from privmix.mechanisms.membership import ROW_TILE, Secret
from privmix.mechanisms.mixing import RowSums
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.plan import BasePlan
from privmix.plans.rows import ReleasePlan
from privmix.progress import Progress, silent
from privmix.publication.dataset import RecordTransform

_Result = TypeVar("_Result")

# Bytes of sums of one task: of rows, and of anything else.
_SUMS_BYTES = 2**29
_PASS_BYTES = 2**31
# More than one, so that a slow CPU delays a pass by half of its share; few, since each task sends its sums.
_TASKS_A_CPU = 2
# Sums that a task merges: all of them are in its memory at once, and a small tree has few rounds.
_FAN_IN = 4


@dataclass(frozen=True)
class Failure:
    """Why a task gave up, without a word that stems from records; ``field`` is None for errors of other kinds."""

    field: str | None
    allowed: str


@dataclass(frozen=True)
class ObjectTiles(Secret):
    """Tiles in Ray's object store, encrypted under a key that travels by itself."""

    # facts: sealed: numbers of records and units, and records of each tile. refs: each tile's records and begins.

    dim: int
    facts: Sealed
    refs: tuple[Any, ...]

    @classmethod
    def of(cls, tiles: RecordTiles, key: ObjectKey) -> "ObjectTiles":
        """Return copies of the tiles, with where the records of each person begin in them."""
        import ray

        refs = []
        for index in range(record_tiles(tiles)):
            arrays = tuple(map(np.ascontiguousarray, tiles.tile(index)))
            parts = enumerate((arrays, tiles.starts(index)))
            refs.append(ray.put(tuple(key.seal(part, _part_of_tile(index, number)) for number, part in parts)))
        facts = (tiles.count, tiles.units, tuple(map(tiles.length, range(len(refs)))))
        return cls(tiles.dim, key.seal(facts, _FACTS), tuple(refs))


_FACTS: Final = "facts of tiles"


class OpenedTiles(Secret):
    """The same, with their key: of one process."""

    def __init__(self, sealed: ObjectTiles, key: ObjectKey) -> None:
        self._refs, self._key = sealed.refs, key
        count, units, self._lengths = key.opened(sealed.facts, _FACTS)
        self.count: int = count
        self.units: int = units
        self.dim: int = sealed.dim

    def length(self, index: int) -> int:
        lengths: tuple[int, ...] = self._lengths
        return lengths[index]

    def tile(self, index: int) -> Tile:
        features, labels = self._opened(index, 0)
        return features, labels

    def starts(self, index: int) -> NDArray[np.int64] | None:
        found: NDArray[np.int64] | None = self._opened(index, 1)
        return found

    def _opened(self, index: int, part: int) -> Any:
        import ray

        return self._key.opened(ray.get(self._refs[index])[part], _part_of_tile(index, part))


def _part_of_tile(index: int, part: int) -> str:
    return f"part {part} of tile {index}"


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster, and how it is used.

    Attributes:
        address: such as ``"auto"`` or ``"ray://host:port"``; by default (None) this process's cluster, or one started
            on the loopback interface for the work. Another cluster must ask for a token of this
            process (``RAY_AUTH_MODE=token``, and ``RAY_AUTH_TOKEN`` or ``RAY_AUTH_TOKEN_PATH``).
            ``RAY_AUTH_MODE=disabled`` declares that no other user can reach its network.
        max_retries: how often Ray runs a lost task again.
    """

    address: str | None = None
    max_retries: int = 5
    on_task_start: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        check_integer("retries", self.max_retries, low=0)

    def passes(self, plan: BasePlan, records: RecordTiles, *, workers: int | None) -> "RayPasses":
        return RayPasses(self, plan, records, workers=workers)

    def memory(self) -> int:
        """Default for the bytes that the sums of a pass may take: those of a task, and of tasks that merge them."""
        return _PASS_BYTES

    @contextmanager
    def open(self) -> Iterator[None]:
        check_ray()
        import ray

        with connected(self.address):
            try:
                yield
            except ray.exceptions.RayError as error:
                raise lost(error) from None


class RayPasses(Passes):
    """Passes on a cluster: tasks sum spans of tiles, and others merge their sums in a tree.

    Formal guarantees:
        * tasks are pure: one that runs again, as its worker or machine was lost, gives the same integers. Every cut and
          order does so too: all sums are those of this machine to the bit;
        * what travels are the pass, the records (as a path, or through Ray's object store) and exact sums, which are
          private: no key to noise does;
        * in the object store, and where Ray spills it, passes, records and sums are encrypted. Only the memory of this
          process and of its tasks holds the key;
        * the sums of a pass over all tiles are merged, each of them once. Sums are sealed as those of their pass and
          tiles, and others in their place do not open.
    """

    def __init__(self, cluster: Cluster, plan: BasePlan, records: RecordTiles, *, workers: int | None) -> None:
        check_ray()
        super().__init__(plan, records, workers=workers)
        self._cluster, self._plan = cluster, plan
        self._task: PassTask | None = None
        self._key, self._started = ObjectKey(), 0

    @contextmanager
    def open(self) -> Iterator[None]:
        with self._cluster.open():
            try:
                records = self.reader.records
                # Stores travel as their paths; what else there is goes to the object store once.
                by_path = isinstance(records, StoreTiles | PersonStoreTiles)
                sent = records if by_path else ObjectTiles.of(records, self._key)
                self._task = PassTask(self._plan, sent, self._cluster.on_task_start)
                yield
            finally:
                self._task = None

    def over(self, one: Pass[AnySums], tell: Progress) -> AnySums:
        return self.started(one).sums(tell)

    def started(self, one: Pass[AnySums]) -> "Started[AnySums]":
        """Have a pass carried out; its sums are asked for later."""
        # Two results of a task: to wait for the marker brings no sums here.
        work, join = self._remote(pass_sums, num_returns=2), self._remote(merge_sums)
        self._started += 1
        name, spans = f"pass {self._started}", self._spans()
        sealed = self._key.seal(one, name)
        started = [work(self._key, name, self._task, span, sealed) for span in spans]
        parts, ends = [sums for sums, _ in started], [end for _, end in started]
        # No name keeps the sums of a part once they are merged.
        del started
        while len(parts) > 1:
            groups = [slice(start, start + _FAN_IN) for start in range(0, len(parts), _FAN_IN)]
            parts = [
                join(self._key, name, sealed, spans[group], *parts[group]) if len(parts[group]) > 1 else parts[group][0]
                for group in groups
            ]
            spans = [_joined(spans[group]) for group in groups]
        return Started(one.stage, ends, parts[0], self._key, _sums_of(name, spans[0]))

    def _remote(self, work: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        import ray

        made: Any = ray.remote(work)
        found: Callable[..., Any] = made.options(num_cpus=1, max_retries=self._cluster.max_retries, **options).remote
        return found

    def _spans(self) -> list[range]:
        # Few tasks: each sends its sums.
        import ray

        cluster: Any = ray
        tiles = record_tiles(self.reader.records)
        tasks = min(tiles, max(1, int(cluster.cluster_resources().get("CPU", 1)) * _TASKS_A_CPU))
        return [range(tiles * task // tasks, tiles * (task + 1) // tasks) for task in range(tasks)]


class Started(Generic[AnySums]):
    """A pass that is under way on a cluster."""

    def __init__(self, stage: str, ends: list[Any], whole: Any, key: ObjectKey, name: str) -> None:
        self._stage, self._ends, self._whole, self._key, self._name = stage, ends, whole, key, name

    def sums(self, tell: Progress) -> AnySums:
        """Return the sums when all tasks are done, once."""
        import ray

        for done in range(1, len(self._ends) + 1):
            ray.wait(self._ends, num_returns=done)
            tell(self._stage, done, len(self._ends))
        sums: AnySums = self._key.opened(_checked(ray.get(self._whole)), self._name)
        self._whole = None
        return sums


@dataclass(frozen=True)
class PassTask(Secret):
    """The parts of a pass that a worker needs. Private, but without any key."""

    plan: BasePlan
    records: RecordTiles | ObjectTiles
    on_start: Callable[[], None] | None = None


def _sums_of(name: str, span: range) -> str:
    return f"sums of {name} over tiles {span.start} to {span.stop}"


def _joined(spans: list[range]) -> range:
    if any(one.stop != other.start for one, other in pairwise(spans)):
        raise InvalidInput("spans of tiles", WITHHELD, "spans that follow one another")
    return range(spans[0].start, spans[-1].stop)


def pass_sums(key: ObjectKey, name: str, task: PassTask, span: range, one: Sealed) -> tuple[Sealed | Failure, None]:
    """Return the sums of a pass over the record tiles ``span``, and a marker that they exist."""

    def work() -> Sealed:
        # A worker, too, has records and the key of objects in memory.
        no_core_dumps()
        if task.on_start is not None:
            task.on_start()
        records = OpenedTiles(task.records, key) if isinstance(task.records, ObjectTiles) else task.records
        made: Pass[Any] = key.opened(one, name)
        reader, sums = TileReader(task.plan, records), made.empty()
        for index in span:
            made.add(reader, index, sums, lambda _: None)
        return key.seal(sums, _sums_of(name, span), spent=True)

    return _guarded(work), None


def merge_sums(
    key: ObjectKey, name: str, one: Sealed, spans: list[range], *parts: Sealed | Failure
) -> Sealed | Failure:
    """Return the sums of ``parts``, which are of one pass over ``spans`` of tiles, one after another."""

    def work() -> Sealed:
        no_core_dumps()
        made: Pass[Any] = key.opened(one, name)
        sums = made.empty()
        for span, part in zip(spans, parts, strict=True):
            assert not isinstance(part, Failure)
            sums.merge(key.opened(part, _sums_of(name, span)))
        return key.seal(sums, _sums_of(name, _joined(spans)), spent=True)

    failed = [part for part in parts if isinstance(part, Failure)]
    return failed[0] if failed else _guarded(work)


def _guarded(work: Callable[[], _Result]) -> _Result | Failure:
    try:
        return work()
    # A message of a library's may quote records, and Ray would log it.
    except InvalidInput as error:
        return Failure(error.field, error.allowed)
    except Exception as error:
        return Failure(None, reason_of(error))


class RayReleaseEngine(PassedRows):
    """Makes the sums on a Ray cluster; same rows as :class:`ReleaseEngine`, bit for bit, under one key.

    Formal guarantees: those of :class:`RowEngine`, and
        * workers get the key of the membership streams, never the one of the noise;
        * files of a cluster that is started here, spilled records and sums among them, are out of reach of other users
          of the machine. They are gone at the end; after a kill, when the next scratch folder is made;
        * only who has the cluster's token can reach it, or the caller has declared that its network needs none.
    """

    # A FeatureStore (or StoreTiles) is opened by its path on every worker; other records are copied to the object
    # store. tiles_at_once None keeps a task's sums in memory_bytes (512 MiB by default).

    _passes: RayPasses

    def __init__(
        self,
        plan: ReleasePlan,
        records: RecordSource,
        streams: SecretStreams,
        *,
        cluster: Cluster | None = None,
        tiles_at_once: int | None = None,
        workers: int | None = None,
        memory_bytes: int | None = None,
    ) -> None:
        check_ray()
        super().__init__(plan, records, streams, workers=workers)
        sums = _SUMS_BYTES if memory_bytes is None else check_integer("memory", memory_bytes, low=1)
        self._tiles_at_once = tiles_at_once or max(1, int(sums / (ROW_TILE * self.summer.row_bytes)))
        self._passes = RayPasses(cluster or Cluster(), plan, self._records, workers=workers)

    def _row_sums(
        self, transform: RecordTransform, first: int, progress: Progress | None
    ) -> Iterator[tuple[range, RowSums]]:
        total, step, key = -(-self._plan.rows // ROW_TILE), self._tiles_at_once, self._membership.share()
        chunks = [range(start, min(start + step, total)) for start in range(first, total, step)]
        passes = (RowPass(self._plan, self._records.units, chunk, transform, key) for chunk in chunks)
        # One chunk ahead: workers sum the next rows while noise is added to these.
        coming = self._passes.started(next(passes))
        for chunk in chunks:
            now = coming
            if (following := next(passes, None)) is not None:
                coming = self._passes.started(following)
            # No name here holds the sums while the next ones are made.
            yield chunk, now.sums(progress or silent)


@dataclass(frozen=True, eq=False)
class RowPass(Pass[RowSums], Secret):
    """Sums of the members of some row tiles; the key is the one of the membership streams."""

    plan: ReleasePlan
    units: int
    rows: range
    transform: RecordTransform
    key: bytes
    stage: ClassVar[str] = "sums"

    def __reduce__(self) -> tuple[Any, ...]:
        # Without what one task keeps: records would travel with it.
        return RowPass, (self.plan, self.units, self.rows, self.transform, self.key)

    @cached_property
    def _here(self) -> dict[str, Any]:
        """State that one task makes from its records, and the memory of its tiles."""
        return {}

    def _summer(self, records: RecordTiles) -> TileSummer:
        if "summer" not in self._here:
            self._here["summer"] = TileSummer(self.plan, records, SecretStreams.of_shared(self.key))
        found: TileSummer = self._here["summer"]
        return found

    def empty(self) -> RowSums:
        return empty_sums(self.plan, self.rows)

    def add(self, reader: TileReader, index: int, sums: RowSums, done: Callable[[int], None]) -> None:
        summer, room = self._summer(reader.records), self._here.get("room")
        if room is None or room.count < reader.records.length(index):
            room = self._here["room"] = summer.empty_tile(index)
        summer.add(sums, self.rows, index, summer.quantise(index, self.transform, room, done))


def _checked(result: Any) -> Any:
    if not isinstance(result, Failure):
        return result
    if result.field is not None:
        raise InvalidInput(result.field, WITHHELD, result.allowed)
    raise ClusterLost(f"ray: a task failed ({result.allowed}); {KEPT}")
