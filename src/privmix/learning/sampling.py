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
    """Draw records from what a release says of its classes, each with the class that a learner of it gives.

    Rows of a release are made for learners that know how they were made: their labels are soft and noisy (or, of
    sampled rows, drawn beside features whose classes overlap by all the noise that there is), and the noise in them is
    taken for scatter by whoever does not know its size. These records have none of that. Features are drawn from class
    means and scatter after their noise, as for calibration; labels are the learner's, so that what is fitted to them
    comes to what the learner knows, up to the sampling error of ``count`` records.

    Both are made from the release alone and cost no privacy, however many there are. No record of them is a person's.

    Args:
        release: the rows and what is beside them.
        learner: fitted to it.
        count: n.
        seed: of the draw; the same one draws the same.

    Returns:
        (n, d) float32 records, transformed as the release's are, and (n,) class indices.
    """
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
