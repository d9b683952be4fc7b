"""Independent coin flips over many cells at a cost of the heads only, by jumping from head to head."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privmix.mechanisms.membership import RECORD_TILE, Membership, offsets_of


def bernoulli_positions(generator: np.random.Generator, cells: int, rate: float) -> NDArray[np.int64]:
    """Return, ascending, which of ``cells`` independent coins of bias ``rate`` show heads.

    Gaps between heads are geometric: with E a standard exponential, ``ceil(E / -log(1 - rate))`` exceeds k with
    probability ``(1 - rate) ** k``, the law of k tails in a row.

    Args:
        generator: source of the exponentials.
        cells: how many coins, below 2**53.
        rate: in (0, 1]; 1 gives every cell.

    Returns:
        (heads,) int64.

    Example:
        >>> bernoulli_positions(np.random.default_rng(0), 4, 1.0).tolist()
        [0, 1, 2, 3]
    """
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
class Groups:
    """Items sorted into groups: group ``c`` holds ``members[starts[c]:starts[c + 1]]``, ascending."""

    members: NDArray[np.int64]
    starts: NDArray[np.int64]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(groups,) how many items each group holds."""
        return np.diff(self.starts)

    @classmethod
    def from_labels(cls, labels: NDArray[np.int64], groups: int) -> Groups:
        """Group the positions of ``labels``, which lie in ``0 .. groups - 1``, by label."""
        return cls(np.argsort(labels, kind="stable"), offsets_of(np.bincount(labels, minlength=groups)))


def draw_blocks(
    generator: np.random.Generator, rows: int, row_groups: Groups, record_groups: Groups, rate: float
) -> Membership:
    """Put each record into each row of its own group independently with probability ``rate``.

    The cells of all groups, laid end to end, are one Bernoulli process: the cost does not grow with the groups.

    Args:
        generator: source of the coin flips.
        rows: how many rows there are; a row may be in several groups, or in none and so be empty.
        row_groups: rows of each group.
        record_groups: records of each group, fewer than ``RECORD_TILE`` + 1 in all, each in one group.
        rate: in (0, 1].
    """
    cells = offsets_of(row_groups.sizes * record_groups.sizes)
    positions = bernoulli_positions(generator, int(cells[-1]), rate)
    group = np.repeat(np.arange(len(cells) - 1), np.diff(np.searchsorted(positions, cells)))
    row_in_group, record_in_group = np.divmod(positions - cells[group], record_groups.sizes[group])
    row = row_groups.members[row_groups.starts[group] + row_in_group]
    record = record_groups.members[record_groups.starts[group] + record_in_group]
    row_major = np.sort(row * RECORD_TILE + record)
    offsets = offsets_of(np.bincount(row, minlength=rows))
    return Membership(offsets, row_major % RECORD_TILE)
