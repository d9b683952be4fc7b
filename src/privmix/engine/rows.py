"""Run a plan: exact integer sums of clipped records, one draw of noise a row, rows out tile by tile."""
# The private side: only :class:`RowBlock` values, all of them noisy, and the noisy mean leave it.

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.engine.records import PrivateRecords, RecordSource, cores, mapping, record_tiles, tiles_of
from privmix.engine.tiles import TileSummer, empty_sums
from privmix.errors import WITHHELD, InvalidInput, check_integer
from privmix.folders import no_core_dumps
from privmix.mechanisms.membership import ROW_TILE
from privmix.mechanisms.mixing import LatticeRecords, RowSums
from privmix.mechanisms.noise import gaussian_on_lattice, laplace_on_lattice
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.plan import BasePlan
from privmix.plans.rows import ReleasePlan
from privmix.progress import Progress
from privmix.publication.dataset import RecordTransform

__all__ = ["Engine", "PrivateRecords", "ReleaseEngine", "RowBlock", "RowEngine"]

# Physical sizes: they set speed and memory and change no bit of the result.
_TILES_AT_ONCE = (8, 64)
_DRAWS_A_RECORD = 4
_DRAWS_AT_ONCE = 2**26
# At least 16 rows, and enough that narrow rows too are drawn thousands of values at a time.
_NOISE_ROWS, _NOISE_VALUES = 16, 2**14
_BLOCK_TILES = 8
_EXACT_FLOAT64 = 2**53
# Bytes of blocks of columns, draws and noise that are in memory in addition to tiles and sums.
_SPARE = 2**27


@dataclass(frozen=True)
class RowBlock:
    """Some released rows: ``x`` (rows, d) and ``y`` (rows, K), float32, starting at row ``start``."""

    start: int
    x: NDArray[np.float32]
    y: NDArray[np.float32]


def released_mean(
    plan: BasePlan, clipped_sum: Callable[[], NDArray[np.float64]], streams: SecretStreams
) -> NDArray[np.float32] | None:
    """Return one Gaussian query on the sum of clipped records, divided by the public n; None without centring."""
    # clipped_sum makes the exact sum in lattice steps; it is called only if the plan centres.
    if plan.centre_noise_multiplier is None:
        return None
    total, step = clipped_sum(), plan.lattice.step
    with streams.lent("centre noise") as generator:
        # On the grid of the sum, so that low digits reveal nothing (Mironov 2012).
        total += gaussian_on_lattice(generator, (plan.dim,), plan.centre_noise_multiplier / step)
    # By the public number: the real one may differ, and is private then.
    return np.asarray(total * (step * plan.clip_norm / plan.records), dtype=np.float32)


class Engine(ABC):
    """Carries out a plan on private records; it runs once, and streams serve one engine."""

    _transform: RecordTransform | None = None
    _followed: "Engine | None" = None

    def follow(self, first: "Engine") -> None:
        """Take mean, maps and bounds of later queries from what ``first`` releases, which runs before; for audits."""
        self._followed = first

    @abstractmethod
    def rows(self, progress: Progress | None = None, *, first: int = 0) -> Iterator[RowBlock]:
        """Yield the released rows from row ``first`` on, in order, a few at a time; they do not depend on ``first``."""
        # A second run on the same streams, of any engine, raises: the same noise on other sums would reveal them.

    @property
    def transform(self) -> RecordTransform:
        """The public map from features to what was released; known once the first block of rows is out, or all are."""
        if self._transform is None:
            raise RuntimeError("the transform is available once the release of rows has begun")
        return self._transform

    @property
    def beside(self) -> Any:
        """Arrays that are released in addition to the rows, or None; known when ``transform`` is."""
        return None

    def _centre(
        self, plan: BasePlan, clipped_sum: Callable[[], NDArray[np.float64]], streams: SecretStreams
    ) -> NDArray[np.float32] | None:
        if self._followed is not None:
            return self._followed.transform.centre
        return released_mean(plan, clipped_sum, streams)


