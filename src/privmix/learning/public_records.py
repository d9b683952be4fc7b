"""The population of public records, a mixture of Gaussians, one a class, and a learner's accuracy on it."""

import math
from typing import Any, Final

import numpy as np
import scipy
from numpy.typing import NDArray

Reals = NDArray[np.float64]
LinearRule = tuple[Reals, Reals]
"""(k, K) weights and (K,) offsets: the class of a record x is that of the largest of x'weights + offsets."""

_FOLDS: Final = 5
# Directions along which classes' own scatters are looked at, and records of a class for each of them.
_SHAPED: Final = 20
_RECORDS_A_DIRECTION: Final = 5
# The variance of records along directions that hold next to nothing, as a share of the mean.
_LEAST: Final = 1e-4
# Value of that variance if no record differs from others of its class.
_NOTHING: Final = 1e-12


def along_principal_axes(x: NDArray[Any], axes: int) -> Reals:
    """(n, k) records, counted from their mean, along the ``axes`` directions of most variance, or all there are."""
    centred = np.asarray(x - x.mean(axis=0), dtype=np.float64)
    count, dim = centred.shape
    kept = min(axes, dim)
    _, basis = scipy.linalg.eigh(centred.T @ centred / count, subset_by_index=(dim - kept, dim - 1))
    return np.asarray(centred @ basis[:, ::-1])


def shrunk_covariance(residuals: Reals, freedom: int) -> Reals:
    """(k, k) covariance of (n, k) residuals, shrunk to the identity (Ledoit and Wolf 2004, Lemma 3.3 ff.)."""
    # freedom: n less the number of means that were fitted.
    count, dim = residuals.shape
    sample = residuals.T @ residuals / count
    level = np.trace(sample) / dim
    apart = float(np.square(sample - level * np.eye(dim)).sum())
    error = float((np.square(np.square(residuals).sum(axis=1)).sum() / count - np.square(sample).sum()) / count)
    share = min(1.0, max(0.0, error) / apart) if apart > 0 else 1.0
    found = (1 - share) * sample + share * level * np.eye(dim)
    return np.asarray(found * (count / max(freedom, 1)))


def mixture(x: Reals, labels: NDArray[np.int64]) -> tuple[Reals, Reals, Reals]:
    """Within-class variances (k,) along their own axes, class means (K, k) and shares (K,) of (n, k) records."""
    counts, means, residuals = _classes(x, labels, int(labels.max()) + 1)
    within, turn = np.linalg.eigh(shrunk_covariance(residuals, len(x) - len(counts)))
    within, means = within[::-1], (means @ turn)[:, ::-1]
    within = np.maximum(within, max(_NOTHING, _LEAST * within.mean()))
    shares = counts / counts.sum()
    between = shares @ np.square(means)
    # Sample means of few records lie apart by chance, too.
    chance = within * (len(counts) - 1) / len(x)
    kept = np.sqrt(np.maximum(between - chance, 0.0) / np.maximum(between, np.finfo(float).tiny))
    return within, means * kept, shares


def discriminants(x: Reals, labels: NDArray[np.int64], classes: int) -> LinearRule:
    """Linear discriminant analysis without privacy, covariance shrunk; a class without records is never chosen."""
    counts, means, residuals = _classes(x, labels, classes)
    covariance = shrunk_covariance(residuals, len(x) - int((counts > 0).sum()))
    covariance[np.diag_indices_from(covariance)] += max(_NOTHING, _LEAST * np.trace(covariance) / len(covariance))
    weights = np.linalg.solve(covariance, means.T)
    with np.errstate(divide="ignore"):
        offsets = np.log(counts / counts.sum()) - (weights.T * means).sum(axis=1) / 2
    return np.asarray(weights, dtype=np.float64), np.asarray(offsets, dtype=np.float64)


