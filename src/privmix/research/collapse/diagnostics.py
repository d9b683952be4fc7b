"""Measures on PUBLIC data of how well features survive mixing (NeuroMixGDP; Li et al. 2024)."""
# Figures of private records would be a leak that no certificate counts. privmix calls none of them on private rows.

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput, check_integer, check_number
from privmix.mechanisms.clipping import clip_l2
from privmix.mechanisms.membership import dirichlet_weights

# Entries of a block of records, mixtures or distances held at once.
_BLOCK = 2**21
_WEIGHT_BITS = 30


def neural_collapse(features: NDArray[Any], labels: NDArray[np.integer[Any]]) -> float:
    """NC1 metric of PUBLIC features (n, d): tr(S_W pinv(S_B)) / K (Li et al. 2024, Eqs. 29-30; Papyan et al. 2020)."""
    # S_W is the covariance of records around their class means, averaged over records; S_B that of the class means
    # around the mean of all records. 0 where every class sits on one point; infinite where class means coincide but
    # records do not. NeuroMixGDP reports 45.3 for CIFAR-10 pixels and 0.49 for SimCLR features, 1.53 and 1.16 for MNIST
    # pixels and scattering features. Both kinds were clipped to one norm: clip first to compare.
    x, classes, names = _public(features, labels)
    count = len(names)
    class_means = np.zeros((count, x.shape[1]))
    for rows in _blocks(len(x), x.shape[1]):
        class_means += (classes[rows] == np.arange(count)[:, None]).astype(np.float64) @ x[rows]
    class_means /= np.bincount(classes)[:, None]
    gaps = class_means - np.bincount(classes) @ class_means / len(x)
    _, sizes, directions = np.linalg.svd(gaps, full_matrices=False)
    # Weighted by class size the gaps sum to zero, so at most K - 1 directions are real; the last is rounding.
    scale = float(np.abs(class_means).max(initial=0.0))
    kept = sizes[: count - 1] > max(gaps.shape) * np.finfo(np.float64).eps * max(float(sizes[0]), scale)
    directions, sizes = directions[: count - 1][kept], sizes[: count - 1][kept]
    total, spread = 0.0, 0.0
    for rows in _blocks(len(x), x.shape[1]):
        residuals = x[rows] - class_means[classes[rows]]
        spread += float((residuals**2).sum())
        # pinv(S_B) = K sum of u u' / size^2, and the K cancels against the 1 / K of the metric.
        total += float((((residuals @ directions.T) / sizes) ** 2).sum())
    if not len(sizes):
        return math.inf if spread > 0 else 0.0
    return total / len(x)


@dataclass(frozen=True)
class MixtureDistance:
    """Distances from mixtures to clean records of classes that are not in them."""

    # smallest: NeuroMixGDP's MED, the estimate of the "epsilon" up to which no other class is near. mean_per_mixture:
    # to the nearest such record; mean_per_record: to the nearest such mixture (Chidambaram et al. 2021). mixtures:
    # their number, without those of all classes.

    smallest: float
    mean_per_mixture: float
    mean_per_record: float
    mixtures: int


def minimum_euclidean_distance(
    features: NDArray[Any],
    labels: NDArray[np.integer[Any]],
    generator: np.random.Generator,
    *,
    clip_norm: float = 1.0,
    mixup_degree: int = 2,
    alpha: float = 1024.0,
    mixtures: int | None = None,
) -> MixtureDistance:
    """Minimum Euclidean distance (MED) between mixtures of PUBLIC records and clean records of other classes."""
    # Li et al. 2024, appendix I.5, after Chidambaram et al. 2021, section 2.4. Clip features to one norm and mix each
    # record with others drawn at random under symmetric Dirichlet(alpha) weights. Measure the distance from each
    # mixture to the clean records of classes that are not in it. Larger means that mixing confuses labels less.
    # Chidambaram et al. mix pairs with alpha = 1024, nearly means. NeuroMixGDP reports 0.40 (pixels) and 0.49 (SimCLR
    # features) for CIFAR-10, 0.33 and 0.50 for CIFAR-100. The figure falls as records and mixtures grow: compare
    # features at equal counts.
    x, classes, names = _public(features, labels)
    x = clip_l2(x, clip_norm)
    check_integer("mixup_degree", mixup_degree, low=2)
    check_number("alpha", alpha, low=0, low_open=True)
    total = len(x) if mixtures is None else check_integer("mixtures", mixtures, low=1)
    partners = generator.integers(0, len(x), (total, mixup_degree))
    partners[:, 0] = np.arange(total) % len(x)
    weights = dirichlet_weights(generator, total, mixup_degree, alpha, 1.0, _WEIGHT_BITS)
    squares = np.einsum("ij,ij->i", x, x)
    nearest_mixture = np.full(len(x), math.inf)
    nearest_record = np.full(total, math.inf)
    for rows in _blocks(total, x.shape[1] * mixup_degree + len(names)):
        mixed = np.einsum("tk,tkd->td", weights[rows], x[partners[rows]])
        present = np.zeros((len(mixed), len(names)), bool)
        np.put_along_axis(present, classes[partners[rows]], True, axis=1)
        for records in _blocks(len(x), max(len(mixed), x.shape[1])):
            distances = squares[records] - 2 * (mixed @ x[records].T)
            distances += np.einsum("ij,ij->i", mixed, mixed)[:, None]
            distances[present[:, classes[records]]] = math.inf
            nearest_record[rows] = np.minimum(nearest_record[rows], distances.min(axis=1))
            nearest_mixture[records] = np.minimum(nearest_mixture[records], distances.min(axis=0))
    return MixtureDistance(
        float(_root(nearest_record).min()),
        _finite_mean(_root(nearest_record)),
        _finite_mean(_root(nearest_mixture)),
        int(np.isfinite(nearest_record).sum()),
    )


def _public(
    features: NDArray[Any], labels: NDArray[np.integer[Any]]
) -> tuple[NDArray[Any], NDArray[np.intp], NDArray[Any]]:
    """Return the features, each record's class as an index into the classes that occur, and those classes."""
    x, held = np.asarray(features), np.asarray(labels)
    if x.ndim != 2 or x.dtype.kind not in "fiub" or not x.size:
        raise InvalidInput("features", (x.shape, str(x.dtype)), "a non-empty 2-d array of real numbers")
    if held.shape != (len(x),) or held.dtype.kind not in "iu":
        raise InvalidInput("labels", (held.shape, str(held.dtype)), f"{len(x)} integers")
    if not all(np.isfinite(x[rows]).all() for rows in _blocks(len(x), x.shape[1])):
        raise InvalidInput("features", "a value that is not finite", "finite numbers")
    names, classes = np.unique(held, return_inverse=True)
    if len(names) < 2:
        raise InvalidInput("labels", len(names), "at least two classes that occur")
    return x, classes, names


def _blocks(count: int, width: int) -> list[slice]:
    """Cut ``count`` rows of ``width`` entries into blocks of bounded size."""
    length = max(1, _BLOCK // max(width, 1))
    return [slice(start, min(start + length, count)) for start in range(0, count, length)]


def _root(squares: NDArray[np.float64]) -> NDArray[np.float64]:
    # Rounding can take the square of a tiny distance below zero.
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def _finite_mean(values: NDArray[np.float64]) -> float:
    kept = values[np.isfinite(values)]
    return float(kept.mean()) if len(kept) else math.inf
