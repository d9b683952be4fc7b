"""A private sum becomes public: clipped gradients are summed exactly, and noise is added, once.

Floating-point rounding depends on everything that is summed. If a batch were cut into consecutive chunks, one more
record at its front would move every other record by a place, and change the rounding of all chunks. Two rules bound
this:

* a record's group follows from its own secret seed, which depends on no other record. One more record changes the group
  that it is dealt to, and no other one;
* a group's sum is rounded to a public grid before it is added to the others. Sums of grid points are exact in float64,
  so neither order nor number of groups changes a bit of them.

One record then moves its own clipped gradient and the rounding of one group, in any batch.
"""

import math
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privmix.errors import InvalidInput
from privmix.mechanisms.streams import SecretStreams
from privmix.training.plan import TrainingPlan

# Rounding one group's sum, before and after, moves it by no more than this share of the bound.
_GRID_SHARE: Final = 2.0**-17
# One record moves the sum by the bound and a share of it. The share was at most 2e-5, in the closed form at batches up
# to 262,144 and in vmap by calls of one size. The noise allows for 1e-3: adding 4,096 records in float32 reached 4e-4.
# Records that a group is expected to have at the least: fewer would mean rounding more often than is worth its time.
_FEWEST: Final = 256
# Records that are computed at once, and that a group is made of, at the most. A strategy may add them in float32, and
# its rounding, which the noise covers, grows with their number.
MOST_AT_ONCE: Final = 4096
# Groups are a little smaller than what is computed at once, so that hardly any needs a second call.
_FILLED: Final = 0.9


class GroupedSum:
    """The sum (P,) of groups' sums of clipped gradients, on a public grid. Secret.

    Formal guarantees:
        * Exact: while no coordinate passes 2^53 grid steps, the total is that of integer arithmetic: order and number
          of groups change no bit of it. To pass takes over 2^36 / sqrt(P) records that all pull one way.
        * Local: a change of one group's sum changes the total by that change and at most 2^-17 of ``bound``.
    """

    def __init__(self, size: int, bound: float, device: torch.device) -> None:
        self.total: Tensor = torch.zeros(size, dtype=torch.float64, device=device)
        self._grid = grid_of(size, bound)

    def __repr__(self) -> str:
        return "<GroupedSum>"

    def add(self, group: Tensor) -> None:
        steps = group.to(torch.float64, copy=True)
        self.total += steps.div_(self._grid).round_().mul_(self._grid)


def grid_of(size: int, bound: float) -> float:
    """Return the grid of sums of P coordinates: a power of two, at most ``bound`` 2^-17 / sqrt(P)."""
    return 2.0 ** math.floor(math.log2(bound * _GRID_SHARE / math.sqrt(size)))


def groups_of(expected: float, at_once: int) -> int:
    """How many groups a batch is dealt to, public."""
    return max(1, math.ceil(expected / max(_FEWEST, _FILLED * min(at_once, MOST_AT_ONCE))))


def call_size(expected: float, at_once: int) -> int:
    """Public number of records in every call: smaller groups are filled up, larger ones take two calls."""
    # Libraries choose how to multiply by the call's shape. With calls as large as their group, one record moved the
    # others' gradients by up to 0.004 C in float32 and 0.4 C in bfloat16. Calls of one size: at most 0.00002. A group
    # exceeds its expectation by two standard deviations in one of forty cases; a larger margin would cost more than
    # second calls do.
    own = expected / groups_of(expected, at_once)
    return max(1, min(at_once, MOST_AT_ONCE, math.ceil(own + 2 * math.sqrt(own))))


def deal(seeds: NDArray[np.int64], expected: float, at_once: int) -> list[NDArray[np.int64]]:
    """Deal a batch to groups, each record by its own seed; return positions in ``seeds``, ascending in each group.

    Formal guarantees:
        * Own draw: a record's group depends on its seed and on public numbers.
        * Each once: every record is in one group.
    """
    # seeds (b,): independent uniform int64 from 0 to 2^63 - 1. expected: records of a batch, public; their number of
    # groups is public. at_once: records computed at once; a group has fewer on average, or 256 if that is more, at most
    # 4,096.
    groups = groups_of(expected, at_once)
    own = seeds % groups
    order = np.argsort(own, kind="stable")
    return np.split(order, np.searchsorted(own[order], np.arange(1, groups)))


# One record moves the sum by a little more than the sensitivity: by the rounding of the group that it is dealt to, and
# of no other one. Rounding to the grid is 2^-17 of the bound. Float32 within a group added up to 3e-4 for 4,096 records
# that all pull one way, added in float32; added in float64 it is below 1e-5. W processes share the records by their
# numbers: one more moves a record across each of W - 1 borders, which is the rounding of 2W - 1 groups.
_ROUNDING: Final = 1 + 2.0**-10

MOST_PROCESSES: Final = 24
"""Processes that may share a run: one record's effect on 2 W - 1 groups then stays within the reserved margin."""


def check_processes(plan: TrainingPlan, size: int) -> None:
    """Raise :class:`InvalidInput` unless ``size`` processes can share a run."""
    if size > MOST_PROCESSES:
        why = "with more, rounding at the borders of their shares could exceed the margin that the noise covers"
        raise InvalidInput("processes", size, f"at most {MOST_PROCESSES}: {why}")
    if size > 1 and plan.microbatch_size > 1:
        raise InvalidInput("microbatch_size", plan.microbatch_size, "1 with several processes")


def noisy_mean(total: Tensor, plan: TrainingPlan, streams: SecretStreams, step: int) -> Tensor:
    """Add Gaussian noise to a step's sum (P,) of clipped gradients and divide by the public number of units.

    Formal guarantees:
        * Right noise: independent normal draws of standard deviation :func:`noise_scale`, ``plan.noise_std`` and a
          1024th more, for the rounding of the sum, on every coordinate.
        * Once: the noise of a step is a function of the key and the step; doing a step again repeats it.
        * Public divisor: by ``plan.units``, never by the number of records that were drawn.
        * No fine digits: sum and noise are rounded to one public grid, :func:`privmix.training.noise.grid_of`, and
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
