"""Numbers of a release in three stages, and the map of its last stage, which follows from the earlier ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privmix.designs.stages.three_plan import ThreeStagePlan
from privmix.designs.stages.two_released import Reals, ResidualMap, TwoStageMoments, grid_bits
from privmix.publication.second_moments import SecondMoments, eigh_lower

# The least variance, as a share of the largest: float32 resolves no smaller one.
LEAST = float(np.finfo(np.float32).eps)


@dataclass(frozen=True, eq=False)
class ThreeStageMoments(TwoStageMoments):
    """Public numbers of two stages (:class:`TwoStageMoments`), and the scatter of each class's residuals."""

    # class_directions (q, d), class_means (K, q): residuals are directions z - mean. class_within (K, q, q): sums of v
    # v', v residuals clipped to norm 1, plus noise of deviation noise_std_class_within on the diagonal, 1/sqrt(2) of it
    # elsewhere.

    class_directions: NDArray[np.float32]
    class_means: NDArray[np.float32]
    class_within: NDArray[np.float32]
    noise_std_class_within: float

    def class_mapped(self, plan: ThreeStagePlan) -> ResidualMap:
        """Return the map to residuals of the last stage."""
        return ResidualMap(self.class_directions, self.class_means, plan.lattice_bits)


def class_map(plan: ThreeStagePlan, moments: TwoStageMoments) -> ResidualMap:
    """Return the map that the second stage's released numbers lead to: post-processing."""
    # The block T of the first q directions of the scatter without noise is divided out (SecondMoments.spectrum;
    # variances are at least the noise of one entry). Residuals are multiplied by T^-1/2, scaled so that clipped ones
    # have mean squared norm 1.
    axes = plan.class_directions
    values, basis = eigh_lower(np.asarray(class_scatter(plan, moments), np.float32, order="F"))
    least = float(values[-1]) * LEAST
    root = (basis / np.sqrt(axes * np.maximum(values, least))).T.astype(np.float64)
    directions = root @ moments.directions[:axes]
    grid = 2.0 ** grid_bits(directions * (1 + 2.0**-12), plan.lattice_bits)
    on_grid = (np.rint(directions * grid) / grid).astype(np.float32)
    return ResidualMap(on_grid, (moments.means[:, :axes] @ root.T).astype(np.float32), plan.lattice_bits)


def class_scatter(plan: ThreeStagePlan, moments: TwoStageMoments) -> Reals:
    """(q, q) T: the scatter within classes along the first q directions, per record, the noise taken out."""
    axes, std = plan.class_directions, plan.within_noise_multiplier
    nothing = np.zeros((plan.directions, plan.num_classes), np.float32)
    spectrum = SecondMoments(
        moments.within,
        nothing,
        nothing[0],
        records=plan.records,
        noise_std_second=std,
        noise_std_cross=0.0,
        noise_std_counts=0.0,
    ).spectrum()
    # (q, r): of T = A A' the block is that of its first rows.
    half = spectrum.basis[:axes].astype(np.float64) * np.sqrt(np.maximum(spectrum.values, std))
    return np.asarray(half @ half.T * (moments.bound**2 / plan.records))


def class_deviation(moments: ThreeStageMoments, counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (K,) standard deviations, off the diagonal, of a class's scatter per record, of ``counts`` (K,)."""
    # The noise, and the sampling error of a round class: a clipped residual's products have standard deviation 1 / q.
    axes = moments.class_within.shape[1]
    return np.asarray(np.hypot(moments.noise_std_class_within / math.sqrt(2) / counts, 1 / (axes * np.sqrt(counts))))
