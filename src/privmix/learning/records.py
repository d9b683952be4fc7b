"""Learners that take records: some that a release could be of, or real ones without privacy, as a ceiling."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from privmix.errors import check_integer
from privmix.learning.base import ReleaseLearner
from privmix.learning.calibration import imagined
from privmix.learning.class_statistics import class_statistics
from privmix.learning.discriminant import DiscriminantClassifier
from privmix.learning.rows import as_release, slices
from privmix.publication.dataset import RecordTransform, ReleasedDataset

_BATCH = 4096


def sample_records(
    release: ReleasedDataset, learner: ReleaseLearner, count: int, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Draw (n, d) float32 records, transformed as the release's are, and (n,) class indices; costs no privacy."""
    # Features are drawn from the noise-corrected class means and scatter, as for calibration; labels are the learner's.
    # A model fitted to them knows what the learner knows, up to sampling error; fitted to released rows it would take
    # their noise for scatter.
    check_integer("records", count, low=1)
    found, bound = class_statistics(release), release.transform.final_clip_norm
    generator = np.random.default_rng(seed)
    x, y = np.empty((count, release.dim), np.float32), np.empty(count, np.int64)
    for part in slices(count, _BATCH):
        records = imagined(found, part.stop - part.start, generator) @ found.basis.T + found.origin
        records *= np.minimum(1, bound / np.maximum(np.linalg.norm(records, axis=1), bound))[:, None]
        x[part] = records
        y[part] = learner.of_transformed(x[part]).argmax(axis=1)
    return x, y


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
