"""Tests of the noise in a release in stages, and of whether its maps follow from what came first.

A map is made by eigenvectors, in float32. The machine that made it reproduces it bit for bit, and there no other map
passes. Elsewhere libraries add in another order: eigenvectors have other signs, and turn among those whose eigenvalues
rounding does not separate. Such a map is tested by its definition, which no such turn changes. Its directions are
orthogonal and are eigenvectors of the released matrix up to a share of its largest eigenvalue
(:mod:`privmix.audits.empty_runs`). Its weights, order and class means follow from these.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from privmix.audits.empty_runs import ROUNDING, UP_TO_ROUNDING, agree, eigenvectors, part_tests
from privmix.audits.noise_tests import NoiseTest
from privmix.designs.stages import released
from privmix.designs.stages.released import ResidualMap, ThreeStageMoments, TwoStageMoments
from privmix.designs.stages.three_plan import ThreeStagePlan
from privmix.designs.stages.two_plan import TwoStagePlan
from privmix.errors import InvalidInput
from privmix.mechanisms.noise import exact_bits

Single = NDArray[np.float32]


def two_stage_tests(plan: TwoStagePlan, moments: TwoStageMoments) -> list[NoiseTest]:
    """Test the noise of all parts, and the second stage's map."""
    return [*part_tests(plan, moments), *direction_tests(plan, moments)]


def three_stage_tests(plan: ThreeStagePlan, moments: ThreeStageMoments) -> list[NoiseTest]:
    return [*two_stage_tests(plan, moments), *class_direction_tests(plan, moments)]


def direction_tests(plan: TwoStagePlan, moments: TwoStageMoments) -> list[NoiseTest]:
    """Test the second stage's map against the first stage's moments."""
    axes = released.Axes.of(plan, moments)
    found = released.residual_map(plan, moments, axes)
    check = partial(_check_directions, plan, moments, axes)
    return [_follows("directions from the moments", found, moments.directions, moments.means, check)]


def class_direction_tests(plan: ThreeStagePlan, moments: ThreeStageMoments) -> list[NoiseTest]:
    """Test the last stage's map against the second stage's scatter."""
    found, check = released.class_map(plan, moments), partial(_check_class_directions, plan, moments)
    own = moments.class_directions, moments.class_means
    return [_follows("class directions from the scatter", found, *own, check)]


def _follows(name: str, found: ResidualMap, directions: Single, means: Single, check: Callable[[], None]) -> NoiseTest:
    """Return the test of a map that is ``found`` again, to the bit or else by its definition."""
    # Eigenvectors of other machines differ in the last bits: then the definition is checked and not the bits.
    if not (np.array_equal(found.directions, directions) and np.array_equal(found.means, means)):
        check()
        name += UP_TO_ROUNDING
    return NoiseTest(name, directions.size + means.size, 0.0)


def _check_directions(plan: TwoStagePlan, moments: TwoStageMoments, axes: released.Axes) -> None:
    what = "released directions"
    stated = moments.directions.astype(np.float64)
    units, _ = eigenvectors(what, stated, axes.matrix, _rounding(stated, plan.lattice_bits))
    variance = np.square(units @ axes.basis) @ axes.variance
    slack = ROUNDING * float(axes.variance.max(initial=0.0))
    agree(f"{what}: their order", variance, axes.variance[axes.kept(plan.directions)], slack)
    directions, means = released.weighted(plan, moments, variance, axes.floor, units.T)
    agree(what, stated, directions, ROUNDING * np.abs(directions).max())
    # Means along directions of next to no variance are what is left of two small numbers.
    ends = [
        released.weighted(plan, moments, np.maximum(variance + by, 0.0), axes.floor, units.T)[1]
        for by in (-slack, slack)
    ]
    room = np.maximum(*(np.abs(end - means) for end in ends))
    agree("released means", moments.means, means, 4 * room + ROUNDING * np.abs(means).max())


def _check_class_directions(plan: ThreeStagePlan, moments: ThreeStageMoments) -> None:
    what, axes = "released class_directions", plan.class_directions
    stated, before = moments.class_directions.astype(np.float64), moments.directions[:axes].astype(np.float64)
    # Directions of the second stage are orthogonal: checked before.
    root = stated @ (before / np.square(before).sum(axis=1, keepdims=True)).T
    agree(what, stated, root @ before, ROUNDING * np.abs(stated).max())
    scatter, rounding = released.class_scatter(plan, moments), _rounding(stated, plan.lattice_bits)
    _, values = eigenvectors(what, root, scatter, rounding)
    most = float(values.max())
    lengths = 1 / (axes * np.square(root).sum(axis=1))
    agree(f"{what}: their lengths", lengths, np.maximum(values, most * released.LEAST), 4 * rounding * most)
    agree(f"{what}: their order", values, np.sort(values), ROUNDING * most)
    means = moments.means[:, :axes].astype(np.float64) @ root.T
    agree("released class_means", moments.class_means, means, 4 * rounding * np.abs(means).max())


def _rounding(rows: released.Reals, lattice_bits: int) -> released.Reals:
    """(r,) relative: what other machines, and the one grid that all rows lie on, change of each row."""
    lengths = np.linalg.norm(rows, axis=1)
    if not (lengths > 0).all():
        raise InvalidInput("released directions", "nothing but 0", "those that follow from what was released first")
    step = 2.0 ** -exact_bits(rows, lattice_bits)
    return np.asarray(ROUNDING + 4 * step * math.sqrt(rows.shape[1]) / lengths)
