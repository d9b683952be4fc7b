"""Tiles of private records, clipped and on the lattice, and the exact sums of mixed rows that are made of them."""
# All is pure: a sum depends on plan, records and membership key alone, and can be made again on any machine.

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from privmix.engine.records import RecordTiles, Tile, mapping, record_tiles
from privmix.errors import WITHHELD, InvalidInput
from privmix.mechanisms.membership import RECORD_TILE, ROW_TILE, Membership
from privmix.mechanisms.mixing import LatticeRecords, RowSums
from privmix.mechanisms.noise import Lattice
from privmix.mechanisms.persons import Givers, PersonGroups, RecordWeights, every_of_class
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.plan import BasePlan
from privmix.plans.rows import ReleasePlan
from privmix.publication.dataset import RecordTransform

# Features, labels and, where persons are the units, what the records weigh.
Block = tuple[NDArray[Any], NDArray[np.int64], RecordWeights | None]

_Result = TypeVar("_Result")

# Physical sizes: they set speed and memory and change no bit of the result. At least 64 records, and enough that narrow
# ones too are clipped thousands of values at a time.
_RECORD_BLOCK, _BLOCK_VALUES = 64, 2**17
_PERSON_RECORDS = 1024
_DRAWS_AT_ONCE = 2**21
_COUNTS_AT_ONCE = 2**22


def _ignore(done: int) -> None:
    """Ignore progress."""


def lattice_steps(lattice: Lattice, transform: RecordTransform, features: NDArray[Any]) -> NDArray[np.float64]:
    """Return transformed records (n, d) as integers, in lattice steps of their clipping bound."""
    shares = transform.shares(features)
    return lattice.quantise(shares, out=shares)


