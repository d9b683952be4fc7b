"""Tests of the noise of released second moments, and of rows sampled from them."""

from __future__ import annotations

import math

import numpy as np

from privmix.audits.evidence import PRODUCTS, Law, RowLaw, symmetric_tests
from privmix.audits.noise_parts import ULP, check_grid
from privmix.audits.noise_tests import NoiseTest, energy_test, small_values_test
from privmix.designs.moments.plan import MomentsPlan
from privmix.publication.second_moments import SecondMoments, sampled_std


def moments_row_law(plan: MomentsPlan, beside: SecondMoments) -> RowLaw:
    """Return the least noise that samples of the moments have."""
    return RowLaw(Law(sampled_std(beside) * (1 - PRODUCTS), 0.0), numbered=False)


def moments_tests(plan: MomentsPlan, moments: SecondMoments) -> list[NoiseTest]:
    """Test released second moments; each was released once, so signals hide more than in rows."""
    units, std = plan.units, plan.noise_std
    for name, values in (("second", moments.second), ("cross", moments.cross), ("counts", moments.label_sums)):
        check_grid(f"moments: {name}", values, units[name], std[name])
    cross = moments.cross.astype(np.float64) / std["cross"]
    counts = moments.label_sums.astype(np.float64) / std["counts"]
    half = {name: units[name] / std[name] / 2 for name in ("cross", "counts")}
    dim, classes = plan.dim, plan.num_classes
    over_classes = cross.sum(axis=1) / math.sqrt(classes)
    spread = half["cross"] * math.sqrt(dim * classes) + ULP * float(np.linalg.norm(cross))
    return [
        *symmetric_tests("X'X", moments.second, std["second"], units["second"]),
        energy_test("noise of X'Y", np.square(cross).sum(), cross.size, half["cross"] * math.sqrt(cross.size)),
        energy_test("noise of X'Y summed over classes", np.square(over_classes).sum(), dim, spread),
        small_values_test("small values of X'Y", cross, half["cross"]),
        energy_test("noise of the label sums", np.square(counts).sum(), classes, half["counts"] * math.sqrt(classes)),
    ]