def unlimited_accuracy(x: Reals, labels: NDArray[np.int64], generator: np.random.Generator) -> float:
    """Estimate the accuracy of :func:`discriminants` from unlimited records, in (0, 1), by the (n, k) records here."""
    # On its n training records a model with p parameters seems better than it will ever be, and is as much worse on
    # others. Both differ by p / n of the error, to first order (Mallows 1973; Akaike 1974). The estimate is halfway
    # between the two, over five folds, with half a mistaken record added.
    fold = generator.permutation(len(x)) % _FOLDS
    seen = unseen = 0.0
    folds = min(_FOLDS, len(x))
    for index in range(folds):
        held = fold == index
        weights, offsets = discriminants(x[~held], labels[~held], int(labels.max()) + 1)
        right = (x @ weights + offsets).argmax(axis=1) == labels
        seen += float(right[~held].mean()) / folds
        unseen += float(right[held].sum()) / len(x)
    return ((seen + unseen) / 2 * len(x) + 0.5) / (len(x) + 1)


def own_shapes(x: Reals, labels: NDArray[np.int64], generator: np.random.Generator) -> float:
    """Gain a of :func:`discriminants` by each class's own scatter: exp(-a q) of the errors remain with q directions."""
    # The first q axes are scaled so that the scatter within all classes is 1 there; residuals are cut off at their
    # usual length. The score of class k gets -(v'S_k^-1 v - v'v) / 2, with its scatter S_k there, of determinant 1, as
    # in the learner of releases in three stages. Errors are counted on five folds. The result is less its standard
    # error, 0 with too few records and below 0 where scatters may mislead. ``x`` (n, k) has axes of falling variance.
    counts = np.bincount(labels)
    axes = min(_SHAPED, x.shape[1], int(counts.min() * (_FOLDS - 1) / _FOLDS / _RECORDS_A_DIRECTION))
    if axes < 2:
        return 0.0
    fold = generator.permutation(len(x)) % _FOLDS
    plain = shaped = 0
    for index in range(_FOLDS):
        held, seen = fold == index, fold != index
        weights, offsets = discriminants(x[seen], labels[seen], len(counts))
        _, means, residuals = _classes(x[seen][:, :axes], labels[seen], len(counts))
        values, basis = scipy.linalg.eigh(residuals.T @ residuals / len(residuals))
        root = basis / np.sqrt(np.maximum(values, _LEAST * values[-1]))
        cut = residuals @ root
        cut /= np.maximum(1.0, np.sqrt(np.square(cut).sum(axis=1, keepdims=True) / axes))
        # Scores are of records as long as they are, scatters of such as were cut off.
        stretch = axes / np.square(cut).sum(axis=1).mean()
        scores = x[held] @ weights + offsets
        plain += int((scores.argmax(axis=1) != labels[held]).sum())
        for number, mean in enumerate(means):
            own = cut[labels[seen] == number]
            values, basis = scipy.linalg.eigh(own.T @ own)
            told = np.log(np.maximum(values, _LEAST * values[-1]))
            apart = (x[held][:, :axes] - mean) @ root
            unlike = np.square(apart @ basis) @ (np.exp(told.mean() - told) - 1)
            scores[:, number] -= unlike / (2 * stretch)
        shaped += int((scores.argmax(axis=1) != labels[held]).sum())
    # An error more in both: none at all would be a gain without end.
    gain, doubt = math.log((plain + 1) / (shaped + 1)), math.hypot(1 / math.sqrt(plain + 1), 1 / math.sqrt(shaped + 1))
    return float((gain - doubt) / axes)


def _classes(x: Reals, labels: NDArray[np.int64], classes: int) -> tuple[NDArray[np.int64], Reals, Reals]:
    """Sizes (K,) and means (K, k) of the classes, and the records counted from them."""
    counts = np.bincount(labels, minlength=classes)
    sums = np.zeros((classes, x.shape[1]))
    np.add.at(sums, labels, x)
    means = sums / np.maximum(counts, 1)[:, None]
    return counts, means, x - means[labels]
