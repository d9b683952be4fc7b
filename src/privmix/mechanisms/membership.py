"""Which records are in which rows, at which weights, cut into logical tiles of fixed public size."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.errors import check_integer, check_number

ROW_TILE: Final = 1024
"""Released rows in a row tile. Streams are keyed by tiles: changing it changes every draw under a key."""

RECORD_TILE: Final = 65_536
"""Private records in a record tile. Streams are keyed by tiles: changing it changes every draw under a key."""


class Secret:
    """A class whose representation is its name alone, also where it is a dataclass."""

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        # A dataclass writes a representation of all fields, unless its class has one.
        if "__repr__" not in vars(cls):
            type.__setattr__(cls, "__repr__", Secret.__repr__)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


@dataclass(frozen=True, eq=False)
class Membership:
    """The records of some rows, as one list with offsets. Secret: it names the members of every row."""

    # offsets (rows + 1,): row r holds indices[offsets[r]:offsets[r + 1]], ascending positions in the record tile, or
    # none. weights (draws,): of each draw, or None where all are 1.

    offsets: NDArray[np.int64]
    indices: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None

    def __repr__(self) -> str:
        return f"<Membership of {self.rows} rows>"

    @property
    def rows(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """(rows,) how many draws each row holds. Private where the sampling makes it random."""
        return np.diff(self.offsets)

    @classmethod
    def stack(cls, parts: "Sequence[Membership]") -> "Membership":
        """Put the rows of ``parts`` below one another; all must be of one record tile, all weighted or none."""
        starts = np.cumsum([0] + [len(part.indices) for part in parts])
        offsets = [part.offsets[1:] + start for part, start in zip(parts, starts, strict=False)]
        weights = [part.weights for part in parts if part.weights is not None]
        if weights and len(weights) != len(parts):
            raise ValueError("either all parts are weighted or none is")
        return cls(
            np.concatenate([np.zeros(1, np.int64), *offsets]),
            np.concatenate([np.zeros(0, np.int64), *(part.indices for part in parts)]),
            np.concatenate(weights) if weights else None,
        )


def offsets_of(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def tile_length(total: int, tile: int, size: int) -> int:
    """Return how many of ``total`` items lie in tile ``tile`` of ``size`` items; raise IndexError outside."""
    if not 0 <= tile * size < total:
        raise IndexError(f"tile {tile} is outside the {-(-total // size)} tiles of {total} items")
    return min(size, total - tile * size)


def bernoulli_positions(generator: np.random.Generator, cells: int, rate: float) -> NDArray[np.int64]:
    """Return, ascending, which of ``cells`` (< 2^53) independent coins of bias ``rate`` show heads: (heads,) int64."""
    # Gaps between heads are geometric: with E a standard exponential, ceil(E / -log(1 - rate)) exceeds k with
    # probability (1 - rate)^k, the law of k tails in a row.
    log_tails = -math.log1p(-rate) if rate < 1 else math.inf
    found = []
    last = -1.0
    while last < cells:
        expected = (cells - last) * rate
        gaps = generator.standard_exponential(int(expected + 6 * math.sqrt(expected)) + 8)
        gaps /= log_tails
        np.ceil(gaps, out=gaps)
        # An exponential of exactly 0 would repeat a cell; a gap beyond the end needs no exact length.
        np.clip(gaps, 1.0, float(cells + 1), out=gaps)
        gaps[0] += last
        positions = np.cumsum(gaps, out=gaps)
        last = float(positions[-1])
        found.append(positions.astype(np.int64))
    heads = found[0] if len(found) == 1 else np.concatenate(found)
    return heads[: np.searchsorted(heads, cells)]


def draw_rectangle(generator: np.random.Generator, rows: int, records: int, rate: float) -> Membership:
    """Put each of ``records`` records into each of ``rows`` rows independently with probability ``rate``."""
    positions = bernoulli_positions(generator, rows * records, rate)
    row_starts = np.arange(rows + 1, dtype=np.int64) * records
    offsets = np.searchsorted(positions, row_starts).astype(np.int64)
    return Membership(offsets, positions - np.repeat(row_starts[:-1], np.diff(offsets)))


@dataclass(frozen=True, eq=False)
class ItemGroups:
    """Items sorted into groups: group ``c`` holds ``members[starts[c]:starts[c + 1]]``, ascending."""

    members: NDArray[np.int64]
    starts: NDArray[np.int64]

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.diff(self.starts)

    @classmethod
    def from_labels(cls, labels: NDArray[np.int64], groups: int) -> "ItemGroups":
        """Group the positions of ``labels``, which lie in ``0 .. groups - 1``, by label."""
        return cls(np.argsort(labels, kind="stable"), offsets_of(np.bincount(labels, minlength=groups)))


def draw_blocks(
    generator: np.random.Generator, rows: int, row_groups: ItemGroups, record_groups: ItemGroups, rate: float
) -> Membership:
    """Put each record into each row of its own group independently with probability ``rate``."""
    # The cells of all groups, laid end to end, are one Bernoulli process: the cost does not grow with the groups. A row
    # may be in several groups or in none; each record (fewer than RECORD_TILE + 1) is in one.
    cells = offsets_of(row_groups.sizes * record_groups.sizes)
    positions = bernoulli_positions(generator, int(cells[-1]), rate)
    group = np.repeat(np.arange(len(cells) - 1), np.diff(np.searchsorted(positions, cells)))
    row_in_group, record_in_group = np.divmod(positions - cells[group], record_groups.sizes[group])
    row = row_groups.members[row_groups.starts[group] + row_in_group]
    record = record_groups.members[record_groups.starts[group] + record_in_group]
    row_major = np.sort(row * RECORD_TILE + record)
    offsets = offsets_of(np.bincount(row, minlength=rows))
    return Membership(offsets, row_major % RECORD_TILE)


def dirichlet_weights(
    generator: np.random.Generator, rows: int, sample_size: int, alpha: float, max_weight: float, bits: int
) -> NDArray[np.float64]:
    """Draw (rows, sample_size) weights from a symmetric Dirichlet distribution, clipped and rounded down to a grid.

    Formal guarantees:
        * Bounded: every weight is in ``[0, max_weight]`` and a row's weights sum to at most 1.
        * On the grid: every weight is a multiple of ``2 ** -bits``. Sums of weighted lattice records are thus exact
          multiples of the lattice step times ``2 ** -bits``.
        * Data-independent: weights depend on the generator and the public arguments only.
    """
    # One record's part in a row is at most max_weight times its norm. This product is the sensitivity, and 1 unless
    # clipped: averaging has 1 / sample_size, which is why it needs less noise (NeuroMixGDP, section 2).
    check_weights(alpha, max_weight, bits)
    weights = generator.dirichlet(np.full(sample_size, alpha), size=rows)
    np.minimum(weights, max_weight, out=weights)
    return np.asarray(np.floor(weights * 2.0**bits) * 2.0**-bits)


def check_weights(alpha: float, max_weight: float, bits: int) -> None:
    """Raise :class:`InvalidInput` unless these are arguments that :func:`dirichlet_weights` takes."""
    check_number("alpha", alpha, low=0, low_open=True)
    check_integer("weight bits", bits, low=1, high=30)
    check_number("max_weight", max_weight, low=2.0**-bits, high=1)
