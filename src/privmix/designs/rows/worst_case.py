"""Worst cases of the designs that add or remove one record; see :mod:`privmix.audits.worst_case`."""
# A record's part in a row is measured in its own bound: a canary adds 1. Noise s_x in its coordinate and s_y along its
# label are together one reading of it with the joint noise s.

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
from scipy import stats
from scipy.special import expit

from privmix.audits.bounds import Scores
from privmix.audits.worst_case import MOST_TRIALS, AddRemoveCase, Indices, check_room, exact_pairs, label_overlap
from privmix.engine.rows import RowBlock
from privmix.mechanisms.sampling import AllocationSampling, log_mixture
from privmix.plans.rows import ReleasePlan
from privmix.publication.dataset import RecordTransform

# Numbers a run: wide enough that most of the time is noise, small enough for the cache and memory.
_CELLS: Final = 2**20
_MOST_OTHERS: Final = 2**17
# How sure a label row shows its class, in standard deviations of its noise.
_CLEAR: Final = 4.0
# Reach of the grid of noisy counts beyond the counts themselves, in standard deviations; more is certain either way.
_GRID: Final = 6.0


def width_of(plan: ReleasePlan) -> int:
    """How many canaries a run has, each in a coordinate of its own."""
    check_room(plan)
    return 1 if plan.centred else max(2, min(MOST_TRIALS, _CELLS // plan.rows))


def poisson_case(plan: ReleasePlan) -> "PoissonCase":
    width = width_of(plan)
    return PoissonCase(reduced_to(plan, width, width + 1), width)


def allocation_case(plan: ReleasePlan) -> "AllocationCase":
    width = width_of(plan)
    return AllocationCase(reduced_to(plan, width, width + 1), width)


def classwise_case(plan: ReleasePlan) -> "ClasswiseCase":
    width = width_of(plan)
    usable = 1 if plan.centred else plan.rows % plan.num_classes or plan.num_classes
    return ClasswiseCase(replace(plan, dim=width), width * usable, usable)


def hierarchical_case(plan: ReleasePlan) -> "HierarchicalCase":
    level = _companion_level(plan, 1.0)
    # A class needs enough companions that its rows show through all noise whether it was drawn. Two standard
    # deviations of the members' own random number are kept apart from the noise.
    noise = _joint(plan.feature_noise_multiplier, plan.label_noise_multiplier, level)
    members = math.ceil((2 + math.sqrt(4 + _CLEAR * noise)) ** 2 / plan.record_rate)
    width = max(1, min(width_of(plan), _MOST_OTHERS // members))
    return HierarchicalCase(reduced_to(plan, width, max(2, width)), width, members, level)


def reduced_to(plan: ReleasePlan, dim: int, classes: int) -> ReleasePlan:
    """Return the plan with ``dim`` features and, unless it is centred, ``classes`` classes: at the same price."""
    names = plan.classes if plan.centred else tuple(str(number) for number in range(classes))
    reduced = replace(plan, dim=dim, classes=names)
    assert reduced.event == plan.event, "what runs is not what is audited"
    return reduced


def _companion_level(plan: ReleasePlan, label_overlap: float) -> float:
    """Return the feature, in the canary's coordinate, of a record whose label overlaps with the canary's."""
    # Its part along the label is cancelled by its part along the feature, weighted by the noise of both. A reading of
    # it then shows nothing of the canary, and hides nothing. For lambda < 1 that would need more than the feature's
    # bound; the attack is then a little weaker than the best.
    return max(-1.0, -label_overlap / plan.label_noise_ratio**2)


def _joint(feature_noise: float, label_noise: float, level: float) -> float:
    return 1 / math.sqrt(level**2 / feature_noise**2 + 1 / label_noise**2)


@dataclass(frozen=True)
class _RowCase(AddRemoveCase[ReleasePlan]):
    """Common base of the cases of noisy rows."""

    def of_repeats(self, x: Scores, transform: RecordTransform) -> Scores:
        return np.asarray(self._pairs(x, transform).sum(axis=0))

    def _pairs(self, x: Scores, transform: RecordTransform) -> Scores:
        """(rows, d) pairs that differ by one canary in a coordinate."""
        plan = self.plan
        unit = plan.final_clip_norm / plan.divisor
        return exact_pairs(x, unit * 2.0**-plan.lattice_bits, unit * self._canary(transform))

    def _readings(self, block: RowBlock) -> tuple[Scores, Scores]:
        """(rows, trials) readings of features and of labels, each with the canary as 1."""
        plan = self.plan
        features = block.x.astype(np.float64) * (plan.divisor / plan.final_clip_norm)
        if plan.centred:
            own = -plan.label_offset * np.ones(plan.num_classes)
            own[0] += 1
            labels = (block.y.astype(np.float64) @ own)[:, None] * (plan.divisor / plan.label_norm**2)
        else:
            labels = block.y[:, : self.trials].astype(np.float64) * plan.divisor
        return features, np.asarray(labels)


@dataclass(frozen=True)
class PoissonCase(_RowCase):
    """The canary alone: each row holds it with the sampling rate, on top of noise."""

    def _others(self) -> tuple[Scores, Indices]:
        features, labels = super()._others()
        if self.plan.centred:
            # Its label is not orthogonal to the canary's; see _companion_level.
            features[0, 0] = _companion_level(self.plan, label_overlap(self.plan)) * self.plan.final_clip_norm
        return features, labels

    def of_rows(self, block: RowBlock, transform: RecordTransform) -> Scores:
        reading, noise = self.reading(block, transform)
        gains = log_mixture(self.plan.record_rate, (2 * reading - 1) / (2 * noise**2))
        return np.stack([gains.sum(axis=0), reading.sum(axis=0)])

    def reading(self, block: RowBlock, transform: RecordTransform) -> tuple[Scores, float]:
        """(rows, trials) of features and labels together, with the canary as 1, and their noise."""
        plan, own = self.plan, self._canary(transform)
        feature, label = self._readings(block)
        noise = _joint(plan.feature_noise_multiplier, plan.label_noise_multiplier, own)
        seen = own * feature / plan.feature_noise_multiplier**2 + label / plan.label_noise_multiplier**2
        return noise**2 * seen, noise


@dataclass(frozen=True)
class AllocationCase(PoissonCase):
    """The canary alone, in one row of every block: a block's score is the mean of its rows' likelihood ratios."""

    def of_all_rows(self, blocks: Sequence[RowBlock], transform: RecordTransform) -> Scores:
        found = [self.reading(block, transform) for block in blocks]
        reading, noise = np.concatenate([rows for rows, _ in found]), found[0][1]
        sampler = self.plan.sampler
        assert isinstance(sampler, AllocationSampling)
        starts = [sampler.block_start(block) for block in range(sampler.rows_each + 1)]
        gains = np.logaddexp.reduceat((2 * reading - 1) / (2 * noise**2), starts[:-1], axis=0)
        return np.stack([(gains - np.log(np.diff(starts))[:, None]).sum(axis=0), reading.sum(axis=0)])


@dataclass(frozen=True)
class ClasswiseCase(_RowCase):
    """Canaries in coordinates of their own and in every class that has the most rows; labels show nothing."""

    usable: int

    @property
    def _coordinates(self) -> Indices:
        return np.arange(self.trials) // self.usable

    @property
    def _classes(self) -> Indices:
        return np.arange(self.trials) % self.usable

    def of_repeats(self, x: Scores, transform: RecordTransform) -> Scores:
        pairs = self._pairs(x, transform)
        return np.stack([pairs[first :: self.plan.num_classes].sum(axis=0) for first in range(self.usable)], 1).ravel()

    def of_rows(self, block: RowBlock, transform: RecordTransform) -> Scores:
        plan, own = self.plan, self._canary(transform)
        reading = block.x.astype(np.float64) * (plan.divisor / plan.final_clip_norm / own)
        noise = plan.feature_noise_multiplier / own
        gains = log_mixture(plan.record_rate, (2 * reading - 1) / (2 * noise**2))
        classes = (block.start + np.arange(len(reading))) % plan.num_classes
        found = np.zeros((2, self.plan.dim, self.usable))
        for number in range(self.usable):
            found[0, :, number] = gains[classes == number].sum(axis=0)
            found[1, :, number] = reading[classes == number].sum(axis=0)
        return found.reshape(2, self.trials)


@dataclass(frozen=True)
class HierarchicalCase(_RowCase):
    """The canary among ``members`` records of its class, by which the label row shows whether the class was drawn."""

    # They lie against the canary in its coordinate: their random number moves feature and label readings apart and
    # leaves the canary's alone. One combination of the two readings shows the canary with the joint noise s, one shows
    # the class.

    members: int
    level: float

    def of_repeats(self, x: Scores, transform: RecordTransform) -> Scores:
        """Companions move rows too, and hide what repeats; rows of other designs get their noise by the same code."""
        return np.zeros(self.trials)

    def _others(self) -> tuple[Scores, Indices]:
        features = np.repeat(np.eye(self.plan.dim)[: self.trials], self.members, axis=0)
        features *= self.level * self.plan.final_clip_norm
        return features, np.repeat(np.arange(self.trials), self.members)

    def of_rows(self, block: RowBlock, transform: RecordTransform) -> Scores:
        plan, own = self.plan, self._canary(transform)
        assert plan.class_rate is not None
        probe = np.zeros((1, plan.dim))
        probe[0, 0] = self.level * plan.final_clip_norm
        companion = float(self.contribution(transform, probe)[0, 0])
        feature, label = self._readings(block)
        apart = own - companion
        reading, number = (feature - companion * label) / apart, (own * label - feature) / apart
        feature_noise, label_noise = plan.feature_noise_multiplier, plan.label_noise_multiplier
        noise = math.hypot(feature_noise, companion * label_noise) / apart
        drawn = self._drawn(number, math.hypot(feature_noise, own * label_noise) / apart)
        gains = log_mixture(drawn * plan.record_rate, (2 * reading - 1) / (2 * noise**2))
        return np.stack([gains.sum(axis=0), reading.sum(axis=0)])

    def _drawn(self, number: Scores, noise: float) -> Scores:
        """Chance that the class was drawn, given a noisy count of its members in the row."""
        plan = self.plan
        assert plan.class_rate is not None
        if plan.class_rate == 1:
            return np.ones_like(number)
        first, step, odds = _class_odds(self.members, plan.record_rate, plan.class_rate, noise)
        # Linear interpolation on an even grid, which needs no search.
        place = np.clip((number - first) / step, 0, len(odds) - 1.001)
        below = place.astype(np.int32)
        place -= below
        return np.asarray(expit(odds[below] * (1 - place) + odds[below + 1] * place))


@lru_cache(maxsize=8)
def _class_odds(members: int, rate: float, class_rate: float, noise: float) -> tuple[float, float, Scores]:
    """First and step of a grid of noisy counts of a class's members in a row; log-odds there that it was drawn."""
    least, most = stats.binom.ppf([1e-12, 1 - 1e-12], members, rate)
    counts = np.arange(least, most + 1)
    at = np.linspace(-_GRID * noise, most + _GRID * noise, 4000)
    near = (at[:, None] - counts) ** 2
    near *= -1 / (2 * noise**2)
    near += stats.binom.logpmf(counts, members, rate)
    highest = near.max(axis=1)
    near -= highest[:, None]
    drawn = highest + np.log(np.exp(near, out=near).sum(axis=1))
    prior = math.log(class_rate) - math.log1p(-class_rate)
    return float(at[0]), float(at[1] - at[0]), np.asarray(prior + drawn + at**2 / (2 * noise**2))
