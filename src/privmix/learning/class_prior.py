"""Places of class means from public words about the classes, trusted as far as the release confirms them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput

Reals = NDArray[np.float64]

# Fields of a model on the texts that points were made from; all of them or a part.
SOURCE: Final[dict[str, type]] = {"from": str, "texts": int, "sha256": str}


@dataclass(frozen=True, eq=False)
class ClassPrior:
    """Public points near which class means are expected, made of names or descriptions of the classes."""

    # Class k's mean is taken for a draw from N(a p_k, D), with p_k its point, counted from the mean of all classes. D
    # is the learner's covariance of class means. The number a ~ N(0, 1) is the same for all classes and directions; its
    # posterior follows from the noisy means (:func:`regression_on_prior`). Points without information get a near 0.
    # means (K, d): clipped as the release's records. source: ``from``, ``texts`` (their number), ``sha256``.

    means: Reals
    source: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.means.ndim != 2 or not np.isfinite(self.means).all():
            raise InvalidInput("points of a class prior", self.means.shape, "a (K, d) array of finite numbers")
        if not all(isinstance(value, SOURCE.get(name, ())) for name, value in self.source.items()):
            raise InvalidInput("source of a class prior", sorted(self.source), "from, texts and sha256")

    def check_fits(self, classes: int, dim: int) -> None:
        """Raise :class:`InvalidInput` unless there is a point for each of K classes, of d numbers."""
        if self.means.shape != (classes, dim):
            raise InvalidInput("points of a class prior", self.means.shape, f"an array of shape ({classes}, {dim})")

    def around(self, shares: Reals) -> Reals:
        """(K, d) points counted from their mean under the (K,) shares of the classes."""
        return np.asarray(self.means - shares @ self.means)


def regression_on_prior(points: Reals, means: Reals, variance: Reals) -> tuple[float, float]:
    """Return the coefficient a of noisy class means on their points, and the gain in log likelihood by the points."""
    # Let z ~ N(a p, v) entry by entry and a ~ N(0, 1). Then a has posterior mean f / h and precision h = 1 + sum p^2 /
    # v, with f = sum p z / v. Averaged over a, log N(z; a p, v) is its value at a = 0 plus f^2 / (2 h) - log(h) / 2.
    weighted = points / variance
    precision = 1 + float((weighted * points).sum())
    fit = float((weighted * means).sum())
    return fit / precision, 0.5 * fit**2 / precision - 0.5 * math.log(precision)


def measured_twice(means: Reals, noise: float, points: Reals) -> tuple[float, Reals, float]:
    """Combine class means and points without a covariance; return the points' weight, means (K, d) and variance."""
    # Along each singular vector u of the points they are taken for p = g m + e. By moments g = sum p z / sum m^2, with
    # sum m^2 = sum z^2 less the noise. The variance of e is the rest of p; p / g then measures m with that variance
    # over g^2. Both measurements are averaged by precision. Points without information have g near 0, and no weight.
    classes, dim = means.shape
    _, lengths, right = np.linalg.svd(points, full_matrices=False)
    # K - 1 of K rows are free, and with the slope one less.
    used = lengths > lengths[0] * classes * np.finfo(np.float64).eps
    if classes < 3 or not used.any() or noise == 0:
        return 0.0, means, noise
    right, measured, expected = right[used], means @ right[used].T, points @ right[used].T
    signal = np.square(measured).sum(axis=0) - noise * (classes - 1)
    fit = (measured * expected).sum(axis=0)
    told = (signal > 0) & (fit > 0)
    slope = np.divide(fit, signal, where=told, out=np.ones_like(fit))
    error = np.maximum(np.square(expected).sum(axis=0) - slope * fit, 0.0) / (classes - 2) / np.square(slope)
    weights = np.where(told, noise / (noise + error), 0.0)
    both = means + (weights * (expected / slope - measured)) @ right
    shares = np.square(lengths[used]) / np.square(lengths[used]).sum()
    return float(weights @ shares), both, noise * (1 - float(weights.sum()) / dim)
