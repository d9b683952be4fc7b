"""Random mixing weights, which some designs use in place of averages."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privmix.errors import check_integer, check_number


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
