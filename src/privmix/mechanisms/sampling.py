"""Sampling designs: each frozen object defines who is in a row AND what that costs."""
# So no code can draw by one design and account by another. Draws are keyed by logical tiles (``ROW_TILE`` rows x
# ``RECORD_TILE`` records): how an engine chunks its work changes nothing.

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privmix.accounting.events import (
    Adjacency,
    Allocated,
    ClusterSampled,
    Composed,
    Event,
    FixedSizeSampled,
    PoissonSampled,
    Repeated,
)
from privmix.errors import WITHHELD, InvalidInput, check_integer
from privmix.fields import Checked, Count, Rate
from privmix.mechanisms.membership import (
    RECORD_TILE,
    ROW_TILE,
    ItemGroups,
    Membership,
    bernoulli_positions,
    check_weights,
    dirichlet_weights,
    draw_blocks,
    draw_rectangle,
    offsets_of,
    tile_length,
)
from privmix.mechanisms.streams import SecretStreams

__all__ = [
    "RECORD_TILE",
    "ROW_TILE",
    "AllocationSampling",
    "ClasswiseSampling",
    "DirichletWeights",
    "EveryRecord",
    "FixedSizeSampling",
    "HierarchicalSampling",
    "Membership",
    "PoissonSampling",
    "Sampler",
]


