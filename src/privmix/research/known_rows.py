"""Rows of a release whose members are known, to measure an attack's success.

A release does not reveal the members of a row. Here chosen members go through an engine's own blocks: clip, lattice,
exact sum, noise on the lattice, public divisor.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.data.dataset import Schema
from privmix.engine.tiles import lattice_steps
from privmix.errors import InvalidInput, check_integer
from privmix.mechanisms.membership import Membership, offsets_of
from privmix.mechanisms.mixing import LatticeRecords, sum_rows
from privmix.mechanisms.noise import gaussian_on_lattice, laplace_on_lattice
from privmix.plans.plan import Plan
from privmix.plans.registry import all_designs, plan_from_dict
from privmix.plans.rows import ReleasePlan, RowDesign
from privmix.publication.dataset import RecordTransform


def rows_of_members(
    plan: ReleasePlan,
    transform: RecordTransform,
    features: NDArray[Any],
    members: Sequence[NDArray[np.integer[Any]]],
    generator: np.random.Generator | None,
) -> NDArray[np.float32]:
    """Return the (rows, d) float32 features of rows with these members; no noise without generator."""
    check_sums(plan)
    if features.ndim != 2 or features.shape[1] != plan.dim:
        raise InvalidInput("features", features.shape, f"(n, {plan.dim}), as in the plan")
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
    """Choose `members` different records for each of `rows` rows, no record twice, as the design would mix them."""
    # Hierarchical rows hold records of the expected number of classes, class-wise rows those of one class. Counts
    # that sampling would make random are fixed, so that rows compare.
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
    """Return the plan; raise for second moments and random weights, whose rows are no sums divided by a constant."""
    if not isinstance(plan, ReleasePlan) or not plan.kind.averages:
        averaging = [design.name for design in all_designs() if issubclass(design, RowDesign) and design.averages]
        raise InvalidInput("design", plan.design, f"one whose rows are averages: {', '.join(averaging)}")
    return plan


def released_plan(
    certificate: Mapping[str, Any], schema: Schema, given: Mapping[str, Any], field: str, what: str
) -> ReleasePlan:
    """Return the plan of a release, for data in `field` that must fit it; no option in `given` may join it."""
    for name, value in given.items():
        if value is not None:
            raise InvalidInput(name, value, "none together with a release, which states it")
    plan = check_sums(plan_from_dict(certificate["plan"]))
    if tuple(schema.input_shape) != tuple(certificate["input_shape"]):
        raise InvalidInput(field, schema.input_shape, f"{what} of shape {tuple(certificate['input_shape'])}")
    if tuple(schema.classes) != plan.classes:
        raise InvalidInput("classes", list(schema.classes), f"the release's: {', '.join(plan.classes)}")
    return plan
