"""Audits of second moments, of all records or each class: their worst case, and their noise alone."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from privmix.audits.bounds import Scores
from privmix.audits.empty_runs import SIDE, FreshStreams, PureNoise, part_noises
from privmix.audits.worst_case import MOST_TRIALS, AddRemoveCase, EngineFactory, check_room, label_overlap
from privmix.designs.moments.engine import ClassMomentSums, MomentSums
from privmix.designs.moments.plan import ClassMomentsPlan, MomentsPlan
from privmix.engine.rows import Engine, RowBlock
from privmix.mechanisms.streams import SecretStreams
from privmix.publication.dataset import RecordTransform
from privmix.publication.second_moments import SecondMoments

# Features of empty runs: a class has a matrix of its own, and there are many classes.
_FEATURES = 8

M = TypeVar("M", bound=MomentsPlan)


def moments_noises(
    plan: MomentsPlan,
    samples: int,
    keys: FreshStreams,
    make: EngineFactory,
    sums: type[MomentSums] = MomentSums,
    features: int = SIDE,
) -> Iterator[PureNoise]:
    wide = replace(widened(plan), dim=features)

    def release(streams: SecretStreams) -> list[NDArray[np.float32]]:
        released = sums(wide).released(streams)
        return [released.arrays[part.name] for part in wide.parts]

    yield from part_noises(plan, wide, tuple(plan.noise_std), release, samples, keys)


def widened(plan: M) -> M:
    """Return the plan with other numbers of features and classes, for more noise a run."""
    # Noise of other label parts is in other units: a label's norm depends on the number of classes.
    more = range(SIDE - plan.num_classes if plan.num_classes > 1 else 0)
    names = plan.classes + tuple(f"{number} more" for number in more)
    return replace(plan, dim=SIDE, classes=names, rows=1)


def moments_case(plan: MomentsPlan) -> "MomentsCase":
    return MomentsCase(*reduced(plan))


def reduced(plan: M) -> tuple[M, int]:
    """Return the plan of the audit, with a feature for each of its trials, and their number."""
    check_room(plan)
    width = 1 if plan.centred else MOST_TRIALS
    kept = plan.centred or plan.num_classes == 1
    names = plan.classes if kept else tuple(str(number) for number in range(width + 1))
    small = replace(plan, dim=width, classes=names, rows=1)
    assert small.event == plan.event, "what runs is not what is audited"
    return small, width


@dataclass(frozen=True)
class MomentsCase(AddRemoveCase[MomentsPlan]):
    """The canary alone: all of one Gaussian query shows it, and so there is nothing that a better attack could use."""

    def of_rows(self, block: RowBlock, transform: RecordTransform) -> Scores:
        """Rows sampled from the released moments add nothing to them."""
        return np.zeros((2, self.trials))

    def of_rest(self, engine: Engine) -> Scores:
        gain, parts = super().of_rest(engine)[0], self._parts(engine.beside, engine.transform)
        for part, adds, noise in parts:
            gain = np.asarray(gain + adds * (2 * part - adds) / (2 * noise**2))
        return np.stack([gain, parts[0][0]])

    def _parts(
        self, found: SecondMoments, transform: RecordTransform, others: int = 1
    ) -> list[tuple[Scores, float, float]]:
        """For each part (trials,) what it shows of a canary, what one adds, and the noise; bystanders taken off."""
        plan, bound = self.plan, self.plan.final_clip_norm
        own = self._canary(transform)
        other = float(self.contribution(transform, self._others()[0])[0, 0]) if plan.centred else 0.0
        squares = self._squares(found, others * (other * bound) ** 2) / bound**2
        if plan.num_classes == 1:
            return [(squares, own**2, plan.second_noise_multiplier)]
        labels = np.eye(plan.num_classes)[: self.trials] - plan.label_offset
        overlap = label_overlap(plan) if plan.centred else 0.0
        cross = (found.cross * labels).sum(axis=1) / (bound * plan.label_norm**2) - others * other * overlap
        counts = labels @ found.label_sums / plan.label_norm**2 - others * overlap
        return [
            (squares, own**2, plan.second_noise_multiplier),
            (cross, own, plan.cross_noise_multiplier),
            (counts, 1.0, plan.count_noise_multiplier),
        ]

    def _squares(self, found: SecondMoments, others: float) -> Scores:
        """Return (trials,) the squares of the canaries in X'X, those of the bystanders taken off."""
        return np.diag(found.second).astype(np.float64) - others


def class_moments_noises(
    plan: ClassMomentsPlan, samples: int, keys: FreshStreams, make: EngineFactory
) -> Iterator[PureNoise]:
    yield from moments_noises(plan, samples, keys, make, ClassMomentSums, _FEATURES)


class ClassMomentsCase(MomentsCase):
    """The canary alone, in the matrix of its class: there it meets no other record."""

    def _squares(self, found: SecondMoments, others: float) -> Scores:
        places = np.arange(self.trials)
        return found.blocks[places, places, places].astype(np.float64)


def class_moments_case(plan: ClassMomentsPlan) -> ClassMomentsCase:
    return ClassMomentsCase(*reduced(plan))
