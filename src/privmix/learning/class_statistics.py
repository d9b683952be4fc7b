"""Class statistics of a release, the discriminants that follow, and places of class means from public words."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.learning.rows import CentredRows
from privmix.learning.spectrum import AdditiveNoise, KnownVariance, SamplingNoise, known_variance, with_trace
from privmix.publication.dataset import ReleasedDataset
from privmix.publication.second_moments import SecondMoments, eigh_lower

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


# Canonical correlations, squared, are kept below this: the scatter within classes is never nothing.
_CLOSEST: Final = 0.9
# Shares of the variance between classes that are weighed against each other.
_SHARES: Final = np.geomspace(1e-6, 1.0, 56)
# Powers of the variance that class means spread by, likewise: from nearly as wide in every direction to the widest few.
_POWERS: Final = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5)
# In rows, errors of variances and of means go together, and a wide spread in few directions is found where it is not.
_POWERS_OF_ROWS: Final = _POWERS[:4]
# Entries of class means that are weighed at once, over all shares and powers.
_AT_ONCE: Final = 2**15
# Least share of the variance of records that is within classes, where class sums leave none.
_LEAST_WITHIN: Final = 0.1
# Every class keeps at least this part of an equal share of the records.
_FEWEST: Final = 0.1


@dataclass(frozen=True, eq=False)
class Between:
    """Prior of class means without noise: N(a p, b t) along each direction, with a ``weight`` and b ``along``."""

    along: Reals
    share: float
    weight: float = 0.0


@dataclass(frozen=True, eq=False)
class ClassStatistics:
    """Class statistics of a release, along the eigenvectors ``basis`` (d, k) of its noisy second moments."""

    # known: variances along them. means (K, k): noisy, less ``origin`` (d,). noise (K, k): variance of noise and
    # sampling. shares (K,) of the classes. scale: scatter within classes, as a share of that in ``known``. turned:
    # whether step 3 of the discriminant can separate it from the scatter between classes. sized: whether means are
    # those of classes, not of an equal share of the records. points (K, k): of a class prior. doubt (K,): squared
    # relative errors of the counts. powers: of the variance, that class means may spread by.

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
    doubt: Reals | float = 0.0
    powers: tuple[float, ...] = _POWERS

    def expecting(self, prior: ClassPrior) -> "ClassStatistics":
        return replace(self, points=prior.around(self.shares) @ self.basis)

    def between(self) -> Between:
        return _likeliest(self.means, self.known.variance, self.noise, self.points, self._doubts, self.powers)

    @property
    def _doubts(self) -> Reals:
        return np.broadcast_to(np.asarray(self.doubt, np.float64), len(self.means))[:, None]

    def _noise_of(self, share: Reals) -> Reals:
        """(K, k) the noise, and what a wrong number of records does to means that spread by these shares."""
        return self.noise + self._doubts * (share * self.known.variance)

    def posterior(self, between: Between) -> tuple[Reals, Reals]:
        """(K, k) class means once their noise is taken out, and the variance of what is still unknown of them."""
        variance, share = self.known.variance, between.along
        expected = np.zeros_like(self.means) if self.points is None else between.weight * self.points
        # Let z ~ N(m, v), m ~ N(a p, b t). Posterior m ~ N(a p + (z - a p) b t / (b t + v), v b t / (b t + v))
        noise = self._noise_of(share)
        kept = share * variance / np.maximum(share * variance + noise, np.finfo(float).tiny)
        return expected + kept * (self.means - expected), kept * noise

    def discriminants(self, between: Between) -> tuple[Reals, Reals]:
        """(d, K) coefficients and (K,) offsets of the scores of records counted from the origin."""
        variance, share = self.known.variance, between.along
        # a p
        expected = np.zeros_like(self.means) if self.points is None else between.weight * self.points
        # r = t + spread / t
        reliable = variance + self.known.spread / variance
        # b t / (b t + v)
        noise = self._noise_of(share)
        kept = share * variance / np.maximum(share * variance + noise, np.finfo(float).tiny)
        apart = self.means - expected
        means = expected + kept * apart
        # z b / (b r + v)
        weights = expected / reliable + share * apart / np.maximum(share * reliable + noise, np.finfo(float).tiny)
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
class ClassSums:
    """Sums of whole classes, divided by an equal class's number of records, since class sizes are unknown."""

    # The clipping bound limits the scatter within classes, taken as equal in all directions. Means are taken to be
    # equally far from the origin, as draws in many dimensions are. left, lengths, basis: (K, K), (K,), (d, K): sums
    # less their mean are left diag(lengths) basis'. noise: variance in an entry. largest: mean squared norm that
    # records may have.

    left: Reals
    lengths: Reals
    basis: Reals
    noise: float
    largest: float
    origin: Reals
    weight: float = 0.0

    @classmethod
    def of(cls, release: ReleasedDataset) -> "ClassSums":
        sums = release.x[release.y.argmax(axis=0)].astype(np.float64)
        return cls.of_sums(sums, release.noise_std_x**2, release.transform.final_clip_norm**2)

    @classmethod
    def of_sums(cls, sums: Reals, noise: float, largest: float) -> "ClassSums":
        """From (K, d) sums, the variance of the noise in an entry and the largest mean squared norm of records."""
        origin = sums.mean(axis=0)
        left, lengths, right = np.linalg.svd(sums - origin, full_matrices=False)
        return cls(left, lengths, right.T, noise, largest, origin)

    def expecting(self, prior: ClassPrior) -> "ClassSums":
        """Return the same with the points of ``prior`` for another measurement of the sums."""
        sums, points = (
            (self.left * self.lengths) @ self.basis.T,
            prior.around(np.full(len(self.left), 1 / len(self.left))),
        )
        weight, sums, noise = measured_twice(sums, self.noise, points)
        left, lengths, right = np.linalg.svd(sums, full_matrices=False)
        return replace(self, left=left, lengths=lengths, basis=right.T, noise=noise, weight=weight)

    @property
    def apart(self) -> Reals:
        """Squared lengths less the noise, whose entries are spread over K - 1 singular vectors."""
        directions = max(self.basis.shape[0], len(self.left) - 1)
        return np.asarray(np.maximum(np.square(self.lengths) - self.noise * directions, 0.0))

    def between(self) -> Between:
        """Scatter between classes as a share of the largest variance of records, and the weight of points."""
        share = min(1.0, float(self.apart.sum()) / len(self.left) / self.largest)
        return Between(np.array([share]), share, self.weight)

    def discriminants(self, between: Between) -> tuple[Reals, Reals]:
        """(d, K) coefficients and (K,) offsets of the scores of records counted from the origin."""
        within = max(1 - between.share, _LEAST_WITHIN) * self.largest / len(self.basis)
        variance = self.apart / len(self.left) + within
        # M with its singular values shrunk by the share that is no noise
        means = self.left * (self.apart / np.maximum(self.lengths, np.finfo(float).tiny))
        weights = means / variance
        return self.basis @ _equally_far(weights, means).T, np.zeros(len(weights))


