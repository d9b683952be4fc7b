"""Run a plan: exact integer sums of clipped records, one draw of noise a row, rows out tile by tile.

This is the private side. What leaves it are :class:`RowBlock` values, all of them noisy, and the noisy mean.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from privmix.errors import WITHHELD, InvalidInput
from privmix.mechanisms.membership import RECORD_TILE, ROW_TILE, Membership
from privmix.mechanisms.mixing import LatticeRecords, sum_rows
from privmix.mechanisms.noise import Lattice, gaussian_on_lattice, laplace_on_lattice
from privmix.mechanisms.sampling import Sampler
from privmix.mechanisms.streams import SecretStreams
from privmix.release.dataset import RecordTransform
from privmix.release.plan import ReleasePlan
from privmix.release.plan_base import BasePlan

Progress = Callable[[str, int, int], None]
"""Called with a stage's name, the steps done and the steps in all."""

_Result = TypeVar("_Result")

# Physical sizes: they set speed and memory and change no bit of the result.
_RECORD_BLOCK = 64
_TILES_AT_ONCE = (8, 64)
_DRAWS_A_RECORD = 4
_DRAWS_AT_ONCE = 2**26
_NOISE_ROWS = 16


@dataclass(frozen=True)
class RowBlock:
    """Some released rows: ``x`` (rows, d) and ``y`` (rows, K), float32, starting at row ``start``."""

    start: int
    x: NDArray[np.float32]
    y: NDArray[np.float32]


@dataclass(frozen=True)
class PrivateRecords:
    """Extracted features (n, d) and labels (n,) in 0..K-1. Secret."""

    features: NDArray[Any]
    labels: NDArray[np.int64]

    def __repr__(self) -> str:
        return "<PrivateRecords>"


def check_records(plan: BasePlan, records: PrivateRecords) -> None:
    """Raise :class:`InvalidInput` unless the records have the plan's shapes and classes."""
    if records.features.ndim != 2 or records.features.shape[1] != plan.dim:
        raise InvalidInput("features", f"{records.features.shape[1:]}", f"a 2-d array with {plan.dim} columns")
    if records.labels.shape != records.features.shape[:1] or len(records.labels) == 0:
        raise InvalidInput("labels", WITHHELD, "one label a record, and at least one record")
    if records.labels.min() < 0 or records.labels.max() >= plan.num_classes:
        raise InvalidInput("labels", WITHHELD, f"class numbers from 0 to {plan.num_classes - 1}")


def released_mean(
    plan: BasePlan, records: PrivateRecords, streams: SecretStreams, progress: Progress | None
) -> NDArray[np.float32] | None:
    """The released mean: one Gaussian query on the sum of clipped records, divided by the public n; or None."""
    if plan.centre_noise_multiplier is None:
        return None
    transform, lattice, total = RecordTransform(plan.clip_norm), Lattice(plan.lattice_bits), np.zeros(plan.dim)
    for start in range(0, len(records.labels), 4096):
        block = transform(np.asarray(records.features[start : start + 4096]))
        total += lattice.quantise(block / plan.clip_norm).sum(axis=0)
        if progress:
            progress("mean", min(start + 4096, len(records.labels)), len(records.labels))
    std = plan.centre_noise_multiplier / lattice.step
    total += gaussian_on_lattice(streams.generator("centre noise"), (plan.dim,), std)
    return np.asarray(total * (lattice.step * plan.clip_norm / plan.records), dtype=np.float32)


