"""What the fast sums are held against: row by row, in integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.mechanisms.membership import Membership

# Weights are multiples of 2 ** -16 at the finest.
_BITS = 16


def naive_sum_rows(lattice_x: NDArray[Any], membership: Membership) -> NDArray[np.float64]:
    """What ``sum_rows`` computes; ``lattice_x`` is what ``LatticeRecords.of`` takes."""
    bits = 0 if membership.weights is None else _BITS
    sums = np.zeros((membership.rows, lattice_x.shape[1]), np.int64)
    for row in range(membership.rows):
        for draw in range(membership.offsets[row], membership.offsets[row + 1]):
            weight = 1.0 if membership.weights is None else membership.weights[draw] * 2.0**bits
            assert weight == int(weight)
            sums[row] += int(weight) * lattice_x[membership.indices[draw]].astype(np.int64)
    return np.asarray(sums * 2.0**-bits, np.float64)
