"""What public words about the classes say of where their means lie, trusted as far as the release bears them out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput

Reals = NDArray[np.float64]

# What a model may say of the texts that points were made from; all of it or a part.
SOURCE: Final[dict[str, type]] = {"from": str, "texts": int, "sha256": str}


@dataclass(frozen=True, eq=False)
class ClassPrior:
    """Points beside which class means are expected before a release is looked at.

    Class k's mean is taken for a draw from N(a p_k, D), with p_k its point, counted from the mean of all classes, and D
    the learner's own covariance of class means. The number a is the same for all classes and directions, and is drawn
    from N(0, 1). Under the noisy means z_k ~ N(a p_k, D + V) it has a posterior of its own
    (:func:`regression_on_prior`): points that say nothing of the release get a near 0, and the learner is then the one
    that it is without them.

    The points are public: they come from names or descriptions of the classes, and from no record. That costs no
    privacy, and a release that was published long ago can be learnt from with new words.

    Attributes:
        means: (K, d) points, as records of the release are: extracted, centred and clipped alike.
        source: what they were made from, for those who get the model: ``from`` (names or descriptions), ``texts``, how
            many, and ``sha256`` of them.

    Raises:
        InvalidInput: the points are no matrix of finite numbers, or the source says something else.

    Example:
        >>> prior = ClassPrior(np.eye(2))
        >>> prior.around(np.array([0.5, 0.5])).tolist()
        [[0.5, -0.5], [-0.5, 0.5]]
    """

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
    """The coefficient a of noisy class means on their points, and what the points add to the means' log likelihood.

    With z ~ N(a p, v) entry by entry and a ~ N(0, 1), a has posterior mean f / h and precision h = 1 + sum p^2 / v with
    f = sum p z / v, and log N(z; a p, v) averaged over a is that of a = 0 plus f^2 / (2 h) - log(h) / 2.

    Args:
        points: p, of any shape.
        means: z, of the same shape.
        variance: v > 0, of the same shape.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> points = rng.normal(size=(20, 50))
        >>> weight, gain = regression_on_prior(points, 0.5 * points + rng.normal(size=(20, 50)), np.ones((20, 50)))
        >>> abs(weight - 0.5) < 0.1, gain > 50
        (True, True)
        >>> weight, gain = regression_on_prior(points, rng.normal(size=(20, 50)), np.ones((20, 50)))
        >>> abs(weight) < 0.1, gain < 1
        (True, True)
    """
    weighted = points / variance
    precision = 1 + float((weighted * points).sum())
    fit = float((weighted * means).sum())
    return fit / precision, 0.5 * fit**2 / precision - 0.5 * math.log(precision)


def measured_twice(means: Reals, noise: float, points: Reals) -> tuple[float, Reals, float]:
    """Noisy class means and their points as two measurements of one thing, for where no covariance is known.

    Along each singular vector u of the points they are taken for p = g m + e. By moments g = sum p z / sum m^2, with
    sum m^2 = sum z^2 less the noise, and the variance of e is what p has beyond g m; p / g then measures m with that
    variance over g^2. The mean of both measurements goes by their precision. Points that say nothing have g near 0, and
    with it no weight.

    Args:
        means: z, (K, d), counted from their mean.
        noise: variance of the noise in an entry of z.
        points: p, (K, d), counted from their mean.

    Returns:
        the weight of the points, averaged as they are long along u; the (K, d) means of both measurements; the variance
        of the noise in an entry of these, averaged over all directions.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> true = rng.normal(size=(80, 10))
        >>> noisy = true + rng.normal(size=(80, 10))
        >>> weight, _, noise = measured_twice(noisy, 1.0, 0.5 * true + rng.normal(0, 0.5, size=(80, 10)))
        >>> round(weight, 1), round(noise, 1)
        (0.5, 0.5)
        >>> measured_twice(noisy, 1.0, rng.normal(size=(80, 10)))[0] < 0.05
        True
    """
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