class RowEngine(Engine):
    """Makes noisy rows: the sums (how is each engine's own), and the noise.

    Formal guarantees (of every such engine):
        * the sums are those of :class:`TileSummer`: exact integers, for every engine, chunks, workers and order;
        * noise is drawn once a row, here, after the sum, from a secret stream keyed by the row's tile: running again
          under the same key re-creates the same rows;
        * membership is drawn under a derived key, so the process that makes the sums needs no key to the noise;
        * an engine runs once, and streams serve one engine: the same noise is never added to other sums;
        * rows in which no record was drawn are released like any other;
        * nothing but the noisy mean and the noisy rows leaves: no norm, count or label statistic is kept or reported.
    """

    def __init__(
        self, plan: ReleasePlan, records: RecordSource, streams: SecretStreams, *, workers: int | None
    ) -> None:
        no_core_dumps()
        tiles = tiles_of(records)
        self._plan, self._records, self._streams = plan, tiles, streams
        self._workers = workers or cores()
        self._membership = streams.derive("membership")
        self.summer: TileSummer = TileSummer(plan, tiles, self._membership, workers=self._workers)
        # Before any noise: a refusal in the midst of a run would follow on answers.
        self.summer.check_labels()
        # Beyond it float64 is not exact: low digits would depend on the order of records.
        if tiles.count * 2.0**plan.lattice_bits >= _EXACT_FLOAT64:
            raise InvalidInput("lattice sums", WITHHELD, "below 2**53 steps: use fewer lattice bits")
        step = plan.lattice.step * plan.weight_step
        weight = 1.0 if plan.max_weight is None else plan.max_weight
        # In steps of the lattice: of a row's features and of its labels.
        self._feature_noise = weight * plan.feature_noise_multiplier / step
        self._label_noise = plan.label_bound * plan.label_noise_multiplier / step
        self._units = plan.unit_x, plan.unit_y

    def rows(self, progress: Progress | None = None, *, first: int = 0) -> Iterator[RowBlock]:
        """Yield the released rows from ``first`` on (a multiple of 1,024, or all), a few tiles at a time."""
        # An engine runs once: the same noise on other sums would reveal them. No rows left: the transform alone.
        if check_integer("first row", first, low=0) % ROW_TILE and first < self._plan.rows:
            raise InvalidInput("first row", first, f"a multiple of {ROW_TILE}")
        self._streams.claim()
        return self._run(progress, -(-first // ROW_TILE))

    def draw_by(self, members: Callable[[int, int], Any]) -> None:
        """Take the members of a row tile from a tile of records as ``members`` gives them; for audits."""
        self.summer.members = members  # type: ignore[assignment, method-assign]

    @abstractmethod
    def _clipped_sum(self, progress: Progress | None) -> NDArray[np.float64]:
        """(d,) exact sum of clipped records, before centring, in lattice steps."""

    @abstractmethod
    def _row_sums(
        self, transform: RecordTransform, first: int, progress: Progress | None
    ) -> Iterator[tuple[range, RowSums]]:
        """Yield consecutive ranges of row tiles, from tile ``first`` to the last, with their sums over all records."""

    def _run(self, progress: Progress | None, first: int) -> Iterator[RowBlock]:
        plan = self._plan
        centre = self._centre(plan, lambda: self._clipped_sum(progress), self._streams)
        self._transform = RecordTransform(plan.clip_norm, plan.norm, centre, plan.residual_clip_norm)
        total = -(-plan.rows // ROW_TILE)
        if first >= total:
            return
        with mapping(self._workers) as each:
            for tiles, sums in self._row_sums(self._transform, first, progress):
                for start in range(tiles.start, tiles.stop, _BLOCK_TILES):
                    part = range(start, min(start + _BLOCK_TILES, tiles.stop))
                    block = self._finish(each, part, tiles.start, sums)
                    if progress:
                        progress("rows", part.stop, total)
                    # A caller that keeps the last block while the next sums are made should not keep all these sums.
                    last = part.stop == tiles.stop and len(tiles) > len(part)
                    yield RowBlock(block.start, block.x.copy(), block.y) if last else block
                    del block
                del sums

    def _finish(self, each: Callable[..., Iterator[None]], tiles: range, origin: int, sums: RowSums) -> RowBlock:
        """Add the noise of ``tiles``, in place where the types allow; ``sums`` begin at tile ``origin``."""
        rows = slice((tiles.start - origin) * ROW_TILE, (tiles.stop - origin) * ROW_TILE)
        x, counts, totals = sums.x[rows], sums.counts[rows], sums.totals[rows]
        # Types of 4 bytes give their memory to the float32 values: each entry is read before it is overwritten.
        released_x = x.view(np.float32) if x.itemsize == 4 else np.empty(x.shape, np.float32)
        released_y = np.empty(counts.shape, np.float32)

        def finish(tile: int) -> None:
            own = slice((tile - tiles.start) * ROW_TILE, (tile - tiles.start + 1) * ROW_TILE)
            self._add_noise(tile, x[own], counts[own], totals[own], released_x[own], released_y[own])

        for _ in each(finish, tiles):
            pass
        return RowBlock(tiles.start * ROW_TILE, released_x, released_y)

    def _label_sums(self, counts: NDArray[Any], totals: NDArray[np.float64]) -> NDArray[np.float64]:
        """(rows, K) integers: sum of one-hot labels minus the offset, in lattice steps."""
        steps = 2.0**self._plan.lattice_bits
        found = np.asarray(counts * (steps / self._plan.label_steps))
        if offset := self._plan.label_offset:
            found -= offset * steps * totals[:, None]
        return found

    def _add_noise(
        self,
        tile: int,
        x: NDArray[Any],
        counts: NDArray[Any],
        totals: NDArray[np.float64],
        released_x: NDArray[Any],
        released_y: NDArray[Any],
    ) -> None:
        """One draw of noise for the rows of a tile; then the public scaling. ``released_x`` may be ``x``'s memory."""
        unit_x, unit_y = self._units
        with self._streams.lent("feature noise", tile) as generator:
            self._noisy(generator, self._feature_noise, x, unit_x, released_x)
        if self._plan.public_labels:
            # Row t holds records of class t mod K only: its label follows from its number.
            labels = (tile * ROW_TILE + np.arange(len(x))) % self._plan.num_classes
            released_y[:] = np.eye(self._plan.num_classes, dtype=np.float32)[labels]
            released_y -= np.float32(self._plan.label_offset)
            return
        with self._streams.lent("label noise", tile) as generator:
            self._noisy(generator, self._label_noise, self._label_sums(counts, totals), unit_y, released_y)

    def _noisy(
        self, generator: np.random.Generator, scale: float, sums: NDArray[Any], unit: float, out: NDArray[Any]
    ) -> None:
        """Write (sums + noise) * unit to ``out``, a few rows at a time: they stay in the cache."""
        draw = laplace_on_lattice if self._plan.noise == "laplace" else gaussian_on_lattice
        step = max(_NOISE_ROWS, _NOISE_VALUES // sums.shape[1])
        for rows in (slice(first, first + step) for first in range(0, len(sums), step)):
            noise = draw(generator, sums[rows].shape, scale)
            noise += sums[rows]
            noise *= unit
            out[rows] = noise


class ReleaseEngine(RowEngine):
    """The engine of one machine: quantised records in memory where they fit, else read tile by tile.

    Formal guarantees: those of :class:`RowEngine`; ``memory_bytes`` changes no bit either.
    """

    # If the records do not fit, as many rows as do are summed at once, and the records are read once for each such
    # chunk. memory_bytes: memory-mapped pages apart; None: half of the machine's; at least a record and a row tile.

    def __init__(
        self,
        plan: ReleasePlan,
        records: RecordSource,
        streams: SecretStreams,
        *,
        tiles_at_once: int | None = None,
        workers: int | None = None,
        memory_bytes: int | None = None,
    ) -> None:
        super().__init__(plan, records, streams, workers=workers)
        memory = default_memory() if memory_bytes is None else check_integer("memory", memory_bytes, low=1)
        # From public expectations, not from what was drawn. Every chunk of rows reads all records once: enough rows
        # that several of them share a record, few enough that memory is reused.
        draws = max(1.0, plan.expected_members * ROW_TILE)
        fewest, most = _TILES_AT_ONCE
        wanted = max(fewest, math.ceil(_DRAWS_A_RECORD * self._records.count / draws))
        kept = max(1, min(wanted, most, int(_DRAWS_AT_ONCE / draws)))
        row_tile = ROW_TILE * self.summer.row_bytes
        self._out_of_core = self._records.count * self.summer.record_bytes + kept * row_tile + _SPARE > memory
        longest = max(map(self._records.length, range(record_tiles(self._records))))
        one_tile = longest * self.summer.record_bytes
        fitting = max(1, int((memory - one_tile - _SPARE) / row_tile))
        self._tiles_at_once = tiles_at_once or (fitting if self._out_of_core else kept)
        self._kept: list[LatticeRecords] = []
        self._buffer: LatticeRecords | None = None

    def _clipped_sum(self, progress: Progress | None) -> NDArray[np.float64]:
        total = np.zeros(self._plan.dim)
        for index in range(record_tiles(self._records)):
            total += self.summer.clipped_sum(index, self._count(progress, "mean", index))
        return total

    def _row_sums(
        self, transform: RecordTransform, first: int, progress: Progress | None
    ) -> Iterator[tuple[range, RowSums]]:
        total, step = -(-self._plan.rows // ROW_TILE), self._tiles_at_once
        chunks = [range(start, min(start + step, total)) for start in range(first, total, step)]
        for number, chunk in enumerate(chunks):
            # No name here holds the sums while the next ones are made.
            yield chunk, self._sum_chunk(chunk, transform, (number, len(chunks)), progress)

    def _sum_chunk(
        self, chunk: range, transform: RecordTransform, part: tuple[int, int], progress: Progress | None
    ) -> RowSums:
        sums = empty_sums(self._plan, chunk)
        for index in range(record_tiles(self._records)):
            self.summer.add(sums, chunk, index, self._on_lattice(index, transform, part, progress))
        return sums

    def _on_lattice(
        self, index: int, transform: RecordTransform, part: tuple[int, int], progress: Progress | None
    ) -> LatticeRecords:
        """Tile ``index``, quantised: kept from the first chunk of rows on, or in the one buffer that all tiles use."""
        if index < len(self._kept):
            return self._kept[index]
        if not self._out_of_core:
            made = self.summer.quantise(
                index, transform, self.summer.empty_tile(index), self._count(progress, "clip", index)
            )
            self._kept.append(made)
            return made
        if self._buffer is None:
            self._buffer = self.summer.empty_tile(*range(record_tiles(self._records)))
        return self.summer.quantise(index, transform, self._buffer, self._count(progress, "clip", index, part))

    def _count(
        self, progress: Progress | None, stage: str, index: int, part: tuple[int, int] = (0, 1)
    ) -> Callable[[int], None]:
        """Return the function to call with the records done of tile ``index``, in pass ``part[0]`` of ``part[1]``."""
        if progress is None:
            return lambda _: None
        count, (passes, of) = self._records.count, part
        before = passes * count + sum(map(self._records.length, range(index)))
        return lambda done: progress(stage, before + done, of * count)


@cache
def default_memory() -> int:
    """Half of what this machine, or its container, had when it was first asked for: in bytes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file() and (text := limit.read_text().strip()).isdigit():
        total = min(total, int(text))
    return total // 2
