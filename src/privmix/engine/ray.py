"""The engine of a Ray cluster: sums are made by tasks, merged by tasks, and noise is added once, at the head.

What travels to workers: the plan, the released mean, the key of the membership streams and the records, as the path of
a feature store on a file system that all machines share, or through Ray's object store. The key to the noise stays in
the process that made the engine. Partial sums without noise, membership and records are private: they pass over the
cluster's network and object store (which Ray spills to disk when it is full), so the cluster must be as trusted as the
machine with the data, and its traffic encrypted (Ray's ``RAY_USE_TLS``) unless its network is private.

A cluster that is started here listens on the loopback interface to those who have its token, and keeps its files, open
to all as Ray makes them, in a scratch folder that its owner alone can enter. Where another cluster keeps and spills
objects is its operator's to settle.
"""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from privmix.engine.rows import RowEngine
from privmix.engine.tiles import PersonStoreTiles, RecordSource, RecordTiles, StoreTiles, Tile, TileSummer, record_tiles
from privmix.errors import WITHHELD, InvalidInput, MissingExtra, StorageError, check_integer
from privmix.mechanisms.membership import ROW_TILE
from privmix.mechanisms.mixing import RowSums
from privmix.mechanisms.streams import SecretStreams
from privmix.plans import ReleasePlan
from privmix.private_files import file_mode
from privmix.progress import Progress
from privmix.publication.dataset import RecordTransform
from privmix.scratch import ScratchFolder

_Result = TypeVar("_Result")

Parts = tuple[NDArray[Any], NDArray[Any], NDArray[np.float64]]

_SUMS_BYTES = 2**29
_TASKS_A_CPU = 2
_FAN_IN = 4
_CONNECT_SECONDS = 10
# Of the paths of Ray's sockets, which the operating system limits to 107 bytes, below its folder.
_SOCKET_PATH = 65
_MOST_PATH = 107
# "0" where Ray runs on one machine alone.
_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_MODE, _TOKEN, _TOKEN_FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"


class ClusterLost(StorageError):
    """The cluster could not finish the work; the run can be resumed, on it or without it."""

    keeps_run = True


@dataclass(frozen=True)
class Failure:
    """Why a task gave up, without a word that stems from records; ``field`` is None for errors of other kinds."""

    field: str | None
    allowed: str


@dataclass(frozen=True)
class ObjectTiles:
    """Tiles in Ray's object store."""

    count: int
    units: int
    dim: int
    lengths: tuple[int, ...]
    refs: tuple[Any, ...]

    def __repr__(self) -> str:
        return "<ObjectTiles>"

    @classmethod
    def of(cls, tiles: RecordTiles) -> ObjectTiles:
        """Copies of the tiles, with where the records of each person begin in them."""
        import ray

        every = range(record_tiles(tiles))
        refs = (ray.put((*_as_arrays(tiles.tile(index)), tiles.starts(index))) for index in every)
        lengths = (tiles.length(index) for index in every)
        return cls(tiles.count, tiles.units, tiles.dim, tuple(lengths), tuple(refs))

    def length(self, index: int) -> int:
        return self.lengths[index]

    def tile(self, index: int) -> Tile:
        import ray

        features, labels, _ = ray.get(self.refs[index])
        return features, labels

    def starts(self, index: int) -> NDArray[np.int64] | None:
        import ray

        found: NDArray[np.int64] | None = ray.get(self.refs[index])[2]
        return found


@dataclass(frozen=True)
class SpanTask:
    """What a worker needs to know. Private, but without the key to the noise."""

    plan: ReleasePlan
    records: RecordTiles
    membership_key: bytes
    on_start: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return "<SpanTask>"

    def summer(self) -> TileSummer:
        if self.on_start is not None:
            self.on_start()
        return TileSummer(self.plan, self.records, SecretStreams.of_shared(self.membership_key))


def clipped_sum(task: SpanTask, span: range) -> NDArray[np.float64] | Failure:
    """Sum of the clipped records of the record tiles ``span``."""

    def work() -> NDArray[np.float64]:
        summer = task.summer()
        total = np.zeros(task.plan.dim)
        for index in span:
            total += summer.clipped_sum(index)
        return total

    return _guarded(work)


