"""Draws of a run with banded noise: cyclic Poisson batches, and correlated noise C^-1 z on the sums' grid."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.signal import lfilter
from torch import Tensor

from privmix.errors import check_integer, check_number
from privmix.mechanisms.factorisation import square_root
from privmix.mechanisms.membership import RECORD_TILE
from privmix.mechanisms.streams import SecretStreams
from privmix.training.batches import PoissonBatches
from privmix.training.mechanisms.banded.plan import BandedPlan
from privmix.training.noise import noise_scale
from privmix.training.summation import grid_of

Array = NDArray[np.float64]
# Logarithm of an error that overflowed: the inverse grows from step to step.
_UNSTABLE: Final = 1e3


@lru_cache(maxsize=64)
def best_factor(steps: int, bands: int, momentum: float = 0.0) -> tuple[float, ...]:
    """Coefficients (b,) of the banded Toeplitz C, of norm 1, with the least mean squared error."""
    # With momentum, the workload is that of SGD's steps.
    check_integer("bands", bands, low=1, high=check_integer("steps", steps, low=1))
    check_number("momentum", momentum, low=0, high=1, high_open=True)
    if bands == 1:
        return (1.0,)
    workload = _workload(steps, momentum)

    def loss(tail: Array) -> tuple[float, Array]:
        c = np.concatenate([[1.0], tail])
        with np.errstate(over="ignore", invalid="ignore"):
            error = lfilter([1.0], c, workload)
            weight = np.arange(steps, 0, -1) / steps * error
            through = lfilter([1.0], c, error)
            total, square = float(weight @ error), float(c @ c)
        if not (math.isfinite(total) and np.isfinite(through).all()):
            return _UNSTABLE, np.zeros_like(tail)
        slope = np.array([-2 * (weight[k:] @ through[: steps - k]) for k in range(1, bands)])
        return math.log(total) + math.log(square), slope / total + 2 * tail / square

    # The workload's square root is best where there are as many bands as steps; with few bands, coefficients fall
    # slowly.
    slow = [(1 - share / steps) ** np.arange(1, bands) for share in (1.0, 4.0, 16.0) if share < steps]
    starts = [square_root(bands)[1:], *slow]
    found = [minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 500}) for start in starts]
    best = min(found, key=lambda one: float(one.fun)).x
    return tuple(normalised([1.0, *best.tolist()]))


def normalised(coefficients: Sequence[float]) -> list[float]:
    """Return the same of L2 norm 1, which is the largest column norm of C."""
    norm = math.sqrt(math.fsum(value * value for value in coefficients))
    return [value / norm for value in coefficients]


def errors(coefficients: Sequence[float], steps: int, momentum: float = 0.0) -> Array:
    """Return (steps,) squared error of each prefix sum for noise of variance 1 on C x."""
    return np.cumsum(lfilter([1.0], np.asarray(coefficients), _workload(steps, momentum)) ** 2)


def mean_error(coefficients: Sequence[float], steps: int, momentum: float = 0.0) -> float:
    return float(errors(coefficients, steps, momentum).mean())


def _workload(steps: int, momentum: float) -> Array:
    """First column of what training makes of its steps' sums: ones, or with momentum what has built up."""
    return np.cumsum(momentum ** np.arange(steps))


class CyclicBatches(PoissonBatches):
    """Batches of a banded plan: in each step, one group of the records has its turn.

    Formal guarantees:
        * Own group: each record's group is an independent uniform draw of its own, from a stream of sampling, and the
          same in every step. Only chance decides a group: no label, no feature and no other record.
        * Own turn: in step t a record joins with probability ``plan.group_rate`` if its group is t mod b, and never if
          not.
    """

    def members(self, step: int) -> NDArray[np.int64]:
        assert isinstance(self.plan, BandedPlan)
        members = super().members(step)
        turn = self._groups(self.plan.bands)[members - self._first_tile * RECORD_TILE] == step % self.plan.bands
        return np.asarray(members[turn])

    def _groups(self, bands: int) -> NDArray[np.int32]:
        """Return groups of the records of the shard's tiles. Secret."""
        found: NDArray[np.int32] | None = getattr(self, "_drawn", None)
        if found is None:
            parts = []
            for tile in range(self._first_tile, self._last_tile + 1):
                size = min(RECORD_TILE, self.records - tile * RECORD_TILE)
                with self.streams.lent("groups", tile) as generator:
                    parts.append(generator.integers(bands, size=size, dtype=np.int32))
            found = self._drawn = np.concatenate(parts)
        return found


@dataclass(eq=False, repr=False)
class BandedNoise:
    """Add a step's correlated noise to its sum and divide by the public number of units.

    With c the coefficients, z_t are independent normal draws in grid steps. All sums are whole numbers x_t of grid
    steps. The noise of step t is n_t = round((z_t - c_1 n_{t-1} - ... - c_{b-1} n_{t-b+1}) / c_0).

    Formal guarantees:
        * Post-processing of what is priced: y = C x + z is a Gaussian query with noise of ``noise_scale`` on every
          coordinate of every row. From y alone follows r_t = round((y_t - c_1 r_{t-1} - ...) / c_0), and since x_t is a
          whole number, r_t = x_t + n_t. This is what is released, exactly, in arithmetic of real numbers. Float64
          rounds what goes into ``round`` by some 2^-52 of its size, which is within the statement of
          :mod:`privmix.mechanisms.noise` on the draws themselves.
        * Once: n_t is a function of the key and the step. Asked for a step out of turn, as a resumed run does first, it
          makes the steps before again from the key: no noise is ever kept in a file.
        * Little: in addition to the sum, b - 1 earlier rows of noise are held.
    """

    plan: BandedPlan
    streams: SecretStreams
    _next: int = field(default=0, init=False)
    _rows: deque[NDArray[np.float64]] = field(init=False)

    def __post_init__(self) -> None:
        self._rows = deque(maxlen=self.plan.bands - 1)

    def __call__(self, total: Tensor, step: int) -> Tensor:
        """(P,) float32 on the device of ``total``."""
        size = total.numel()
        grid = grid_of(size, self.plan.clip_norm)
        if step != self._next or any(len(row) != size for row in self._rows):
            self._rows.clear()
            for earlier in range(step):
                self.advance(earlier, size, grid)
        noise = self.advance(step, size, grid) + np.rint(total.detach().cpu().numpy() / grid)
        noise *= grid / self.plan.units
        return torch.from_numpy(noise).to(total.device, torch.float32)

    def advance(self, step: int, size: int, grid: float) -> NDArray[np.float64]:
        """Row ``step`` of the noise, from the rows before."""
        with self.streams.lent("gradient noise", step) as generator:
            row = generator.standard_normal(size)
        row *= noise_scale(self.plan) / grid
        first, *others = self.plan.coefficients
        for coefficient, earlier in zip(others, self._rows, strict=False):
            row -= coefficient * earlier
        if first != 1:
            row /= first
        np.rint(row, out=row)
        self._rows.appendleft(row)
        self._next = step + 1
        return row
