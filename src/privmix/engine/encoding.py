"""Features made on a Ray cluster: actors read tiles of the records, encode them, and write each tile's file."""
# Records and features never enter Ray's object store or its spilled files. So data and store must be on a file system
# that all machines share, at the same paths, as the same user's.

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from privmix.data.partial import TileFolder, missing, tile_records
from privmix.data.source import Source, as_inputs
from privmix.data.store import FeatureStoreWriter
from privmix.engine.cluster import KEPT, ClusterLost, check_ray
from privmix.engine.dealing import Dealing, asks_until_back
from privmix.engine.ray import Cluster, _checked, _guarded
from privmix.errors import InvalidInput
from privmix.private_files import no_core_dumps

# How long all workers are waited for before the first tile, where some have come.
_SECONDS: Final = 30.0
# How often a tile is made again if its bytes are not those that were written.
_AGAIN: Final = 3


class Encodes(Protocol):
    """The interface that an extractor needs here; see :class:`privmix.features.base.Extractor`."""

    @property
    def step(self) -> int:
        """Records a call."""

    def runtime(self) -> dict[str, Any]:
        """Facts that may change the last bits of features."""

    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """(b, ...) inputs -> (b, d) features."""


@dataclass(frozen=True)
class TilePlace:
    """Path of the store in the making, records of a tile, d, facts of the tiles, required ``runtime`` or None."""

    path: str
    records: int
    dim: int
    facts: bytes
    runtime: Mapping[str, Any] | None = None

    def folder(self) -> TileFolder:
        return TileFolder.at(Path(self.path), self.facts)


@dataclass(frozen=True)
class Parts:
    """Source and extractor of the tiles, or (``stored``) their places in Ray's object store; no records."""

    held: tuple[Any, Any]
    stored: bool

    def fetched(self) -> tuple[Source, Encodes]:
        if not self.stored:
            return self.held
        import ray

        source, extractor = ray.get(list(self.held))
        return source, extractor


class TileWorker:
    """An actor that makes tiles, one after the other. Holds private records while it does.

    Formal guarantees:
        * a tile's bytes follow from the data, the extractor and its number: made twice, it is the same;
        * the text of a failure reveals no fact about a record.
    """

    def __init__(self, folder: str, on_start: Callable[[], None] | None) -> None:
        no_core_dumps()
        # Names of files may be relative.
        with suppress(OSError):
            os.chdir(folder)
        self._on_start = on_start
        self._parts: tuple[Source, Encodes] | None = None

    def runtime(self, parts: Parts) -> Any:
        """Facts that may change the last bits of its features."""
        return _guarded(lambda: self._opened(parts).runtime())

    def _opened(self, parts: Parts) -> Encodes:
        """Fetch source and extractor once and return the extractor; a restarted worker gets them again."""
        if self._parts is None:
            self._source, self._extractor = self._parts = parts.fetched()
            if (torch := sys.modules.get("torch")) is not None:
                torch.set_num_threads(1)
        return self._parts[1]

    def encode(self, place: TilePlace, span: range, parts: Parts) -> Any:
        """Make the missing tiles of ``span``; return :meth:`runtime`, or why it failed."""

        def work() -> Mapping[str, Any]:
            found = self._opened(parts).runtime()
            if place.runtime not in (None, found):
                # Ray restarted this actor on a machine with other versions: its tiles would differ in the last bits.
                return found
            folder = place.folder()
            try:
                there = folder.there()
                for run in _neighbours([number for number in span if number not in there]):
                    self._encode(place, folder, run)
            finally:
                folder.close()
            return self._extractor.runtime()

        return _guarded(work)

    def _encode(self, place: TilePlace, folder: TileFolder, run: range) -> None:
        first, end = run.start * place.records, min(run.stop * place.records, self._source.schema.records)
        held: list[tuple[NDArray[Any], NDArray[np.int64]]] = []
        number, room = run.start, place.records
        for batch in self._source.batches(self._extractor.step, first, end):
            x, y = batch.x, batch.y
            while len(y):
                if room == place.records and self._on_start is not None:
                    self._on_start()
                held.append((self._features(x[:room], place.dim), y[:room]))
                taken = len(held[-1][1])
                x, y, first, room = x[taken:], y[taken:], first + taken, room - taken
                if not room or first == end:
                    self._source.check_unchanged()
                    folder.write(number, *(np.concatenate(part) for part in zip(*held, strict=True)))
                    held, number, room = [], number + 1, place.records

    def _features(self, x: NDArray[Any], dim: int) -> NDArray[Any]:
        return as_inputs(np.asarray(self._extractor.transform(x)), (dim,))