class TileReader:
    """Reads private records tile by tile, checked, clipped and rounded to the lattice.

    Formal guarantees:
        * every record is clipped, and rounding to the lattice never makes it longer;
        * labels outside the plan's classes and features that are not finite raise, and are not shown.
    """

    def __init__(self, plan: BasePlan, records: RecordTiles, *, workers: int = 1) -> None:
        if records.dim != plan.dim:
            raise InvalidInput("features", f"{records.dim} columns", f"a 2-d array with {plan.dim} columns")
        if (records.starts(0) is None) is not (plan.per_person is None):
            raise InvalidInput("persons", WITHHELD, "persons if and only if the plan's unit is a person")
        self.records: Final = records
        self.workers: Final = workers
        self._most, self._dim, self._clip_norm = plan.per_person, plan.dim, plan.clip_norm
        self._classes, self._lattice = plan.num_classes, plan.lattice

    def clipped_sum(self, index: int, done: Callable[[int], None] = _ignore) -> NDArray[np.float64]:
        """(d,) sum of a tile's clipped records, before centring, in lattice steps of ``clip_norm``."""
        total, passed = np.zeros(self._dim), 0
        transform = RecordTransform(self._clip_norm)
        if self._most is not None:
            for features, _, weights in self.blocks(index, _PERSON_RECORDS):
                assert weights is not None
                means = weights.person_means(transform.shares(np.asarray(features)))
                total += self._lattice.quantise(means).sum(axis=0)
                passed += len(features)
                done(passed)
            return total
        features, _ = self.read(index)
        for part in self._blocks(features, lambda _, block: self.lattice_steps(transform, block).sum(axis=0), done):
            total += part
        return total

    def check_labels(self) -> None:
        """Raise :class:`InvalidInput` unless every label is one of the plan's classes."""
        for index in range(record_tiles(self.records)):
            self._read(index)

    def read(self, index: int) -> Tile:
        """Return features (b, d) and checked labels (b,) of a tile; raise where persons are the units."""
        if self._most is not None:
            raise InvalidInput("persons", WITHHELD, "no persons: the design protects records")
        return self._read(index)

    def _read(self, index: int) -> Tile:
        features, labels = self.records.tile(index)
        if labels.min() < 0 or labels.max() >= self._classes:
            raise InvalidInput("labels", WITHHELD, f"class numbers from 0 to {self._classes - 1}")
        return features, labels

    def blocks(self, index: int, at_once: int) -> Iterator[Block]:
        """About ``at_once`` records of a tile at a time, with what they weigh; those of one person are never parted."""
        features, labels = self._read(index)
        starts, first = self.records.starts(index), 0
        if starts is None:
            for start in range(0, len(labels), at_once):
                yield features[start : start + at_once], labels[start : start + at_once], None
            return
        while first < len(starts) - 1:
            # At least one person: one with more records than a block is taken whole.
            last = max(first + 1, int(np.searchsorted(starts, starts[first] + at_once, side="right")) - 1)
            part, own = slice(starts[first], starts[last]), starts[first : last + 1] - starts[first]
            yield features[part], labels[part], RecordWeights(own, labels[part], self._most or 1)
            first = last

    def lattice_steps(self, transform: RecordTransform, block: NDArray[Any]) -> NDArray[np.float64]:
        return lattice_steps(self._lattice, transform, block)

    def _blocks(
        self, features: NDArray[Any], work: Callable[[int, NDArray[Any]], _Result], done: Callable[[int], None]
    ) -> Iterator[_Result]:
        """Apply ``work`` to blocks of records, which fit the cache, on every core; results come in order."""

        step = max(_RECORD_BLOCK, _BLOCK_VALUES // features.shape[1])

        def one(start: int) -> _Result:
            return work(start, np.asarray(features[start : start + step]))

        starts = range(0, len(features), step)
        with mapping(self.workers) as each:
            for start, result in zip(starts, each(one, starts), strict=True):
                yield result
                done(min(start + step, len(features)))


class TileSummer(TileReader):
    """Makes the sums that a release adds noise to. It has private records, and no key to the noise.

    Formal guarantees:
        * the sampler that draws is the plan's, so what runs is what was priced;
        * every record is clipped, centred with the released mean and clipped again before it is summed, and rounding
          to the lattice never makes it longer;
        * sums are exact integers: cuts, threads and order change no bit of them;
        * labels outside the plan's classes and features that are not finite raise, and are not shown.
    """

    def __init__(self, plan: ReleasePlan, records: RecordTiles, membership: SecretStreams, *, workers: int = 1) -> None:
        super().__init__(plan, records, workers=workers)
        self.plan: Final = plan
        self._membership, self._sampler = membership, plan.sampler_for(records.units)
        self._last: dict[str, Any] = {}

    def quantise(
        self, index: int, transform: RecordTransform, into: LatticeRecords, done: Callable[[int], None] = _ignore
    ) -> LatticeRecords:
        """Return a tile's transformed records on the lattice, in the first entries of ``into``; returns those."""
        if self.plan.as_means or self.plan.person_mean:
            return self._means(index, transform, into, done)
        features, _ = self._read(index)
        for _ in self._blocks(
            features, lambda start, block: into.fill(start, self.lattice_steps(transform, block)), done
        ):
            pass
        return into.part(slice(0, len(features)))

    def _means(
        self, index: int, transform: RecordTransform, into: LatticeRecords, done: Callable[[int], None]
    ) -> LatticeRecords:
        """Return the weighted means of each person's records, or of those of each class, on the lattice."""
        filled = 0
        for features, _, weights in self.blocks(index, _PERSON_RECORDS):
            assert weights is not None
            mean = weights.person_means if self.plan.person_mean else weights.class_means
            means = mean(transform.shares(np.asarray(features)))
            into.fill(filled, self._lattice.quantise(means))
            filled += len(means)
            done(filled)
        return into.part(slice(0, filled))

    def empty_tile(self, *tiles: int) -> LatticeRecords:
        return LatticeRecords.empty(max(map(self.records.length, tiles)), self.plan.dim, largest_step(self.plan))

    @property
    def record_bytes(self) -> int:
        return LatticeRecords.empty(1, self.plan.dim, largest_step(self.plan)).blocks.nbytes

    @property
    def row_bytes(self) -> int:
        """Memory that a row takes while it is summed: its sums, its labels, and one block of columns, twice."""
        sums = _empty(self.plan, 1)
        return sums.x.nbytes + sums.counts.nbytes + sums.totals.nbytes + 2 * 64 * sums.x.itemsize

    def add(self, sums: RowSums, rows: range, index: int, on_lattice: LatticeRecords) -> None:
        """Add a tile's members of the row tiles ``rows`` to ``sums``, a bounded number of draws at a time."""
        units = min(RECORD_TILE, self.records.units - index * RECORD_TILE)
        draws = max(1.0, self.plan.expected_members * ROW_TILE * units / self.records.units)
        step = max(1, int(min(_DRAWS_AT_ONCE / draws, _COUNTS_AT_ONCE / (ROW_TILE * self.plan.num_classes))))
        labels = self._labels(index)
        for first in range(rows.start, rows.stop, step):
            group = range(first, min(first + step, rows.stop))
            members = [self.members(row_tile, index) for row_tile in group]
            sums.add((first - rows.start) * ROW_TILE, on_lattice, labels, Membership.stack(members))

    def members(self, row_tile: int, index: int) -> Membership:
        """Which of what :meth:`quantise` made of a tile is in which rows of a row tile."""
        if self._most is None:
            return self._sampler.draw(self._membership, row_tile, index, self._labels(index))
        if self.plan.as_means:
            return every_of_class(self.plan.rows, row_tile, self._labels(index), self.plan.num_classes)
        if self.plan.person_mean:
            return self._sampler.draw(self._membership, row_tile, index)
        by_class, streams = self._sampler.by_class, self._membership
        givers = self._kept(index, "givers", lambda starts, labels: Givers(starts, labels, streams, index, by_class))
        units = givers.classes if givers.by_class else givers.starts[:-1]
        return givers.given(self._sampler.draw(self._membership, row_tile, index, units), row_tile)

    def spans(self, index: int) -> NDArray[np.int64]:
        """(units + 1,) where what :meth:`quantise` makes of each unit of a tile begins."""
        if (starts := self.records.starts(index)) is None:
            return np.arange(self.records.length(index) + 1)
        if self.plan.person_mean:
            return np.arange(len(starts))
        return np.searchsorted(self._groups(index).starts, starts) if self.plan.as_means else starts

    def _labels(self, index: int) -> NDArray[np.int64]:
        """Return the class of each item that :meth:`quantise` makes; for persons (b, K) of each class, in steps."""
        if self.plan.person_mean:
            return self._kept(index, "mixed", self._mixed_labels)
        return self._groups(index).labels if self.plan.as_means else self._read(index)[1]

    def _mixed_labels(self, starts: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
        one, offset = self.plan.label_steps, round(self.plan.label_offset * self.plan.label_steps)
        # The offset comes off again with the row's, as often as there are members.
        return RecordWeights(starts, labels, self._most or 1).label_vectors(self.plan.num_classes, one, offset) + offset

    def _groups(self, index: int) -> PersonGroups:
        return self._kept(index, "groups", lambda starts, labels: RecordWeights(starts, labels, self._most or 1).groups)

    def _kept(self, index: int, name: str, make: Callable[[NDArray[np.int64], NDArray[np.int64]], _Result]) -> _Result:
        """Return a result for a tile's persons, kept while the tile is the one that is summed."""
        if self._last.get("index") != index:
            self._last = {"index": index}
        if name not in self._last:
            starts = self.records.starts(index)
            assert starts is not None
            self._last[name] = make(starts, self._read(index)[1])
        found: _Result = self._last[name]
        return found


def largest_step(plan: BasePlan) -> int:
    """No lattice entry is larger: clipping leaves a hair below the bound, and rounding goes toward zero."""
    return int(2**plan.lattice_bits - 1)


def empty_sums(plan: ReleasePlan, tiles: range) -> RowSums:
    return _empty(plan, min(tiles.stop * ROW_TILE, plan.rows) - tiles.start * ROW_TILE)


def _empty(plan: ReleasePlan, rows: int) -> RowSums:
    expected = plan.expected_members
    return RowSums(
        rows,
        plan.dim,
        plan.num_classes,
        largest=largest_step(plan),
        weight_step=None if plan.max_weight is None else plan.weight_step,
        label_steps=plan.label_steps,
        # Nine standard deviations of a Poisson variable and some more: hardly ever is there more.
        draws_expected=expected + 9 * expected**0.5 + 9,
    )