class ReleaseEngine:
    """Carries out a plan on private records.

    Formal guarantees:
        * the sampler that draws is the plan's, so what runs is what was priced;
        * every record is clipped, centred with the released mean and clipped again before it is summed, and rounding
          to the lattice never makes it longer;
        * sums are exact integers: chunk sizes, threads and order change no bit of the output;
        * noise is drawn once a row, after the sum, from a secret stream keyed by the row's tile: running again under
          the same key re-creates the same rows;
        * an engine runs once, and streams serve one engine: the same noise is never added to other sums;
        * rows in which no record was drawn are released like any other;
        * nothing but the noisy mean and the noisy rows leaves: no norm, count or label statistic is kept or reported.

    Args:
        plan: the public plan.
        records: the private records.
        streams: secret randomness; the caller destroys it afterwards.
        tiles_at_once: row tiles (of 1,024 rows) summed together; None keeps memory in bounds.
        workers: threads that draw noise; None uses every core.
    """

    def __init__(
        self,
        plan: ReleasePlan,
        records: PrivateRecords,
        streams: SecretStreams,
        *,
        tiles_at_once: int | None = None,
        workers: int | None = None,
    ) -> None:
        if records.features.ndim != 2 or records.features.shape[1] != plan.dim:
            raise InvalidInput("features", f"{records.features.shape[1:]}", f"a 2-d array with {plan.dim} columns")
        if records.labels.shape != records.features.shape[:1] or len(records.labels) == 0:
            raise InvalidInput("labels", WITHHELD, "one label a record, and at least one record")
        if records.labels.min() < 0 or records.labels.max() >= plan.num_classes:
            raise InvalidInput("labels", WITHHELD, f"class numbers from 0 to {plan.num_classes - 1}")
        self._plan, self._records, self._streams = plan, records, streams
        self._transform: RecordTransform | None = None
        self._sampler: Sampler = plan.sampler_for(len(records.labels))
        self._lattice = Lattice(plan.lattice_bits)
        # From public expectations, not from what was drawn. Every chunk of rows reads all records once: enough rows
        # that several of them share a record, few enough that memory is reused.
        draws = max(1.0, plan.expected_members * ROW_TILE)
        fewest, most = _TILES_AT_ONCE
        wanted = max(fewest, math.ceil(_DRAWS_A_RECORD * plan.records / draws))
        self._tiles_at_once = tiles_at_once or max(1, min(wanted, most, int(_DRAWS_AT_ONCE / draws)))
        self._workers = workers or os.cpu_count() or 1

    def rows(self, progress: Progress | None = None) -> Iterator[RowBlock]:
        """Yield every released row, in order, a few tiles at a time. An engine runs once.

        Raises:
            RuntimeError: the engine, or another one on the same streams, ran before: the same noise on other sums
                would give the sums away.
        """
        self._streams.claim()
        return self._run(progress)

    @property
    def transform(self) -> RecordTransform:
        """The public map from features to what was mixed; known once the first block of rows is out."""
        if self._transform is None:
            raise RuntimeError("the transform is known once rows are being released")
        return self._transform

    def _run(self, progress: Progress | None) -> Iterator[RowBlock]:
        norm = "l1" if self._plan.noise == "laplace" else "l2"
        plan = self._plan
        self._transform = RecordTransform(plan.clip_norm, norm, self._centre(progress), plan.residual_clip_norm)
        on_lattice = self._quantised(self._transform, progress)
        tiles = -(-plan.rows // ROW_TILE)
        with ThreadPoolExecutor(self._workers) as pool:
            for first in range(0, tiles, self._tiles_at_once):
                chunk = range(first, min(first + self._tiles_at_once, tiles))
                yield self._finish(pool, chunk, *self._sums(chunk, on_lattice), tiles, progress)

    def _centre(self, progress: Progress | None) -> NDArray[np.float32] | None:
        """The released mean: one Gaussian query on the sum of clipped records, divided by the public n; or None."""
        plan = self._plan
        if plan.centre_noise_multiplier is None:
            return None
        transform = RecordTransform(plan.clip_norm)
        total = np.zeros(plan.dim)
        for _, block in self._map_blocks("mean", lambda _, block: self._steps(transform, block).sum(axis=0), progress):
            total += block
        std = plan.centre_noise_multiplier / self._lattice.step
        total += gaussian_on_lattice(self._streams.generator("centre noise"), (plan.dim,), std)
        return np.asarray(total * (self._lattice.step * plan.clip_norm / plan.records), dtype=np.float32)

    def _map_blocks(
        self, stage: str, work: Callable[[int, NDArray[Any]], _Result], progress: Progress | None
    ) -> Iterator[tuple[int, _Result]]:
        """Apply ``work`` to blocks of records on every core; results come in order."""
        count = len(self._records.labels)
        starts = range(0, count, _RECORD_BLOCK)

        def one(start: int) -> _Result:
            return work(start, np.asarray(self._records.features[start : start + _RECORD_BLOCK]))

        with ThreadPoolExecutor(self._workers) as pool:
            for start, result in zip(starts, pool.map(one, starts), strict=True):
                yield start, result
                if progress:
                    progress(stage, min(start + _RECORD_BLOCK, count), count)

    def _steps(self, transform: RecordTransform, block: NDArray[Any]) -> NDArray[np.float64]:
        """Transformed records as integers, in lattice steps of their clipping bound."""
        return self._lattice.quantise(transform(block) / transform.final_clip_norm)

    def _quantised(self, transform: RecordTransform, progress: Progress | None) -> LatticeRecords:
        """All transformed records on the lattice."""
        # Clipping leaves a hair below the bound and rounding goes toward zero: 2^bits itself never occurs.
        largest = 2**self._plan.lattice_bits - 1
        records = LatticeRecords.empty(len(self._records.labels), self._plan.dim, largest)
        for _ in self._map_blocks(
            "clip", lambda start, block: records.fill(start, self._steps(transform, block)), progress
        ):
            pass
        return records

    def _finish(
        self,
        pool: ThreadPoolExecutor,
        tiles: range,
        x: NDArray[Any],
        y: NDArray[np.float64],
        total: int,
        progress: Progress | None,
    ) -> RowBlock:
        """Add every tile's noise, in place where the types allow."""
        released_x = x if x.dtype == np.float32 else np.empty(x.shape, np.float32)
        released_y = np.empty(y.shape, np.float32)

        def finish(tile: int) -> None:
            rows = slice((tile - tiles.start) * ROW_TILE, (tile - tiles.start + 1) * ROW_TILE)
            self._add_noise(tile, x[rows], y[rows], released_x[rows], released_y[rows])

        for done, _ in enumerate(pool.map(finish, tiles), start=1):
            if progress:
                progress("rows", tiles.start + done, total)
        return RowBlock(tiles.start * ROW_TILE, released_x, released_y)

    def _sums(self, tiles: range, on_lattice: LatticeRecords) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Exact integer sums of features and of labels minus their offset, over every record tile."""
        total: NDArray[Any] | None = None
        labels: NDArray[np.float64] | None = None
        for record_tile, begin in enumerate(range(0, on_lattice.count, RECORD_TILE)):
            part = slice(begin, begin + RECORD_TILE)
            own_labels = self._records.labels[part]
            members = Membership.stack(
                [self._sampler.draw(self._streams, tile, record_tile, own_labels) for tile in tiles]
            )
            sums, label_sums = sum_rows(on_lattice.part(part), members), self._label_sums(members, own_labels)
            if members.weights is not None:
                # Weighted sums are multiples of the weights' grid: in its steps they are integers.
                sums /= self._plan.weight_step
                label_sums /= self._plan.weight_step
            if total is None or labels is None:
                total, labels = sums, label_sums
            else:
                # float64 holds the sum of two exact parts exactly; float32 might not.
                total = total.astype(np.float64, copy=False)
                total += sums
                labels += label_sums
        assert total is not None
        assert labels is not None
        return total, labels

    def _label_sums(self, members: Membership, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """(rows, K) integers: sum of one-hot labels minus the offset, in lattice steps."""
        classes = self._plan.num_classes
        cell = np.repeat(np.arange(members.rows) * classes, members.counts) + labels[members.indices]
        counts = np.bincount(cell, members.weights, members.rows * classes).reshape(members.rows, classes)
        steps = 2.0**self._plan.lattice_bits
        return np.asarray(counts * steps - self._plan.label_offset * steps * counts.sum(axis=1, keepdims=True))

    def _add_noise(
        self, tile: int, x: NDArray[Any], y: NDArray[np.float64], released_x: NDArray[Any], released_y: NDArray[Any]
    ) -> None:
        """One draw of noise for the rows of a tile; then the public scaling. ``released_x`` may be ``x`` itself."""
        plan = self._plan
        step = self._lattice.step * plan.weight_step
        weight = 1.0 if plan.max_weight is None else plan.max_weight
        self._noisy(
            self._streams.generator("feature noise", tile),
            weight * plan.feature_noise_multiplier / step,
            x,
            step * plan.final_clip_norm / plan.divisor,
            released_x,
        )
        if plan.public_labels:
            released_y[:] = self._public_labels(tile, len(x))
            return
        self._noisy(
            self._streams.generator("label noise", tile),
            plan.label_bound * plan.label_noise_multiplier / step,
            y,
            step / plan.divisor,
            released_y,
        )

    def _noisy(
        self, generator: np.random.Generator, scale: float, sums: NDArray[Any], unit: float, out: NDArray[Any]
    ) -> None:
        """Write (sums + noise) * unit to ``out``, a few rows at a time: they stay in the cache."""
        draw = laplace_on_lattice if self._plan.noise == "laplace" else gaussian_on_lattice
        for rows in (slice(first, first + _NOISE_ROWS) for first in range(0, len(sums), _NOISE_ROWS)):
            noise = draw(generator, sums[rows].shape, scale)
            noise += sums[rows]
            noise *= unit
            out[rows] = noise

    def _public_labels(self, tile: int, rows: int) -> NDArray[np.float32]:
        """Row t holds records of class t mod K only: its label says so without looking at them."""
        classes = self._plan.num_classes
        labels = (tile * ROW_TILE + np.arange(rows)) % classes
        return np.eye(classes, dtype=np.float32)[labels] - np.float32(self._plan.label_offset)
