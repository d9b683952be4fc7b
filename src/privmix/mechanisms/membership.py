"""Membership: which records are in which rows, cut into logical tiles of fixed public size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

ROW_TILE: Final = 1024
"""Released rows in a row tile. Streams are keyed by tiles: changing it changes every draw under a key."""

RECORD_TILE: Final = 65_536
"""Private records in a record tile. Streams are keyed by tiles: changing it changes every draw under a key."""


@dataclass(frozen=True, eq=False)
class Membership:
    """The records of some rows, as one list with offsets. Secret: it names the members of every row.

    Attributes:
        offsets: (rows + 1,) int64; row ``r`` holds ``indices[offsets[r]:offsets[r + 1]]``, which may be empty.
        indices: (draws,) int64 record positions relative to the record tile, ascending within a row.
        weights: (draws,) float64 weight of each draw, or None where all weights are 1.

    Example:
        >>> two_rows = Membership(np.array([0, 2, 2]), np.array([4, 9]))
        >>> two_rows.rows, [row.tolist() for row in np.split(two_rows.indices, two_rows.offsets[1:-1])]
        (2, [[4, 9], []])
    """

    offsets: NDArray[np.int64]
    indices: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None

    def __repr__(self) -> str:
        return f"<Membership of {self.rows} rows>"

    @property
    def rows(self) -> int:
        """How many rows, empty ones included."""
        return len(self.offsets) - 1

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """(rows,) how many draws each row holds. Private where the sampling makes it random."""
        return np.diff(self.offsets)

    @classmethod
    def stack(cls, parts: Sequence[Membership]) -> Membership:
        """Put the rows of ``parts`` below one another; all must be of one record tile, all weighted or none.

        Example:
            >>> one_row = Membership(np.array([0, 2]), np.array([4, 9]))
            >>> Membership.stack([one_row, one_row]).offsets.tolist()
            [0, 2, 4]
        """
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
    """Return the offsets of rows that hold ``counts`` draws."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def tile_length(total: int, tile: int, size: int) -> int:
    """Return how many of ``total`` items lie in tile ``tile`` of ``size`` items; raise IndexError outside."""
    if not 0 <= tile * size < total:
        raise IndexError(f"tile {tile} is outside the {-(-total // size)} tiles of {total} items")
    return min(size, total - tile * size)
