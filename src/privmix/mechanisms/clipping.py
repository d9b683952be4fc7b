"""Clipping: the bound on what one record can add to a sum."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.errors import WITHHELD, InvalidInput, check_number

_SMALLEST_BOUND, _LARGEST_BOUND = 1e-100, 1e100
_ULP = float(np.finfo(np.float64).eps)
# Numbers that the buffer of NumPy's einsum holds. einsum cuts a wider row differently when it stands alone.
# A neighbour could then change the last bits of its norm, and move the clipped record by a lattice step.
_WIDTH: Final = 8192


def clip_l2(x: NDArray[Any], bound: float, *, overwrite: bool = False) -> NDArray[np.float64]:
    """Scale down every row of ``x`` (n, d) whose L2 norm exceeds ``bound``; leave the others as they are; in float64.

    Formal guarantees:
        * Bounded: the L2 norm of every returned row, computed without rounding, is at most ``bound``.
        * Per record: a row of the result depends on that row of ``x`` only, to the last bit. It depends neither on how
          many other rows ``x`` has, nor on how they lie in memory.
    """
    # bound is from 1e-100 to 1e100; overwrite lets float64 numbers in C order be clipped in their own memory.
    rows, checked_bound = _checked(x, bound, overwrite)
    return _scale_down(rows, l2_norms(rows), checked_bound)


def clip_l1(x: NDArray[Any], bound: float, *, overwrite: bool = False) -> NDArray[np.float64]:
    """Scale down every row of ``x`` (n, d) whose L1 norm exceeds ``bound``; otherwise as :func:`clip_l2`.

    Formal guarantees:
        * Bounded: the L1 norm of every returned row, computed without rounding, is at most ``bound``.
        * Per record: a row of the result depends on that row of ``x`` only, to the last bit. It depends neither on how
          many other rows ``x`` has, nor on how they lie in memory.
    """
    rows, checked_bound = _checked(x, bound, overwrite)
    norms = np.zeros(len(rows))
    with np.errstate(over="ignore"):
        for piece in _pieces(rows):
            norms += np.abs(piece).sum(axis=1)
    return _scale_down(rows, norms, checked_bound)


def l2_norms(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """L2 norms (n,) of (n, d) rows in C order; infinite where squares overflow.

    Formal guarantees:
        * Per record: a row's norm depends on that row only, to the last bit.
    """
    squares = np.zeros(len(rows))
    with np.errstate(over="ignore"):
        for piece in _pieces(rows):
            squares += np.einsum("ij,ij->i", piece, piece)
    return np.sqrt(squares)


def _pieces(rows: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """Columns that are summed at once: the same for every row, and pieces are added in order."""
    # NumPy sums what is wider than its buffer in other pieces where a row stands alone, whose axes it merges, than
    # where it has neighbours. A piece fits the buffer, so every row of it is one call of the innermost loop.
    return (rows[:, start : start + _WIDTH] for start in range(0, rows.shape[1], _WIDTH))


def _checked(x: NDArray[Any], bound: float, overwrite: bool) -> tuple[NDArray[np.float64], float]:
    checked_bound = check_number("clipping bound", bound, low=_SMALLEST_BOUND, high=_LARGEST_BOUND)
    array = np.asarray(x)
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise InvalidInput("features", (array.shape, str(array.dtype)), "a 2-d array of real numbers")
    return np.array(array, dtype=np.float64, order="C", copy=None if overwrite else True), checked_bound


def _scale_down(rows: NDArray[np.float64], norms: NDArray[np.float64], bound: float) -> NDArray[np.float64]:
    # One test for NaN, infinity and overflow: each makes the norm non-finite.
    if not np.isfinite(norms).all():
        raise InvalidInput("features", WITHHELD, "finite numbers whose norm is finite")
    # A hair is more than all rounding in the norm (at most d + 2 half-ulps) and in the product below. Rows are left
    # alone up to one hair below the bound and otherwise scaled to two hairs below, so a second clip changes nothing.
    hair = (rows.shape[1] + 8) * _ULP
    too_long = norms > bound * (1 - hair)
    if too_long.any():
        factors = np.ones_like(norms)
        factors[too_long] = bound * (1 - 2 * hair) / norms[too_long]
        rows *= factors[:, None]
    return rows
