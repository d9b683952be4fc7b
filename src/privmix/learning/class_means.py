"""The places of a release's classes among its features, once the noise is taken out, and their uncertainty."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, log_softmax, logsumexp

from privmix.errors import InvalidInput
from privmix.learning.calibration import temperature_of_discriminant
from privmix.learning.class_statistics import ClassStatistics, ClassSums, class_statistics
from privmix.publication.dataset import ReleasedDataset

Reals = NDArray[np.float64]

NOTHING: Final = 0.25
"""A difference of which a smaller share is known cannot be seen: noise alone stays below this share."""
COARSE: Final = 0.8
"""More than this, and it is shown faithfully."""
_FALSE_ALARM: Final = 1e-6


@dataclass(frozen=True, eq=False)
class ClassMeans:
    """Class means of a release, each shrunk towards the mean of all classes by its share of noise."""

    # If noise alone explains the differences, no class differs. Given the release, a true class mean has variance
    # ``unsure`` (K, k) along ``basis`` (d, k), and ``rest`` along every feature. It lies around ``middle`` (d,) +
    # ``apart`` (K, d). middle_error: expected squared distance of the middle from the true one. noise (K,): the same
    # left in ``apart``.

    middle: Reals
    apart: Reals
    basis: Reals
    unsure: Reals
    rest: float
    middle_error: float
    noise: Reals

    @property
    def means(self) -> Reals:
        """(K, d) class means, as features."""
        return np.asarray(self.middle + self.apart)

    @property
    def errors(self) -> Reals:
        """(K,) expected squared distances of ``apart`` from the true differences."""
        return np.asarray(self.unsure.sum(axis=1) + self.apart.shape[1] * self.rest)

    @property
    def sure(self) -> Reals:
        """(K,) share of each class's difference that is known: its squared length over the expected true one."""
        shown = np.square(self.apart).sum(axis=1)
        return np.asarray(shown / np.maximum(shown + self.errors, np.finfo(float).tiny))

    def variances(self) -> Reals:
        """(K, d) variance of what is unknown of each feature of ``apart``."""
        return np.asarray(self.unsure @ np.square(self.basis).T + self.rest)

    def draw(self, generator: np.random.Generator) -> Reals:
        """(K, d) other means that the release bears out as well: what differs from ``means`` is not known."""
        along = np.sqrt(self.unsure) * generator.standard_normal(self.unsure.shape)
        beside = np.sqrt(self.rest) * generator.standard_normal(self.apart.shape)
        return np.asarray(self.means + along @ self.basis.T + beside)


def class_means(release: ReleasedDataset, centre_noise_std: float = 0.0) -> ClassMeans:
    """Estimate class means from the rows, moments or class sums of a release, at no privacy cost."""
    found = statistics_of(release)
    centre = 0.0 if release.transform.centre is None else release.transform.centre.astype(np.float64)
    made = _of_sums(found) if isinstance(found, ClassSums) else _of_statistics(found, release)
    dim = release.dim
    return ClassMeans(
        middle=centre + made.middle,
        apart=made.apart,
        basis=made.basis,
        unsure=made.unsure,
        rest=made.rest,
        middle_error=made.middle_error + dim * centre_noise_std**2,
        noise=made.noise,
    )


def statistics_of(release: ReleasedDataset) -> ClassStatistics | ClassSums:
    """:func:`class_statistics` of releases whose noise it knows."""
    if release.beside is not None and release.moments is None:
        allowed = "rows, second moments or class sums: only for these is the noise in features known"
        raise InvalidInput("design", release.design, allowed)
    if not (np.isfinite(release.x).all() and np.isfinite(release.y).all()):
        raise InvalidInput("released rows", "NaN or infinity", "finite numbers")
    return class_statistics(release)


