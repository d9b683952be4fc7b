"""DPPro (Xu et al. 2017): every record is projected at random and released with noise; labels are released as they are.

What this can promise: one record's FEATURES may be exchanged for others (replace one, all labels public). Labels are
not protected, and neither is how many records there are: adding or removing a record has no finite price. It stands
beside methods that protect labels and presence, too.

z_i = W'x_i + noise, W a public d x q matrix of N(0, 1/q). An exchanged x of norm 1 moves its own row by 2 |W| at most,
|W| the largest singular value of the W that was drawn. q is what the papers choose by test accuracy; here it is given,
and at most d. The classifier is ridge regression of labels on rows, or the papers' logistic regression by Adam; records
to be told are projected and get no noise.
"""

from __future__ import annotations

import numpy as np

from privmix.accounting import Adjacency, Gaussian, calibrate
from privmix.learning.kl import GeneralizedKLClassifier
from rivals.task import Array, Task

WIDTH = 400
_RIDGE = 1e-2
_EPOCHS = 10


def run(
    task: Task, epsilon: float, delta: float, rng: np.random.Generator, width: int = WIDTH, *, logistic: bool = False
) -> float:
    """Test accuracy of one run."""
    width = min(width, task.dim)
    public = rng.standard_normal((task.dim, width)) / np.sqrt(width)
    # Under replace-one the price is that of twice the bound.
    multiplier = calibrate(Gaussian, epsilon, delta, adjacency=Adjacency.REPLACE_ONE).noise_multiplier
    rows = task.x @ public.astype(np.float32)
    rows += np.float32(multiplier * np.linalg.norm(public, 2)) * rng.standard_normal(rows.shape, dtype=np.float32)
    if logistic:
        # On one-hot labels its divergence is the cross entropy.
        model = GeneralizedKLClassifier(epochs=_EPOCHS, seed=int(rng.integers(2**31)), standardise=True)
        model.fit(rows, task.y)
        return float((model.predict(task.test_x @ public.astype(np.float32)) == task.test_y).mean())
    labels = np.eye(task.classes)[task.y]
    return task.accuracy(public @ ridge(rows.astype(np.float64), labels))


def ridge(x: Array, y: Array) -> Array:
    """(d, K) of labels on features, both as they are."""
    second = x.T @ x
    second[np.diag_indices(len(second))] += _RIDGE * np.trace(second) / len(second)
    return np.asarray(np.linalg.solve(second, x.T @ y))
