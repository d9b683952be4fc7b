"""Assumed records for planning: a declared spectrum or what public data show, and how many records persons have."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from privmix.errors import InvalidInput, check_integer, check_number
from privmix.learning.holdings import ONE_EACH, Holdings
from privmix.learning.public_records import along_principal_axes, mixture, own_shapes, unlimited_accuracy
from privmix.plans.setting import MOST_SHARES, AssumedRecords
from privmix.publication.dataset import RecordTransform

Reals = NDArray[np.float64]

# The noise and a learner's rule are known beforehand, the separability of classes is not. A model has it as the
# accuracy WITHOUT privacy, declared or measured on public data.


ATTAINABLE: Final = 0.9
"""Default accuracy without privacy: a common result of linear classifiers on public features."""

# Half the logarithm of 12: they reach 99% on digits and 40% on photographs, odds twelve times better and worse.
_UNKNOWN: Final = 1.25

DIRECTIONS: Final = 256
"""Number of simulated axes; larger noise stands for the other axes."""

_TEST_RECORDS = 4000
# A declared spectrum: variance along axis i is (i + 4)^-decay (1 - i/d)^2, and between classes in proportion to a power
# of it. All of it is of public data: rendered characters, docstrings of Python's standard library, scikit-learn's wine
# and breast cancer (benchmarks/results/ended.md).
_OFFSET = 4.0
_END = 2.0
# No axis separates classes entirely.
_MOST_BETWEEN = 0.9
# Classes lie apart by 1 - K^-0.25 of the variance at most: 16% of it with two, 44% with ten, 66% with 77. If less is
# enough for the accuracy with the usual tail, they lie apart by that; a planner would otherwise see classes far above
# noise that hides real ones. The usual tail for K classes is 0.2 + 0.2 log K, from 0.3 to 1.
_GATHERING = 0.25
_TAIL = (0.2, 0.2)
_LEAST_APART = 1e-3
# Records lie no nearer to their class if nothing is declared: few features hold few classes apart.
_NEAREST = 0.5
# Declared shares are rounded.
_SHARES_SUM = 0.02
# Logarithms of the classes' sizes differ by this much.
_UNEVEN = 0.4
# Limit on a declared spectrum: the axes beyond hold next to no variance.
_MOST_AXES = 2**20
# Keeps variances above what rounding makes of them.
_ROUNDING = 1e-12
# Tails beyond this would have records that no width explains.
_HEAVIEST = 1.0


class Measures(NamedTuple):
    """Accuracy of a rule, mean recall of the classes, and mean area under the curve of each class against all."""

    accuracy: float
    balanced: float
    auc: float


@dataclass(frozen=True, eq=False)
class DataModel:
    """Records as a mixture of Gaussians, one a class, along the principal axes of all, in units of the clipping bound.

    Attributes:
        within: (k,) variance of the records of a class along each axis.
        means: (K, k) means of the classes, adding up to 0 over all records.
        shares: (K,) of the classes among the records.
        dim: d, the real number of features.
        spread: factor on the distance of records to classify from their class's mean.
        tail: unevenness of that distance: each lies spread exp(tail z) times as wide, z normal. Some records are then
            mistaken even if all else is known, as in real classes.
        sampled: whether private records err as a sample of these does. If not, :attr:`attainable` includes the sampling
            error of all records.
        doubt: standard error of the logit of :attr:`attainable`, where it is no declared figure.
        own_shapes: exp(-own_shapes q) of a linear rule's errors remain with each class's scatter along q directions;
            below 0 where scatters mislead.
        holdings: records of each person, where the unit of privacy is a person.
        known_shares: whether shares are declared. The area under the curve then states how separable classes are,
            since accuracy is mostly the share of the largest class.
    """

    within: Reals
    means: Reals
    shares: Reals
    dim: int
    spread: float = 1.0
    tail: float = 0.0
    sampled: bool = False
    doubt: float = 0.0
    own_shapes: float = 0.0
    holdings: Holdings = ONE_EACH
    known_shares: bool = False

    @cached_property
    def between(self) -> Reals:
        """(k,) variance of the classes' means along each axis."""
        return np.asarray(self.shares @ np.square(self.means))

    @cached_property
    def covariance(self) -> Reals:
        """(k, k) of all records."""
        return np.asarray(np.diag(self.within) + (self.means.T * self.shares) @ self.means)

    @property
    def assumed(self) -> AssumedRecords:
        return AssumedRecords(self.within, self.between, self.dim)

    def sampling_error(self, units: float, most: int = 1, *, one_class: bool = False) -> Reals:
        """(K,) squared sampling error of class means, as a share of the variance over the class's share."""
        # If `attainable` includes the sampling error of all records, only the excess by uneven holdings remains.
        # `units` is the weight of the units of privacy together: their number, where K is 1.
        found = self.holdings.class_errors(self.shares) if one_class else np.full(len(self.shares), 1.0)
        if not one_class:
            found *= self.holdings.error(most)
        if not self.sampled:
            found -= self.holdings.weight(most) / self.holdings.mean
        # A remainder of rounding is no error.
        return np.asarray(np.where(found > 1e-9, found, 0.0) / units)

    @cached_property
    def attainable(self) -> float:
        """Accuracy of linear discriminant analysis that knows means and variances exactly."""
        return self.accuracy(*self._discriminants(), seed=0)

    @cached_property
    def attained(self) -> float:
        """The figure that :meth:`attaining` sets: :attr:`attainable`, or the area under the curve of known classes."""
        return self.measured(*self._discriminants(), seed=0).auc if self.known_shares else self.attainable

    def accuracy(self, weights: Reals, offsets: Reals, seed: int) -> float:
        """Accuracy (0 to 1, standard error below 0.01) of the rule argmax(x'weights + offsets), by sampling."""
        return self.measured(weights, offsets, seed).accuracy

    def measured(self, weights: Reals, offsets: Reals, seed: int) -> Measures:
        labels, means, noise, widths = self._scores(weights, offsets, seed)
        return self._measures(labels, means + (self.spread * np.exp(self.tail * widths))[:, None] * noise)

    def _measures(self, labels: NDArray[np.int64], scores: Reals) -> Measures:
        right = scores.argmax(axis=1) == labels
        if not self.known_shares:
            return Measures(float(right.mean()), math.nan, math.nan)
        # Equally many records of each class are drawn.
        recalls = np.array([right[labels == k].mean() for k in range(len(self.shares))])
        return Measures(float(self.shares @ recalls), float(recalls.mean()), _area(labels, scores))

    def attaining(self, wanted: float) -> "DataModel":
        """Return the model whose tail, or else spread, makes :attr:`attained` equal to ``wanted``, in (0, 1)."""
        # Tails, since real classes have some hard records and many easy ones. On embeddings of 77 intents and on digits
        # the predicted loss by noise is then within two points. With a spread it is two to four times as large.
        check_number("attainable", wanted, low=0, high=1, low_open=True, high_open=True)
        labels, means, noise, widths = self._scores(*self._discriminants(), seed=0)

        def reached(spread: float, tail: float) -> float:
            found = self._measures(labels, means + (spread * np.exp(tail * widths))[:, None] * noise)
            return found.auc if self.known_shares else found.accuracy

        spread, tail = 1.0, 0.0
        if reached(1.0, 0.0) <= wanted:
            spread = _level(lambda spread: reached(spread, 0.0), wanted, 1e-2, 1.0)
        elif reached(1.0, _HEAVIEST) <= wanted:
            tail = _level(lambda tail: reached(1.0, tail), wanted, 1e-3, _HEAVIEST)
        else:
            tail = _HEAVIEST
            spread = _level(lambda spread: reached(spread, tail), wanted, 1.0, 1e3)
        return replace(self, spread=spread, tail=tail)

    def with_odds(self, factor: float) -> "DataModel":
        """Return the model whose attained accuracy, or area above a half, has ``factor`` times the odds."""
        of = 2 * self.attained - 1 if self.known_shares else self.attained
        odds = factor * of / max(1 - of, 1e-3)
        part = odds / (1 + odds)
        return self.attaining((1 + part) / 2 if self.known_shares else part)

    @lru_cache(maxsize=16)  # noqa: B019  # few models, each of some kilobytes
    def projected(self, dim: int) -> "DataModel":
        """Return the model of these features after a random projection to ``dim`` numbers; mean lengths are kept."""
        drawn = np.random.default_rng((dim, 2)).standard_normal((dim, len(self.within))) / math.sqrt(dim)
        # No more axes are left than there were.
        kept = np.asarray(np.linalg.qr(drawn, mode="r")) if dim > len(self.within) else drawn
        within, axes = np.linalg.eigh((kept * self.within) @ kept.T)
        beyond = max(0.0, 1.0 - float(self.within.sum() + self.between.sum()))
        return replace(
            self, within=np.maximum(within, 0.0) + beyond / dim + _ROUNDING, means=self.means @ kept.T @ axes, dim=dim
        )

    @lru_cache(maxsize=16)  # noqa: B019  # as above
    def shortened(self, error: float) -> "DataModel":
        """Return the model of records about a centre that errs by ``error``, squared: clipped by as much more."""
        part = 1 / (1 + error)
        return replace(self, within=self.within * part, means=self.means * math.sqrt(part))

    def with_share_odds(self, factor: float) -> "DataModel":
        """Return the model whose share of variance between classes has ``factor`` times the odds; accuracy is kept."""
        total = self.within + self.between
        ratio = factor * self.between.sum() / self.within.sum()
        wanted = min(ratio / (1 + ratio), 0.999 * _MOST_BETWEEN) * total.sum()
        between = _with_sum(self.between, wanted, _MOST_BETWEEN * total)
        scale = np.sqrt(between / np.maximum(self.between, np.finfo(float).tiny))
        return replace(self, within=total - between, means=self.means * scale).attaining(self.attained)

    def _discriminants(self) -> tuple[Reals, Reals]:
        weights = self.means / self.within
        return weights.T, np.log(self.shares) - (weights * self.means).sum(axis=1) / 2

    def _scores(self, weights: Reals, offsets: Reals, seed: int) -> tuple[NDArray[np.int64], Reals, Reals, Reals]:
        """Drawn records: labels (t,), scores (t, K) of their classes' means, what spread 1 adds, widths (t,)."""
        uniform, normal, widths = _draws(len(self.within), seed)
        # Known classes are drawn alike and weighed, so that rare ones are measured as well as others.
        drawn = np.full(len(self.shares), 1 / len(self.shares)) if self.known_shares else self.shares
        labels = np.minimum(np.searchsorted(np.cumsum(drawn), uniform), len(self.shares) - 1)
        noise = normal @ (np.sqrt(self.within)[:, None] * weights).astype(np.float32)
        return labels, (self.means @ weights + offsets)[labels], noise.astype(np.float64), widths

    @classmethod
    def declared(
        cls,
        dim: int,
        classes: int,
        generator: np.random.Generator,
        *,
        spectrum_decay: float = 1.6,
        concentration: float = 1.4,
        own_shapes: float = 0.0,
        between_share: float | None = None,
        attainable: float | None = None,
        class_shares: Sequence[float] | None = None,
        auc: float | None = None,
    ) -> "DataModel":
        """Make a model of ``dim`` features and ``classes`` classes from public constants."""
        # spectrum_decay: the variance along axis i falls as (i + 4)^-decay; public networks and scattering have 1.0 to
        # 1.8. concentration: the variance of class means falls as that power of the records'. between_share: of the
        # variance, between classes; None follows from ``attainable``, at most 1 - K^-0.25. attainable: accuracy without
        # privacy; with class_shares it is auc, the area under the curve without privacy.
        check_integer("dim", dim, low=1)
        check_integer("classes", classes, low=2)
        check_number("spectrum_decay", spectrum_decay, low=0, high=10)
        check_number("concentration", concentration, low=0, high=10)
        known = class_shares is not None
        given = auc if known else attainable
        reached = ATTAINABLE if given is None else given
        if auc is not None:
            check_number("auc", auc, low=0.5, high=1, low_open=True, high_open=True)
        check_number("attainable", reached, low=0, high=1, low_open=True, high_open=True)
        apart = 1 - classes**-_GATHERING if between_share is None else between_share
        check_number("between_share", apart, low=0, high=1, low_open=True, high_open=True)
        axes = np.arange(min(dim, _MOST_AXES))
        total = (axes + _OFFSET) ** -spectrum_decay * (1 - axes / dim) ** _END
        total = total[:DIRECTIONS] / total.sum()
        shares = (
            np.exp(_UNEVEN * generator.standard_normal(classes)) if class_shares is None else shares_of(class_shares)
        )
        if len(shares) != classes:
            raise InvalidInput("class_shares", f"{len(shares)} shares", f"{classes}, one a class")
        shares /= shares.sum()
        drawn = generator.standard_normal((classes, len(total)))
        tail = min(_HEAVIEST, _TAIL[0] + _TAIL[1] * math.log(classes))

        def with_share(share: float) -> DataModel:
            between = _with_sum(
                total**concentration, min(share, 0.999 * _MOST_BETWEEN) * total.sum(), _MOST_BETWEEN * total
            )
            means = _means(shares, between, drawn)
            return cls(total - between, means, shares, dim, tail=tail, own_shapes=own_shapes, known_shares=known)

        if between_share is None:
            low = _LEAST_APART * apart
            # Accuracy rises with the share: one that is reached at the most is fallen to at 1 over it.
            apart = 1 / _level(lambda inverse: with_share(1 / inverse).attained, reached, 1 / apart, 1 / low)
        model = with_share(apart).attaining(reached)
        return replace(model, doubt=_UNKNOWN, spread=max(model.spread, _NEAREST)) if given is None else model

    @classmethod
    def of_public_data(
        cls,
        features: NDArray[np.float32],
        labels: NDArray[np.int64],
        classes: int,
        transform: RecordTransform,
        generator: np.random.Generator,
    ) -> "DataModel":
        """Make a model from PUBLIC (n, d) features and (n,) labels, as they look after the release's clipping."""
        # If labels lack some of ``classes``, class means are drawn again. The public mean replaces the released one.
        if features.ndim != 2 or labels.shape != features.shape[:1] or len(labels) < 2:
            raise InvalidInput("public data", (features.shape, labels.shape), "features (n, d) and labels (n,)")
        clipped = transform.clip(features)
        bound = transform.residual_clip_norm or transform.clip_norm
        x = RecordTransform(bound)(clipped - clipped.mean(axis=0)) / bound
        names, index = np.unique(labels, return_inverse=True)
        along = along_principal_axes(x, DIRECTIONS)
        within, means, shares = mixture(along, index)
        model = cls(within, means, shares, features.shape[1], sampled=True)
        if len(names) > 1:
            accuracy = unlimited_accuracy(along, index, generator)
            model = model.attaining(accuracy)
            doubt = 1 / math.sqrt(len(index) * accuracy * (1 - accuracy))
            model = replace(model, doubt=doubt, own_shapes=own_shapes(along, index, generator))
        if len(names) == classes:
            return model
        shares = np.full(classes, 1 / classes)
        between = np.maximum(model.between, np.finfo(float).tiny)
        drawn = generator.standard_normal((classes, len(between)))
        return replace(model, means=_means(shares, between, drawn), shares=shares).attaining(
            min(model.attainable, 0.999)
        )


