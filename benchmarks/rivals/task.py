"""What every rival gets: records clipped to norm 1, their sums, and test records."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from privmix.accounting import Gaussian, calibrate

Array = NDArray[np.float64]
_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Task:
    """Records of norm at most 1 with labels 0..K-1, add or remove one record.

    Attributes:
        x: (n, d) float32; y: (n,).
        test_x: (t, d) float32; test_y: (t,).
    """

    x: NDArray[np.float32]
    y: NDArray[np.int64]
    test_x: NDArray[np.float32]
    test_y: NDArray[np.int64]

    @property
    def classes(self) -> int:
        """K."""
        return int(self.y.max()) + 1

    @property
    def dim(self) -> int:
        """d."""
        return int(self.x.shape[1])

    @cached_property
    def gram(self) -> Array:
        """(d, d) X'X. Secret."""
        total = np.zeros((self.dim, self.dim))
        for start in range(0, len(self.x), _BLOCK):
            part = self.x[start : start + _BLOCK]
            total += part.T @ part
        return total

    @cached_property
    def cross(self) -> Array:
        """(d, K) X'Y of one-hot labels. Secret."""
        return np.stack([self.x[self.y == k].sum(axis=0, dtype=np.float64) for k in range(self.classes)], axis=1)

    @cached_property
    def least_eigenvalue(self) -> float:
        """Of X'X. Secret."""
        return float(np.linalg.eigvalsh(self.gram)[0])

    def accuracy(self, weights: Array, offsets: Array | float = 0.0) -> float:
        """Share of test records whose largest score x'w_k + b_k is their class's."""
        scores = self.test_x @ weights.astype(np.float32) + offsets
        return float((scores.argmax(axis=1) == self.test_y).mean())


def clipped(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows that are longer than 1, shortened to it."""
    return np.asarray(x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True)), np.float32)


def multiplier(epsilon: float, delta: float) -> float:
    """Noise multiplier of one Gaussian query with this price, add or remove."""
    return calibrate(Gaussian, epsilon, delta).noise_multiplier
