"""Arrays that are released in addition to rows, as stored and as learners use them; and uses of second moments."""

import math
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final, Self

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import log_ndtr
from threadpoolctl import threadpool_limits

from privmix.errors import InvalidInput
from privmix.fields import Amount, Count, check_fields
from privmix.plans.parts import SumPlan
from privmix.plans.plan import Plan
from privmix.plans.registry import Deferred, made_by

Arrays = Mapping[str, NDArray[np.float32]]


class Released:
    """Arrays of a release as learners take them, for a design whose ``released_as`` names a class of its own."""

    @classmethod
    def of(cls, plan: Any, arrays: Arrays) -> Self:
        """Made of the arrays of a release of ``plan``, or of those released so far, each in its shape."""
        raise NotImplementedError

    @property
    def arrays(self) -> Arrays:
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}


RELEASED_AS: Final = Deferred[type[Released]]("released_as")


def from_arrays(plan: Plan, stored: Arrays) -> Any:
    """Return the object that learners take of a release's stored arrays; without such a class, the arrays."""
    if not RELEASED_AS.is_in(made_by(plan)):
        return stored
    assert isinstance(plan, SumPlan)
    return RELEASED_AS.of(made_by(plan)).of(plan, {one.name: one.read(stored[one.name]) for one in plan.arrays})


def to_arrays(plan: Plan, beside: Any) -> Arrays:
    """Return the arrays that a release of ``plan`` holds in addition to its rows, as they are stored."""
    if not RELEASED_AS.is_in(made_by(plan)):
        return dict(beside)
    assert isinstance(plan, SumPlan)
    return {one.name: one.stored(beside.arrays[one.name]) for one in plan.arrays}


_BLOCK = 1024
_SMALL = 64
# Classes whose shares are put in words, and the chance that a stated error does not hold.
_MOST_CLASSES, _WRONG = 5, 0.05
# Every class keeps at least this part of an equal share of the records.
_FEWEST = 0.1
# Standard deviations of classes' shares that are weighed, in equal shares: the least, and how many.
_ALIKE, _SPREADS = 0.01, 60
# Standard deviations that a bound may be from a mean; farther off its density is nothing, or all.
_FARTHEST = 1e3
_STRENGTH = 0.3
# Least radius, as a share of the largest eigenvalue: what is left to do where noise is next to nothing.
_LEAST = 1e-3


@dataclass(frozen=True)
class Spectrum:
    """Eigenvectors ``basis`` (d, d) of a released X'X, and its eigenvalues with the noise shrunk out."""

    # values (d,): ascending in the noisy eigenvalues, at least 0. radius: largest eigenvalue of noise alone, 2 sqrt(d)
    # times its off-diagonal standard deviation.

    values: NDArray[np.float64]
    basis: NDArray[np.float32]
    radius: float

    @property
    def ridge(self) -> float:
        """Addition to the eigenvalues before division: 0.3 of the radius or more."""
        # With shrunk values the factor needs no tuning, on MNIST scattering features and on 77 classes of sentence
        # embeddings. From epsilon 1 to 8, accuracy is within 0.3 points of the best factor's and falls by less than a
        # point between half and twice.
        return _STRENGTH * max(self.radius, _LEAST * float(self.values.max(initial=0.0))) or 1.0


