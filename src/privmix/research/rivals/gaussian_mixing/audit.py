"""The audit of these rows: how far a record moves them."""

from typing import Final

import numpy as np

from privmix.audits.sensitivity import Pair, QuerySensitivity, distances, largest
from privmix.research.rivals.gaussian_mixing.plan import RECORD_BLOCK, GaussianMixingPlan

# Least weight at which a record's move of a row is measured, as a share of its largest weight.
_HEAVY: Final = 0.1


def gaussian_mixing_moved(plan: GaussianMixingPlan, pair: Pair) -> list[QuerySensitivity]:
    """Return the row that a record moves most for its weight there; rows of next to no weight are left out."""
    first, second, _ = pair.replayed()
    blocks, position = range(0, pair.present.units, RECORD_BLOCK), pair.position
    drawn = [
        np.hstack([first._weights(tile, number) for number in range(len(blocks))])
        for tile in range(first._weights.sampler.row_tiles)
    ]
    others = [np.delete(tile, position, axis=1) for tile in drawn]
    second.draw_by(lambda tile, block: others[tile][:, block * RECORD_BLOCK : (block + 1) * RECORD_BLOCK])
    weights = np.concatenate([tile[:, position] for tile in drawn]) * plan.weight_step
    found = [list(engine.rows()) for engine in (first, second)]
    (xa, xb), (ya, yb) = ([np.concatenate([getattr(block, part) for block in rows]) for rows in found] for part in "xy")
    heavy = np.abs(weights) > _HEAVY * np.abs(weights).max()
    moved = [distances(one[heavy], other[heavy], plan.divisor, plan.norm) for one, other in ((xa, xb), (ya, yb))]
    (x, x_rounding), (y, y_rounding) = (tuple(part / np.abs(weights[heavy]) for part in one) for one in moved)
    units = plan.noise_std_x * plan.divisor, plan.noise_std_y * plan.divisor
    together = np.hypot(x / units[0], y / units[1]), np.hypot(x_rounding / units[0], y_rounding / units[1])
    return [
        QuerySensitivity("features", plan.feature_bound, *largest(x, x_rounding)),
        QuerySensitivity("labels", plan.label_bound, *largest(y, y_rounding)),
        QuerySensitivity("rows", 1 / plan.noise_multiplier, *largest(*together)),
    ]
