"""Correlated noise C^-1 z on the grid of the sums."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privmix.mechanisms.streams import SecretStreams
from privmix.training.mechanisms.banded.plan import BandedPlan
from privmix.training.noise import noise_scale
from privmix.training.summation import grid_of


@dataclass(eq=False, repr=False)
class BandedNoise:
    """Adds a step's correlated noise to its sum and divides by the public number of units.

    With c the coefficients, z_t independent normal draws in grid steps and all sums whole numbers x_t of grid steps,
    the noise of step t is n_t = round((z_t - c_1 n_{t-1} - ... - c_{b-1} n_{t-b+1}) / c_0).

    Formal guarantees:
        * Post-processing of what is priced: y = C x + z is a Gaussian query with noise of ``noise_scale`` on every
          coordinate of every row. From y alone follows r_t = round((y_t - c_1 r_{t-1} - ...) / c_0), and since x_t is a
          whole number, r_t = x_t + n_t: this is what is released, exactly, in arithmetic of real numbers. Float64
          rounds what goes into ``round`` by some 2^-52 of its size, which is within what
          :mod:`privmix.mechanisms.noise` says of the draws themselves.
        * Once: n_t is a function of the key and the step. Asked for a step out of turn, as a resumed run does first, it
          makes the steps before anew from the key: no noise is ever kept in a file.
        * Little: beside the sum, b - 1 earlier rows of noise are held.

    Args:
        plan: of the run.
        streams: the run's noise streams.
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
                self._advance(earlier, size, grid)
        noise = self._advance(step, size, grid) + np.rint(total.detach().cpu().numpy() / grid)
        noise *= grid / self.plan.units
        return torch.from_numpy(noise).to(total.device, torch.float32)

    def _advance(self, step: int, size: int, grid: float) -> NDArray[np.float64]:
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
