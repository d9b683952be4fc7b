"""Records that a release could be of, labelled by what is learnt from it: for learners that take labelled records."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privmix.errors import check_integer
from privmix.learning.base import ReleaseLearner
from privmix.learning.calibration import imagined
from privmix.learning.class_statistics import class_statistics
from privmix.learning.rows import slices
from privmix.publication.dataset import ReleasedDataset

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