def shares_of(given: Sequence[float] | None) -> Reals:
    """Return declared shares of classes; they add up to 1, but for their rounding.

    Raises:
        InvalidInput: a share is not above 0, or their sum is further from 1.
    """
    try:
        shares = np.array([float(value) for value in given or ()])
    except (TypeError, ValueError):
        shares = np.zeros(1)
    if not (np.isfinite(shares).all() and (shares > 0).all() and abs(shares.sum() - 1) <= _SHARES_SUM):
        raise InvalidInput("class_shares", given, "shares above 0, one a class, that add up to 1")
    if len(shares) > MOST_SHARES:
        raise InvalidInput("class_shares", f"{len(shares)} shares", f"at most {MOST_SHARES} classes")
    return shares


def _area(labels: NDArray[np.int64], scores: Reals) -> float:
    """Mean over classes of the area under the curve of the lead over the best other class."""
    areas = []
    for k in range(scores.shape[1]):
        inside = labels == k
        ranks = rankdata(scores[:, k] - np.delete(scores, k, axis=1).max(axis=1))
        count = int(inside.sum())
        areas.append((ranks[inside].sum() - count * (count + 1) / 2) / (count * (len(labels) - count)))
        if scores.shape[1] == 2:
            # The other class's curve is the same.
            break
    return float(np.mean(areas))


