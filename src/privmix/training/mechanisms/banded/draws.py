"""Draws of a run with banded noise: cyclic Poisson batches, and correlated noise C^-1 z on the sums' grid."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privmix.mechanisms.membership import RECORD_TILE
from privmix.mechanisms.streams import SecretStreams
from privmix.training.batches import PoissonBatches
from privmix.training.mechanisms.banded.plan import BandedPlan
from privmix.training.noise import noise_scale
from privmix.training.summation import grid_of


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
