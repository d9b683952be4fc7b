"""GH-OFL's statistics (Turazza, Picone, Mamei 2026) with paid noise: class sizes, sums and second moments, and an LDA.

As published they leave each owner without noise, for a server that learns from their sums. Here there is one owner, and
all is one Gaussian query: a record adds 1 to the size of its class, x to its sum and x x' to the second moments, all
classes' together, as their linear head needs no more. Each part moves by at most 1 (x x' by |x|^2, in its upper
triangle with off-diagonal entries times sqrt(2)), so that three queries of multiplier s sqrt(3) compose to one of s.
The head is theirs: the pooled covariance, a ridge, and priors by size. The ridge is the spectral size of the noise.
"""

from __future__ import annotations

import math

import numpy as np

from rivals.task import Array, Task, multiplier


def run(task: Task, epsilon: float, delta: float, rng: np.random.Generator) -> float:
    """Test accuracy of one run."""
    noise, dim = math.sqrt(3) * multiplier(epsilon, delta), task.dim
    sizes = np.bincount(task.y, minlength=task.classes) + noise * rng.standard_normal(task.classes)
    # A class has one record at least: sizes are divided by.
    sizes = np.maximum(sizes, 1.0)
    means = (task.cross + noise * rng.standard_normal(task.cross.shape)) / sizes
    second = task.gram + noise * symmetric(dim, rng)
    return task.accuracy(*head(second, sizes, means, noise))


def symmetric(dim: int, rng: np.random.Generator) -> Array:
    """(d, d) noise of norm-1 queries of a symmetric matrix: deviation 1 on the diagonal, 1 / sqrt(2) off it."""
    upper = np.triu(rng.standard_normal((dim, dim)), 1) / math.sqrt(2)
    return np.asarray(upper + upper.T + np.diag(rng.standard_normal(dim)))


def head(second: Array, sizes: Array, means: Array, noise: float) -> tuple[Array, Array]:
    """(d, K) weights and (K,) offsets of linear discriminant analysis from noisy statistics."""
    total = sizes.sum()
    covariance = second / total - (means * (sizes / total)) @ means.T
    values, vectors = np.linalg.eigh(covariance)
    # The eigenvalues of such noise lie within sqrt(2 d) times its deviation.
    values = np.maximum(values, 0) + noise * math.sqrt(2 * len(second)) / total
    weights = vectors @ ((vectors.T @ means) / values[:, None])
    return weights, np.log(sizes / total) - (means * weights).sum(axis=0) / 2
