"""AdaSSP (Wang 2018, Algorithm 2): ridge regression on noisy X'X and X'Y, the ridge by a noisy smallest eigenvalue.

Three Gaussian queries of equal multipliers s sqrt(3), which compose to one of multiplier s: the smallest eigenvalue and
X'X change by at most |x|^2 = 1 (X'X in its upper triangle), X'Y of one-hot labels by |x| |y| = 1. As published, records
are not centred, and the ridge is the size of the noise less what the smallest eigenvalue is sure to give.
"""

from __future__ import annotations

import math

import numpy as np

from rivals.task import Task, multiplier

_RHO = 0.05


def run(task: Task, epsilon: float, delta: float, rng: np.random.Generator) -> float:
    """Test accuracy of one run."""
    return task.accuracy(weights(task.gram, task.cross, epsilon, delta, rng, task.least_eigenvalue))


def weights(
    gram: np.ndarray,
    cross: np.ndarray,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
    smallest: float | None = None,
) -> np.ndarray:
    """Return the coefficients by X'X and X'Y of records and targets of norm at most 1."""
    noise, dim = math.sqrt(3) * multiplier(epsilon, delta), len(gram)
    smallest = float(np.linalg.eigvalsh(gram)[0]) if smallest is None else smallest
    least = smallest + noise * rng.standard_normal() - noise * math.sqrt(2 * math.log(1 / _RHO))
    ridge = max(0.0, math.sqrt(dim * math.log(2 * dim**2 / _RHO)) * noise - max(0.0, least))
    upper = np.triu(rng.standard_normal((dim, dim)))
    second = gram + noise * (upper + np.triu(upper, 1).T)
    second[np.diag_indices(dim)] += ridge
    return np.linalg.solve(second, cross + noise * rng.standard_normal(cross.shape))
