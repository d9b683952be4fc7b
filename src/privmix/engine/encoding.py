"""Features made on a Ray cluster: tasks read tiles of the records, encode them, and write each tile's file."""
# Records and features never enter Ray's object store or its spilled files. So data and store must be on a file system
# that all machines share, at the same paths, as the same user's.

import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from privmix.data.partial import TileFolder, tile_records
from privmix.data.source import Source, as_inputs
from privmix.data.store import FeatureStoreWriter
from privmix.engine.cluster import KEPT, ClusterLost, check_ray
from privmix.engine.ray import Cluster, _checked, _guarded
from privmix.errors import InvalidInput
from privmix.folders import no_core_dumps

# Runs of tiles that are under way for each slot of the cluster: no slot waits for the next one.
_AHEAD: Final = 2
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


@dataclass(frozen=True)
class TileTask:
    """The needs of every task: places of source and extractor in Ray's object store, the folder that names start in."""

    source: Any
    extractor: Any
    folder: str
    on_start: Callable[[], None] | None

    def parts(self) -> tuple[Source, Encodes]:
        no_core_dumps()
        # Names of files may be relative.
        with suppress(OSError):
            os.chdir(self.folder)
        return _fetched(self.source, self.extractor)

    def runtime(self) -> Any:
        return _guarded(lambda: self.parts()[1].runtime())

    def encode(self, place: TilePlace, span: range) -> Any:
        return _guarded(lambda: encode_tiles(place, span, *self.parts(), self.on_start))


@lru_cache(1)
def _fetched(source: Any, extractor: Any) -> tuple[Source, Encodes]:
    """Fetch both once for each process."""
    # A process does many tasks, and a network takes seconds to load.
    import ray

    found: tuple[Source, Encodes] = tuple(ray.get([source, extractor]))
    # One core for each task, as Ray counts them.
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
    return found


def encode_tiles(
    place: TilePlace, span: range, source: Source, extractor: Encodes, on_start: Callable[[], None] | None = None
) -> Mapping[str, Any]:
    """Make the missing tiles of ``span``; return the facts that may change the last bits of features.

    Formal guarantees:
        * a tile's bytes follow from the data, the extractor and its number: made twice, it is the same;
        * the text of a failure on a cluster reveals no fact about a record.
    """
    found = extractor.runtime()
    if place.runtime not in (None, found):
        # A machine with other versions: its tiles would differ in the last bits.
        return found
    folder = TileFolder.at(Path(place.path), place.facts)
    try:
        there = folder.there()
        for run in _neighbours([number for number in span if number not in there]):
            _encode(place, folder, run, source, extractor, on_start)
    finally:
        folder.close()
    return extractor.runtime()


def _encode(
    place: TilePlace,
    folder: TileFolder,
    run: range,
    source: Source,
    extractor: Encodes,
    on_start: Callable[[], None] | None,
) -> None:
    first, end = run.start * place.records, min(run.stop * place.records, source.schema.records)
    held: list[tuple[NDArray[Any], NDArray[np.int64]]] = []
    number, room = run.start, place.records
    for batch in source.batches(extractor.step, first, end):
        x, y = batch.x, batch.y
        while len(y):
            if room == place.records and on_start is not None:
                on_start()
            held.append((as_inputs(np.asarray(extractor.transform(x[:room])), (place.dim,)), y[:room]))
            taken = len(held[-1][1])
            x, y, first, room = x[taken:], y[taken:], first + taken, room - taken
            if not room or first == end:
                # Before the tile is written: a file that changes would mix old and new records.
                source.check_unchanged()
                folder.write(number, *(np.concatenate(part) for part in zip(*held, strict=True)))
                held, number, room = [], number + 1, place.records