@dataclass(frozen=True)
class Sampler(Checked, ABC):
    """A design for drawing the members of ``rows`` rows from ``records`` records.

    Formal guarantees (of every design):
        * One plan: :meth:`event` describes the very law that :meth:`draw` follows.
        * Tiles: a tile's membership depends on the key, the design and the tile, not on the calls before it.
        * Data-independent: membership depends on no feature, and on labels only where the design states it.
    """

    by_class: ClassVar[bool] = False

    records: Count
    rows: Count

    @property
    @abstractmethod
    def adjacency(self) -> Adjacency:
        """The pairs of datasets that :meth:`event` is priced for."""

    @abstractmethod
    def event(self, query: Event) -> Event:
        """Return what all rows together cost, in terms of ``query``: one row's noisy sum of its members."""

    @abstractmethod
    def draw(
        self, streams: SecretStreams, row_tile: int, record_tile: int, labels: NDArray[np.int64] | None = None
    ) -> Membership:
        """Draw which records of tile ``record_tile`` are in which rows of tile ``row_tile``, in O(draws)."""
        # labels: (records in the tile,) class index of each record, for designs with classes only.

    @property
    def row_tiles(self) -> int:
        return -(-self.rows // ROW_TILE)

    def _tile_shape(self, row_tile: int, record_tile: int) -> tuple[int, int]:
        return tile_length(self.rows, row_tile, ROW_TILE), tile_length(self.records, record_tile, RECORD_TILE)


@dataclass(frozen=True)
class PoissonSampling(Sampler):
    """Each record joins each row independently with probability ``sampling_rate`` (DPMix, NeuroMixGDP, DPFMix)."""

    adjacency = Adjacency.ADD_REMOVE

    sampling_rate: Rate

    def event(self, query: Event) -> Event:
        return Repeated(PoissonSampled(self.sampling_rate, query), self.rows)

    def draw(
        self, streams: SecretStreams, row_tile: int, record_tile: int, labels: NDArray[np.int64] | None = None
    ) -> Membership:
        rows, records = self._tile_shape(row_tile, record_tile)
        with streams.lent("poisson membership", row_tile, record_tile) as generator:
            return draw_rectangle(generator, rows, records, self.sampling_rate)


@dataclass(frozen=True)
class AllocationSampling(Sampler):
    """Rows are cut into ``rows_each`` blocks; each record is in one row of every block, drawn uniformly."""

    # Random allocation (Feldman and Shenfeld 2025). Block j ends before row (j + 1) * rows // rows_each. A record's row
    # depends on the key, the block and the record's place alone, and is independent of all others'.

    adjacency = Adjacency.ADD_REMOVE

    rows_each: Count

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("rows_each", self.rows_each, low=1, high=self.rows)

    def event(self, query: Event) -> Event:
        size, longer = divmod(self.rows, self.rows_each)
        parts = [(size, self.rows_each - longer), (size + 1, longer)]
        events: list[Event] = [Repeated(Allocated(rows, query), count) for rows, count in parts if count]
        return events[0] if len(events) == 1 else Composed(tuple(events))

    def block_start(self, block: int) -> int:
        """Return the first row of a block; of ``rows_each``, the number of rows."""
        return block * self.rows // self.rows_each

    def draw(
        self, streams: SecretStreams, row_tile: int, record_tile: int, labels: NDArray[np.int64] | None = None
    ) -> Membership:
        """See :meth:`Sampler.draw`; a block that spans many row tiles is drawn again for each of them."""
        rows, records = self._tile_shape(row_tile, record_tile)
        first = row_tile * ROW_TILE
        found = []
        for block in range(self._block_of(first), self._block_of(first + rows - 1) + 1):
            start, end = self.block_start(block), self.block_start(block + 1)
            # The row tile is no part of the name: a record's row is drawn once.
            with streams.lent("allocation membership", block, record_tile) as generator:
                row = generator.integers(start - first, end - first, size=records)
            here = np.flatnonzero((row >= 0) & (row < rows))
            found.append(row[here] * RECORD_TILE + here)
        row_major = np.sort(np.concatenate(found))
        row, members = np.divmod(row_major, RECORD_TILE)
        return Membership(offsets_of(np.bincount(row, minlength=rows)), members)

    def _block_of(self, row: int) -> int:
        return ((row + 1) * self.rows_each - 1) // self.rows


@dataclass(frozen=True)
class DirichletWeights:
    """Random mixing weights for fixed-size rows, see :func:`privmix.mechanisms.membership.dirichlet_weights`."""

    # max_weight is a row's sensitivity to one record of norm 1; weights are multiples of 2^-bits.

    alpha: float
    max_weight: float = 1.0
    bits: int = 16

    def __post_init__(self) -> None:
        check_weights(self.alpha, self.max_weight, self.bits)


@dataclass(frozen=True)
class FixedSizeSampling(Sampler):
    """Each row holds ``sample_size`` records drawn uniformly without replacement (DP-InstaHide, random weights)."""

    # Priced for replaced records: with the size fixed, a row's members and weights depend on no record's content.

    adjacency = Adjacency.REPLACE_ONE

    sample_size: Count
    weights: DirichletWeights | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("sample_size", self.sample_size, low=1, high=self.records)

    def event(self, query: Event) -> Event:
        return Repeated(FixedSizeSampled(self.records, self.sample_size, query), self.rows)

    def draw(
        self, streams: SecretStreams, row_tile: int, record_tile: int, labels: NDArray[np.int64] | None = None
    ) -> Membership:
        rows, records = self._tile_shape(row_tile, record_tile)
        # Members of one row depend on each other across record tiles, so the whole row is drawn, then cut.
        with streams.lent("fixed-size membership", row_tile) as generator:
            cells = _distinct_cells(generator, rows, self.records, self.sample_size)
        row = np.repeat(np.arange(rows), self.sample_size)
        record = cells - row * self.records - record_tile * RECORD_TILE
        here = (record >= 0) & (record < records)
        offsets = offsets_of(np.bincount(row[here], minlength=rows))
        return Membership(offsets, record[here], self._draw_weights(streams, row_tile, rows, here))

    def _draw_weights(
        self, streams: SecretStreams, row_tile: int, rows: int, here: NDArray[np.bool_]
    ) -> NDArray[np.float64] | None:
        if self.weights is None:
            return None
        law = self.weights
        with streams.lent("mixing weights", row_tile) as generator:
            drawn = dirichlet_weights(generator, rows, self.sample_size, law.alpha, law.max_weight, law.bits)
        return np.asarray(drawn.ravel()[here])


@dataclass(frozen=True)
class HierarchicalSampling(Sampler):
    """Each row selects each class with probability p1, then each of its records with p2 (NeuroMixGDP-HS)."""

    # A row without any class is a normal row. Given one record of a class, the others of that class are likelier to be
    # in the row too. So the price is cluster sampling's, not Poisson's at p1 p2 as in the paper's Proposition E.3.

    by_class: ClassVar[bool] = True
    adjacency = Adjacency.ADD_REMOVE

    classes: Count
    class_rate: Rate
    record_rate: Rate

    def event(self, query: Event) -> Event:
        return Repeated(ClusterSampled(self.class_rate, self.record_rate, query), self.rows)

    def draw(
        self, streams: SecretStreams, row_tile: int, record_tile: int, labels: NDArray[np.int64] | None = None
    ) -> Membership:
        rows, records = self._tile_shape(row_tile, record_tile)
        by_class = ItemGroups.from_labels(_checked_labels(labels, records, self.classes), self.classes)
        # Keyed by the row tile alone: a row selects a class once, for its records in all tiles.
        with streams.lent("hierarchical classes", row_tile) as generator:
            selected = bernoulli_positions(generator, self.classes * rows, self.class_rate)
        starts = np.searchsorted(selected, np.arange(self.classes + 1) * rows)
        with streams.lent("hierarchical membership", row_tile, record_tile) as generator:
            return draw_blocks(generator, rows, ItemGroups(selected % rows, starts), by_class, self.record_rate)


@dataclass(frozen=True)
class ClasswiseSampling(Sampler):
    """Row t draws from class ``t % classes`` only: each record with probability ``sampling_rate``, or all at 1."""

    # The class of a row is public, so its label needs no noise. A record touches the rows of its own class only, at
    # most ceil(rows / classes). Labels are part of the record: the guarantee is for adding or removing one.

    by_class: ClassVar[bool] = True
    adjacency = Adjacency.ADD_REMOVE

    classes: Count
    sampling_rate: Rate

    def event(self, query: Event) -> Event:
        row = query if self.sampling_rate == 1 else PoissonSampled(self.sampling_rate, query)
        return Repeated(row, -(-self.rows // self.classes))

    def draw(
        self, streams: SecretStreams, row_tile: int, record_tile: int, labels: NDArray[np.int64] | None = None
    ) -> Membership:
        rows, records = self._tile_shape(row_tile, record_tile)
        by_class = ItemGroups.from_labels(_checked_labels(labels, records, self.classes), self.classes)
        class_of_row = (row_tile * ROW_TILE + np.arange(rows, dtype=np.int64)) % self.classes
        by_row = ItemGroups.from_labels(class_of_row, self.classes)
        with streams.lent("classwise membership", row_tile, record_tile) as generator:
            return draw_blocks(generator, rows, by_row, by_class, self.sampling_rate)


@dataclass(frozen=True)
class EveryRecord(Sampler):
    """No draw: each of the queries ("rows") is about every record. There is no amplification."""

    adjacency = Adjacency.ADD_REMOVE

    def event(self, query: Event) -> Event:
        return query if self.rows == 1 else Repeated(query, self.rows)

    def draw(
        self, streams: SecretStreams, row_tile: int, record_tile: int, labels: NDArray[np.int64] | None = None
    ) -> Membership:
        rows, records = self._tile_shape(row_tile, record_tile)
        every = np.tile(np.arange(records, dtype=np.int64), rows)
        return Membership(offsets_of(np.full(rows, records, dtype=np.int64)), every)


def _checked_labels(labels: NDArray[Any] | None, records: int, classes: int) -> NDArray[np.int64]:
    if labels is None or labels.shape != (records,) or labels.dtype.kind not in "iu":
        given = None if labels is None else (labels.shape, str(labels.dtype))
        raise InvalidInput("labels", given, f"{records} integers, one for each record of the tile")
    if labels.min() < 0 or labels.max() >= classes:
        raise InvalidInput("labels", WITHHELD, f"class indices from 0 to {classes - 1}")
    return labels.astype(np.int64, copy=False)


def _distinct_cells(generator: np.random.Generator, rows: int, population: int, sample_size: int) -> NDArray[np.int64]:
    """Draw, for every row, a uniform subset; return ``row * population + member``, ascending."""
    # Values are drawn with replacement and repeats drawn again until a row has enough. No step treats two members
    # differently, so every subset of the size is equally likely.
    complement = sample_size > population // 2
    wanted = population - sample_size if complement else sample_size
    row_starts = np.arange(rows + 1, dtype=np.int64) * population
    cells = np.zeros(0, np.int64)
    missing = np.full(rows, wanted)
    while missing.any():
        fresh = np.repeat(row_starts[:-1], missing)
        fresh += generator.integers(population, size=len(fresh))
        cells = np.concatenate([cells, fresh])
        cells.sort()
        cells = cells[np.diff(cells, prepend=-1) > 0]
        missing = wanted - np.diff(np.searchsorted(cells, row_starts))
    if not complement:
        return cells
    outside = np.ones(rows * population, bool)
    outside[cells] = False
    return np.flatnonzero(outside).astype(np.int64, copy=False)


# exp of more overflows float64.
_LARGE: Final = 700.0


def log_mixture(rate: NDArray[np.float64] | float, gain: NDArray[np.float64]) -> NDArray[np.float64]:
    """log(1 - rate + rate e^gain): the row's likelihood ratio when the record joins it with chance ``rate``."""
    with np.errstate(divide="ignore"):
        found = np.log1p(rate * np.expm1(np.minimum(gain, _LARGE)))
        found += np.maximum(gain - _LARGE, 0)
        # If the record is certain to join, all digits of 1 - rate + rate e^gain are those of e^gain.
        return np.maximum(found, np.log(rate) + gain) if np.max(rate) == 1 else np.asarray(found)
