"""Measures on PUBLIC data that tell whether features and labels will survive mixing (NeuroMixGDP; Li et al. 2024).

None of this is private: every figure here depends on each record without noise. Give these functions public data only,
such as a public dataset that resembles the private one; never the private records, whose figures would then be a leak
that no certificate counts. The package itself calls none of them on private rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.designs import ReleasePlan
from privmix.errors import InvalidInput, check_integer, check_number
from privmix.mechanisms.clipping import clip_l2
from privmix.mechanisms.weights import dirichlet_weights

# Entries of a block of records, mixtures or distances held at once.
_BLOCK = 2**21
_LABEL_ROWS = 4096
_WEIGHT_BITS = 30


def neural_collapse(features: NDArray[Any], labels: NDArray[np.integer[Any]]) -> float:
    """NC1 metric of PUBLIC features: tr(S_W pinv(S_B)) / K (Li et al. 2024, Eqs. 29-30; Papyan et al. 2020).

    S_W is the covariance of records around their class means, averaged over records; S_B that of the K class means
    around the mean of all records, averaged over classes. 0 where every class sits on one point. NeuroMixGDP reports
    45.3 for CIFAR-10 pixels and 0.49 for SimCLR features, 1.53 and 1.16 for MNIST pixels and scattering features, after
    clipping both kinds to one norm: clip first if you compare.

    Computed through the singular vectors of the class means: no d x d matrix is formed.

    Args:
        features: (n, d) numbers of public records.
        labels: (n,) integer class of each; classes that do not occur do not count. At least two must.

    Returns:
        The metric; infinity where class means coincide but records do not.

    Raises:
        InvalidInput: shapes do not match, a feature is not finite, or fewer than two classes occur.

    Example:
        >>> x = np.array([[0.0, 0.0], [0.0, 2.0], [4.0, 0.0], [4.0, 2.0]])
        >>> neural_collapse(x, np.array([0, 0, 1, 1])), neural_collapse(x[:, :1], np.array([0, 0, 1, 1]))
        (0.0, 0.0)
        >>> round(neural_collapse(x @ np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([0, 0, 1, 1])), 6)
        0.125
    """
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
    """Distances from mixtures to clean records of classes that are not in them.

    Attributes:
        smallest: least of all: NeuroMixGDP's MED, the estimate of the "epsilon" up to which no other class is near.
        mean_per_mixture: average over mixtures of the distance to the nearest such record.
        mean_per_record: average over records of the distance to the nearest such mixture (Chidambaram et al. 2021).
        mixtures: how many mixtures had a class left that is not in them; the others have no such record.
    """

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
    """Minimum Euclidean distance (MED) between mixtures of PUBLIC records and clean records of other classes.

    Li et al. 2024, appendix I.5, which follows section 2.4 of Chidambaram et al. 2021: clip features to one norm, mix
    each record with others drawn at random under symmetric Dirichlet(alpha) weights, and measure the distance from each
    mixture to the clean records whose class is none of those in it. Larger means that mixtures stay away from other
    classes (approximate collinearity is weaker), so that mixing confuses labels less. Chidambaram et al. mix pairs with
    alpha = 1024, nearly means. NeuroMixGDP reports 0.40 (pixels) and 0.49 (SimCLR features) for CIFAR-10, 0.33 and 0.50
    for CIFAR-100. The figure falls as records and mixtures grow: compare features at equal counts.

    Takes O(mixtures x n x d) time and bounded memory beyond the features.

    Args:
        features: (n, d) numbers of public records.
        labels: (n,) integer class of each.
        generator: source of the partners and weights.
        clip_norm: L2 norm that features are clipped to.
        mixup_degree: records in a mixture, at least 2.
        alpha: concentration of the weights, > 0; towards infinity mixtures are means.
        mixtures: how many; mixture i holds record i mod n. None makes n of them.

    Returns:
        All three figures are infinite if every mixture holds all classes.

    Raises:
        InvalidInput: shapes do not match, a feature is not finite, or a number is out of range.

    Example:
        >>> corners = np.repeat(np.eye(3), 4, axis=0)
        >>> found = minimum_euclidean_distance(corners, np.repeat([0, 1, 2], 4), np.random.default_rng(0))
        >>> round(found.smallest, 2) == round(1.5**0.5, 2), found.mixtures
        (True, 12)
    """
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


@dataclass(frozen=True)
class LabelCollapse:
    """What is left of mixed labels after noise.

    Attributes:
        top_kept: share of rows whose largest noisy entry is a largest clean one. ``1 / K`` is chance.
        level_kept: share of entries that stay on their side of 1/K, the value that labels collapse to; averaged over
            the entries above it and those below, so that 0.5 is chance. NaN if every entry is 1/K.
        spread: standard deviation of clean entries around 1/K.
        noise_std: standard deviation of the noise in an entry.
        signal_to_noise: spread squared over noise squared; below 1 the noise is the larger part. Infinite without
            noise.
    """

    top_kept: float
    level_kept: float
    spread: float
    noise_std: float
    signal_to_noise: float


def mixed_labels(
    plan: ReleasePlan, labels: NDArray[np.integer[Any]], generator: np.random.Generator, rows: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw mixed labels as ``plan`` would release them from PUBLIC labels: NeuroMixGDP's Figures 2 and 14.

    Rows follow the plan's sampling law for ``plan.records`` records whose classes have the shares of ``labels``, so a
    small public sample stands for a large set. Only the counts of each class are drawn: O(rows x K).

    Args:
        plan: any design but ``random-weight``, whose weights are no counts.
        labels: (n,) integers in [0, K) of public records.
        generator: source of counts and noise.
        rows: how many.

    Returns:
        clean and noisy labels, (rows, K) each.

    Raises:
        InvalidInput: a label outside the plan's classes, or a design without counts.

    Example:
        >>> from privmix.releases import ReleaseConfig
        >>> config = ReleaseConfig(records=1000, dim=2, classes=("a", "b"), mixup_degree=50, centre="none")
        >>> clean, noisy = mixed_labels(config.with_noise(1.0), np.array([0, 1]), np.random.default_rng(0), 5)
        >>> clean.shape, bool(np.abs(clean - 0.5).max() < 0.5)
        ((5, 2), True)
    """
    check_integer("rows", rows, low=1)
    count = plan.num_classes
    held = np.asarray(labels)
    if held.ndim != 1 or held.dtype.kind not in "iu" or not len(held) or held.min() < 0 or held.max() >= count:
        raise InvalidInput("labels", (held.shape, str(held.dtype)), f"a non-empty 1-d array of integers below {count}")
    sizes = _class_sizes(np.bincount(held, minlength=count), plan.records)
    counts = plan.kind.label_counts(plan, sizes, rows, generator)
    clean = counts / plan.divisor
    if plan.noise == "laplace":
        noise = generator.laplace(0.0, plan.noise_std_y / math.sqrt(2), clean.shape)
    else:
        noise = generator.normal(0.0, plan.noise_std_y, clean.shape)
    return clean, clean + noise