def _of_statistics(found: ClassStatistics, release: ReleasedDataset) -> ClassMeans:
    classes, basis = len(found.means), found.basis.astype(np.float64)
    # The shared part of all classes is no evidence on a single class: it is taken off before the spread is estimated.
    shared = found.means.mean(axis=0)
    noise = (1 - 2 / classes) * found.noise + found.noise.sum(axis=0) / classes**2
    apart = replace(found, means=found.means - shared, noise=noise)
    means, unsure = apart.posterior(apart.between())
    kept = unsure / np.maximum(noise, np.finfo(float).tiny)
    left = (kept * unsure).sum(axis=1)
    if not _differ(np.square(apart.means) / np.maximum(noise, np.finfo(float).tiny), kept):
        means, left = 0 * means, 0 * left
    if release.moments is not None and release.label_offset > 0:
        # X'Y of centred labels adds up to noise alone: only the released mean shows the shared part of classes.
        return ClassMeans(found.origin, means @ basis.T, basis, unsure, 0.0, 0.0, left)
    error = float(found.noise.sum()) / classes**2
    return ClassMeans(found.origin + basis @ shared, means @ basis.T, basis, unsure, 0.0, error, left)


def _of_sums(found: ClassSums) -> ClassMeans:
    """Estimate from class sums, which give no directions: of all differences keep one share, the part beyond noise."""
    apart = (found.left * found.lengths) @ found.basis.T
    classes, dim = apart.shape
    energy, noise = float(np.square(apart).sum()), found.noise * (1 - 1 / classes)
    kept = max(0.0, 1 - noise * apart.size / energy) if energy > 0 else 0.0
    if noise > 0 and not _differ(np.square(apart) / noise, np.ones(apart.shape)):
        kept = 0.0
    nothing = np.zeros((dim, 0)), np.zeros((classes, 0))
    left = np.full(classes, dim * kept**2 * noise)
    return ClassMeans(found.origin, kept * apart, *nothing, kept * noise, dim * found.noise / classes, left)


def _differ(squares: Reals, weights: Reals) -> bool:
    """Whether classes differ by more than noise, at a false-alarm rate below 1e-6."""
    # A weighted sum of (K, k) squares of noise, whose K have sum 0, is about a multiple of a chi-square (Satterthwaite
    # 1946).
    free = 1 - 1 / len(squares)
    mean, spread = float(weights.sum()), float(np.square(weights).sum()) / free
    return mean > 0 and bool(chdtrc(mean**2 / spread, float((weights * squares).sum()) * mean / spread) < _FALSE_ALARM)


@dataclass(frozen=True, eq=False)
class ClassScores:
    """(K, n) log odds of each class against the others, and probabilities, for n records outside the release."""

    log_odds: Reals
    probabilities: Reals


def class_scores(release: ReleasedDataset, records: NDArray[Any]) -> ClassScores:
    """Score (n, d) transformed records by the classes of a release, as the calibrated discriminant does."""
    found = statistics_of(release)
    weights, offsets = found.discriminants(found.between())
    if isinstance(found, ClassStatistics) and found.sized:
        # The number of records in a class is no evidence on the place of others.
        offsets = offsets - np.log(found.shares)
    scores = temperature_of_discriminant(found) * ((records - found.origin) @ weights + offsets)
    logs = log_softmax(scores, axis=1)
    return ClassScores(_against_others(scores).T, np.exp(logs).T)


def _against_others(scores: Reals) -> Reals:
    """(n, K) log odds of (n, K) scores: each less the log of the sum of the others' exponentials."""
    rows, best = np.arange(len(scores)), scores.argmax(axis=1)
    # For the largest, whose share may be all but 1, the others are added up by themselves.
    rest = scores.copy()
    rest[rows, best] = -np.inf
    logs = log_softmax(scores, axis=1)
    largest = scores[rows, best] - logsumexp(rest, axis=1)
    logs[rows, best] = -np.inf
    found = logs - np.log1p(-np.exp(logs))
    found[rows, best] = largest
    return np.asarray(found)