def class_statistics(release: ReleasedDataset) -> ClassStatistics | ClassSums:
    """Estimate the class statistics of a release; raise where numbers are not finite or rows do not differ."""
    if release.moments is not None:
        return of_moments(release.moments, release.label_offset, release.transform.centre is not None)
    once = release.rows == release.num_classes and not release.mixes_all_classes and release.noise_std_y == 0
    # One row a class and nothing else.
    sums = once and len(set(release.y.argmax(axis=0))) == release.num_classes
    return ClassSums.of(release) if sums else _of_rows(release)


def of_moments(
    moments: SecondMoments, label_offset: float, centred: bool, *, digits: type[np.floating[Any]] = np.float32
) -> ClassStatistics:
    # digits: of the eigenvectors. If features are nearly dependent, discriminants of other machines differ in the third
    # digit with float32, and in the twelfth with float64.
    moments.check_finite()
    shares, doubt = moments.known_shares(label_offset)
    second = moments.second.astype(np.float64) / moments.records
    # Sums of classes over n.
    sums, random = moments.cross.T.astype(float) / moments.records, (moments.noise_std_cross / moments.records) ** 2
    origin, noise = np.zeros(moments.dim), random / np.square(shares)
    if label_offset == 0:
        # Labels as they are have the mean of all: X'Y 1 = X'1.
        whole, classes = sums.sum(axis=0), len(shares)
        origin = whole
        if centred:
            # This is how far the released mean is off, plus noise, which James and Stein's factor takes out. The rest
            # of it is noise of the sums, in equal parts.
            factor = max(0.0, 1 - classes * random / max(float(np.square(whole).mean()), np.finfo(float).tiny))
            origin, sums = factor * whole, sums - (1 - factor) * whole / classes
            # A share that is off leaves some of the mean in its class's sum: by how much shows how far it is off.
            scatter = max(float(np.trace(second) - origin @ origin), 0.0) / moments.dim
            unsure, spread = doubt * np.square(shares), random + np.square(shares) * scatter
            told = unsure / np.maximum(unsure * (origin @ origin) + spread, np.finfo(float).tiny)
            shares = np.maximum(shares + told * ((sums - np.outer(shares, origin)) @ origin), _FEWEST / classes)
            shares, doubt = shares / shares.sum(), told * spread / np.square(shares)
            taken = factor + (1 - factor) / (classes * shares)
            noise = random * (np.square(1 / shares - taken) + (classes - 1) * np.square(taken))
        second -= np.outer(origin, origin)
    means, counts = sums / shares[:, None] - origin, shares * moments.records
    values, basis = eigh_lower(np.array(second, dtype=digits, order="F"))
    deviation = moments.noise_std_second / math.sqrt(2) / moments.records
    known = known_variance(values.astype(np.float64), AdditiveNoise(moments.dim, deviation))
    # At least as far as classes lie apart without noise, less its standard deviation, records do.
    apart = (1 - np.minimum(doubt, 1)) * np.square(means).sum(axis=1) - moments.dim * noise
    least = float(shares @ apart) - float(np.linalg.norm(shares * noise)) * math.sqrt(2 * moments.dim)
    known = with_trace(known, float(np.trace(second)), deviation * math.sqrt(2 * moments.dim), max(least, 0.0))
    noise = noise[:, None] + known.variance / counts[:, None]
    return ClassStatistics(basis, known, means @ basis, noise, shares, origin, doubt=doubt)


