"""Noisy second moments of features that lie on two axes, cleaned by what the axes have in common.

Where feature (a, i) is channel a at position i, the covariance of channels hardly depends on the positions and that of
positions hardly on the channels: X'X is nearly a sum of few Kronecker products of a matrix over channels and one over
positions. Rearranged, so that entry ((a, i), (b, j)) stands in row (a, b) and column (i, j), it has low rank, while
noise keeps all its rank (Van Loan and Pitsianis 1993; Tsiligkaridis and Hero 2013). Singular values are shrunk as is
best for known noise (Gavish and Donoho 2017): no constant is chosen.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privmix.publication.second_moments import eigh_lower

Matrix = NDArray[np.float32]


def kronecker_cleaned(second: Matrix, channels: int, deviation: float) -> Matrix:
    """X'X with noise taken out.

    Args:
        second: (d, d) symmetric, the noisy X'X of features in order (channel, position).
        channels: how many channels there are; d is a multiple of it.
        deviation: standard deviation of the noise off the diagonal; on it sqrt(2) times that.

    Returns:
        (d, d) symmetric; eigenvalues may be below 0.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> true = np.kron(np.diag([4.0, 2.0, 1.0]), np.full((20, 20), 0.5) + np.eye(20))
        >>> noise = np.tril(rng.normal(0, 0.3, (60, 60)))
        >>> noisy = (true + noise + noise.T).astype(np.float32)
        >>> error = np.linalg.norm(kronecker_cleaned(noisy, 3, 0.3) - true)
        >>> bool(error < 0.5 * np.linalg.norm(noisy - true))
        True
    """
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
        # What is on the diagonal of channels is there once.
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
    """(a, b) matrix with the singular values that are best in squared error, its noise being white of ``deviation``."""
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