@dataclass(eq=False)
class ClusterEncoder:
    """Makes the features of a store on a cluster; see :class:`privmix.features.cache.Encoder`.

    Formal guarantees:
        * Same: the store has the bytes of one that is made here, where one machine's :meth:`runtime` is the other's;
        * Exactly once: each tile is in the store once, in its place, after any deaths and however often it was made;
        * Resumed: tiles that are there are not made again, and what comes before one is read only where its file's
          format has no place nearer to begin at;
        * Lost: the runs of tiles of a worker that died, alone or with its machine, go to others at once, each at most
          ``max_retries`` times; a run that takes long holds up itself alone.
    """

    # start: has a run of tiles made; most: runs that are under way at once.

    source: Source
    start: Callable[[TilePlace, range], Any]
    most: int
    facts: Mapping[str, Any]
    _under_way: dict[Any, range] = field(default_factory=dict, init=False)

    @classmethod
    @contextmanager
    def on(cls, cluster: Cluster, source: Source, extractor: Encodes, workers: int | None = None) -> Iterator[Self]:
        """Connect to the cluster while the block lasts; what is under way at its end is given up."""
        check_ray()
        assert source.travels
        import ray

        library: Any = ray
        with cluster.open():
            there = library.cluster_resources()
            on_gpu = there.get("GPU", 0) >= 1 and "device" in extractor.runtime()
            many = int(there["GPU"] if on_gpu else max(1, there.get("CPU", 1)))
            # Put once, for all tasks.
            task = TileTask(library.put(source), library.put(extractor), os.getcwd(), cluster.on_task_start)
            # On a GPU Ray would end a process after each call, and the network would be loaded for each.
            remote = library.remote(
                num_cpus=1, num_gpus=1 if on_gpu else 0, max_retries=cluster.max_retries, max_calls=0
            )
            encode, facts = remote(TileTask.encode), library.get(remote(TileTask.runtime).remote(task))
            most = _AHEAD * many if workers is None else min(workers, many)
            encoder = cls(source, lambda place, run: encode.remote(task, place, run), most, _checked(facts))
            try:
                yield encoder
            finally:
                for call in encoder._under_way:
                    library.cancel(call, force=True)

    def runtime(self) -> Mapping[str, Any]:
        """Return the facts that may change the last bits of features; every worker has the same."""
        return self.facts

    def rows(
        self, source: Source, writer: FeatureStoreWriter
    ) -> Generator[tuple[NDArray[Any], NDArray[Any]], None, None]:
        assert source is self.source
        size = tile_records(source.schema.records, writer.dim)
        folder = TileFolder.beside(writer.path, {**writer.facts, "tile": size})
        path = str(writer.path.absolute())
        place = TilePlace(path, size, writer.dim, folder.facts, self.facts)
        try:
            yield from self._in_order(place, folder, writer)
            writer.checkpoint()
        except InvalidInput:
            # Tiles of refused records must not serve the next attempt.
            folder.discard()
            raise
        except BaseException:
            # Other tiles stay: the next attempt continues with them.
            folder.close()
            raise
        folder.discard()

    def _in_order(
        self, place: TilePlace, folder: TileFolder, writer: FeatureStoreWriter
    ) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        import ray

        size, records, manifest = place.records, self.source.schema.records, self.source.manifest()
        there, tiles, again = folder.there(), manifest.tiles(size), 0
        written: deque[int] = deque()
        number = writer.rows // size
        runs = deque(manifest.runs([tile for tile in range(number, tiles) if tile not in there], size))
        while number < tiles:
            while runs and len(self._under_way) < self.most:
                run = runs.popleft()
                self._under_way[self.start(place, run)] = run
            if not self._under_way and number not in there:
                raise ClusterLost(f"ray: the cluster could not finish the work; {KEPT}")
            waiting = list(self._under_way)
            # No waiting while the next tile in order is there.
            for call in ray.wait(waiting, timeout=0 if number in there else None)[0] if waiting else ():
                if _checked(ray.get(call)) != self.facts:
                    raise ClusterLost(
                        "ray: the machines differ in device, threads or library versions, so features would "
                        "differ in their last bits. Use identical machines"
                    )
                there |= set(self._under_way.pop(call))
            if number not in there:
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
                runs.appendleft(range(number, number + 1))
                continue
            passed = max(0, writer.rows - first)
            yield found[0][passed:], found[1][passed:]
            written.append(number)
            # Rows that are in the store, and stay there, need no tile.
            while written and (written[0] + 1) * size <= writer.durable_rows:
                folder.remove(written.popleft())
            number += 1


def _neighbours(numbers: list[int]) -> Iterator[range]:
    start = 0
    for place in range(1, len(numbers) + 1):
        if place == len(numbers) or numbers[place] != numbers[place - 1] + 1:
            yield range(numbers[start], numbers[place - 1] + 1)
            start = place
