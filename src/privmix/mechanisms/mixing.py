"""Mixing: exact sums of lattice records, row by row, in the smallest type that is certain to hold them."""

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from privmix.errors import WITHHELD, InvalidInput
from privmix.mechanisms.membership import Membership

# Columns summed at a time: a record tile then fits the last-level cache.
_COLUMNS = 64
_EXACT_FLOAT32, _EXACT_FLOAT64 = 2**24, 2**53
# Below this number of records a bag, cutting rows costs more than float32 saves.
_SMALLEST_BAG = 8
# Additions from which torch, which sums four times as fast as SciPy, is worth the seconds of its import.
_WORTH_TORCH: Final = 2**31


@dataclass(frozen=True, eq=False)
class LatticeRecords:
    """Records as integers, stored in blocks of columns so that a block's rows lie side by side in memory. Secret."""

    # blocks: (ceil(d / 64), records, 64) signed integers, 0 beyond column d. largest: bound on the entries' magnitude.

    blocks: NDArray[np.signedinteger[Any]]
    dim: int
    largest: int

    def __repr__(self) -> str:
        return f"<LatticeRecords with {self.dim} columns>"

    @classmethod
    def empty(cls, count: int, dim: int, largest: int) -> "LatticeRecords":
        """Return all-zero records, to be filled with :meth:`fill`, in the smallest type that holds ``largest``."""
        dtype = next((t for t in (np.int16, np.int32) if largest <= np.iinfo(t).max), np.int64)
        return cls(np.zeros((-(-dim // _COLUMNS), count, _COLUMNS), dtype), dim, largest)

    @classmethod
    def of(cls, x: NDArray[Any]) -> "LatticeRecords":
        """Return the records of ``x``, (records, d) integer-valued numbers below 2^53."""
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
        return int(self.blocks.shape[1])

    def fill(self, start: int, x: NDArray[Any]) -> None:
        """Set the records from ``start`` on to the rows of ``x``, integers of at most ``largest``."""
        if not max(float(x.max(initial=0)), -float(x.min(initial=0))) <= self.largest:
            raise InvalidInput("lattice records", WITHHELD, "finite and within the bound they were clipped to")
        whole = self.dim // _COLUMNS
        rows = slice(start, start + len(x))
        split = whole * _COLUMNS
        self.blocks[:whole, rows] = x[:, :split].reshape(len(x), whole, _COLUMNS).transpose(1, 0, 2)
        if split < self.dim:
            self.blocks[whole, rows, : self.dim - split] = x[:, split:]

    def part(self, rows: slice) -> "LatticeRecords":
        return LatticeRecords(self.blocks[:, rows], self.dim, self.largest)


def sum_rows(records: LatticeRecords, membership: Membership) -> NDArray[Any]:
    """Sum, for every row, the records it holds (times their weights), without rounding.

    Formal guarantees:
        * Exact: sums equal those of integer arithmetic, so order, threads and chunking change no bit of them. Sums
          that could reach the limit of exact float integers raise.
        * Empty rows are rows: they sum to zero.
    """
    dtype, _, row_of_bag = _bags(records.largest, membership)
    in_float32 = dtype is np.float32 and row_of_bag is None
    sums = np.zeros((membership.rows, records.dim), np.float32 if in_float32 else np.float64)
    add_rows(sums, records, membership)
    return sums


def add_rows(sums: NDArray[Any], records: LatticeRecords, membership: Membership) -> None:
    """Add to ``sums``, in place, what :func:`sum_rows` returns; no second array of that size is made.

    Formal guarantees:
        * Exact: the added sums are those of integer arithmetic. The caller ensures that they fit on top of the present
          ones, see :class:`privmix.mechanisms.mixing.RowSums`.
    """
    indices = membership.indices
    if len(indices) and not (indices.min() >= 0 and indices.max() < records.count):
        raise IndexError("a row holds a record outside the array")
    _check_exact(records.largest, membership)
    if len(indices) == 0:
        return
    dtype, offsets, row_of_bag = _bags(records.largest, membership)
    bags = Membership(offsets, indices, membership.weights)
    # By torch if it is installed, and imported already or worth it. Both give the same bits: sums are exact.
    worth_torch = len(indices) * records.dim >= _WORTH_TORCH and find_spec("torch") is not None
    summed_by = _torch_sums if "torch" in sys.modules or worth_torch else _scipy_sums
    joined = None
    if row_of_bag is not None:
        bags_of_row = (np.ones(len(row_of_bag)), row_of_bag, np.arange(len(row_of_bag) + 1))
        joined = csr_matrix(bags_of_row, shape=(len(row_of_bag), membership.rows)).T
    block = np.empty((records.count, min(records.dim, _COLUMNS)), dtype)
    for number, start in enumerate(range(0, records.dim, _COLUMNS)):
        block[:] = records.blocks[number][:, : block.shape[1]]
        summed = summed_by(bags, block)[:, : records.dim - start]
        columns = sums[:, start : start + _COLUMNS]
        columns += (summed if joined is None else joined @ summed).astype(columns.dtype, copy=False)


def _scipy_sums(bags: Membership, block: NDArray[Any]) -> NDArray[Any]:
    weights = np.ones(len(bags.indices)) if bags.weights is None else bags.weights
    held = csr_matrix((weights.astype(block.dtype), bags.indices, bags.offsets), shape=(bags.rows, len(block)))
    return np.asarray(held @ block)


def _torch_sums(bags: Membership, block: NDArray[Any]) -> NDArray[Any]:
    import torch

    picked, offsets = torch.from_numpy(bags.indices), torch.from_numpy(bags.offsets)
    summed = torch.nn.functional.embedding_bag(
        picked,
        torch.from_numpy(block),
        offsets,
        mode="sum",
        include_last_offset=True,
        per_sample_weights=None if bags.weights is None else torch.from_numpy(bags.weights),
    )
    return np.asarray(summed.numpy())


def _check_exact(largest: float, membership: Membership) -> None:
    bound = int(membership.counts.max(initial=0)) * largest
    if membership.weights is not None:
        # In steps of the weights' grid, where weighted sums are integers.
        bound *= float(membership.weights.max(initial=0)) * 2.0 ** _grid_bits(membership.weights)
    if not bound < _EXACT_FLOAT64:
        raise InvalidInput("lattice sums", WITHHELD, "below 2**53 steps: use fewer lattice bits")


def _bags(largest: int, membership: Membership) -> tuple[type[Any], NDArray[np.int64], NDArray[np.int64] | None]:
    """Return how to cut rows into bags that are summed exactly: the type, the bags' offsets, each bag's row or None."""
    # float32 sums several times faster than float64, so a row that is too full for it becomes several bags.
    fits = (_EXACT_FLOAT32 - 1) // max(largest, 1)
    rows, counts = np.arange(membership.rows), membership.counts
    if membership.weights is None and counts.max(initial=0) <= fits:
        return np.float32, membership.offsets, None
    if membership.weights is not None or fits < _SMALLEST_BAG:
        return np.float64, membership.offsets, None
    bags = -(-counts // fits)
    row_of_bag = np.repeat(rows, bags)
    number = np.arange(len(row_of_bag)) - np.repeat(np.cumsum(bags) - bags, bags)
    starts = membership.offsets[row_of_bag] + number * fits
    return np.float32, np.append(starts, membership.offsets[-1]), row_of_bag


def _grid_bits(weights: NDArray[np.float64]) -> int:
    """Return the least b for which all ``weights`` are multiples of 2 ** -b."""
    for bits in range(53):
        scaled = weights * 2.0**bits
        if (scaled == np.rint(scaled)).all():
            return bits
    raise ValueError("weights must be multiples of 2**-52")


# Integers of magnitude below the limit are held exactly by the type; from small to large.
_TYPES: tuple[tuple[int, type[Any]], ...] = ((2**24, np.float32), (2**31, np.int32), (2**53, np.float64))
_ROWS_AT_ONCE = 1024


class RowSums:
    """Exact sums of the members of some rows, and how many members of each class a row has. Secret.

    Formal guarantees:
        * Exact: after any sequence of :meth:`add` and :meth:`merge`, ``x`` holds the sums of integer arithmetic. Before
          each addition, the largest magnitude that any entry could then have is compared with the type's exact range.
          It is a row's total weight times the largest entry of a record. The type grows first if it has to; from 2**53
          on it raises.
        * Order, cuts and number of additions therefore change no value.
    """

    # x (rows, d): in lattice steps (times ``weight_step`` with weights). counts (rows, K): draws of each class; in
    # ``weight_step`` with weights, in ``label_steps`` with parts. totals (rows,): a row's draws, or their weights.

    # weight_step: unit of the weights, a power of two, or None. label_steps: parts of a member's labels, 1 for one
    # class. draws_expected: a public guess at a row's most draws: a type that holds them is taken at once.

    __slots__ = ("_largest", "_weight_step", "counts", "totals", "x")

    def __init__(
        self,
        rows: int,
        dim: int,
        classes: int,
        *,
        largest: int,
        weight_step: float | None = None,
        label_steps: int = 1,
        draws_expected: float = 0,
    ) -> None:
        self._largest, self._weight_step = largest, weight_step
        self.x: NDArray[Any] = np.zeros((rows, dim), sum_type(draws_expected * largest, weight_step is not None))
        self.counts: NDArray[Any] = np.zeros(
            (rows, classes), np.int32 if weight_step is None and label_steps == 1 else np.float64
        )
        self.totals: NDArray[np.float64] = np.zeros(rows)

    def __repr__(self) -> str:
        return f"<RowSums of {len(self.totals)} rows>"

    def add(self, start: int, records: LatticeRecords, labels: NDArray[np.int64], members: Membership) -> None:
        """Add members from one record tile, of rows from ``start`` on; labels are (records,) or (records, K) parts."""
        rows = slice(start, start + members.rows)
        if self._weight_step is not None:
            # In the weights' steps, weighted sums are integers too; scaling by a power of two is exact.
            assert members.weights is not None
            members = Membership(members.offsets, members.indices, members.weights / self._weight_step)
        if labels.ndim == 1:
            classes = self.counts.shape[1]
            cell = np.repeat(np.arange(members.rows) * classes, members.counts) + labels[members.indices]
            counted = np.bincount(cell, members.weights, members.rows * classes).reshape(members.rows, classes)
            totals = members.counts if members.weights is None else counted.sum(axis=1)
        else:
            weights = np.ones(len(members.indices)) if members.weights is None else members.weights
            held = csr_matrix((weights, members.indices, members.offsets), shape=(members.rows, len(labels)))
            # Whole numbers below 2^53, as the sums of features are.
            counted, totals = held @ labels.astype(np.float64), np.asarray(held.sum(axis=1)).ravel()
        self._make_room(rows, totals)
        self.counts[rows] += counted.astype(self.counts.dtype, copy=False)
        add_rows(self.x[rows], records, members)

    def merge(self, other: "RowSums") -> None:
        self._make_room(slice(None), other.totals)
        self.counts += other.counts.astype(self.counts.dtype, copy=False)
        for rows in _pieces(len(self.x)):
            # The part's own values fit its type, and so the type of the whole, which is no smaller.
            self.x[rows] += other.x[rows].astype(self.x.dtype, copy=False)

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
    """Return the type for integers of magnitude up to ``most``; raise where none holds them exactly."""
    found = next((kind for limit, kind in _TYPES if most < limit), None)
    if found is None:
        raise InvalidInput("lattice sums", WITHHELD, "below 2**53 steps: use fewer lattice bits")
    return np.float64 if weighted else found


def _rank(kind: type[Any]) -> int:
    return [known for _, known in _TYPES].index(kind)


def _pieces(rows: int) -> list[slice]:
    return [slice(first, first + _ROWS_AT_ONCE) for first in range(0, rows, _ROWS_AT_ONCE)]
