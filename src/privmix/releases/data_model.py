"""What records are assumed to be before any is looked at: a declared spectrum, or what public data show.

How much noise a release bears is known exactly beforehand, and so is what a learner makes of it. How well the classes
can be told apart is not: no extractor, number of records or number of classes says it. A model therefore has it as a
number of its own, the accuracy that a learner reaches WITHOUT privacy, which may be declared (a published figure, a
guess) or measured on public data. What is predicted from a model is what privacy takes off that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.designs.setting import Assumed
from privmix.errors import InvalidInput, check_integer, check_number
from privmix.releases.dataset import RecordTransform

Reals = NDArray[np.float64]

ATTAINABLE: Final = 0.9
"""Accuracy without privacy where nothing is declared: what linear classifiers on public features often reach."""

# Directions that are simulated; noise is made larger to stand for those that are not.
_DIRECTIONS = 256
_TEST_RECORDS = 4000
_CONCENTRATION = 1.4
_DECAY = 1.3
# Classes lie apart by 1 - K^-0.15 of the variance: 10% of it with two, 29% with ten, 48% with 77.
_GATHERING = 0.15
# Logarithms of the classes' sizes differ by this much.
_UNEVEN = 0.4
# Tails beyond this would have records that no width explains.
_HEAVIEST = 1.0
# Part of public data that is kept for tests.
_HELD_OUT = 0.3
# The variance of records along directions that hold next to nothing, as a share of the mean.
_LEAST = 1e-4


@dataclass(frozen=True, eq=False)
class DataModel:
    """Records as a mixture of Gaussians, one a class, along the principal axes of all, in units of the clipping bound.

    Attributes:
        within: (k,) variance of the records of a class along each axis.
        means: (K, k) means of the classes, adding up to 0 over all records.
        shares: (K,) of the classes among the records.
        dim: d, the real number of features.
        spread: how many times wider the records that are to be classified lie about their class's mean.
        tail: how unevenly they do: each lies spread exp(tail z) times as wide, with a normal z of its own. Real classes
            have tails and neighbours, so that some records are mistaken whatever is known of the rest.
        seen: number of records whose means and variances these are, with their sampling errors; None: of all there are.
        tests: (t, k) records with (t,) labels that stand for those to be classified; None draws them.

    Example:
        >>> model = DataModel.declared(dim=1000, classes=10, generator=np.random.default_rng(0))
        >>> model.means.shape, round(float(model.within.sum() + model.between.sum()), 6)
        ((10, 256), 1.0)
        >>> round(model.attainable, 2)
        0.9
    """

    within: Reals
    means: Reals
    shares: Reals
    dim: int
    spread: float = 1.0
    tail: float = 0.0
    seen: int | None = None
    tests: tuple[NDArray[np.float32], NDArray[np.int64]] | None = None

    @cached_property
    def between(self) -> Reals:
        """(k,) variance of the classes' means along each axis."""
        return np.asarray(self.shares @ np.square(self.means))

    @cached_property
    def covariance(self) -> Reals:
        """(k, k) of all records."""
        return np.asarray(np.diag(self.within) + (self.means.T * self.shares) @ self.means)

    @property
    def assumed(self) -> Assumed:
        """What a design is told."""
        return Assumed(self.within, self.between, self.dim)

    @cached_property
    def attainable(self) -> float:
        """Accuracy of linear discriminant analysis that knows means and variances exactly."""
        return self.accuracy(*self._discriminants(), seed=0)

    def accuracy(self, weights: Reals, offsets: Reals, seed: int) -> float:
        """Accuracy of the linear rule that takes the class of the largest of x'weights + offsets.

        Args:
            weights: (k, K), along the model's axes.
            offsets: (K,).
            seed: of the records that are drawn; the same one draws the same.

        Returns:
            a share from 0 to 1; its standard error is below a point.
        """
        if self.tests is not None:
            records, labels = self.tests
            return float(((records @ weights + offsets).argmax(axis=1) == labels).mean())
        labels, means, noise, widths = self._scores(weights, offsets, seed)
        scores = means + (self.spread * np.exp(self.tail * widths))[:, None] * noise
        return float((scores.argmax(axis=1) == labels).mean())

    def attaining(self, accuracy: float) -> DataModel:
        """The model with the tail, or where that can't be the spread, at which :attr:`attainable` is ``accuracy``.

        Tails rather than spread: where Gaussian classes would be told apart better than real ones are, some records
        are hard and most easy. On embeddings of 77 intents and on digits this keeps what noise takes off the accuracy
        within two points; a spread, the same for all records, makes it two to four times as much.

        Args:
            accuracy: in (0, 1), that a learner reaches without privacy.
        """
        check_number("attainable", accuracy, low=0, high=1, low_open=True, high_open=True)
        labels, means, noise, widths = self._scores(*self._discriminants(), seed=0)

        def reached(spread: float, tail: float) -> float:
            scores = means + (spread * np.exp(tail * widths))[:, None] * noise
            return float((scores.argmax(axis=1) == labels).mean())

        spread, tail = 1.0, 0.0
        if reached(1.0, 0.0) <= accuracy:
            spread = _level(lambda spread: reached(spread, 0.0), accuracy, 1e-2, 1.0)
        elif reached(1.0, _HEAVIEST) <= accuracy:
            tail = _level(lambda tail: reached(1.0, tail), accuracy, 1e-3, _HEAVIEST)
        else:
            tail = _HEAVIEST
            spread = _level(lambda spread: reached(spread, tail), accuracy, 1.0, 1e3)
        return replace(self, spread=spread, tail=tail, tests=None)

    def with_odds(self, factor: float) -> DataModel:
        """The model whose attainable accuracy has ``factor`` times the odds."""
        odds = factor * self.attainable / max(1 - self.attainable, 1e-3)
        return self.attaining(odds / (1 + odds))

    def _discriminants(self) -> tuple[Reals, Reals]:
        weights = self.means / self.within
        return weights.T, np.log(self.shares) - (weights * self.means).sum(axis=1) / 2

    def _scores(self, weights: Reals, offsets: Reals, seed: int) -> tuple[NDArray[np.int64], Reals, Reals, Reals]:
        """Drawn records: labels (t,), scores (t, K) of their classes' means, what spread 1 adds, widths (t,)."""
        uniform, normal, widths = _draws(len(self.within), seed)
        labels = np.minimum(np.searchsorted(np.cumsum(self.shares), uniform), len(self.shares) - 1)
        noise = normal @ (np.sqrt(self.within)[:, None] * weights).astype(np.float32)
        return labels, (self.means @ weights + offsets)[labels], noise.astype(np.float64), widths

    @classmethod
    def declared(
        cls,
        dim: int,
        classes: int,
        generator: np.random.Generator,
        *,
        spectrum_decay: float = _DECAY,
        between_share: float | None = None,
        attainable: float = ATTAINABLE,
    ) -> DataModel:
        """A model from public constants.

        Args:
            dim: d.
            classes: K.
            generator: draws the directions of the classes' means, and the classes' sizes.
            spectrum_decay: the variance along axis i falls as (i + 2)^-decay. Features of public networks and
                scattering transforms have decays of 1.0 to 1.9.
            between_share: share of the variance that lies between classes; None takes 1 - K^-0.15, since more classes
                are finer ones.
            attainable: accuracy that a learner reaches without privacy.
        """
        check_integer("dim", dim, low=1)
        check_integer("classes", classes, low=2)
        check_number("spectrum_decay", spectrum_decay, low=0, high=10)
        apart = 1 - classes**-_GATHERING if between_share is None else between_share
        check_number("between_share", apart, low=0, high=1, low_open=True, high_open=True)
        variance = (np.arange(min(dim, _DIRECTIONS)) + 2.0) ** -spectrum_decay
        within = (1 - apart) * variance / variance.sum()
        # Classes differ most where records do, the more so the larger the variance: an exponent between 1.2 and 2 for
        # such features.
        concentrated = variance**_CONCENTRATION
        shares = np.exp(_UNEVEN * generator.standard_normal(classes))
        shares /= shares.sum()
        means = _means(shares, apart * concentrated / concentrated.sum(), generator)
        return cls(within, means, shares, dim).attaining(attainable)

    @classmethod
    def of_public_data(
        cls,
        features: NDArray[np.float32],
        labels: NDArray[np.int64],
        classes: int,
        transform: RecordTransform,
        generator: np.random.Generator,
    ) -> DataModel:
        """A model with the spectrum of a PUBLIC dataset, as its records look after the release's clipping.

        A part of the records is held out: with the release's own classes they are what is classified, else they say
        how accurate a learner without privacy is.

        Args:
            features: (n, d) features of public records, extracted as those of the release will be.
            labels: (n,) their classes 0, 1, ...; there may be another number of them than ``classes``. Class means are
                then drawn anew with the same variance along each axis.
            classes: K of the release.
            transform: clipping bounds; the public mean takes the place of the released one.
            generator: chooses what is held out, and draws directions where they must be drawn.
        """
        if features.ndim != 2 or labels.shape != features.shape[:1] or len(labels) < 2:
            raise InvalidInput("public data", (features.shape, labels.shape), "features (n, d) and labels (n,)")
        clipped = transform.clip(features)
        bound = transform.residual_clip_norm or transform.clip_norm
        x = RecordTransform(bound)(clipped - clipped.mean(axis=0)) / bound
        names, index = np.unique(labels, return_inverse=True)
        order = generator.permutation(len(x))
        held, kept = np.split(order, [min(round(_HELD_OUT * len(x)), _TEST_RECORDS)])
        if len(np.unique(index[kept])) < len(names) or len(names) < 2:
            # Too few to hold any out.
            held, kept = order[:0], order
        axes, within, means, shares = _fitted(x[kept], index[kept])
        measured = cls(within, means, shares, features.shape[1], seen=len(kept))
        if len(held) >= 10:
            origin = shares @ np.stack([x[kept][index[kept] == k].mean(axis=0) for k in range(len(names))])
            tests = ((x[held] - origin) @ axes).astype(np.float32), index[held]
            measured = replace(measured, tests=tests)
        if len(names) == classes:
            return measured
        shares = np.full(classes, 1 / classes)
        between = np.maximum(measured.between, np.finfo(float).tiny)
        drawn = cls(within, _means(shares, between, generator), shares, features.shape[1])
        return drawn.attaining(min(measured.attainable, 0.999))