def row_sums(task: SpanTask, span: range, rows: range, transform: RecordTransform) -> Parts | Failure:
    """Sums, over the record tiles ``span``, of the rows of the row tiles ``rows``."""

    def work() -> Parts:
        summer = task.summer()
        sums, room = summer.empty_sums(rows), summer.empty_tile(*span)
        for index in span:
            summer.add(sums, rows, index, summer.quantise(index, transform, room))
        return sums.x, sums.counts, sums.totals

    return _guarded(work)


def merge(task: SpanTask, rows: range, *parts: Parts | Failure) -> Parts | Failure:
    """The sums of ``parts``, which are of the same rows over different records."""

    def work() -> Parts:
        sums = TileSummer(task.plan, task.records, SecretStreams.of_shared(task.membership_key)).empty_sums(rows)
        for part in parts:
            assert not isinstance(part, Failure)
            sums.merge(*part)
        return sums.x, sums.counts, sums.totals

    failed = [part for part in parts if isinstance(part, Failure)]
    return failed[0] if failed else _guarded(work)


def _guarded(work: Callable[[], _Result]) -> _Result | Failure:
    """The result of ``work``, or its failure: what libraries say in theirs may quote records, and Ray would log it."""
    try:
        return work()
    except InvalidInput as error:
        return Failure(error.field, error.allowed)
    except Exception as error:
        return Failure(None, type(error).__name__)


