"""The one place where a private sum becomes public: noise is added, once, and nothing else is done to it before."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import torch
from torch import Tensor

from privmix.mechanisms.streams import SecretStreams
from privmix.training.plan import TrainingPlan

# What is handed on is rounded to this share of the noise: finer digits belong to the float64 sum, not to the noise.
_GRID_BITS: Final = 20
# Sums are made in float32 in part, so one record moves them by a little more than the sensitivity: by rounding its own
# share, and that of others. For 4096 records that all pull one way, that was up to 3e-4 of the bound.
_ROUNDING: Final = 1 + 2.0**-10


def noisy_mean(total: Tensor, plan: TrainingPlan, streams: SecretStreams, step: int) -> Tensor:
    """Add Gaussian noise to a step's sum of clipped gradients and divide by the public number of units.

    Formal guarantees:
        * Right noise: independent normal draws of standard deviation ``plan.noise_std`` on every coordinate, and a
          1024th more, for the rounding of the sum.
        * Once: the noise of a step is a function of the key and the step; doing a step again repeats it.
        * Public divisor: by ``plan.units``, never by the number of records that were drawn.
        * No fine digits: the sum is made in float64 and rounded to a grid of 2^-20 noise standard deviations, so the
          low bits, in which floating-point sums betray their terms (Mironov 2012), are gone. Unlike a release's
          integer lattice this is no proof: sums of float32 gradients are on no common grid.

    Args:
        total: (P,) sum of clipped gradients.
        plan: of the run.
        streams: the run's noise streams.
        step: from 0.

    Returns:
        (P,) float32 on the device of ``total``.
    """
    noise = streams.generator("gradient noise", step).standard_normal(total.numel())
    noise *= plan.noise_std * _ROUNDING
    noise += total.detach().cpu().numpy()
    grid = 2.0 ** (math.floor(math.log2(plan.noise_std)) - _GRID_BITS)
    noise /= grid
    np.rint(noise, out=noise)
    noise *= grid / plan.units
    return torch.from_numpy(noise).to(total.device, torch.float32)
