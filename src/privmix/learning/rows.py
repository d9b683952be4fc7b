"""Released rows as learners sum them: less their means, in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import ssyrk

from privmix.publication.dataset import ReleasedDataset

_ROW_BLOCK: Final = 4096


@dataclass(frozen=True)
class CentredRows:
    """The released rows, their column means, and what noise is left in an entry once a mean is subtracted.

    Attributes:
        x: (T, d) features.
        y: (T, K) labels.
        mean_x, mean_y: their column means.
        noise_variance, label_noise_variance: of an entry less its column's mean.
    """

    x: NDArray[np.float32]
    y: NDArray[np.float32]
    mean_x: NDArray[np.float32]
    mean_y: NDArray[np.float32]
    noise_variance: float
    label_noise_variance: float

    @classmethod
    def of(cls, release: ReleasedDataset) -> CentredRows:
        # The mean of T rows carries 1/T of a row's noise, and subtracting it takes that share out of each row:
        # over T rows this is the T - 1 of a sample variance.
        share = 1 - 1 / release.rows
        return cls(
            x=release.x,
            y=release.y,
            mean_x=release.x.mean(axis=0, dtype=np.float64).astype(np.float32),
            mean_y=release.y.mean(axis=0, dtype=np.float64).astype(np.float32),
            noise_variance=share * release.noise_std_x**2,
            label_noise_variance=share * release.noise_std_y**2,
        )

    @property
    def count(self) -> int:
        return len(self.x)

    @property
    def dim(self) -> int:
        return int(self.x.shape[1])

    def centred(self, part: slice) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self.x[part] - self.mean_x, self.y[part] - self.mean_y

    def sums(self, part: slice) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """X'X, its lower triangle, and X'Y over the rows of ``part``, means subtracted."""
        # Fortran order is LAPACK's own and spares copies; float64 keeps what float32 would lose between the blocks.
        xx = np.zeros((self.dim, self.dim), dtype=np.float64, order="F")
        xy = np.zeros((self.dim, self.y.shape[1]), dtype=np.float64)
        for block in slices(part.stop, _ROW_BLOCK, start=part.start):
            x, y = self.centred(block)
            xx += ssyrk(1.0, x.T, lower=1)
            xy += x.T @ y
        return xx, xy


def slices(stop: int, size: int, *, start: int = 0) -> Iterator[slice]:
    """``range(start, stop)`` cut into slices of at most ``size``.

    Example:
        >>> [(part.start, part.stop) for part in slices(5, 2)]
        [(0, 2), (2, 4), (4, 5)]
    """
    return (slice(first, min(first + size, stop)) for first in range(start, stop, size))
