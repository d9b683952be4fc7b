"""Probabilities from scores: a learner's temperature, from the release alone."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from privmix.learning.class_statistics import ClassStatistics, ClassSums

Reals = NDArray[np.float64]

# How far log odds of real records spread at most, as a standard deviation over records and classes. Chosen on digits,
# banking77 and Adult, on records held out of their training data (benchmarks/results/ended.md).
SUREST: Final = 4.0
# Numerical settings: twice as many records, or a wider range of temperatures, change none by more than a few percent.
_RECORDS: Final = 4000
_RECORDS_A_CLASS: Final = 40
_WIDEST: Final = 12.0
_SEED: Final = 0
# Least share of a direction's variance that is within classes.
_LEAST_WITHIN: Final = 0.1


def temperature_of(
    scores: Callable[[NDArray[np.float32]], NDArray[Any]], found: ClassStatistics | ClassSums, bound: float
) -> float:
    """Return the factor on scores (> 0) that calibrates the softmax's probabilities; 1 for uninformative scores."""
    # The factor minimises the cross entropy of records drawn, with a fixed seed, from the released class means and
    # scatter and clipped to ``bound``. Guo et al. 2017 use labelled records; here only the release is read, at no
    # privacy cost.
    weights, offsets = found.discriminants(found.between())
    records = _imagined(found) @ found.basis.T + found.origin
    records *= np.minimum(1, bound / np.maximum(np.linalg.norm(records, axis=1), bound))[:, None]
    own = (records - found.origin) @ weights + offsets
    given = scores(records.astype(np.float32)).astype(np.float64)
    spread = _spread(given)
    if not (np.isfinite(spread) and spread > 0):
        return 1.0
    wanted = softmax(capped(own) * own, axis=1)

    def loss(logarithm: float) -> float:
        return -float((wanted * log_softmax(np.exp(logarithm) * given / spread, axis=1)).sum(axis=1).mean())

    return float(np.exp(scipy.optimize.minimize_scalar(loss, bounds=(-_WIDEST, _WIDEST), method="bounded").x)) / spread


def temperature_of_discriminant(found: ClassStatistics | ClassSums) -> float:
    # The discriminant takes classes for Gaussian; its log odds spread further than those of real records do: at most 1.
    weights, offsets = found.discriminants(found.between())
    return capped(_imagined(found) @ (found.basis.T @ weights) + offsets)


def capped(own: Reals) -> float:
    """Return the factor on log odds (n, K) that brings their spread down to that of real records."""
    spread = _spread(own)
    return SUREST / spread if spread > SUREST else 1.0


def _spread(scores: Reals) -> float:
    """Return the standard deviation over records and classes, the mean of each record's scores taken off."""
    return float((scores - scores.mean(axis=1, keepdims=True)).std())


def _imagined(found: ClassStatistics | ClassSums) -> Reals:
    """:func:`imagined`: enough for a stable temperature, and the same ones every time."""
    classes = len(found.left) if isinstance(found, ClassSums) else len(found.shares)
    return imagined(found, max(_RECORDS, _RECORDS_A_CLASS * classes), np.random.default_rng(_SEED))


def imagined(
    found: ClassStatistics | ClassSums, count: int, generator: np.random.Generator, *, turned: bool = False
) -> Reals:
    """(count, k) records as a release of such statistics could be of, along its basis and counted from its origin."""
    # turned: drawn feature by feature and then turned, so that signs of the basis make no other records.
    # Class means (K, k), what is unknown of them (K, k), scatter within classes (k,) and shares (K,).
    between = found.between()
    if isinstance(found, ClassSums):
        # Along their singular vectors.
        classes = len(found.left)
        kept = found.apart / np.maximum(np.square(found.lengths), np.finfo(float).tiny)
        means = found.left * (found.lengths * kept)
        within = np.full(len(kept), max(1 - between.share, _LEAST_WITHIN) * found.largest / len(found.basis))
        unsure, shares = np.broadcast_to(kept * found.noise, means.shape), np.full(classes, 1 / classes)
    else:
        variance, shares = found.known.variance, found.shares
        means, unsure = found.posterior(between)
        scatter = (shares[:, None] * (np.square(means) + unsure)).sum(axis=0)
        within = np.maximum(variance - scatter, _LEAST_WITHIN * variance)
    which = generator.choice(len(shares), count, p=shares / shares.sum())
    dim, axes = found.basis.shape
    normal = (
        generator.standard_normal((len(which), dim)) @ found.basis
        if turned
        else generator.standard_normal((len(which), axes))
    )
    return np.asarray(means[which] + np.sqrt(unsure[which] + within) * normal)
