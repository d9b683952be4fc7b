"""Rows of a release whose members are known: what an attack that is judged by its success must be tried on.

A release tells nobody who is in which row. To measure an attack one must know, so rows are made here from chosen
members by the same blocks as an engine's: clip, lattice, exact sum, noise on the lattice, public divisor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.engine.tiles import lattice_steps
from privmix.errors import InvalidInput, check_integer
from privmix.mechanisms.membership import Membership, offsets_of
from privmix.mechanisms.mixing import LatticeRecords, sum_rows
from privmix.mechanisms.noise import gaussian_on_lattice, laplace_on_lattice
from privmix.plans import Plan, ReleasePlan, averaging_plan
from privmix.publication.dataset import RecordTransform


def rows_of_members(
    plan: ReleasePlan,
    transform: RecordTransform,
    features: NDArray[Any],
    members: Sequence[NDArray[np.integer[Any]]],
    generator: np.random.Generator | None,
) -> NDArray[np.float32]:
    """The features that ``plan`` would release for rows with these members.

    Args:
        plan: how rows are made.
        transform: the plan's map from features to what is summed, with the released mean where the plan has one.
        features: (n, d) of the extractor.
        members: for each row, which records it holds.
        generator: source of the plan's noise; None leaves the noise out.

    Returns:
        (rows, d) float32.

    Raises:
        InvalidInput: another feature dimension or bound than the plan's, or a design whose rows are no plain sums.

    Example:
        >>> from privmix.planning import ReleaseConfig
        >>> config = ReleaseConfig(
        ...     records=4, dim=2, classes=("a", "b"), mixup_degree=2, clip_norm=2.0, centre="none")
        >>> rows_of_members(config.with_noise(1.0), RecordTransform(2.0), np.eye(2), [np.array([0, 1])], None).tolist()
        [[0.5, 0.5]]
    """
    check_sums(plan)
    if features.ndim != 2 or features.shape[1] != plan.dim:
        raise InvalidInput("features", features.shape, f"(n, {plan.dim}), as the plan says")
    if (transform.final_clip_norm, transform.norm) != (plan.final_clip_norm, plan.norm):
        raise InvalidInput("transform", transform.final_clip_norm, f"the plan's bound, {plan.final_clip_norm:g}")
    lattice = plan.lattice
    records = LatticeRecords.of(lattice_steps(lattice, transform, features))
    offsets = offsets_of(np.array([len(row) for row in members], np.int64))
    indices = np.concatenate([np.zeros(0, np.int64), *(np.sort(row).astype(np.int64) for row in members)])
    sums = sum_rows(records, Membership(offsets, indices)).astype(np.float64)
    if generator is not None:
        draw = laplace_on_lattice if plan.noise == "laplace" else gaussian_on_lattice
        sums += draw(generator, sums.shape, plan.feature_noise_multiplier / lattice.step)
    return np.asarray(sums * (lattice.step * plan.final_clip_norm / plan.divisor), np.float32)


def draw_members(
    plan: ReleasePlan, labels: NDArray[np.integer[Any]], rows: int, members: int, generator: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Choose ``members`` different records for each of ``rows`` rows, no record twice, as the design would mix them.

    Hierarchical rows hold records of the expected number of classes, class-wise rows those of one class; the others
    hold any. Counts that sampling would make random are fixed here, so that rows compare.

    Raises:
        InvalidInput: more members than there are records of the classes.

    Example:
        >>> from privmix.planning import ReleaseConfig
        >>> config = ReleaseConfig(records=10, dim=2, classes=("a", "b"), mixup_degree=4, centre="none")
        >>> rows = draw_members(config.with_noise(1.0), np.zeros(10, int), 2, 4, np.random.default_rng(0))
        >>> [len(row) for row in rows], len(np.unique(rows))
        ([4, 4], 8)
    """
    check_integer("members", members, low=1)
    free = np.ones(len(labels), bool)
    share = plan.kind.class_share(plan)
    chosen = []
    for _ in range(rows):
        classes = generator.permutation(plan.num_classes)[: max(1, round(share * plan.num_classes))]
        pool = np.flatnonzero(free & np.isin(labels, classes)) if share < 1 else np.flatnonzero(free)
        if len(pool) < members:
            allowed = f"a degree of at most {len(pool)} here: rows of different records, from the data given"
            raise InvalidInput("mixup degree", members, allowed)
        row = np.sort(generator.choice(pool, members, replace=False))
        free[row] = False
        chosen.append(row)
    return chosen


def check_sums(plan: Plan) -> ReleasePlan:
    """The plan, if its rows are sums of records divided by a constant.

    Raises:
        InvalidInput: second moments, whose rows are samples of a model, or random weights.
    """
    return averaging_plan(plan, "one whose rows are averages")
