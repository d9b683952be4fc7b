"""Where a release's classes lie among its features, once the noise is taken out, and how sure that is."""

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
"""Less than this share of a difference that is known, and nothing can be seen of it: noise alone stays below."""
COARSE: Final = 0.8
"""More than this, and it is shown faithfully."""
_FALSE_ALARM: Final = 1e-6


@dataclass(frozen=True, eq=False)
class ClassMeans:
    """Class means as a release has them, each drawn towards the mean of all classes by as much as is noise.

    Where noise alone could have made them as different as they are, none is shown to differ from the others.

    Given the release, a true class mean is thought to be spread about the one here: with variance ``unsure`` along
    ``basis``, and ``rest`` along every feature. They are those of what was released: of clipped records.

    Attributes:
        middle: (d,) the mean of all classes, as features.
        apart: (K, d) class means less the middle.
        basis: (d, k) orthonormal directions.
        unsure: (K, k) variances along them.
        rest: variance in every feature beside.
        middle_error: expected squared distance of the middle from the true one.
        noise: (K,) expected squared length of the noise that is left in ``apart``: less than that of ``apart`` itself.
    """

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
        """(K,) share of each class's difference from all classes that is known: 0 nothing, 1 all of it.

        The squared length of the difference shown, over the one that the true difference is thought to have.
        """
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
    """What a release tells of where its classes lie.

    From the release alone: no record is read, and no privacy is spent.

    Args:
        release: rows, second moments or class sums, with noise of known size.
        centre_noise_std: of an entry of the released mean, where there is one.

    Raises:
        InvalidInput: the release holds something else, numbers that are not finite, or rows that do not differ.

    Example:
        >>> from privmix.learning.rows import as_release
        >>> x, y = np.eye(2, dtype=np.float32).repeat(50, axis=0), np.arange(2).repeat(50)
        >>> found = class_means(as_release(x, y, ("cat", "dog"), rows=False))
        >>> found.means.round(1).tolist(), bool((found.sure > 0.9).all())
        ([[1.0, 0.0], [0.0, 1.0]], True)
    """
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
        allowed = "rows, second moments or class sums: how much noise is in features made of anything else is not known"
        raise InvalidInput("design", release.design, allowed)
    if not (np.isfinite(release.x).all() and np.isfinite(release.y).all()):
        raise InvalidInput("released rows", "NaN or infinity", "finite numbers")
    return class_statistics(release)


def _of_statistics(found: ClassStatistics, release: ReleasedDataset) -> ClassMeans:
    classes, basis = len(found.means), found.basis.astype(np.float64)
    # What all classes share says nothing of any of them: it is taken off before it is asked how far classes spread.
    shared = found.means.mean(axis=0)
    noise = (1 - 2 / classes) * found.noise + found.noise.sum(axis=0) / classes**2
    apart = replace(found, means=found.means - shared, noise=noise)
    means, unsure = apart.posterior(apart.between())
    kept = unsure / np.maximum(noise, np.finfo(float).tiny)
    left = (kept * unsure).sum(axis=1)
    if not _differ(np.square(apart.means) / np.maximum(noise, np.finfo(float).tiny), kept):
        means, left = 0 * means, 0 * left
    if release.moments is not None and release.label_offset > 0:
        # X'Y of centred labels adds up to nothing but noise: the released mean alone tells what classes share.
        return ClassMeans(found.origin, means @ basis.T, basis, unsure, 0.0, 0.0, left)
    error = float(found.noise.sum()) / classes**2
    return ClassMeans(found.origin + basis @ shared, means @ basis.T, basis, unsure, 0.0, error, left)


def _of_sums(found: ClassSums) -> ClassMeans:
    """Of class sums, which tell nothing of directions: one share of all differences is kept, what is no noise."""
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
    """Whether classes differ by more than noise would have them, at a false alarm below 1e-6.

    A weighted sum of (K, k) squares of noise of deviation 1, whose K have sum 0, is about a multiple of a chi-square
    (Satterthwaite 1946).
    """
    free = 1 - 1 / len(squares)
    mean, spread = float(weights.sum()), float(np.square(weights).sum()) / free
    return mean > 0 and bool(chdtrc(mean**2 / spread, float((weights * squares).sum()) * mean / spread) < _FALSE_ALARM)


@dataclass(frozen=True, eq=False)
class ClassScores:
    """How n records that are no record of the release go with its K classes.

    Attributes:
        log_odds: (K, n) natural logarithm of the odds of the class against all others, for each record.
        probabilities: (K, n) of the classes, each record's summing to 1; classes are taken to be equally likely.
    """

    log_odds: Reals
    probabilities: Reals


def class_scores(release: ReleasedDataset, records: NDArray[Any]) -> ClassScores:
    """How records go with the classes of a release, as far as its noise lets that be told.

    Scores are those of the learner ``discriminant``: inner products with class means, in units of the scatter and of
    the noise along each direction, so that what is noise counts for nothing; its calibration makes log odds of them
    (:func:`privmix.learning.calibration.temperature_of_discriminant`).

    Args:
        release: rows, second moments or class sums.
        records: (n, d), transformed as those of the release were.

    Raises:
        InvalidInput: as :func:`class_means`.
    """
    found = statistics_of(release)
    weights, offsets = found.discriminants(found.between())
    if isinstance(found, ClassStatistics) and found.sized:
        # How many records a class has says nothing of where others come from.
        offsets = offsets - np.log(found.shares)
    scores = temperature_of_discriminant(found) * ((records - found.origin) @ weights + offsets)
    logs = log_softmax(scores, axis=1)
    return ClassScores(_against_others(scores).T, np.exp(logs).T)


def _against_others(scores: Reals) -> Reals:
    """(n, K) log odds of (n, K) scores: each less the log of the sum of the others' exponentials."""
    rows, best = np.arange(len(scores)), scores.argmax(axis=1)
    # Of the largest, whose share may be all but 1, the others are added up by themselves.
    rest = scores.copy()
    rest[rows, best] = -np.inf
    logs = log_softmax(scores, axis=1)
    largest = scores[rows, best] - logsumexp(rest, axis=1)
    logs[rows, best] = -np.inf
    found = logs - np.log1p(-np.exp(logs))
    found[rows, best] = largest
    return np.asarray(found)