@dataclass(frozen=True, eq=False)
class SecondMoments(Released):
    """Noisy second moments of transformed records. Public.

    Attributes:
        second: (d, d) float32, symmetric: X'X plus noise.
        cross: (d, K) float32: X'Y plus noise, Y the one-hot labels minus the label offset.
        label_sums: (K,) float32: column sums of Y plus noise.
        noise_std_second: standard deviation of the noise in a diagonal entry of ``second``; 1/sqrt(2) of it elsewhere.
        noise_std_cross, noise_std_counts: that in an entry of ``cross`` and of ``label_sums``.
    """

    second: NDArray[np.float32]
    cross: NDArray[np.float32]
    label_sums: NDArray[np.float32]
    records: Count
    noise_std_second: Amount
    noise_std_cross: Amount
    noise_std_counts: Amount

    def __post_init__(self) -> None:
        check_fields(self)
        dim, classes = self.second.shape[0], self.label_sums.shape[0]
        if self.second.shape != (dim, dim) or self.cross.shape != (dim, classes) or dim == 0:
            raise InvalidInput("moments", (self.second.shape, self.cross.shape), "(d, d), (d, K) and (K,) arrays")

    @property
    def dim(self) -> int:
        return int(self.second.shape[0])

    @property
    def blocks(self) -> NDArray[np.float32]:
        """(b, d, d) the released X'X: one of all records, or one a class."""
        return self.second[None]

    @property
    def noise_std_block(self) -> float:
        """Return the standard deviation of the noise in a diagonal entry of a block; 1/sqrt(2) of it elsewhere."""
        return self.noise_std_second / math.sqrt(len(self.blocks))

    def class_shares(self, label_offset: float) -> NDArray[np.float64]:
        """(K,) estimated share of each class; see :func:`estimated_shares`."""
        return self.known_shares(label_offset)[0]

    def known_shares(self, label_offset: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the same, and (K,) squared relative errors of them."""
        if len(self.label_sums) == 1:
            return np.ones(1), np.zeros(1)
        told = self.label_sums.astype(np.float64) / self.records + label_offset
        return estimated_shares(told, self.noise_std_counts / self.records)

    def spectrum(self) -> Spectrum:
        """Decompose X'X and take the noise out of its eigenvalues."""
        return spectrum_of(self.second, self.noise_std_second)

    def check_finite(self) -> None:
        """Raise :class:`InvalidInput` where a released number is none."""
        if not all(np.isfinite(values).all() for values in self.arrays.values()):
            raise InvalidInput("released moments", "NaN or infinity", "finite numbers")

    @classmethod
    def of(cls, plan: Any, arrays: Arrays) -> Self:
        noise = {f"noise_std_{one.known_as}": one.noise_std for one in plan.parts if one.name in arrays}
        if plan.num_classes == 1:
            # Zeros without noise stand for what records without a label do not have.
            arrays = {**arrays, "cross": np.zeros((plan.dim, 1), np.float32), "label_sums": np.zeros(1, np.float32)}
            noise |= {"noise_std_cross": 0.0, "noise_std_counts": 0.0}
        facts: dict[str, Any] = {"records": plan.records, **noise, **cls.derived(plan, arrays), **arrays}
        return cls(**facts)

    @classmethod
    def derived(cls, plan: Any, arrays: Arrays) -> Mapping[str, Any]:
        """Other facts that follow from the plan and released arrays."""
        return {}


@dataclass(frozen=True, eq=False)
class ClassSecondMoments(SecondMoments):
    """Second moments of the records of each class. Public; ``second`` is the sum of ``class_second`` (K, d, d)."""

    class_second: NDArray[np.float32]

    @classmethod
    def derived(cls, plan: Any, arrays: Arrays) -> Mapping[str, Any]:
        own = arrays["class_second"]
        return {"second": own.sum(axis=0), "noise_std_second": plan.noise_std["second"] * math.sqrt(len(own))}

    @property
    def blocks(self) -> NDArray[np.float32]:
        return self.class_second


def spectrum_of(second: NDArray[np.float32], noise_std: float) -> Spectrum:
    """Decompose a noisy symmetric matrix, ``noise_std`` on its diagonal, and take the noise out of its eigenvalues."""
    # With noise variance t^2 off the diagonal, the best value along the noisy eigenvector i is l_i - 2 t^2 sum_j (l_i -
    # l_j) / ((l_i - l_j)^2 + (2 t)^2). It is the rotation-invariant estimator for additive Gaussian noise. The limit's
    # Hilbert transform is smoothed over 2 t (Bun, Allez, Bouchaud and Potters 2016, eq. 6.2).
    deviation = noise_std / math.sqrt(2)
    values, basis = eigh_lower(np.array(second, dtype=np.float32, order="F"))
    noisy = values.astype(np.float64)
    shrunk = noisy.copy()
    for start in range(0, len(noisy) if deviation > 0 else 0, _BLOCK):
        gaps = noisy[start : start + _BLOCK, None] - noisy
        shrunk[start : start + _BLOCK] -= (
            2 * deviation**2 * (gaps / (gaps**2 + 4 * deviation**2)).sum(axis=1, dtype=np.float64)
        )
    return Spectrum(np.maximum(shrunk, 0.0), basis, 2 * deviation * math.sqrt(len(second)))


def shares_in_words(plan: Any, beside: Any) -> tuple[str, ...]:
    """Return sizes of the classes by released label sums, in words; empty where a release does not show them."""
    # Label sums less their offset do not show how many records there are: without an exact count shares are unknown.
    loose = plan.records_declared or plan.records_noise_multiplier is not None or plan.per_person is not None
    if loose or not isinstance(beside, SecondMoments) or len(plan.classes) == 1:
        return ()
    told = beside.label_sums.astype(np.float64) / beside.records
    shares = np.clip(told - told.mean() + 1 / len(told), 0, 1)
    # It holds for all classes at once: the largest of many is large by noise alone.
    error = NormalDist().inv_cdf(1 - _WRONG / 2 / len(told)) * beside.noise_std_counts / beside.records
    says = "classes in the release, by its noisy sums"
    if shares.max() - 1 / len(told) <= error:
        return (f"{says}: each about {100 / len(told):.1f}% (give or take {100 * error:.1f}): no class stands out",)
    listed = sorted(zip(plan.classes, 100 * shares, strict=True), key=lambda one: -one[1])
    words = [f"{name} about {share:.1f}%" for name, share in listed[:_MOST_CLASSES]]
    if len(listed) > _MOST_CLASSES:
        words.append(f"and {len(listed) - _MOST_CLASSES:,} smaller ones")
    always = f"always naming the most frequent class is right about {listed[0][1]:.1f}% of the time"
    return (f"{says}: {', '.join(words)} (each give or take {100 * error:.1f})", always)


def regression(
    spectrum: Spectrum, cross: NDArray[np.float32], records: int, added: float | None = None
) -> NDArray[np.float32]:
    """Coefficients (d, K) of labels on features from noisy moments: W in proportion to (U (L + a) U' + S)^-1 X'Y."""
    # U, L: spectrum; a: regularisation (None: Spectrum.ridge); S = (K / n) X'Y Y'X: the scatter between equally large
    # classes. X'X holds S too, but under noise that shrunk eigenvalues no longer separate. Adding it again gives two
    # points of accuracy with many classes (77 of sentence embeddings at epsilon 1) and costs nothing elsewhere. S only
    # turns the coefficients. W is as large as without S (same trace of Y'X W): class shares can be added to its scores.
    gains = 1 / np.maximum(spectrum.values + (spectrum.ridge if added is None else added), np.finfo(np.float32).tiny)
    weights = spectrum.basis @ (gains.astype(np.float32)[:, None] * (spectrum.basis.T @ cross))
    # The Woodbury identity: S has rank K, so what it changes is a K x K matrix.
    fit = (cross.T @ weights).astype(np.float64)
    change = np.linalg.inv(np.eye(len(fit)) + fit * (len(fit) / records))
    turned = float(np.trace(fit @ change))
    scale = float(np.trace(fit)) / turned if turned > 0 else 1.0
    return np.asarray(weights @ (scale * change), np.float32)


def estimated_shares(told: NDArray[np.float64], deviation: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Posterior (K,) class shares from noisy ones, drawn to equal shares, and their variances over squared means."""
    # Shares are draws from N(1/K, s^2), so `told` from N(1/K, s^2 + deviation^2). s is log-uniform from a hundredth of
    # 1/K to that of one class with all records: the likeliest s alone would now and then take noise for differences.
    # The posterior, taken as Gaussian, is cut at a tenth of an equal share: means of classes stay of usual length.
    classes = len(told)
    apart = told - 1 / classes
    spreads = np.square(np.geomspace(_ALIKE, max(1.0, math.sqrt(classes - 1)), _SPREADS) / classes)
    total = spreads + deviation**2
    likelihood = -0.5 * ((classes - 1) * np.log(total) + float(np.square(apart).sum()) / total)
    weights = np.exp(likelihood - likelihood.max())
    weights /= weights.sum()
    kept = spreads / total
    mean = float(weights @ kept)
    variance = float(weights @ kept) * deviation**2 + float(weights @ np.square(kept - mean)) * np.square(apart)
    shares, variance = _above(1 / classes + mean * apart, variance, _FEWEST / classes)
    return shares / shares.sum(), variance / np.square(shares)


def _above(
    mean: NDArray[np.float64], variance: NDArray[np.float64], least: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means and variances of Gaussians that are known to be above ``least``."""
    deviation = np.sqrt(np.maximum(variance, np.finfo(float).tiny))
    below = np.clip((least - mean) / deviation, -_FARTHEST, _FARTHEST)
    # The density at the bound over the chance of being above it.
    rate = np.exp(-0.5 * np.square(below) - 0.5 * math.log(2 * math.pi) - log_ndtr(-below))
    shrunk = variance * np.maximum(1 + below * rate - np.square(rate), 0.0)
    return np.maximum(mean + deviation * rate, least), shrunk


def sample_rows(
    moments: SecondMoments, label_offset: float, rows: int, generator: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Draw x (rows, d) and y (rows, K) of a Gaussian mixture, one component a class, with the released moments."""
    # Classes follow the label sums; a class's mean is its column of X'Y over its count; all share the rest of X'X, plus
    # Spectrum.ridge. Linear discriminant analysis of many rows is the regression of the learner `second-moments`. Rows
    # are therefore longer than records. Post-processing: rows cost no privacy, and `generator` needs no secret.
    spectrum, classes = moments.spectrum(), len(moments.label_sums)
    shares = moments.class_shares(label_offset)
    # Column k holds the sum of class k minus the offset times the sum of all, which centring has made small.
    counts = (shares * moments.records).astype(np.float32)
    means = spectrum.basis.T @ (moments.cross / counts)
    noise = moments.noise_std_cross**2 * float((shares / np.square(counts, dtype=np.float64)).sum())
    between = np.maximum((np.square(means, dtype=np.float64) * shares).sum(axis=1) - noise, 0.0)
    # If there is only noise, classes must not look apart: what a learner of moments adds to X'X is spread here.
    within = np.maximum(spectrum.values / moments.records - between, 0.0) + spectrum.ridge / moments.records
    deviation = np.sqrt(within).astype(np.float32)
    labels = generator.choice(classes, size=rows, p=shares)
    x = np.empty((rows, moments.dim), np.float32)
    for start in range(0, rows, _BLOCK):
        part = slice(start, start + _BLOCK)
        normal = generator.standard_normal((len(labels[part]), moments.dim), dtype=np.float32)
        x[part] = (means.T[labels[part]] + deviation * normal) @ spectrum.basis.T
    return x, np.eye(classes, dtype=np.float32)[labels] - np.float32(label_offset)


def sampled_std(moments: SecondMoments) -> float:
    """Least standard deviation, in any direction and from the public noise alone, of what :func:`sample_rows` draws."""
    radius = 2 * moments.noise_std_second * math.sqrt(moments.dim / 2)
    return math.sqrt(_STRENGTH * radius / moments.records)


def eigh_lower(lower: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Ascending eigenvalues and eigenvectors of a symmetric matrix from its lower triangle; overwrites it."""
    # LAPACK's threads wait for each other at every step: with a busy neighbour two took 46 s where one takes 7. Small
    # matrices get none, and to find the libraries takes longer than they do.
    with threadpool_limits(1, user_api="blas") if len(lower) > _SMALL else nullcontext():
        result: Any = scipy.linalg.eigh(lower, lower=True, overwrite_a=True, check_finite=False, driver="evd")
    return result[0], result[1]


Matrix = NDArray[np.float32]


def kronecker_cleaned(second: Matrix, channels: int, deviation: float) -> Matrix:
    """Return X'X (d, d), features in order (channel, position), without its noise; eigenvalues may be below 0."""
    # deviation: standard deviation of the noise off the diagonal; on it sqrt(2) times that.
    positions = len(second) // channels
    blocks = second.reshape(channels, positions, channels, positions).transpose(0, 2, 1, 3)
    cleaned = np.zeros_like(blocks)
    # A symmetric matrix is one part that neither axis's exchange changes, and one whose sign both change: S_ai,bj =
    # S_bj,ai. Each, written once, has independent noise of variance 2 deviation^2 in every entry.
    for sign in (1, -1):
        rows, columns = _pairs(channels, sign), _pairs(positions, sign)
        if not len(rows[0]) or not len(columns[0]):
            continue
        along = blocks[rows] + sign * blocks[rows[::-1]]
        part = (along[:, *columns] + sign * along[:, *columns[::-1]]) / 4
        scale = _weights(rows)[:, None] * _weights(columns)
        part = _shrunk(part * scale, deviation * np.sqrt(2)) / scale
        spread = np.zeros_like(along)
        spread[:, *columns] = part
        spread[:, *columns[::-1]] = sign * part
        cleaned[rows] += spread
        # Entries on the diagonal of channels exist once.
        apart = rows[0] != rows[1]
        cleaned[rows[1][apart], rows[0][apart]] += sign * spread[apart]
    return np.ascontiguousarray(cleaned.transpose(0, 2, 1, 3)).reshape(second.shape)


def _pairs(size: int, sign: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Entries on and below the diagonal; below it alone for the part that changes its sign."""
    first, second = np.tril_indices(size, 0 if sign > 0 else -1)
    return first, second


def _weights(pairs: tuple[NDArray[np.intp], NDArray[np.intp]]) -> Matrix:
    """sqrt(2) where an entry stands for two, so that norms are those of the whole."""
    return np.where(pairs[0] == pairs[1], 1.0, np.sqrt(2)).astype(np.float32)


def _shrunk(noisy: Matrix, deviation: float) -> Matrix:
    """Return an (a, b) matrix of the singular values best in squared error under white noise of ``deviation``."""
    tall = noisy if noisy.shape[0] >= noisy.shape[1] else noisy.T
    squares, right = eigh_lower(np.asfortranarray(tall.T @ tall))
    ratio, level = tall.shape[1] / tall.shape[0], deviation**2 * tall.shape[0]
    values = np.maximum(squares.astype(np.float64), 0.0)
    kept = values > (1 + np.sqrt(ratio)) ** 2 * level
    # Gavish and Donoho 2017, eq. 7, over the singular value: sqrt((y^2 - ratio - 1)^2 - 4 ratio) / y^2, here y is y^2.
    y = values[kept] / level if level > 0 else np.full(int(kept.sum()), np.inf)
    gains = np.sqrt(np.maximum((1 - (ratio + 1) / y) ** 2 - 4 * ratio / y**2, 0.0))
    found = ((tall @ right[:, kept]) * gains.astype(np.float32)) @ right[:, kept].T
    return np.asarray(found if tall is noisy else found.T)
