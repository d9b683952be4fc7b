"""What the same learner makes of records without any privacy: the ceiling that a release is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from privmix.learning.base import ReleaseLearner
from privmix.learning.discriminant import DiscriminantClassifier
from privmix.learning.rows import as_release
from privmix.publication.dataset import RecordTransform


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
    rows = learner is not None and learner.reads_rows and not learner.reads_moments
    if not rows:
        transform = None
    release = as_release(features, labels, tuple(classes), transform, rows=rows, input_shape=input_shape)
    chosen = clone(learner) if rows and learner is not None else DiscriminantClassifier()
    words = "linear discriminant analysis" if not rows else f"learner {chosen.name} on single records"
    return Reference(chosen.fit(release), words)
