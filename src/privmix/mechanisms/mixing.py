"""Mixing: exact sums of lattice records, row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from privmix.errors import WITHHELD, InvalidInput
from privmix.mechanisms.membership import Membership

# Columns summed at a time: a record tile then fits the last-level cache.
_COLUMNS = 64
_EXACT_FLOAT32, _EXACT_FLOAT64 = 2**24, 2**53
# Below so many records a bag, cutting rows costs more than float32 saves.
_SMALLEST_BAG = 8


@dataclass(frozen=True, eq=False)
class LatticeRecords:
    """Records as integers, stored in blocks of columns so that a block's rows lie side by side in memory. Secret.

    Attributes:
        blocks: (ceil(d / 64), records, 64) signed integers; columns beyond d are zero.
        dim: d.
        largest: no entry is larger than this in magnitude.

    Example:
        >>> records = LatticeRecords.of(np.array([[1.0, -2.0], [5.0, 5.0]]))
        >>> records.count, records.dim, records.largest
        (2, 2, 5)
    """

    blocks: NDArray[np.signedinteger[Any]]
    dim: int
    largest: int

    def __repr__(self) -> str:
        return f"<LatticeRecords with {self.dim} columns>"

    @classmethod
    def empty(cls, count: int, dim: int, largest: int) -> LatticeRecords:
        """Records that are all zero, to be filled with :meth:`fill`; the smallest type that holds ``largest``."""
        dtype = next((t for t in (np.int16, np.int32) if largest <= np.iinfo(t).max), np.int64)
        return cls(np.zeros((-(-dim // _COLUMNS), count, _COLUMNS), dtype), dim, largest)

    @classmethod
    def of(cls, x: NDArray[Any]) -> LatticeRecords:
        """The records of ``x``, (records, d) integer-valued numbers.

        Raises:
            InvalidInput: ``x`` is not such an array, or has entries of 2**53 or more.
        """
        if x.ndim != 2 or x.dtype.kind not in "fi":
            raise InvalidInput("lattice records", (x.shape, str(x.dtype)), "a 2-d array of numbers")
        # In float64: the most negative number of an integer type has no magnitude in that type.
        largest = float(np.abs(x, dtype=np.float64).max(initial=0.0))
        if not largest < _EXACT_FLOAT64:
            raise InvalidInput("lattice records", WITHHELD, "finite numbers below 2**53 steps")
        records = cls.empty(len(x), x.shape[1], int(largest))
        records.fill(0, x)
        return records

    @property
    def count(self) -> int:
        """How many records."""
        return int(self.blocks.shape[1])

    def fill(self, start: int, x: NDArray[Any]) -> None:
        """Set the records from ``start`` on to the rows of ``x``, integers of at most ``largest``.

        Raises:
            InvalidInput: an entry is too large or not finite.
        """
        if not max(float(x.max(initial=0)), -float(x.min(initial=0))) <= self.largest:
            raise InvalidInput("lattice records", WITHHELD, "finite and within the bound they were clipped to")
        whole = self.dim // _COLUMNS
        rows = slice(start, start + len(x))
        split = whole * _COLUMNS
        self.blocks[:whole, rows] = x[:, :split].reshape(len(x), whole, _COLUMNS).transpose(1, 0, 2)
        if split < self.dim:
            self.blocks[whole, rows, : self.dim - split] = x[:, split:]

    def part(self, rows: slice) -> LatticeRecords:
        """A view of some records."""
        return LatticeRecords(self.blocks[:, rows], self.dim, self.largest)


def sum_rows(records: LatticeRecords, membership: Membership) -> NDArray[Any]:
    """Sum, for every row, the records it holds (times their weights), without rounding.

    Formal guarantees:
        * Exact: sums equal those of integer arithmetic, so order, threads and chunking change no bit of them. Sums
          that could reach the limit of exact float integers raise.
        * Empty rows are rows: they sum to zero.

    Args:
        records: those of one record tile, or whichever ``membership.indices`` refers to.
        membership: which records each of T rows holds. Weights, if any, are multiples of a power of two.

    Returns:
        (T, d) sums: float32 where all of them are certain to be below 2**24, else float64. Weighted sums are float64
        multiples of the weights' grid.

    Raises:
        InvalidInput: sums could reach 2**53 steps.
        IndexError: an index lies outside ``records``.

    Example:
        >>> rows = Membership(np.array([0, 2, 2]), np.array([0, 2]))
        >>> sum_rows(LatticeRecords.of(np.array([[1.0, -2.0], [5.0, 5.0], [3.0, 0.0]])), rows).tolist()
        [[4.0, -2.0], [0.0, 0.0]]
    """
    dtype, _, row_of_bag = _bags(records.largest, membership)
    in_float32 = dtype == torch.float32 and row_of_bag is None
    sums = np.zeros((membership.rows, records.dim), np.float32 if in_float32 else np.float64)
    add_rows(sums, records, membership)
    return sums


def add_rows(sums: NDArray[Any], records: LatticeRecords, membership: Membership) -> None:
    """Add to ``sums``, in place, what :func:`sum_rows` returns; no second array of that size is made.

    Formal guarantees:
        * Exact: what is added are the sums of integer arithmetic. That they fit on top of what is there is the
          caller's part, see :class:`privmix.mechanisms.row_sums.RowSums`.

    Args:
        sums: (T, d) float32, int32 or float64 integers that hold the result exactly; float64 with weights.
        records: as for :func:`sum_rows`.
        membership: as for :func:`sum_rows`.

    Raises:
        InvalidInput: sums could reach 2**53 steps.
        IndexError: an index lies outside ``records``.
    """
    indices = membership.indices
    if len(indices) and not (indices.min() >= 0 and indices.max() < records.count):
        raise IndexError("a row holds a record outside the array")
    _check_exact(records.largest, membership)
    if len(indices) == 0:
        return
    dtype, offsets, row_of_bag = _bags(records.largest, membership)
    picked, bags, out = torch.from_numpy(indices), torch.from_numpy(offsets), torch.from_numpy(sums)
    weights = None if membership.weights is None else torch.from_numpy(membership.weights)
    block = torch.empty((records.count, min(records.dim, _COLUMNS)), dtype=dtype)
    for number, start in enumerate(range(0, records.dim, _COLUMNS)):
        block.copy_(torch.from_numpy(records.blocks[number])[:, : block.shape[1]])
        summed = functional.embedding_bag(
            picked, block, bags, mode="sum", include_last_offset=True, per_sample_weights=weights
        )[:, : records.dim - start].to(out.dtype)
        columns = out[:, start : start + _COLUMNS]
        if row_of_bag is None:
            columns += summed
        else:
            columns.index_add_(0, torch.from_numpy(row_of_bag), summed)


def _check_exact(largest: float, membership: Membership) -> None:
    bound = int(membership.counts.max(initial=0)) * largest
    if membership.weights is not None:
        # In steps of the weights' grid, where weighted sums are integers.
        bound *= float(membership.weights.max(initial=0)) * 2.0 ** _grid_bits(membership.weights)
    if not bound < _EXACT_FLOAT64:
        raise InvalidInput("lattice sums", WITHHELD, "below 2**53 steps: use fewer lattice bits")


def _bags(largest: int, membership: Membership) -> tuple[torch.dtype, NDArray[np.int64], NDArray[np.int64] | None]:
    """How to cut rows into bags that are summed exactly.

    float32 sums several times faster than float64, so a row that is too full for it becomes several bags.

    Returns:
        the type to sum in, the bags' offsets, and the row of each bag; None where every row is one bag.
    """
    fits = (_EXACT_FLOAT32 - 1) // max(largest, 1)
    rows, counts = np.arange(membership.rows), membership.counts
    if membership.weights is None and counts.max(initial=0) <= fits:
        return torch.float32, membership.offsets, None
    if membership.weights is not None or fits < _SMALLEST_BAG:
        return torch.float64, membership.offsets, None
    bags = -(-counts // fits)
    row_of_bag = np.repeat(rows, bags)
    number = np.arange(len(row_of_bag)) - np.repeat(np.cumsum(bags) - bags, bags)
    starts = membership.offsets[row_of_bag] + number * fits
    return torch.float32, np.append(starts, membership.offsets[-1]), row_of_bag


def _grid_bits(weights: NDArray[np.float64]) -> int:
    """Return the least b for which all ``weights`` are multiples of 2 ** -b."""
    for bits in range(53):
        scaled = weights * 2.0**bits
        if (scaled == np.rint(scaled)).all():
            return bits
    raise ValueError("weights must be multiples of 2**-52")
