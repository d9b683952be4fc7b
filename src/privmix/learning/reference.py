"""What the same learner makes of records without any privacy: the ceiling that a release is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from privmix.errors import InvalidInput
from privmix.learning.base import ReleaseLearner, slices
from privmix.learning.discriminant import DiscriminantClassifier
from privmix.publication.dataset import RecordTransform, ReleasedDataset
from privmix.publication.second_moments import SecondMoments

_BATCH = 4096


@dataclass(frozen=True, eq=False)
class Reference:
    """A classifier that was fitted to private records, and may not be handed on.

    Attributes:
        classifier: takes (n, d) extractor output.
        words: what it is, for people.
    """

    classifier: ReleaseLearner
    words: str


def without_privacy(
    features: NDArray[np.float32],
    labels: NDArray[np.int64],
    classes: Sequence[str],
    transform: RecordTransform | None = None,
    learner: ReleaseLearner | None = None,
    input_shape: tuple[int, ...] | None = None,
) -> Reference:
    """Fit to clean records what would be fitted to a release of them.

    In place of a learner of noisy second moments, stages or class sums stands the discriminant on exact second moments,
    which then is linear discriminant analysis. A learner of noisy rows gets the records as rows of one record each.

    NOT PRIVATE: what comes back has seen the records. It is for their owner, to compare with.

    Args:
        features: (n, d) extractor output.
        labels: (n,) class indices.
        classes: K names.
        transform: what the release does to records, for a learner of rows; second moments need no bound here.
        learner: fitted to the release; None for a linear discriminant.
        input_shape: of a raw input, for a learner that takes rows as images.

    Example:
        >>> x = np.float32([[0, 0], [0, 1], [4, 0], [4, 1]])
        >>> without_privacy(x, np.array([0, 0, 1, 1]), ("a", "b")).classifier.predict(x).tolist()
        [0, 0, 1, 1]
    """
    rows = learner is not None and _takes_rows(learner)
    if transform is None or not rows:
        transform = unclipped(features)
    release = _release_of(features, labels, tuple(classes), transform, rows=rows, input_shape=input_shape)
    chosen = clone(learner) if rows and learner is not None else DiscriminantClassifier()
    words = "linear discriminant analysis" if not rows else f"learner {chosen.name} on single records"
    return Reference(chosen.fit(release), words)


def records_as_release(
    features: NDArray[np.float32], labels: NDArray[np.int64], classes: tuple[str, ...], learner: ReleaseLearner
) -> ReleasedDataset:
    """Clean records in the form that a learner takes: exact second moments, or rows of one record each.

    NOT PRIVATE: what is fitted to it has seen the records.

    Args:
        features: (n, d).
        labels: (n,) class indices.
        classes: K names.
        learner: whose form is meant.

    Raises:
        InvalidInput: it learns from its own design's releases alone.
    """
    if not learner.takes_records:
        raise InvalidInput("y", "records", f"a release: learner {learner.name} learns from its own design's alone")
    return _release_of(features, labels, classes, unclipped(features), rows=_takes_rows(learner))


def unclipped(features: NDArray[Any]) -> RecordTransform:
    """A bound that no record reaches."""
    return RecordTransform(float(np.linalg.norm(features, axis=1).max(initial=0.0)) or 1.0)


def _takes_rows(learner: ReleaseLearner) -> bool:
    """Whether second moments are not what it learns from."""
    return learner.reads_rows and not isinstance(learner, DiscriminantClassifier)


def _release_of(
    features: NDArray[np.float32],
    labels: NDArray[np.int64],
    classes: tuple[str, ...],
    transform: RecordTransform,
    *,
    rows: bool,
    input_shape: tuple[int, ...] | None = None,
) -> ReleasedDataset:
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