def _of_rows(release: ReleasedDataset) -> ClassStatistics:
    """Return the same from rows: to their moments a mixed record adds its own, times a known number, and noise."""
    rows, classes = CentredRows.of(release), release.num_classes
    spread = rows.y.var(axis=0, dtype=np.float64)
    shares = np.maximum(rows.mean_y.astype(np.float64) + release.label_offset, _FEWEST / classes)
    shares /= shares.sum()
    # A record's variance in that of rows: 1 / m, and more where classes vary together. A row of a public label has the
    # records of one class: its label is that class.
    unit = 1.0
    if release.noise_std_y > 0:
        one = 1 - 2 * release.label_offset + classes * release.label_offset**2
        unit = max((float(spread.sum()) - classes * rows.label_noise_variance) / one, 1 / release.mixup_degree)
    values, basis, cross = _eigen(rows)
    if not values.any():
        raise InvalidInput(
            "released rows", "identical rows", "different rows: identical rows hold no information about classes"
        )
    # Directions in which rows hardly differ have eigenvalues of rounding, of either sign.
    values = np.maximum(values, values[-1] * np.finfo(np.float32).eps)
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
    # If rows hold some classes only, their counts make most of T; noisy labels then hardly show the rest.
    sized = release.noise_std_y > 0
    turned = release.mixes_all_classes or not sized
    origin = rows.mean_x.astype(np.float64)
    return ClassStatistics(basis, known, means, noise, shares, origin, scale, turned, sized, powers=_POWERS_OF_ROWS)


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


def _likeliest(
    means: Reals, variance: Reals, noise: Reals, points: Reals | None, doubts: Reals, powers: tuple[float, ...]
) -> Between:
    """Posterior means of b_i and a, weighed together: z ~ N(a p, b_i t_i + v) entry by entry, p = 0 without points."""
    # Class means spread as b T^q does, scaled so that b is their share of the whole variance. In no direction they
    # spread by more than there is: b_i = min(1, b c t_i^(q - 1)). All b from 0 to 1 and all ``powers`` q count alike.
    # Shapes: (K, k) z, v and p, (k,) t, (K, 1) ``doubts``, the errors of the counts.
    squares, sizes = np.square(means), variance / variance.max()
    total = float(sizes.sum())
    shapes = [sizes ** (power - 1) for power in powers]
    shapes = [shape * (total / float(shape @ sizes)) for shape in shapes]
    along = np.minimum(1.0, np.concatenate([_SHARES[:, None] * shape for shape in shapes]))
    likelihood, coefficients = np.empty(len(along)), np.zeros(len(along))
    # As many of them at once as stay in the cache.
    at_once = max(1, _AT_ONCE // means.size)
    for part in (slice(first, first + at_once) for first in range(0, len(along), at_once)):
        # log N(z; 0, b t + v), but for a constant
        spread = (1 + doubts) * (along[part] * variance)[:, None]
        spread += noise
        np.maximum(spread, np.finfo(float).tiny, out=spread)
        likelihood[part] = -0.5 * (np.log(spread) + squares / spread).reshape(len(spread), -1).sum(axis=1)
        if points is not None:
            fits = np.array([regression_on_prior(points, means, one) for one in spread])
            coefficients[part] = fits[:, 0]
            likelihood[part] += fits[:, 1]
    # On a grid of even logarithms db is in proportion to b.
    weights = np.tile(_SHARES, len(powers)) * np.exp(likelihood - likelihood.max())
    weights /= weights.sum()
    found = weights @ along
    return Between(found, float(found @ sizes) / total, float(weights @ coefficients))


def _equally_far(weights: Reals, means: Reals) -> Reals:
    """Weights of means that are made equally long, m' T^-1 m = w'm."""
    # Sums of a class of n_k records, divided as if it had n / K, are n_k K / n times as long as its mean.
    lengths = (weights * means).sum(axis=1)
    scale = np.divide(lengths.mean(), lengths, where=lengths > 0, out=np.ones_like(lengths))
    return np.asarray(np.sqrt(scale)[:, None] * weights)
