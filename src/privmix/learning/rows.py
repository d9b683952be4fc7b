"""Rows as learners sum them: less their means, in blocks; and clean records in the place of a release."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import ssyrk

from privmix.publication.dataset import RecordTransform, ReleasedDataset
from privmix.publication.second_moments import SecondMoments

ROW_BLOCK: Final = 4096


@dataclass(frozen=True)
class CentredRows:
    """Released rows x (T, d) and y (T, K), column means, and variances of the noise in an entry less its mean."""

    x: NDArray[np.float32]
    y: NDArray[np.float32]
    mean_x: NDArray[np.float32]
    mean_y: NDArray[np.float32]
    noise_variance: float
    label_noise_variance: float

    @classmethod
    def of(cls, release: ReleasedDataset) -> "CentredRows":
        # The mean of T rows carries 1/T of a row's noise, and subtracting it takes that share out of each row. Over T
        # rows this is the T - 1 of a sample variance.
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
        for block in slices(part.stop, ROW_BLOCK, start=part.start):
            x, y = self.centred(block)
            xx += ssyrk(1.0, x.T, lower=1)
            xy += x.T @ y
        return xx, xy


def slices(stop: int, size: int, *, start: int = 0) -> Iterator[slice]:
    return (slice(first, min(first + size, stop)) for first in range(start, stop, size))


_BATCH = 4096


def as_release(
    features: NDArray[np.float32],
    labels: NDArray[np.int64],
    classes: tuple[str, ...],
    transform: RecordTransform | None = None,
    *,
    rows: bool,
    input_shape: tuple[int, ...] | None = None,
) -> ReleasedDataset:
    """Clean records as a learner takes them, NOT PRIVATE: exact second moments, or rows of one record each."""
    if transform is None:
        # As long as the longest: nothing is clipped.
        transform = RecordTransform(float(np.linalg.norm(features, axis=1).max(initial=0.0)) or 1.0)
    offset = 0.0 if transform.centre is None else 1 / len(classes)
    hot = np.eye(len(classes), dtype=np.float32) - np.float32(offset)
    kept = slice(0, len(features) if rows else 1)
    return ReleasedDataset(
        x=transform.rows(features[kept]),
        y=hot[labels[kept]],
        design="poisson" if rows else "moments",
        mixup_degree=1,
        noise_std_x=0.0,
        noise_std_y=0.0,
        label_offset=offset,
        classes=classes,
        transform=transform,
        extractor={"name": "identity"},
        input_shape=(features.shape[1],) if input_shape is None else input_shape,
        release_id="without privacy",
        beside=None if rows else _moments(features, labels, hot, transform),
    )


def _moments(
    features: NDArray[np.float32], labels: NDArray[np.int64], hot: NDArray[np.float32], transform: RecordTransform
) -> SecondMoments:
    dim, classes = features.shape[1], hot.shape[1]
    second, cross = np.zeros((dim, dim), np.float32), np.zeros((dim, classes))
    for part in slices(len(features), _BATCH):
        records = transform(features[part]).astype(np.float32)
        second += records.T @ records
        cross += records.T @ hot[labels[part]]
    sums = hot[labels].sum(axis=0, dtype=np.float64)
    return SecondMoments(
        second,
        cross.astype(np.float32),
        sums.astype(np.float32),
        records=len(features),
        noise_std_second=0.0,
        noise_std_cross=0.0,
        noise_std_counts=0.0,
    )