class RayReleaseEngine(RowEngine):
    """Makes the sums on a Ray cluster; same rows as :class:`ReleaseEngine`, bit for bit, under one key.

    For every chunk of rows, tasks sum spans of record tiles and merge tasks add them up in a tree. Tasks are pure: a
    task that Ray runs again, as its worker or machine was lost, gives the same integers, and noise is added after all
    of them, here.

    Formal guarantees: those of :class:`RowEngine`, and
        * workers get the key of the membership streams, never the one of the noise;
        * what a cluster that is started here writes, spilled records and sums among it, can be reached by no other user
          of the machine, and is gone at the end; after a kill, when the next scratch folder is made;
        * only who has the cluster's token can reach it, or the caller has said that its network needs none.

    Args:
        plan: the public plan.
        records: a :class:`FeatureStore` (or :class:`StoreTiles`) is opened by its path on every worker; others are
            copied to the object store.
        streams: secret randomness; the caller destroys it afterwards.
        address: the cluster's, such as ``"auto"`` or ``"ray://host:port"``; None uses the cluster that this process is
            connected to, or starts one on this machine, on the loopback interface, for as long as the rows take. A
            cluster that was not started here must ask for a token, and this process know it (``RAY_AUTH_MODE=token``,
            and ``RAY_AUTH_TOKEN`` or ``RAY_AUTH_TOKEN_PATH``); ``RAY_AUTH_MODE=disabled`` says that nobody else can
            reach its network.
        tiles_at_once: row tiles summed together; None keeps the sums of a task in ``memory_bytes``.
        workers: threads of this process that draw noise.
        memory_bytes: what the sums of one task may take; None is 512 MiB.
        max_retries: how often Ray runs a task again that was lost.

    Raises:
        MissingExtra: ray is not installed.
        InvalidInput: the cluster asks for no token, or TMPDIR is too long a path for Ray.
        ClusterLost: no cluster, or it could not finish.
    """

    def __init__(
        self,
        plan: ReleasePlan,
        records: RecordSource,
        streams: SecretStreams,
        *,
        address: str | None = None,
        tiles_at_once: int | None = None,
        workers: int | None = None,
        memory_bytes: int | None = None,
        max_retries: int = 5,
        on_task_start: Callable[[], None] | None = None,
    ) -> None:
        # Before the first import: Ray reads it once.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray  # noqa: F401
        except ImportError:
            raise MissingExtra("ray", "ray") from None
        super().__init__(plan, records, streams, workers=workers)
        sums = _SUMS_BYTES if memory_bytes is None else check_integer("memory", memory_bytes, low=1)
        self._tiles_at_once = tiles_at_once or max(1, int(sums / (ROW_TILE * self._summer.row_bytes)))
        self._address, self._on_task_start = address, on_task_start
        self._options: dict[str, Any] = {"num_cpus": 1, "max_retries": check_integer("retries", max_retries, low=0)}
        self._task: SpanTask | None = None

    def _run(self, progress: Progress | None, first: int) -> Iterator[Any]:
        import ray

        with _connected(self._address):
            try:
                self._task = SpanTask(self._plan, self._shared(), self._membership.share(), self._on_task_start)
                yield from super()._run(progress, first)
            except ray.exceptions.RayError as error:
                # Its text holds tracebacks of workers.
                raise ClusterLost(f"ray: {type(error).__name__}; the cluster could not finish the work") from None
            finally:
                self._task = None

    def _shared(self) -> RecordTiles:
        """The records in a form that travels in a few bytes."""
        tiles = self._records
        return tiles if isinstance(tiles, StoreTiles | PersonStoreTiles | ObjectTiles) else ObjectTiles.of(tiles)

    def _clipped_sum(self, progress: Progress | None) -> NDArray[np.float64]:
        import ray

        work: Any = ray.remote(clipped_sum).options(**self._options)
        waiting = [work.remote(self._task, span) for span in self._spans()]
        total, done, of = np.zeros(self._plan.dim), 0, len(waiting)
        while waiting:
            ready, waiting = ray.wait(waiting)
            total += _checked(ray.get(ready[0]))
            done += 1
            if progress:
                progress("mean", done, of)
        return total

    def _row_sums(
        self, transform: RecordTransform, first: int, progress: Progress | None
    ) -> Iterator[tuple[range, RowSums]]:
        import ray

        total, step = -(-self._plan.rows // ROW_TILE), self._tiles_at_once
        chunks = [range(start, min(start + step, total)) for start in range(first, total, step)]
        # One chunk ahead: workers sum the next rows while noise is added to these.
        coming = self._submit(chunks[0], transform)
        for number, chunk in enumerate(chunks):
            now, coming = coming, self._submit(chunks[number + 1], transform) if chunk.stop < total else None
            sums = self._summer.empty_sums(chunk)
            sums.merge(*_checked(ray.get(now)))
            del now
            yield chunk, sums
            del sums

    def _submit(self, rows: range, transform: RecordTransform) -> Any:
        """Start all tasks of a chunk of rows; returns the reference of its sums."""
        import ray

        work: Any = ray.remote(row_sums).options(**self._options)
        join: Any = ray.remote(merge).options(**self._options)
        parts = [work.remote(self._task, span, rows, transform) for span in self._spans()]
        while len(parts) > 1:
            groups = [parts[start : start + _FAN_IN] for start in range(0, len(parts), _FAN_IN)]
            parts = [join.remote(self._task, rows, *group) if len(group) > 1 else group[0] for group in groups]
        return parts[0]

    def _spans(self) -> list[range]:
        """Consecutive record tiles for one task each: few, as every task sends sums of all rows of its chunk."""
        import ray

        cluster: Any = ray
        tiles = record_tiles(self._records)
        tasks = min(tiles, max(1, int(cluster.cluster_resources().get("CPU", 1)) * _TASKS_A_CPU))
        return [range(tiles * task // tasks, tiles * (task + 1) // tasks) for task in range(tasks)]


@contextmanager
def _connected(address: str | None) -> Iterator[None]:
    """Connect to a cluster, or start one here, unless this process is connected; undo at the end what was done."""
    import ray

    if ray.is_initialized():
        _check_token_asked()
        yield
        return
    _check_reachable(address)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    with ExitStack() as done:
        if address is None:
            folder = done.enter_context(ScratchFolder())
            _check_length(folder)
            done.enter_context(_own_token())
            done.enter_context(_loopback())
            # Ray opens its folders to all; nobody else gets to them.
            quiet |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1", "_temp_dir": str(folder)}
        else:
            _check_mode()
        try:
            done.callback(ray.shutdown)
            with file_mode(private=True):
                ray.init(address=address or "local", **quiet)
        except Exception as error:
            raise ClusterLost(f"ray: {type(error).__name__}; no cluster at {address or 'this machine'}") from None
        if address is not None:
            _check_token_asked()
        elif not ray.get_runtime_context().gcs_address.startswith(("127.0.0.1:", "[::1]:", "::1:")):
            raise ClusterLost("ray: this version does not keep a cluster of one machine on the loopback interface")
        yield


@contextmanager
def _own_token() -> Iterator[None]:
    """Make this process, and the cluster it starts, use a token that nobody else knows."""
    before = {name: os.environ.pop(name, None) for name in (_MODE, _TOKEN, _TOKEN_FILE)}
    # Children get it; other users can't read the environment of ours.
    os.environ |= {_MODE: "token", _TOKEN: secrets.token_hex(32)}
    _reread_token()
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        _reread_token()


@contextmanager
def _loopback() -> Iterator[None]:
    """Keep a cluster that is started now on the loopback interface.

    Ray does so where clusters are switched off. Its processes read that from the environment; this one has read it when
    Ray was imported, perhaps by others.
    """
    from ray._private import ray_constants

    constants: Any = ray_constants
    before = getattr(constants, "ENABLE_RAY_CLUSTER", True), os.environ.get(_CLUSTERS)
    constants.ENABLE_RAY_CLUSTER, os.environ[_CLUSTERS] = False, "0"
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before[0]
        del os.environ[_CLUSTERS]
        if before[1] is not None:
            os.environ[_CLUSTERS] = before[1]


def _reread_token() -> None:
    """Ray keeps what it read of these settings. The mode goes first: it looks for a token as long as it wants one."""
    from ray import _raylet as loaded

    _raylet: Any = loaded
    _raylet.Config.initialize("")
    _raylet.AuthenticationTokenLoader.instance().reset_cache()


def _check_mode() -> None:
    if os.environ.get(_MODE, "").lower() not in ("token", "disabled"):
        raise InvalidInput(
            "RAY_AUTH_MODE",
            os.environ.get(_MODE),
            "token, with the token of the cluster in RAY_AUTH_TOKEN_PATH (private records go there); or disabled, "
            "where nobody else can reach its network",
        )


def _check_token_asked() -> None:
    """Raise unless the workers of the cluster were started to ask for a token, or the caller has waived it."""
    import ray

    _check_mode()
    if os.environ[_MODE].lower() == "disabled":
        return
    try:
        asked = ray.get(ray.remote(_mode_here).options(num_cpus=0).remote())
    except ray.exceptions.RayError as error:
        raise ClusterLost(f"ray: {type(error).__name__}; the cluster could not finish the work") from None
    if asked != "token":
        raise InvalidInput(
            "ray_address", "a cluster that asks for no token", "one that was started with RAY_AUTH_MODE=token"
        )


def _mode_here() -> str:
    return os.environ.get(_MODE, "").lower()


def _check_length(folder: Path) -> None:
    """The operating system would say so less clearly."""
    base = tempfile.gettempdir()
    most = _MOST_PATH - _SOCKET_PATH - len(os.fsencode(folder)) + len(os.fsencode(base))
    if len(os.fsencode(base)) > most:
        raise InvalidInput("TMPDIR", base, f"a path of at most {most} bytes, for Ray's sockets below it")


def _check_reachable(address: str | None) -> None:
    """Raise at once where nobody listens: Ray itself tries for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, OverflowError):
        raise ClusterLost(f"ray: nobody listens at {address}") from None


def _as_arrays(tile: Tile) -> Tile:
    features, labels = tile
    return np.ascontiguousarray(features), np.ascontiguousarray(labels)


def _checked(result: Any) -> Any:
    """``result``, or the error that a task gave up with."""
    if not isinstance(result, Failure):
        return result
    if result.field is not None:
        raise InvalidInput(result.field, WITHHELD, result.allowed)
    raise ClusterLost(f"ray: a task failed ({result.allowed})")
