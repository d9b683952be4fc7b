"""Audits of rows: their noise alone, and how far a record moves them."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.audits.bounds import Scores
from privmix.audits.empty_runs import GAUSSIAN, LAPLACE, FreshStreams, PureNoise, of_part
from privmix.audits.sensitivity import ORDERS, Pair, QuerySensitivity, distances, largest
from privmix.audits.worst_case import EngineFactory, as_persons
from privmix.engine.rows import PrivateRecords
from privmix.mechanisms.membership import ROW_TILE
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.rows import ReleasePlan

# Enough rows for three row tiles, which have streams of their own, and features for several draws in each.
_ROWS: Final = 2 * ROW_TILE + 512
_FEATURES: Final = 256


def mixed_row_noises(plan: ReleasePlan, samples: int, keys: FreshStreams, make: EngineFactory) -> Iterator[PureNoise]:
    step = 2.0**-plan.lattice_bits * plan.weight_step
    law = LAPLACE if plan.noise == LAPLACE else GAUSSIAN
    wide = _with_few_records(replace(plan, dim=_FEATURES, rows=max(_ROWS, -(-samples // _FEATURES))))
    x, y = _rows(wide, keys, make, "features")
    std = wide.noise_std_x * wide.divisor
    beside = None if plan.public_labels else y
    yield of_part(PureNoise("features", law, std, std, step * wide.final_clip_norm, x, beside), plan, "x")
    if plan.public_labels:
        return
    tall = _with_few_records(replace(plan, dim=1, rows=max(_ROWS, -(-samples // plan.num_classes))))
    _, y = _rows(tall, keys, make, "labels")
    std = tall.noise_std_y * tall.divisor
    yield of_part(PureNoise("labels", law, std, std, step, y), plan, "y")


def _with_few_records(plan: ReleasePlan) -> ReleasePlan:
    """Rows of a fixed size need this many records; the noise of others does not depend on the number of records."""
    if not plan.kind.fixed_size:
        return plan
    return replace(plan, records=plan.mixup_degree, record_rate=1.0)


def _rows(plan: ReleasePlan, keys: FreshStreams, make: EngineFactory, name: str) -> tuple[Scores, Scores]:
    """(T, d) and (T, K) noise of the sums behind released rows, in the units of features and labels."""
    count = plan.records if plan.kind.fixed_size else 1
    records = PrivateRecords(np.zeros((count, plan.dim), np.float32), np.zeros(count, np.int64))

    def one(streams: SecretStreams) -> NDArray[Any]:
        engine = make(plan, as_persons(plan, records), streams)
        blocks = list(engine.rows())
        x = np.concatenate([block.x for block in blocks]).astype(np.float64) * plan.divisor
        y = np.concatenate([block.y for block in blocks]).astype(np.float64) * plan.divisor
        weights = _members(plan, streams, records.labels)[:, None]
        label = np.eye(plan.num_classes)[0] - plan.label_offset
        # An empty record adds nothing to a sum, or its centred vector: minus the centre, clipped, on the lattice.
        bound = engine.transform.final_clip_norm
        steps = plan.lattice.quantise(engine.transform(np.zeros((1, plan.dim))) / bound)[0]
        x -= weights * (steps * (plan.lattice.step * bound))
        return np.concatenate([x, y - weights * label], axis=1)

    (both,) = keys.run(name, 1, one)
    return both[:, : plan.dim], both[:, plan.dim :]


def _members(plan: ReleasePlan, streams: SecretStreams, labels: NDArray[np.int64]) -> Scores:
    """(T,) total weight of the records, which are all alike, in each row."""
    membership, sampler = streams.derive("membership"), plan.sampler_for(len(labels))
    totals = []
    for tile in range(sampler.row_tiles):
        drawn = sampler.draw(membership, tile, 0, labels)
        row = np.repeat(np.arange(drawn.rows), drawn.counts)
        totals.append(np.bincount(row, drawn.weights, drawn.rows))
    return np.concatenate(totals).astype(np.float64)


def mixed_row_moved(plan: ReleasePlan, pair: Pair) -> list[QuerySensitivity]:
    factor = pair.factor
    first, second, replay = pair.replayed()
    released = [(engine, list(engine.rows())) for engine in (first, second)]
    (xa, xb), (ya, yb) = (
        [np.concatenate([getattr(block, part) for block in blocks]) for _, blocks in released] for part in "xy"
    )
    x, x_rounding = distances(xa, xb, plan.divisor, plan.norm)
    y, y_rounding = distances(ya, yb, plan.divisor, plan.norm)
    label_bound = 0.0 if plan.public_labels else plan.label_bound
    found = [
        QuerySensitivity("features", factor * plan.feature_bound, *largest(x, x_rounding)),
        QuerySensitivity("labels", factor * label_bound, *largest(y, y_rounding)),
    ]
    # Both together are one query, priced at the plan's multiplier. Its noise is what the certificate states.
    scale = 1 / math.sqrt(2) if plan.noise == "laplace" else 1.0
    units = [plan.noise_std_x * plan.divisor * scale]
    parts = [(x, x_rounding)]
    if not plan.public_labels:
        units.append(plan.noise_std_y * plan.divisor * scale)
        parts.append((y, y_rounding))
    together = [
        np.linalg.norm(
            [part[which] / unit for part, unit in zip(parts, units, strict=True)], axis=0, ord=ORDERS[plan.norm]
        )
        for which in (0, 1)
    ]
    found.append(QuerySensitivity("rows", factor / plan.noise_multiplier, *largest(*together)))
    if plan.as_means:
        # A person may be in rows of several classes: those of one of each class are one query.
        repeats = -(-plan.rows // plan.num_classes)
        moved, rounding = (math.sqrt(float(np.square(part).sum())) for part in (x, x_rounding))
        found.append(QuerySensitivity("all rows", math.sqrt(repeats) * plan.feature_bound, moved, rounding))
    elif replay is not None:
        touched = np.zeros(plan.rows, bool)
        for tile, rows in replay.rows.items():
            touched[tile * ROW_TILE + rows] = True
        outside = float((x + y)[~touched].max(initial=0.0))
        found.append(QuerySensitivity("rows without the record", 0.0, outside))
        most = plan.kind.rows_touched(plan)
        found.append(QuerySensitivity("rows touched", float(most), float(((x > 0) | (y > 0)).sum())))
    return found
