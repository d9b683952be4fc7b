"""All releases of a series as one estimate of the records so far: less noise than the newest alone.

For an entry of X'X, of X'Y or of the label sums let y_s be the value that step s released. N_s is the number of records
so far, and m the entry's mean in the population. Then y = N m + e + z. Noise z has the known covariance s^2 R, R = B B'
(:mod:`privmix.mechanisms.noise`). The sampling error e grows as a sum of independent records does: its
covariance is s^2 q K, K_st = min(N_s, N_t) / N_T. The best unbiased estimate of N_T m is w'y with w in proportion to (R
+ q K)^-1 N (Aitken 1936). A large q gives the newest release alone; q = 0 and 12 equal steps 0.81 of its variance.

The releases show q: one number each for X'X, X'Y and the label sums, the likeliest given what no m changes (restricted
maximum likelihood, Patterson and Thompson 1971). Records that drift from step to step make it large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from privmix.designs.series.plan import SeriesPlan
from privmix.plans.parts import lower_triangle
from privmix.publication.second_moments import SecondMoments

Reals = NDArray[np.float64]

# Entries that q is judged by: more do not improve the estimate.
_TELLING: Final = 1 << 17
_BLOCK: Final = 1 << 14
# Values of q: 0, or a number of this grid. At its end the newest release is left alone.
_RATIOS: Final = np.concatenate([[0.0], np.logspace(-4, 8, 121)])


@dataclass(frozen=True, eq=False)
class Together:
    """All releases of a series as one: moments of the records so far, with the noise that is left."""

    # weights: (3, t) of each step's X'X, X'Y and label sums. noise: (3,) variance left, over that of the newest
    # release.

    moments: SecondMoments
    weights: Reals
    noise: Reals


def together(plan: SeriesPlan, steps: Callable[[], Iterable[SecondMoments]]) -> Together:
    """Weigh the releases of a series by their noise: post-processing."""
    # `steps` yields the released moments up to the plan's step, each time it is called (twice), one step in memory at a
    # time.
    told = [_telling(moments) for moments in steps()]
    covariance, counts = _covariance(plan), np.cumsum(plan.counts).astype(np.float64)
    # The deviation of a single noise; the newest release's is `row_norm` of it.
    deviations = np.array(list(plan.noise_std.values()))
    single = deviations / plan.factor.row_norm(plan.step)
    weights = np.stack(
        [
            _weights(
                covariance, counts, _products([step[part] for step in told]) / single[part] ** 2, told[0][part].size
            )
            for part in range(3)
        ]
    )
    noise = np.einsum("ps,st,pt->p", weights, covariance, weights) / covariance[-1, -1]
    sums: list[Reals] = []
    newest: SecondMoments | None = None
    for step, moments in enumerate(steps()):
        newest, parts = moments, (moments.second, moments.cross, moments.label_sums)
        if not sums:
            sums = [np.zeros(part.shape) for part in parts]
        for total, part, weight in zip(sums, parts, weights[:, step], strict=True):
            total += weight * part
    assert newest is not None
    second, cross, label_sums = (total.astype(np.float32) for total in sums)
    left = np.sqrt(noise)
    moments = replace(
        newest,
        second=second,
        cross=cross,
        label_sums=label_sums,
        noise_std_second=newest.noise_std_second * float(left[0]),
        noise_std_cross=newest.noise_std_cross * float(left[1]),
        noise_std_counts=newest.noise_std_counts * float(left[2]),
    )
    return Together(moments, weights, noise)


def _covariance(plan: SeriesPlan) -> Reals:
    """(t, t) R = B B'."""
    rows = np.zeros((plan.step, plan.step))
    for step in range(plan.step):
        rows[step, : step + 1] = plan.factor.weights(step + 1)
    return rows @ rows.T


def _telling(moments: SecondMoments) -> tuple[NDArray[np.float32], ...]:
    """Entries of each part, evenly spread over it, whose noise has the same standard deviation."""
    lower, cross = lower_triangle(moments.second), moments.cross.reshape(-1)
    at = _spread(len(lower))
    # The diagonal entry of row i is number i (i + 3) / 2; others have half of its variance.
    row = np.arange(moments.dim)
    second = lower[at] * np.where(np.isin(at, row * (row + 3) // 2), 1.0, np.sqrt(2.0)).astype(np.float32)
    return second, cross[_spread(len(cross))], moments.label_sums


def _spread(size: int) -> NDArray[np.int64]:
    return np.arange(0, size, -(-size // _TELLING))


def _products(told: Sequence[NDArray[np.float32]]) -> Reals:
    """(t, t) inner products of the steps' numbers, the sufficient statistic of the likelihood."""
    found = np.zeros((len(told), len(told)))
    for start in range(0, len(told[0]), _BLOCK):
        block = np.stack([step[start : start + _BLOCK] for step in told]).astype(np.float64)
        found += block @ block.T
    return found


def _weights(covariance: Reals, counts: Reals, products: Reals, entries: int) -> Reals:
    """(t,) best weights of the steps, by inner products of their entries in units of a single noise."""
    # In this basis R is the identity and K diagonal.
    spread, basis = scipy.linalg.eigh(np.minimum(counts[:, None], counts) / counts[-1], covariance)
    along, seen = basis.T @ counts, basis.T @ products @ basis

    def solved(ratio: float) -> tuple[Reals, float]:
        known = 1 / (1 + ratio * spread)
        size = float(along**2 @ known)
        best = known * along / size
        rest = float(known @ np.diag(seen)) - size * float(best @ seen @ best)
        return best, entries * float(np.log(known).sum() - np.log(size)) - rest

    best, _ = max((solved(float(ratio)) for ratio in _RATIOS), key=lambda found: found[1])
    return np.asarray(basis @ best * counts[-1], np.float64)