def label_collapse(
    plan: ReleasePlan, labels: NDArray[np.integer[Any]], generator: np.random.Generator, rows: int = 20_000
) -> LabelCollapse:
    """Measure how much of the mixed labels' shape is lost to averaging and noise, on PUBLIC labels.

    NeuroMixGDP (Li et al. 2024, section 2, Figures 2 and 14) shows it as histograms: Poisson-mixed labels crowd around
    1/K and drown in noise, hierarchical ones form a group at zero and one at 1 / (K p1) that stay apart. Here as
    numbers: whether the largest entry, and each entry's side of 1/K, survive the noise.

    Args:
        plan: any design but ``random-weight``.
        labels: (n,) integers in [0, K) of public records; only their shares matter.
        generator: source of rows.
        rows: how many rows to judge by; drawn in blocks.

    Raises:
        InvalidInput: as :func:`mixed_labels`.

    Example:
        >>> from privmix.releases import ReleaseConfig
        >>> names, public = tuple("0123456789"), np.arange(10)
        >>> config = ReleaseConfig(records=50_000, dim=2, classes=names, mixup_degree=64, centre="none")
        >>> found = [label_collapse(config.with_noise(s), public, np.random.default_rng(0)) for s in (0.1, 1.2)]
        >>> [round(f.top_kept, 1) for f in found], [round(f.signal_to_noise) for f in found]
        ([1.0, 0.7], [321, 2])
    """
    check_integer("rows", rows, low=1)
    level, tops, squares = 1 / plan.num_classes, 0, 0.0
    # [was above the level, stayed on its side]
    sides = np.zeros((2, 2), np.int64)
    for start in range(0, rows, _LABEL_ROWS):
        clean, noisy = mixed_labels(plan, labels, generator, min(_LABEL_ROWS, rows - start))
        top = np.take_along_axis(clean, noisy.argmax(axis=1)[:, None], axis=1)[:, 0]
        tops += int((top == clean.max(axis=1)).sum())
        squares += float(((clean - level) ** 2).sum())
        sided = clean != level
        above, after = clean[sided] > level, noisy[sided] > level
        np.add.at(sides, (above.astype(np.intp), (above == after).astype(np.intp)), 1)
    spread = math.sqrt(squares / (rows * plan.num_classes))
    shares = [sides[k, 1] / sides[k].sum() for k in (0, 1) if sides[k].sum()] or [math.nan]
    ratio = (spread / plan.noise_std_y) ** 2 if plan.noise_std_y > 0 else math.inf
    return LabelCollapse(tops / rows, float(np.mean(shares)), spread, plan.noise_std_y, ratio)


def _public(
    features: NDArray[Any], labels: NDArray[np.integer[Any]]
) -> tuple[NDArray[Any], NDArray[np.intp], NDArray[Any]]:
    """The features, each record's class as an index into the classes that occur, and those classes."""
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


def _class_sizes(counts: NDArray[np.int64], records: int) -> NDArray[np.int64]:
    """Whole numbers that sum to ``records`` in the proportions of ``counts`` (largest remainders get the rest)."""
    shares = counts * (records / counts.sum())
    sizes: NDArray[np.int64] = np.floor(shares).astype(np.int64)
    rest = np.argsort(sizes - shares, kind="stable")[: records - int(sizes.sum())]
    sizes[rest] += 1
    return sizes


def _root(squares: NDArray[np.float64]) -> NDArray[np.float64]:
    # Rounding can take the square of a tiny distance below zero.
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def _finite_mean(values: NDArray[np.float64]) -> float:
    kept = values[np.isfinite(values)]
    return float(kept.mean()) if len(kept) else math.inf
