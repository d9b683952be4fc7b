"""Noisy second moments of features on two axes, cleaned by what the axes have in common.

With feature (a, i) channel a at position i, X'X is nearly a sum of few Kronecker products of a matrix over channels and
one over positions. Rearranged, so that entry ((a, i), (b, j)) stands in row (a, b) and column (i, j), it has low rank.
Noise keeps all its rank (Van Loan and Pitsianis 1993; Tsiligkaridis and Hero 2013). Singular values are shrunk as is
best for known noise (Gavish and Donoho 2017): no constant is chosen.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privmix.publication.second_moments import eigh_lower

Matrix = NDArray[np.float32]


def kronecker_cleaned(second: Matrix, channels: int, deviation: float) -> Matrix:
    """Return X'X (d, d), features in order (channel, position), without its noise; eigenvalues may be below 0."""
    # deviation: standard deviation of the noise off the diagonal; on it sqrt(2) times that.
    positions = len(second) // channels
    blocks = second.reshape(channels, positions, channels, positions).transpose(0, 2, 1, 3)
    cleaned = np.zeros_like(blocks)
    # A symmetric matrix is one part that neither axis's exchange changes, and one whose sign both change: S_ai,bj =
    # S_bj,ai. Each, written once, has independent noise of variance 2 deviation^2 in every entry.
    for sign in (1, -1):
        rows, columns = _pairs(channels, sign), _pairs(positions, sign)
        if not len(rows[0]) or not len(columns[0]):
            continue
        along = blocks[rows] + sign * blocks[rows[::-1]]
        part = (along[:, *columns] + sign * along[:, *columns[::-1]]) / 4
        scale = _weights(rows)[:, None] * _weights(columns)
        part = _shrunk(part * scale, deviation * np.sqrt(2)) / scale
        spread = np.zeros_like(along)
        spread[:, *columns] = part
        spread[:, *columns[::-1]] = sign * part
        cleaned[rows] += spread
        # Entries on the diagonal of channels exist once.
        apart = rows[0] != rows[1]
        cleaned[rows[1][apart], rows[0][apart]] += sign * spread[apart]
    return np.ascontiguousarray(cleaned.transpose(0, 2, 1, 3)).reshape(second.shape)


def _pairs(size: int, sign: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Entries on and below the diagonal; below it alone for the part that changes its sign."""
    first, second = np.tril_indices(size, 0 if sign > 0 else -1)
    return first, second


def _weights(pairs: tuple[NDArray[np.intp], NDArray[np.intp]]) -> Matrix:
    """sqrt(2) where an entry stands for two, so that norms are those of the whole."""
    return np.where(pairs[0] == pairs[1], 1.0, np.sqrt(2)).astype(np.float32)


def _shrunk(noisy: Matrix, deviation: float) -> Matrix:
    """Return an (a, b) matrix of the singular values best in squared error under white noise of ``deviation``."""
    tall = noisy if noisy.shape[0] >= noisy.shape[1] else noisy.T
    squares, right = eigh_lower(np.asfortranarray(tall.T @ tall))
    ratio, level = tall.shape[1] / tall.shape[0], deviation**2 * tall.shape[0]
    values = np.maximum(squares.astype(np.float64), 0.0)
    kept = values > (1 + np.sqrt(ratio)) ** 2 * level
    # Gavish and Donoho 2017, eq. 7, over the singular value: sqrt((y^2 - ratio - 1)^2 - 4 ratio) / y^2, here y is y^2.
    y = values[kept] / level if level > 0 else np.full(int(kept.sum()), np.inf)
    gains = np.sqrt(np.maximum((1 - (ratio + 1) / y) ** 2 - 4 * ratio / y**2, 0.0))
    found = ((tall @ right[:, kept]) * gains.astype(np.float32)) @ right[:, kept].T
    return np.asarray(found if tall is noisy else found.T)
