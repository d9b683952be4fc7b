"""Predicted accuracy of a plan on a model of the records that is public: declared, or taken from public data.

Every design tells a learner two things with noise: X'X and X'Y of the (transformed) records. Rows that mix records
tell them through their sample covariance, second moments directly, class sums X'Y alone. The prediction therefore
draws the two with the design's noise, fits as :class:`privmix.learning.SecondMomentsClassifier` does, and classifies
records drawn from the model. No private row is read: predictions are as public as the plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.designs import Design, Plan
from privmix.designs.setting import Assumed
from privmix.errors import InvalidInput, check_integer, check_number
from privmix.releases.dataset import RecordTransform
from privmix.releases.moments import SecondMoments, regression

# Directions that are simulated; noise is made larger to stand for those that are not.
_DIRECTIONS = 256
_TEST_RECORDS = 2000
_CONCENTRATION = 1.4
_SHRINKAGE = 0.3


@dataclass(frozen=True, eq=False)
class DataModel:
    """Records as a mixture of Gaussians, one a class, along the principal axes of all, in units of the clipping bound.

    Attributes:
        within: (k,) variance of the records of a class along each axis.
        means: (K, k) means of the classes, adding up to 0.
        dim: d, the real number of features.

    Example:
        >>> model = DataModel.declared(dim=1000, classes=10, generator=np.random.default_rng(0))
        >>> model.means.shape, round(float(model.within.sum() + np.square(model.means).mean(axis=0).sum()), 6)
        ((10, 256), 1.0)
    """

    within: NDArray[np.float64]
    means: NDArray[np.float64]
    dim: int

    @property
    def between(self) -> NDArray[np.float64]:
        """(k,) variance of the classes' means along each axis."""
        return np.asarray(np.square(self.means).mean(axis=0))

    @classmethod
    def declared(
        cls,
        dim: int,
        classes: int,
        generator: np.random.Generator,
        *,
        spectrum_decay: float = 1.3,
        between_share: float = 0.35,
    ) -> DataModel:
        """A model from two public constants.

        Args:
            dim: d.
            classes: K.
            generator: draws the directions of the classes' means.
            spectrum_decay: the variance along axis i falls as (i + 2)^-decay. Features of public networks and
                scattering transforms have decays of 1.0 to 1.9.
            between_share: share of the variance that lies between classes: 0.3 to 0.5 for such features.
        """
        check_integer("dim", dim, low=1)
        check_integer("classes", classes, low=2)
        check_number("spectrum_decay", spectrum_decay, low=0, high=10)
        check_number("between_share", between_share, low=0, high=1, low_open=True, high_open=True)
        variance = (np.arange(min(dim, _DIRECTIONS)) + 2.0) ** -spectrum_decay
        within = (1 - between_share) * variance / variance.sum()
        # Classes differ most where records do, the more so the larger the variance: an exponent between 1.2 and 2 for
        # such features.
        spread = variance**_CONCENTRATION
        return cls(within, _means(classes, between_share * spread / spread.sum(), generator), dim)

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

        Args:
            features: (n, d) features of public records, extracted as those of the release will be.
            labels: (n,) their classes 0, 1, ...; there may be another number of them than ``classes``. Class means are
                then drawn anew with the same variance along each axis.
            classes: K of the release.
            transform: clipping bounds; the public mean takes the place of the released one.
            generator: draws directions where they must be drawn.
        """
        if features.ndim != 2 or labels.shape != features.shape[:1] or len(labels) < 2:
            raise InvalidInput("public data", (features.shape, labels.shape), "features (n, d) and labels (n,)")
        clipped = transform.clip(features)
        bound = transform.residual_clip_norm or transform.clip_norm
        x = RecordTransform(bound)(clipped - clipped.mean(axis=0)) / bound
        names, index = np.unique(labels, return_inverse=True)
        counts = np.bincount(index)
        means = np.stack([np.bincount(index, x[:, j]) for j in range(x.shape[1])], axis=1) / counts[:, None]
        values, axes = np.linalg.eigh(x.T @ x / len(x))
        axes = axes[:, np.argsort(-values)[:_DIRECTIONS]]
        means = means @ axes
        within = np.maximum(np.square(x @ axes).mean(axis=0) - (np.square(means) * counts[:, None]).sum(0) / len(x), 0)
        # Sample means of few records lie apart by chance, too.
        chance = within * (len(names) - 1) / len(x)
        between = np.maximum(np.square(means - means.mean(axis=0)).mean(axis=0) - chance, 0.0)
        same = len(names) == classes
        drawn = means - means.mean(axis=0) if same else _means(classes, between, generator)
        return cls(within, drawn, features.shape[1])


def _means(classes: int, variance: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.float64]:
    means = generator.standard_normal((classes, len(variance)))
    means -= means.mean(axis=0)
    return np.asarray(means * np.sqrt(variance / np.square(means).mean(axis=0)))


def predict_accuracy(plan: Plan, model: DataModel, generator: np.random.Generator) -> float:
    """Accuracy that a learner of the release reaches on records of the model.

    Args:
        plan: with the noise that is to be added.
        model: the assumed records.
        generator: draws noise and test records.

    Returns:
        a share from 0 to 1; one draw, with a standard error of about one point.

    Example:
        >>> from privmix.releases import ReleaseConfig
        >>> rng = np.random.default_rng(0)
        >>> model = DataModel.declared(dim=64, classes=2, generator=rng)
        >>> plan = ReleaseConfig(records=5000, dim=64, classes=("no", "yes"), design="moments").calibrate(4.0, 1e-5)
        >>> 0.5 < predict_accuracy(plan, model, rng) <= 1.0
        True
    """
    kind: type[Design[Any]] = plan.kind
    noise = kind.forecast(plan, Assumed(model.within, model.between, model.dim))
    classes, axes = model.means.shape
    records = plan.records
    # Records are a sample, too: what their own randomness adds to X'Y.
    cross = records / classes * noise.amplified * model.means
    cross = cross + np.sqrt(records / classes * model.within) * generator.standard_normal(cross.shape)
    cross = cross + noise.cross * generator.standard_normal(cross.shape)
    # Without X'X a learner has the scatter between classes, which X'Y shows, and shrinks by a part of the largest.
    inner = cross @ cross.T * classes / records
    weights = np.asarray(cross.T @ np.linalg.inv(inner + _SHRINKAGE * np.linalg.norm(inner, 2) * np.eye(classes)))
    if noise.second is not None:
        second = records * (np.diag(model.within) + noise.amplified * model.means.T @ model.means / classes)
        draw = np.tril(generator.standard_normal((axes, axes)))
        draw[np.diag_indices(axes)] *= math.sqrt(2)
        lower = second + np.sqrt(np.outer(noise.second, noise.second)) * draw
        # One level of noise for all axes: that of a typical one.
        level = float(noise.second.mean()) * math.sqrt(2)
        symmetric = np.tril(lower) + np.tril(lower, -1).T
        spectrum = SecondMoments(
            symmetric.astype(np.float32),
            cross.T.astype(np.float32),
            np.zeros(classes, np.float32),
            records=records,
            noise_std_second=level,
            noise_std_cross=float(noise.cross.mean()),
            noise_std_counts=0.0,
        ).spectrum()
        weights = regression(spectrum, cross.T.astype(np.float32), records)
    labels = generator.integers(0, classes, _TEST_RECORDS)
    tests = model.means[labels] + np.sqrt(model.within) * generator.standard_normal((_TEST_RECORDS, axes))
    return float(((tests @ weights).argmax(axis=1) == labels).mean())
