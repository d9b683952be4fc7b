"""The same learner on records without any privacy: the ceiling for comparison with a release."""

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
    """A classifier of (n, d) extractor output that was fitted to private records; not for recipients."""

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
    """Fit to clean records the counterpart of a release's learner: NOT PRIVATE, for their owner to compare."""
    # Linear discriminant analysis replaces learners of noisy moments, stages or class sums; a learner of noisy rows
    # gets the records as rows of one record each.
    rows = learner is not None and learner.reads_rows and not learner.reads_moments
    if not rows:
        transform = None
    release = as_release(features, labels, tuple(classes), transform, rows=rows, input_shape=input_shape)
    chosen = clone(learner) if rows and learner is not None else DiscriminantClassifier()
    words = "linear discriminant analysis" if not rows else f"learner {chosen.name} on single records"
    return Reference(chosen.fit(release), words)
