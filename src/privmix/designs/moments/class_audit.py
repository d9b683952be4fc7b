"""Audits of second moments of each class: their worst case, and their noise alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from privmix.audits.bounds import Scores
from privmix.audits.empty_runs import FreshStreams, PureNoise
from privmix.audits.worst_case import EngineFactory
from privmix.designs.moments.audit import MomentsCase, moments_noises, reduced
from privmix.designs.moments.class_engine import ClassMomentSums
from privmix.designs.moments.class_plan import ClassMomentsPlan
from privmix.publication.second_moments import SecondMoments

# Features of empty runs: a class has a matrix of its own, and there are many classes.
_FEATURES = 8


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