@dataclass(eq=False)
class ClusterEncoder:
    """Makes the features of a store on a cluster; see :class:`privmix.features.cache.Encoder`. A context manager.

    Formal guarantees:
        * Same: the store has the bytes of one that is made here, where one machine's :meth:`runtime` is the other's;
        * Exactly once: each tile is in the store once, in its place, after any deaths and however often it was made;
        * Resumed: tiles that are there are not made again, and what comes before one is read only where its file's
          format has no place nearer to begin at.
    """

    cluster: Cluster
    source: Source
    extractor: Encodes
    workers: int | None = None
    _done: ExitStack = field(default_factory=ExitStack, init=False)
    _actors: list[Any] = field(default_factory=list, init=False)
    _later: Any = field(default=(), init=False)
    _parts: Any = field(default=(), init=False)
    _runtime: Any = field(default=None, init=False)

    def __enter__(self) -> Self:
        check_ray()
        assert self.source.travels
        self._done.enter_context(self.cluster.open())
        try:
            self._start()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.__exit__(kind, error, trace)

    def _start(self) -> None:
        import ray

        library: Any = ray
        there = library.cluster_resources()
        on_gpu = there.get("GPU", 0) >= 1 and "device" in self.extractor.runtime()
        many = int(there["GPU"] if on_gpu else max(1, there.get("CPU", 1)))
        made = library.remote(TileWorker).options(
            num_cpus=1, num_gpus=1 if on_gpu else 0, max_restarts=self.cluster.max_retries
        )
        # Put once, for all of them.
        self._parts = Parts((library.put(self.source), library.put(self.extractor)), stored=True)
        for _ in range(many if self.workers is None else min(self.workers, many)):
            self._actors.append(made.remote(os.getcwd(), self.cluster.on_task_start))
            self._done.callback(library.kill, self._actors[-1])
        asked = {asks_until_back(actor, self._parts): number for number, actor in enumerate(self._actors)}
        here, self._later = library.wait(list(asked), num_returns=len(asked), timeout=_SECONDS)
        if not here:
            here, self._later = library.wait(list(asked), num_returns=1)
        for found in library.get(here):
            self._check_runtime(_checked(found))
        # Workers on machines that are busy, or were just lost: they get work when they come.
        self._later = {one: asked[one] for one in self._later}

    def runtime(self) -> Mapping[str, Any]:
        """Return the facts that may change the last bits of features, as all workers report them."""
        found: Mapping[str, Any] = self._runtime
        return found

    def rows(
        self, source: Source, writer: FeatureStoreWriter
    ) -> Generator[tuple[NDArray[Any], NDArray[Any]], None, None]:
        assert source is self.source
        size = tile_records(source.schema.records, writer.dim)
        folder = TileFolder.beside(writer.path, {**writer.facts, "tile": size})
        path = str(writer.path.absolute())
        place = TilePlace(path, size, writer.dim, folder.facts, self._runtime)
        try:
            yield from self._in_order(place, folder, writer)
            writer.checkpoint()
        except InvalidInput:
            folder.discard()
            raise
        except BaseException:
            folder.close()
            raise
        folder.discard()

    def _in_order(
        self, place: TilePlace, folder: TileFolder, writer: FeatureStoreWriter
    ) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        size, records, manifest = place.records, self.source.schema.records, self.source.manifest()
        there, tiles, again = folder.there(), manifest.tiles(size), 0
        lacking = missing(there, writer.rows // size, tiles)
        runs = deque(manifest.runs(lacking, size))
        retries = self.cluster.max_retries
        work = Dealing(self._actors, place, self._parts, runs, retries, self._check_runtime, self._later)
        written: deque[int] = deque()
        number = writer.rows // size
        while number < tiles:
            there |= work.done(wait=number not in there)
            if number not in there:
                if work.ended:
                    raise ClusterLost(f"ray: the cluster could not finish the work; {KEPT}")
                continue
            first = number * size
            found = folder.read(number, min(size, records - first), place.dim)
            if found is None:
                again += 1
                if again > _AGAIN:
                    raise ClusterLost(
                        "ray: the tiles differ from those written. Check that all machines share the file system"
                    )
                folder.remove(number)
                there.discard(number)
                work.add(range(number, number + 1))
                continue
            passed = max(0, writer.rows - first)
            yield found[0][passed:], found[1][passed:]
            written.append(number)
            # Rows that are in the store, and stay there, need no tile.
            while written and (written[0] + 1) * size <= writer.durable_rows:
                folder.remove(written.popleft())
            number += 1

    def _check_runtime(self, found: Mapping[str, Any]) -> None:
        if self._runtime is None:
            self._runtime = found
        if found != self._runtime:
            raise ClusterLost(
                "ray: the machines differ in device, threads or library versions, so features would "
                "differ in their last bits. Use identical machines"
            )


def _neighbours(numbers: list[int]) -> Iterator[range]:
    """Yield the numbers as stretches without gaps."""
    start = 0
    for place in range(1, len(numbers) + 1):
        if place == len(numbers) or numbers[place] != numbers[place - 1] + 1:
            yield range(numbers[start], numbers[place - 1] + 1)
            start = place
