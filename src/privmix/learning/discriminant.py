"""Linear discriminant analysis of a release, each of its numbers trusted as far as the known noise allows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.learning.base import LinearLearner, Progress
from privmix.learning.class_prior import ClassPrior, measured_twice, regression_on_prior
from privmix.learning.rows import CentredRows
from privmix.learning.spectrum import AdditiveNoise, KnownVariance, SamplingNoise, known_variance
from privmix.releases.dataset import ReleasedDataset
from privmix.releases.moments import SecondMoments, eigh_lower

Reals = NDArray[np.float64]

# Canonical correlations, squared, are kept below this: the scatter within classes is never nothing.
_CLOSEST: Final = 0.99
# Shares of the variance between classes that are weighed against each other.
_SHARES: Final = np.geomspace(1e-6, 1.0, 56)
# Least share of the variance of records that is within classes, where class sums leave none.
_LEAST_WITHIN: Final = 0.1
# Every class keeps at least this part of an equal share of the records.
_FEWEST: Final = 0.1


class DiscriminantClassifier(LinearLearner):
    """Empirical-Bayes linear discriminant analysis from noisy second moments and noisy class means.

    A release gives, with Gaussian noise of known size, the second moments S of its records and the sum of each class,
    by themselves (design ``moments``) or as sample moments of its rows. With U the eigenvectors of S and z_k the noisy
    mean of class k, in their basis, all is done direction by direction:

    1. *Variances* (:mod:`privmix.learning.spectrum`). With T the covariance without noise, t_i = (U'TU)_ii is the
       variance along direction i, and spread_i = (U'T^2U)_ii - t_i^2 is what T shares between it and others.
       Coefficients proportional to z_ki have the least expected squared error, over class means whose covariance is
       proportional to T, if they are divided by r_i = t_i + spread_i / t_i, not by t_i. T is known along i to a share
       of t_i / r_i.
    2. *Class means.* They are taken for draws from N(0, b T), so that z_ki ~ N(0, b t_i + v_ki) with v_ki the noise and
       a sampling error of t_i / n_k. The share b is its posterior mean, all from 0 to 1 being equally likely before.
       Given b, the mean of class k is m_ki = z_ki b t_i / (b t_i + v_ki), and the regression's coefficients are
       z_ki b / (b r_i + v_ki): a ridge regression with ridge v_ki / b (Balle and Wang 2018 so denoise the Gaussian
       mechanism by what is known of its noise).
    3. *Discriminants.* What makes the regression a discriminant analysis is (I - E)^-1 on the classes' side, with
       E = P^1/2 M T^-1 M' P^1/2 and P the classes' shares (Hastie, Buja and Tibshirani 1995): it takes the scatter
       between classes out of T. A term of E counts by the shares to which matrix and mean are known. The score of class
       k is w_k'x - w_k'm_k / 2 + log p_k.

    A :class:`~privmix.learning.class_prior.ClassPrior` gives step 2 public points p_k, counted from their mean: class
    means are then draws from N(a p_k, b T), with a from N(0, 1) and known by the released means alone. What steps 2 and
    3 say of z_ki holds for z_ki - a p_ki, to which a p_ki is added again (a p_ki / r_i in the coefficients). Beside
    class sums, which have no T, points are another measurement of the means
    (:func:`~privmix.learning.class_prior.measured_twice`).

    Without noise this is linear discriminant analysis, up to the sampling error in step 2. No constant is chosen by
    accuracy: the noise is known, and b and the spectrum of T follow from the released numbers by their likelihood.
    Rows of a single class each have no counts of the classes: class means are then made equally long in units of T.
    Class sums alone say nothing of the scatter within classes, which the clipping bound then sets.

    Attributes:
        coef_: (d, K) float32.
        intercept_: (K,) float32.
        between_share_: b; with a class prior that of what its points leave, and ``told_["weight"]`` is a.

    Example:
        >>> from privmix.releases.dataset import RecordTransform
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 2, 500)
        >>> x, y = np.eye(2)[labels] + rng.normal(0, 0.1, (500, 2)), np.eye(2)[labels]
        >>> moments = SecondMoments(
        ...     *(part.astype(np.float32) for part in (x.T @ x, x.T @ y, y.sum(axis=0))),
        ...     records=500, noise_std_second=1.0, noise_std_cross=1.0, noise_std_counts=1.0)
        >>> release = ReleasedDataset(
        ...     x=np.float32(x[:1]), y=np.float32(y[:1]), design="moments", mixup_degree=1, noise_std_x=0.0,
        ...     noise_std_y=0.0, label_offset=0.0, classes=("cat", "dog"), transform=RecordTransform(2.0),
        ...     extractor={"name": "identity"}, input_shape=(2,), release_id="example", beside=moments)
        >>> DiscriminantClassifier().fit(release).predict(np.eye(2)).tolist()
        [0, 1]
    """

    name: ClassVar[str] = "discriminant"
    takes_prior: ClassVar[bool] = True
    between_share_: float

    @property
    def summary(self) -> str:
        told = "" if self.told_ is None else f", class texts count {100 * self.told_['weight']:.0f}%"
        return f"{100 * self.between_share_:.1f}% of the variance between classes{told}"

    def _check_params(self) -> None:
        """There are none."""

    def _fit(self, release: ReleasedDataset, progress: Progress) -> None:
        if release.moments is not None:
            found: _Statistics | _ClassSums = _of_moments(release, release.moments)
        elif _has_class_sums(release):
            found = _ClassSums.of(release)
        else:
            found = _of_rows(release)
        if self._prior is not None:
            found = found.expecting(self._prior)
        progress(1, 2)
        self.between_share_, weight = found.between_share()
        if self.told_ is not None:
            self.told_["weight"] = weight
        weights, offsets = found.discriminants(self.between_share_, weight)
        self.coef_ = weights.astype(np.float32)
        self.intercept_ = (offsets - found.origin @ weights).astype(np.float32)
        progress(2, 2)


@dataclass(frozen=True, eq=False)
class _Statistics:
    """What a release says of its records, along the eigenvectors of their noisy second moments.

    Attributes:
        basis: (d, k) eigenvectors.
        known: variances along them.
        means: (K, k) noisy class means, the origin taken off.
        noise: (K, k) variance of the noise in them and of what sampling the records adds.
        shares: (K,) of the classes among the records.
        origin: (d,) where means and second moments are counted from.
        scale: of the scatter within classes, as a share of what ``known`` has it.
        turned: whether it can be told from the scatter between classes, which step 3 takes out.
        sized: whether means are those of classes, not of an equal share of the records.
        points: (K, k) points beside which class means are expected, counted from their mean; None for the origin.
    """

    basis: NDArray[np.float32]
    known: KnownVariance
    means: Reals
    noise: Reals
    shares: Reals
    origin: Reals
    scale: float = 1.0
    turned: bool = True
    sized: bool = True
    points: Reals | None = None

    def expecting(self, prior: ClassPrior) -> _Statistics:
        """The same with the points of ``prior``."""
        return replace(self, points=prior.around(self.shares) @ self.basis)

    def between_share(self) -> tuple[float, float]:
        """b, how much of the variance lies between classes, and a, how far their means are at their points."""
        return _likeliest(self.means, self.known.variance, self.noise, self.points)

    def discriminants(self, share: float, weight: float) -> tuple[Reals, Reals]:
        """(d, K) coefficients and (K,) offsets of the scores of records counted from the origin."""
        variance = self.known.variance
        # a p
        expected = np.zeros_like(self.means) if self.points is None else weight * self.points
        # r = t + spread / t
        reliable = variance + self.known.spread / variance
        # b t / (b t + v)
        kept = share * variance / np.maximum(share * variance + self.noise, np.finfo(float).tiny)
        apart = self.means - expected
        means = expected + kept * apart
        # z b / (b r + v)
        weights = expected / reliable + share * apart / np.maximum(share * reliable + self.noise, np.finfo(float).tiny)
        # E = A A', A = P^1/2 M r^-1/2, each entry less by the shares of matrix (t / r) and mean that are known
        foreseen = np.square(expected).mean(axis=0)
        known = kept + (1 - kept) * foreseen / np.maximum(share * variance + foreseen, np.finfo(float).tiny)
        roots = np.sqrt(self.shares)[:, None]
        whitened = roots * means * np.sqrt(known * variance) / reliable if self.turned else np.zeros_like(means)
        squared, turns = np.linalg.eigh(whitened @ whitened.T)
        # P^-1/2 (I - E)^-1 P^1/2 w
        inverse = (turns / (1 - np.clip(squared, 0.0, _CLOSEST))) @ turns.T
        weights = self.scale * (inverse @ (roots * weights)) / roots
        if not self.sized:
            return self.basis @ _equally_far(weights, means).T, np.zeros(len(weights))
        return self.basis @ weights.T, np.log(self.shares) - (weights * means).sum(axis=1) / 2


@dataclass(frozen=True, eq=False)
class _ClassSums:
    """Sums of whole classes, divided by an equal class's number of records: nothing else is known.

    Scatter within classes is unknown but for its size: with the scatter between them it is no more than the clipping
    bound lets a record have, and it is taken as the same in all directions. How large classes are is unknown, too.
    Their means are taken to be equally far from the origin, as draws in many dimensions are.

    Attributes:
        left, lengths, basis: (K, K) and (K,) and (d, K): sums less their mean are left diag(lengths) basis'.
        noise: variance of the noise in an entry.
        largest: mean squared norm that records may have.
        origin: (d,) mean of the sums.
        weight: of points in the sums, beside what was released.
    """

    left: Reals
    lengths: Reals
    basis: Reals
    noise: float
    largest: float
    origin: Reals
    weight: float = 0.0

    @classmethod
    def of(cls, release: ReleasedDataset) -> _ClassSums:
        sums = release.x[release.y.argmax(axis=0)].astype(np.float64)
        origin = sums.mean(axis=0)
        left, lengths, right = np.linalg.svd(sums - origin, full_matrices=False)
        bound = release.transform.final_clip_norm**2
        return cls(left, lengths, right.T, release.noise_std_x**2, bound, origin)

    def expecting(self, prior: ClassPrior) -> _ClassSums:
        """The same with the points of ``prior`` for another measurement of the sums."""
        sums, points = (
            (self.left * self.lengths) @ self.basis.T,
            prior.around(np.full(len(self.left), 1 / len(self.left))),
        )
        weight, sums, noise = measured_twice(sums, self.noise, points)
        left, lengths, right = np.linalg.svd(sums, full_matrices=False)
        return replace(self, left=left, lengths=lengths, basis=right.T, noise=noise, weight=weight)

    @property
    def _between(self) -> Reals:
        """Squared lengths less the noise, whose entries are spread over K - 1 singular vectors."""
        directions = max(self.basis.shape[0], len(self.left) - 1)
        return np.asarray(np.maximum(np.square(self.lengths) - self.noise * directions, 0.0))

    def between_share(self) -> tuple[float, float]:
        """Scatter between classes as a share of the largest variance of records, and the weight of points."""
        return min(1.0, float(self._between.sum()) / len(self.left) / self.largest), self.weight

    def discriminants(self, share: float, weight: float) -> tuple[Reals, Reals]:
        """(d, K) coefficients and (K,) offsets of the scores of records counted from the origin."""
        between = self._between
        within = max(1 - share, _LEAST_WITHIN) * self.largest / len(self.basis)
        variance = between / len(self.left) + within
        # M with its singular values shrunk by the share that is no noise
        means = self.left * (between / np.maximum(self.lengths, np.finfo(float).tiny))
        weights = means / variance
        return self.basis @ _equally_far(weights, means).T, np.zeros(len(weights))


def _likeliest(means: Reals, variance: Reals, noise: Reals, points: Reals | None) -> tuple[float, float]:
    """Posterior means of b and a, weighed together: z ~ N(a p, b t + v) entry by entry, p = 0 without points.

    Args:
        means: z, (K, k).
        variance: t, (k,).
        noise: v, (K, k).
        points: p, (K, k).
    """
    squares, likelihood, coefficients = np.square(means), np.empty(len(_SHARES)), np.zeros(len(_SHARES))
    for index, share in enumerate(_SHARES):
        # log N(z; 0, b t + v), but for a constant
        total = np.maximum(share * variance + noise, np.finfo(float).tiny)
        likelihood[index] = -0.5 * (np.log(total) + squares / total).sum()
        if points is not None:
            coefficients[index], gain = regression_on_prior(points, means, total)
            likelihood[index] += gain
    # On a grid of even logarithms db is in proportion to b.
    weights = _SHARES * np.exp(likelihood - likelihood.max())
    return float(weights @ _SHARES / weights.sum()), float(weights @ coefficients / weights.sum())


def _equally_far(weights: Reals, means: Reals) -> Reals:
    """Weights of means that are made equally long, m' T^-1 m = w'm: what their lengths differ by is the classes' size.

    Sums of a class of n_k records, divided as if it had n / K, are n_k K / n times as long as its mean.
    """
    lengths = (weights * means).sum(axis=1)
    scale = np.divide(lengths.mean(), lengths, where=lengths > 0, out=np.ones_like(lengths))
    return np.asarray(np.sqrt(scale)[:, None] * weights)


def _has_class_sums(release: ReleasedDataset) -> bool:
    """Whether there is one row a class and nothing else."""
    once = release.rows == release.num_classes and not release.mixes_all_classes and release.noise_std_y == 0
    return once and len(set(release.y.argmax(axis=0))) == release.num_classes


def _of_moments(release: ReleasedDataset, moments: SecondMoments) -> _Statistics:
    for values in (moments.second, moments.cross, moments.label_sums):
        if not np.isfinite(values).all():
            raise InvalidInput("released moments", "NaN or infinity", "finite numbers")
    shares = moments.class_shares(release.label_offset)
    counts = shares * moments.records
    second = moments.second.astype(np.float64) / moments.records
    means = (moments.cross / counts).T.astype(np.float64)
    origin = np.zeros(moments.dim)
    if release.transform.centre is None:
        # Where no mean was released the labels, then not centred, have it: X'Y 1 = X'1.
        origin = shares @ means
        second -= np.outer(origin, origin)
        means = means - origin
    values, basis = eigh_lower(np.asarray(second, dtype=np.float32, order="F"))
    deviation = moments.noise_std_second / math.sqrt(2) / moments.records
    known = known_variance(values.astype(np.float64), AdditiveNoise(moments.dim, deviation))
    noise = np.square(moments.noise_std_cross / counts)[:, None] + known.variance / counts[:, None]
    return _Statistics(basis, known, means @ basis, noise, shares, origin)


def _of_rows(release: ReleasedDataset) -> _Statistics:
    """The same from rows: to their moments a mixed record adds its own, times a known number, and noise."""
    rows, classes = CentredRows.of(release), release.num_classes
    spread = rows.y.var(axis=0, dtype=np.float64)
    shares = np.maximum(rows.mean_y.astype(np.float64) + release.label_offset, _FEWEST / classes)
    shares /= shares.sum()
    unit = _record_unit(release, float(spread.sum()) - classes * rows.label_noise_variance)
    values, basis, cross = _eigen(rows)
    if not values.any():
        raise InvalidInput("released rows", "all the same", "rows that differ: these say nothing of any class")
    known = known_variance(values, SamplingNoise(rows.dim, rows.count - 1), rows.noise_variance)
    # Noise that makes an eigenvalue l too large makes X'Y along it too large as well: both by the factor l / u'Au.
    factor = (known.variance + rows.noise_variance) / values
    # Cov(x, y_k) = unit p_k m_k. Given X, its sampling error along u has variance l Var(y_k) / T.
    weights = (unit * shares)[:, None]
    means = factor * cross.T / weights
    noise = np.square(factor) * values * spread[:, None] / rows.count / np.square(weights)
    # Counted from the mean record: with a number of records that varies, rows have each class's mean from 0.
    means -= shares @ means
    known = KnownVariance(known.variance / unit, known.spread / unit**2)
    scale = min(1.0, 1 / (release.mixup_degree * unit))
    # Where rows hold some classes only, their counts make most of T; noisy labels then hardly tell what is left.
    sized = release.noise_std_y > 0
    turned = release.mixes_all_classes or not sized
    return _Statistics(basis, known, means, noise, shares, rows.mean_x.astype(np.float64), scale, turned, sized)


def _record_unit(release: ReleasedDataset, spread: float) -> float:
    """What a record's variance is multiplied by in that of rows: 1 / m, and more where classes vary together.

    Args:
        release: whose labels vary between rows.
        spread: variance of the label columns without noise, all together.
    """
    if release.noise_std_y == 0:
        # A row has the records of one class: its label is that class.
        return 1.0
    one = 1 - 2 * release.label_offset + release.num_classes * release.label_offset**2
    return max(spread / one, 1 / release.mixup_degree)


def _eigen(rows: CentredRows) -> tuple[Reals, NDArray[np.float32], Reals]:
    """Eigenvalues above 0 of the rows' sample covariance, ascending, eigenvectors (d, k), and X'Y / T along them."""
    if rows.count > rows.dim:
        second, cross = rows.sums(slice(0, rows.count))
        values, basis = eigh_lower(np.asarray(second / rows.count, dtype=np.float32, order="F"))
        projected = basis.T @ cross / rows.count
    else:
        # Fewer rows than features: the smaller XX' has the same eigenvalues.
        x, y = rows.centred(slice(0, rows.count))
        values, left = eigh_lower(np.asfortranarray(x @ x.T / rows.count))
        sound = values > values[-1] * len(values) * np.finfo(np.float32).eps
        values, left = values[sound], left[:, sound]
        lengths = np.sqrt(values * np.float32(rows.count))
        basis, projected = x.T @ (left / lengths), lengths[:, None] * (left.T @ y) / rows.count
    return values.astype(np.float64), basis, projected.astype(np.float64)
