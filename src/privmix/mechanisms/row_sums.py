"""Running sums of rows over record tiles, in the smallest type that is certain to hold them exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.errors import WITHHELD, InvalidInput
from privmix.mechanisms.membership import Membership
from privmix.mechanisms.mixing import LatticeRecords, add_rows

# Integers of magnitude below the limit are held exactly by the type; from small to large.
_TYPES: tuple[tuple[int, type[Any]], ...] = ((2**24, np.float32), (2**31, np.int32), (2**53, np.float64))
_ROWS_AT_ONCE = 1024


class RowSums:
    """Exact sums of the members of some rows, and how many members of each class a row has. Secret.

    Formal guarantees:
        * Exact: after any sequence of :meth:`add` and :meth:`merge`, ``x`` holds the sums of integer arithmetic. Before
          each addition the largest magnitude that any entry could then have (a row's total weight times the largest
          entry of a record) is compared with what the type holds exactly, and the type grows first if it has to; from
          2**53 on it raises.
        * Order, cuts and number of additions therefore change no value.

    Attributes:
        x: (rows, d) float32, int32 or float64: sums in lattice steps (times ``weight_step`` with weights).
        counts: (rows, K) int32 or int64: draws of each class; with weights float64, their weights in ``weight_step``.
        totals: (rows,) float64: a row's draws, or their weights in ``weight_step``.

    Args:
        rows: how many rows.
        dim: d.
        classes: K.
        largest: no record entry is larger in magnitude, in lattice steps.
        weight_step: unit of the weights, a power of two; None where draws have no weights.
        draws_expected: a public guess at a row's most draws: a type that holds them is taken at once.

    Example:
        >>> sums = RowSums(2, 2, classes=2, largest=5)
        >>> members = Membership(np.array([0, 2, 2]), np.array([0, 1]))
        >>> sums.add(0, LatticeRecords.of(np.array([[1.0, -2.0], [5.0, 5.0]])), np.array([0, 1]), members)
        >>> sums.x.tolist(), sums.counts.tolist()
        ([[6.0, 3.0], [0.0, 0.0]], [[1, 1], [0, 0]])
    """

    __slots__ = ("_largest", "_weight_step", "counts", "totals", "x")

    def __init__(
        self,
        rows: int,
        dim: int,
        classes: int,
        *,
        largest: int,
        weight_step: float | None = None,
        draws_expected: float = 0,
    ) -> None:
        self._largest, self._weight_step = largest, weight_step
        self.x: NDArray[Any] = np.zeros((rows, dim), sum_type(draws_expected * largest, weight_step is not None))
        self.counts: NDArray[Any] = np.zeros((rows, classes), np.int32 if weight_step is None else np.float64)
        self.totals = np.zeros(rows)

    def __repr__(self) -> str:
        return f"<RowSums of {len(self.totals)} rows>"

    def add(self, start: int, records: LatticeRecords, labels: NDArray[np.int64], members: Membership) -> None:
        """Add the members, from one record tile, of the rows from ``start`` on.

        Args:
            start: the row that ``members`` begins with.
            records: the tile's records.
            labels: (records in the tile,) class numbers from 0 to K - 1.
            members: which of the tile's records each row holds.
        """
        rows = slice(start, start + members.rows)
        if self._weight_step is not None:
            # In the weights' steps, weighted sums are integers too; scaling by a power of two is exact.
            assert members.weights is not None
            members = Membership(members.offsets, members.indices, members.weights / self._weight_step)
        classes = self.counts.shape[1]
        cell = np.repeat(np.arange(members.rows) * classes, members.counts) + labels[members.indices]
        counted = np.bincount(cell, members.weights, members.rows * classes).reshape(members.rows, classes)
        self._make_room(rows, members.counts if members.weights is None else counted.sum(axis=1))
        self.counts[rows] += counted.astype(self.counts.dtype, copy=False)
        add_rows(self.x[rows], records, members)

    def merge(self, x: NDArray[Any], counts: NDArray[Any], totals: NDArray[np.float64]) -> None:
        """Add the sums of the same rows over other records, as another :class:`RowSums` holds them."""
        self._make_room(slice(None), totals)
        self.counts += counts.astype(self.counts.dtype, copy=False)
        for rows in _pieces(len(self.x)):
            # The part's own values fit its type, and so the type of the whole, which is no smaller.
            self.x[rows] += x[rows].astype(self.x.dtype, copy=False)

    def _make_room(self, rows: slice, more: NDArray[Any]) -> None:
        """Count ``more`` draws for the rows, and widen the types if sums over them could pass their limits."""
        self.totals[rows] += more
        total = int(self.totals[rows].max(initial=0))
        # One more than the largest entry: a member's one-hot label has 2**bits steps, and its sums are bounded too.
        needed = sum_type(total * (self._largest + 1), self._weight_step is not None)
        if total >= 2**31 and self.counts.dtype == np.int32:
            self.counts = self.counts.astype(np.int64)
        if _rank(needed) <= _rank(self.x.dtype.type):
            return
        # float32 and int32 are of one size: the new values then take the old ones' place, piece by piece.
        wider = np.empty(self.x.shape, needed) if needed is np.float64 else self.x.view(needed)
        for piece in _pieces(len(self.x)):
            wider[piece] = self.x[piece].astype(needed)
        self.x = wider


def sum_type(most: float, weighted: bool) -> type[Any]:
    """The type for integers of magnitude up to ``most``.

    Raises:
        InvalidInput: none holds them exactly.
    """
    found = next((kind for limit, kind in _TYPES if most < limit), None)
    if found is None:
        raise InvalidInput("lattice sums", WITHHELD, "below 2**53 steps: use fewer lattice bits")
    return np.float64 if weighted else found


def _rank(kind: type[Any]) -> int:
    return [known for _, known in _TYPES].index(kind)


def _pieces(rows: int) -> list[slice]:
    return [slice(first, first + _ROWS_AT_ONCE) for first in range(0, rows, _ROWS_AT_ONCE)]
