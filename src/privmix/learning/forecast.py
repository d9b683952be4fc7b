"""Releases as learners would see them if the records came from a model: drawn, with the noise of a plan."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privmix.learning.class_statistics import ClassStatistics, ClassSums
from privmix.learning.data_model import DataModel
from privmix.learning.spectrum import COARSE, AdditiveNoise, KnownVariance, known_variance, with_trace
from privmix.plans.plan import Plan
from privmix.plans.registry import made_by
from privmix.plans.setting import MomentForecast
from privmix.publication.second_moments import estimated_shares, regression, spectrum_of

Reals = NDArray[np.float64]
LinearRule = tuple[Reals, Reals]
"""(k, K) weights and (K,) offsets: the class of a record x is that of the largest of x'weights + offsets."""

_SHRINKAGE = 0.3
# Seed of the records that stand for those which a learner holds out.
_JUDGING = 1000


@dataclass(frozen=True, eq=False)
class DrawnMoments:
    """Moments of n records of a model, per record, without and with a plan's noise."""

    # covariance (k, k) of the records; noisy: absent where the plan releases no second moments. means (K, k): noisy.
    # deviation (k,): of the noise in the means of a class that has all the records. shares (K,): released, or equal
    # ones; doubt (K,): their squared relative errors.

    noise: MomentForecast
    covariance: Reals
    noisy: Reals | None
    means: Reals
    deviation: Reals
    shares: Reals
    doubt: Reals

    @classmethod
    def of(cls, plan: Plan, model: DataModel, seed: int) -> "DrawnMoments":
        """Draw them; a seed gives the same noise, up to its size, for every plan."""
        kind = made_by(plan)
        noise = kind.forecast(plan, model.assumed)
        generator = np.random.default_rng(seed)
        records, (classes, axes) = plan.records, model.means.shape
        counts = records * model.shares
        # Records may be a sample of the model, too.
        error = model.sampling_error(records, plan.per_person or 1, one_class=noise.one_class)
        widths = np.sqrt(error[:, None] * model.within / model.shares[:, None])
        sampled = widths * generator.standard_normal((classes, axes))
        told = counts + (noise.counts or 0.0) * generator.standard_normal(classes)
        shares, doubt = estimated_shares(told / records, (noise.counts or 0.0) / records)
        if noise.counts is None:
            shares, doubt = np.full(classes, 1 / classes), np.zeros(classes)
        deviation = noise.cross / records / noise.amplified
        sums = model.shares[:, None] * (model.means + sampled) + deviation * generator.standard_normal((classes, axes))
        # Records lie about the means that they have themselves.
        apart = model.means + sampled if noise.taken is None else sums / model.shares[:, None]
        width = np.sqrt(model.within)
        covariance = np.diag(model.within / noise.amplified) + (apart.T * model.shares) @ apart
        turned = math.sqrt(float(model.shares @ error))
        covariance = covariance + _symmetric(generator, axes) * np.outer(width, width) * turned
        noisy = None
        if noise.second is not None:
            spread = np.sqrt(noise.second) / np.sqrt(records * noise.amplified)
            noisy = covariance + _symmetric(generator, axes) * np.outer(spread, spread)
        return cls(noise, covariance, noisy, sums / shares[:, None], deviation, shares, doubt)


def drawn_regression(plan: Plan, model: DataModel, seed: int, strengths: Sequence[float] = ()) -> LinearRule:
    """Ridge regression of labels on features from drawn moments, its spectrum cleaned."""
    # strengths: shares of the largest eigenvalue, of which the learner finds a good one; none: the one of the noise.
    drawn = DrawnMoments.of(plan, model, seed)
    classes = len(drawn.means)
    cross = (drawn.means * drawn.shares[:, None] * plan.records).T.astype(np.float32)
    if drawn.noisy is None or drawn.noise.second is None:
        # Without X'X a learner has the scatter between classes, which X'Y shows, and shrinks by a part of the largest.
        inner = cross.T @ cross * classes / plan.records
        added = _SHRINKAGE * np.linalg.norm(inner, 2) * np.eye(classes)
        return np.asarray(cross @ np.linalg.inv(inner + added), dtype=np.float64), np.zeros(classes)
    # One level of noise for all axes: that of a typical one.
    level = float(drawn.noise.second.mean()) * math.sqrt(2) / drawn.noise.amplified
    spectrum = spectrum_of((plan.records * drawn.noisy).astype(np.float32), level)
    largest = float(spectrum.values.max(initial=0.0)) or 1.0
    ridges = [strength * largest for strength in strengths] or [spectrum.ridge]
    found = [(regression(spectrum, cross, plan.records, one).astype(np.float64), drawn.shares) for one in ridges]
    return max(found, key=lambda rule: model.accuracy(rule[0], rule[1], _JUDGING)) if len(found) > 1 else found[0]


def drawn_statistics(plan: Plan, model: DataModel, seed: int, *, found: bool = False) -> ClassStatistics | ClassSums:
    # found: variances are estimated from the noisy eigenvalues, not known; for noise that is the same along all axes.
    drawn = DrawnMoments.of(plan, model, seed)
    if drawn.noisy is None:
        variance = float(np.square(drawn.deviation / drawn.shares[0]).mean())
        return ClassSums.of_sums(drawn.means, variance, 1.0)
    values, basis = np.linalg.eigh(drawn.noisy)
    kind = made_by(plan)
    if found and drawn.noise.second is not None:
        law = AdditiveNoise(len(values), float(drawn.noise.second.mean()) / plan.records / drawn.noise.amplified)
        known = known_variance(values, law, fineness=COARSE)
        known = with_trace(known, float(values.sum()), law.deviation * math.sqrt(2 * len(values)))
    else:
        turned = drawn.covariance @ basis
        floor = 1e-5 * float(np.trace(drawn.covariance)) / len(basis)
        variance = np.maximum(np.einsum("ij,ij->j", basis, turned), floor)
        known = KnownVariance(variance, np.maximum(np.square(turned).sum(axis=0) - variance**2, 0.0))
    taken = drawn.noise.cross if drawn.noise.taken is None else drawn.noise.taken
    deviation = taken / plan.records / drawn.noise.amplified
    noise = (np.square(deviation) @ np.square(basis)) / np.square(drawn.shares)[:, None]
    if model.sampled:
        # Means that are drawn without a sampling error would else seem to lie together where records vary least.
        noise = noise + known.variance / (drawn.shares[:, None] * plan.records)
    sized = drawn.noise.counts is not None
    return ClassStatistics(
        basis,
        known,
        drawn.means @ basis,
        noise,
        drawn.shares,
        np.zeros(len(basis)),
        turned=kind.mixes_all_classes or not sized or bool(kind.released),
        sized=sized,
        doubt=drawn.doubt,
    )


def _symmetric(generator: np.random.Generator, size: int) -> Reals:
    """(size, size) symmetric, Gaussian: variance 1 off the diagonal, 2 on it."""
    lower = np.tril(generator.standard_normal((size, size)), -1)
    diagonal = np.sqrt(2) * generator.standard_normal(size)
    return np.asarray(lower + lower.T + np.diag(diagonal))
