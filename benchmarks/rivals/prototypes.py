"""Class prototypes (DPPL-Mean, Wahdany et al. 2025): noisy class means of public features, nearest by cosine.

One Gaussian query here: a record adds a vector of norm at most 1 to its class's sum. Class sizes play no part in
cosines, so that nothing is paid for them.
"""

from __future__ import annotations

import numpy as np

from rivals.task import Task, multiplier


def run(task: Task, epsilon: float, delta: float, rng: np.random.Generator) -> float:
    """Test accuracy of one run."""
    sums = task.cross + multiplier(epsilon, delta) * rng.standard_normal(task.cross.shape)
    return task.accuracy(sums / np.linalg.norm(sums, axis=0))
