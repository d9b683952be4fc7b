"""Mixing: exact sums of lattice records, row by row, and the random weights some designs use."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from privmix.errors import WITHHELD, InvalidInput, check_integer, check_number
from privmix.mechanisms.membership import Membership

# Columns summed at a time: a record tile then fits the last-level cache.
_COLUMNS = 64
_EXACT_FLOAT32, _EXACT_FLOAT64 = 2.0**24, 2.0**53


def dirichlet_weights(
    generator: np.random.Generator, rows: int, sample_size: int, alpha: float, max_weight: float, bits: int
) -> NDArray[np.float64]:
    """Draw mixing weights from a symmetric Dirichlet distribution, clipped and rounded down to a grid.

    One record's part in a row is at most ``max_weight`` times its norm. That is the sensitivity, and 1 unless clipped:
    averaging has ``1 / sample_size``, which is why it needs less noise (NeuroMixGDP, section 2).

    Formal guarantees:
        * Bounded: every weight is in ``[0, max_weight]`` and a row's weights sum to at most 1.
        * On the grid: every weight is a multiple of ``2 ** -bits``, so sums of weighted lattice records are exact
          multiples of the lattice step times ``2 ** -bits``.
        * Data-independent: weights depend on the generator and the public arguments only.

    Args:
        generator: a secret stream's.
        rows: how many rows of weights.
        sample_size: how many weights a row has.
        alpha: concentration, > 0; towards infinity all weights become ``1 / sample_size``.
        max_weight: weights above it are cut to it; in [2 ** -bits, 1].
        bits: grid of the weights, from 1 to 30.

    Returns:
        (rows, sample_size) float64.

    Raises:
        InvalidInput: an argument is out of range.

    Example:
        >>> weights = dirichlet_weights(np.random.default_rng(0), 5, 3, alpha=1.0, max_weight=0.5, bits=8)
        >>> weights.shape, bool(weights.max() <= 0.5), bool((weights * 256 == np.floor(weights * 256)).all())
        ((5, 3), True, True)
    """
    check_weights(alpha, max_weight, bits)
    weights = generator.dirichlet(np.full(sample_size, alpha), size=rows)
    np.minimum(weights, max_weight, out=weights)
    return np.asarray(np.floor(weights * 2.0**bits) * 2.0**-bits)


def check_weights(alpha: float, max_weight: float, bits: int) -> None:
    """Raise :class:`InvalidInput` unless these are arguments that :func:`dirichlet_weights` takes."""
    check_number("alpha", alpha, low=0, low_open=True)
    check_integer("weight bits", bits, low=1, high=30)
    check_number("max_weight", max_weight, low=2.0**-bits, high=1)


def sum_rows(lattice_x: NDArray[Any], membership: Membership) -> NDArray[Any]:
    """Sum, for every row, the records it holds (times their weights), without rounding.

    Formal guarantees:
        * Exact: sums equal those of integer arithmetic, so order, threads and chunking change no bit of them. Sums
          that could reach the limit of exact float integers raise.
        * Empty rows are rows: they sum to zero.

    Args:
        lattice_x: (records, d) integer-valued numbers, floats or signed integers. One record tile, or any other array
            that ``membership.indices`` refers to.
        membership: which records each of T rows holds. Weights, if any, are multiples of a power of two.

    Returns:
        (T, d) sums: float32 where all of them are certain to be below 2**24, else float64. Weighted sums are float64
        multiples of the weights' grid.

    Raises:
        InvalidInput: ``lattice_x`` is not such an array, or its sums could reach 2**53 steps.
        IndexError: an index lies outside ``lattice_x``.

    Example:
        >>> rows = Membership(np.array([0, 2, 2]), np.array([0, 2]))
        >>> sum_rows(np.array([[1.0, -2.0], [5.0, 5.0], [3.0, 0.0]]), rows).tolist()
        [[4.0, -2.0], [0.0, 0.0]]
    """
    if lattice_x.ndim != 2 or lattice_x.dtype.kind not in "fi":
        raise InvalidInput("lattice records", (lattice_x.shape, str(lattice_x.dtype)), "a 2-d array of numbers")
    indices = membership.indices
    if len(indices) and not (indices.min() >= 0 and indices.max() < len(lattice_x)):
        raise IndexError("a row holds a record outside the array")
    dtype = _exact_type(lattice_x, membership)
    sums = np.zeros((membership.rows, lattice_x.shape[1]), dtype)
    if len(indices) == 0:
        return sums
    picked, offsets = torch.from_numpy(indices), torch.from_numpy(membership.offsets)
    weights = None if membership.weights is None else torch.from_numpy(membership.weights)
    for start in range(0, lattice_x.shape[1], _COLUMNS):
        columns = slice(start, start + _COLUMNS)
        block = torch.from_numpy(np.array(lattice_x[:, columns], dtype=dtype, order="C"))
        sums[:, columns] = functional.embedding_bag(
            picked, block, offsets, mode="sum", include_last_offset=True, per_sample_weights=weights
        ).numpy()
    return sums


def naive_sum_rows(lattice_x: NDArray[Any], membership: Membership) -> NDArray[np.float64]:
    """What :func:`sum_rows` computes, row by row in integer arithmetic: the reference that it is tested against.

    Example:
        >>> rows = Membership(np.array([0, 2, 2]), np.array([0, 2]))
        >>> naive_sum_rows(np.array([[1.0, -2.0], [5.0, 5.0], [3.0, 0.0]]), rows).tolist()
        [[4.0, -2.0], [0.0, 0.0]]
    """
    bits = 0 if membership.weights is None else _grid_bits(membership.weights)
    sums = np.zeros((membership.rows, lattice_x.shape[1]), np.int64)
    for row in range(membership.rows):
        for draw in range(membership.offsets[row], membership.offsets[row + 1]):
            weight = 1 if membership.weights is None else int(membership.weights[draw] * 2.0**bits)
            sums[row] += weight * lattice_x[membership.indices[draw]].astype(np.int64)
    return np.asarray(sums * 2.0**-bits, np.float64)


def _exact_type(lattice_x: NDArray[Any], membership: Membership) -> type[np.float32] | type[np.float64]:
    largest = max(float(lattice_x.max(initial=0)), -float(lattice_x.min(initial=0)))
    bound = int(membership.counts.max(initial=0)) * largest
    if membership.weights is not None:
        # In steps of the weights' grid, where weighted sums are integers.
        bound *= float(membership.weights.max(initial=0)) * 2.0 ** _grid_bits(membership.weights)
    if not bound < _EXACT_FLOAT64:
        raise InvalidInput("lattice sums", WITHHELD, "below 2**53 steps: use fewer lattice bits")
    return np.float32 if bound < _EXACT_FLOAT32 and membership.weights is None else np.float64


def _grid_bits(weights: NDArray[np.float64]) -> int:
    """Return the least b for which all ``weights`` are multiples of 2 ** -b."""
    for bits in range(53):
        scaled = weights * 2.0**bits
        if (scaled == np.rint(scaled)).all():
            return bits
    raise ValueError("weights must be multiples of 2**-52")
