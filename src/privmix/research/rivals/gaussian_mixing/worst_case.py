"""Worst case of rows that are sums of all records with normal weights: the others hide nothing of the priced pair."""

import math
from dataclasses import dataclass

import numpy as np

from privmix.audits.bounds import Scores
from privmix.designs.rows.worst_case import PoissonCase, reduced_to, width_of
from privmix.engine.rows import RowBlock
from privmix.plans.rows import ReleasePlan
from privmix.publication.dataset import RecordTransform


def gaussian_mixing_case(plan: ReleasePlan) -> "GaussianMixingCase":
    width = width_of(plan)
    return GaussianMixingCase(reduced_to(plan, width, width + 1), width)


@dataclass(frozen=True)
class GaussianMixingCase(PoissonCase):
    """The canary alone: its weight in a row is N(0, 1), so that readings spread more where it is there."""

    def of_repeats(self, x: Scores, transform: RecordTransform) -> Scores:
        """Weights are new in every row: rows of one noise differ by no number that is known beforehand."""
        return np.zeros(self.trials)

    def of_rows(self, block: RowBlock, transform: RecordTransform) -> Scores:
        reading, noise = self.reading(block, transform)
        squares = np.square(reading).sum(axis=0)
        # log of N(0, s^2 + 1) over N(0, s^2)
        gain = squares / 2 * (noise**-2 - 1 / (noise**2 + 1)) - len(reading) / 2 * math.log1p(noise**-2)
        return np.stack([gain, squares])
