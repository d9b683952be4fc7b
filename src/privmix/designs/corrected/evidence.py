"""Tests of a release of corrected moments: its noise, and whether its models follow from what came first."""

import numpy as np

from privmix.audits.empty_runs import ROUNDING, UP_TO_ROUNDING, agree, part_tests
from privmix.audits.noise_tests import NoiseTest
from privmix.designs.corrected.plan import CorrectedPlan
from privmix.designs.corrected.released import CorrectedSecondMoments, Model


def corrected_tests(plan: CorrectedPlan, moments: CorrectedSecondMoments) -> list[NoiseTest]:
    """Test the noise of all parts, and make the models again."""
    found = np.stack([Model.on_grid(one, plan.lattice_bits).matrix for one in moments.following[:-1]])
    name = "models from the moments and earlier errors"
    if not np.array_equal(found, moments.models):
        # Other machines round otherwise.
        agree("released models", moments.models, found, ROUNDING * np.abs(found).max(axis=(1, 2), keepdims=True))
        name += UP_TO_ROUNDING
    return [*part_tests(plan, moments), NoiseTest(name, found.size, 0.0)]