@lru_cache(maxsize=4)
def _draws(axes: int, seed: int) -> tuple[Reals, NDArray[np.float32], Reals]:
    """Draws that test records are made of, the same for all models and plans: uniform, (t, k) normal, normal."""
    generator = np.random.default_rng((seed, 1))
    normal = generator.standard_normal((_TEST_RECORDS, axes), dtype=np.float32)
    return generator.random(_TEST_RECORDS), normal, generator.standard_normal(_TEST_RECORDS)


def _level(reached: Callable[[float], float], accuracy: float, low: float, high: float) -> float:
    """Return the point at which a falling function comes down to ``accuracy``."""
    for _ in range(25):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if reached(middle) > accuracy else (low, middle)
    return high


def _with_sum(values: Reals, wanted: float, limits: Reals) -> Reals:
    """Multiples of the values, or their limits where these are less, that add up to what is wanted."""
    low, high = 0.0, 1.0
    while np.minimum(high * values, limits).sum() < wanted and high < 1e300:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(middle * values, limits).sum() < wanted else (low, middle)
    return np.asarray(np.minimum(high * values, limits))


def _means(shares: Reals, variance: Reals, drawn: Reals) -> Reals:
    """(K, k) means from normal numbers: they add up to 0 over records, with the given variance along each axis."""
    means = drawn - shares @ drawn
    return np.asarray(means * np.sqrt(variance / (shares @ np.square(means))))
