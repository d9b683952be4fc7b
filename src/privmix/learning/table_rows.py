"""Rows of a mixture in whose parts columns are independent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]


def draw(weights: Reals, states: Sequence[Reals], records: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Draw rows of a mixture in whose parts columns are independent.

    Every part gets its number of rows but for rounding, and so does every state of a column within a part; which of a
    part's rows get it is drawn. What chance adds to the mixture is less than in independent draws: on Adult at epsilon
    8 half as much of the distance between pairs of columns is left.

    Args:
        weights: (k,) of the parts.
        states: for each column (k, s) shares within each part.
        records: how many rows.
        generator: randomness; it needs no secret.

    Returns:
        (records, columns) states, in an order that says nothing.

    Example:
        >>> draw(np.ones(1), [np.array([[0.5, 0.5]])], 4, np.random.default_rng(0)).sum()
        np.int64(2)
    """
    # Places that are evenly spread from a start that is drawn: each part is met as often as its weight says.
    places = (np.arange(records) + generator.random()) / records
    if records < len(weights):
        places = generator.random(records)
        places.sort()
    part = np.minimum(np.searchsorted(np.cumsum(weights), places, side="right"), len(weights) - 1)
    starts = np.searchsorted(part, np.arange(len(weights) + 1))
    rows = np.empty((records, len(states)), np.int64)
    for column, shares in enumerate(states):
        ladder = np.cumsum(shares, axis=1)
        for k in np.flatnonzero(np.diff(starts)):
            count = int(starts[k + 1] - starts[k])
            at = (generator.permutation(count) + generator.random()) / count
            rows[starts[k] : starts[k + 1], column] = np.searchsorted(ladder[k], at, side="right")
        np.minimum(rows[:, column], shares.shape[1] - 1, out=rows[:, column])
    return rows[generator.permutation(records)]
