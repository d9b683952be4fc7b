"""Clean records in the place of a release, for learners that are to show what they reach without privacy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.learning.rows import slices
from privmix.publication.dataset import RecordTransform, ReleasedDataset
from privmix.publication.second_moments import SecondMoments

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
    """Clean records in the form that a learner takes: exact second moments, or rows of one record each.

    NOT PRIVATE: what is fitted to it has seen the records.

    Args:
        features: (n, d).
        labels: (n,) class indices.
        classes: K names.
        transform: what is done to records; None: nothing.
        rows: they are to be rows.
        input_shape: of a raw input, for a learner that takes rows as images.
    """
    transform = unclipped(features) if transform is None else transform
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


def unclipped(features: NDArray[Any]) -> RecordTransform:
    """A bound that no record reaches."""
    return RecordTransform(float(np.linalg.norm(features, axis=1).max(initial=0.0)) or 1.0)


def _moments(
    features: NDArray[np.float32], labels: NDArray[np.int64], hot: NDArray[np.float32], transform: RecordTransform
) -> SecondMoments:
    """Exact second moments of the transformed records."""
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