@lru_cache(maxsize=4)
def _draws(axes: int, seed: int) -> tuple[Reals, NDArray[np.float32], Reals]:
    """What test records are drawn from, the same for all models and plans: uniform, (t, k) normal, normal."""
    generator = np.random.default_rng((seed, 1))
    normal = generator.standard_normal((_TEST_RECORDS, axes), dtype=np.float32)
    return generator.random(_TEST_RECORDS), normal, generator.standard_normal(_TEST_RECORDS)


def _level(reached: Callable[[float], float], accuracy: float, low: float, high: float) -> float:
    """Where a falling function comes down to ``accuracy``."""
    for _ in range(25):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if reached(middle) > accuracy else (low, middle)
    return high


def _fitted(x: NDArray[Any], labels: NDArray[np.int64]) -> tuple[Reals, Reals, Reals, Reals]:
    """Principal axes (d, k), variances (k,) within classes, means (K, k) and shares (K,) of public records."""
    counts = np.bincount(labels)
    total = np.asarray(x - x.mean(axis=0), dtype=np.float64)
    values, axes = np.linalg.eigh(total.T @ total / len(x))
    axes = axes[:, np.argsort(-values)[:_DIRECTIONS]]
    along = total @ axes
    means = np.stack([along[labels == k].mean(axis=0) for k in range(len(counts))])
    shares = counts / counts.sum()
    between = shares @ np.square(means)
    within = np.square(along).mean(axis=0) - between
    # Sample means of few records lie apart by chance, too.
    chance = within * (len(counts) - 1) / len(x)
    means = means * np.sqrt(np.maximum(between - chance, 0.0) / np.maximum(between, np.finfo(float).tiny))
    return axes, np.maximum(within + np.minimum(chance, between), _LEAST * within.mean()), means, shares


def _means(shares: Reals, variance: Reals, generator: np.random.Generator) -> Reals:
    """(K, k) means that add up to 0 over records, with the given variance along each axis."""
    means = generator.standard_normal((len(shares), len(variance)))
    means -= shares @ means
    return np.asarray(means * np.sqrt(variance / (shares @ np.square(means))))
