"""A private sum becomes public: noise is added, once, and nothing else is done to it before."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import Tensor

from privmix.mechanisms.streams import SecretStreams
from privmix.training.plan import TrainingPlan
from privmix.training.summation import grid_of

# One record moves the sum by a little more than the sensitivity: by the rounding of the group that it is dealt to, and
# of no other one. Rounding to the grid is 2^-17 of the bound. Float32 within a group added up to 3e-4 for 4,096 records
# that all pull one way, added in float32; added in float64 it is below 1e-5. W processes share the records by their
# numbers: one more moves a record across each of W - 1 borders, which is the rounding of 2W - 1 groups.
_ROUNDING: Final = 1 + 2.0**-10

MOST_PROCESSES: Final = 24
"""Processes that may share a run: one record's effect on 2 W - 1 groups then stays within the reserved margin."""

WHY_NO_MORE: Final = "with more, rounding at the borders of their shares could exceed the margin that the noise covers"


def noisy_mean(total: Tensor, plan: TrainingPlan, streams: SecretStreams, step: int) -> Tensor:
    """Add Gaussian noise to a step's sum (P,) of clipped gradients and divide by the public number of units.

    Formal guarantees:
        * Right noise: independent normal draws of standard deviation :func:`noise_scale`, ``plan.noise_std`` and a
          1024th more, for the rounding of the sum, on every coordinate.
        * Once: the noise of a step is a function of the key and the step; doing a step again repeats it.
        * Public divisor: by ``plan.units``, never by the number of records that were drawn.
        * No fine digits: sum and noise are rounded to one public grid, :func:`privmix.training.summation.grid_of`, and
          added as integers, as in a release. The result is the ideal mechanism followed by rounding, and low bits, in
          which floating-point sums betray their terms (Mironov 2012), are gone. Noise beyond 2^53 steps of the grid,
          ten thousand million times the sensitivity in small models, is outside of this argument.
    """
    grid = grid_of(total.numel(), plan.clip_norm)
    with streams.lent("gradient noise", step) as generator:
        noise = generator.standard_normal(total.numel())
    noise *= noise_scale(plan) / grid
    np.rint(noise, out=noise)
    noise += np.rint(total.detach().cpu().numpy() / grid)
    noise *= grid / plan.units
    return torch.from_numpy(noise).to(total.device, torch.float32)


def noise_scale(plan: TrainingPlan) -> float:
    """Return the noise's standard deviation on each coordinate of a sum: the plan's, and a margin for rounding."""
    return plan.noise_std * _ROUNDING
