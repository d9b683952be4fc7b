"""How clipped gradients are added up: in groups that records are dealt to by themselves, and between groups exactly.

Floating-point sums are rounded, and what is rounded depends on everything that is summed with it. Were a batch cut into
consecutive chunks, one more record at its front would move every other record by a place, and change the rounding of
all chunks: little each time, but the more the larger the batch. Two things keep that from growing:

* a record's group follows from its own secret seed, which depends on no other record. One more record changes the group
  that it is dealt to, and no other one;
* a group's sum is rounded to a public grid before it is added to the others. Sums of grid points are exact in float64,
  so neither order nor number of groups changes a bit of them.

What one record moves beyond its own clipped gradient is then the rounding of one group, whatever the batch.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Rounding one group's sum, before and after, moves it by no more than this share of the bound.
_GRID_SHARE: Final = 2.0**-17
# Records that a group is expected to have at the least: fewer would mean rounding more often than is worth its time.
_FEWEST: Final = 256
# Records that are computed at once, and that a group is made of, at the most. A strategy may add them in float32, and
# what it rounds, for which the noise has room, grows with their number.
MOST_AT_ONCE: Final = 4096
# Groups are a little smaller than what is computed at once, so that hardly any needs a second call.
_FILLED: Final = 0.9


class GroupedSum:
    """The sum of groups' sums of clipped gradients, on a public grid. Secret.

    Formal guarantees:
        * Exact: while no coordinate passes 2^53 grid steps, which takes more than 2^36 / sqrt(P) records that all pull
          one way, the total is that of integer arithmetic: order and number of groups change no bit of it.
        * Local: a change of one group's sum changes the total by that change and at most 2^-17 of ``bound``.

    Args:
        size: P.
        bound: clipping bound of one unit, public.
        device: where sums are made.

    Example:
        >>> total = GroupedSum(3, bound=1.0, device=torch.device("cpu"))
        >>> total.add(torch.tensor([0.5, -0.25, 1e-9]))
        >>> total.total.tolist()
        [0.5, -0.25, 0.0]
    """

    def __init__(self, size: int, bound: float, device: torch.device) -> None:
        self.total = torch.zeros(size, dtype=torch.float64, device=device)
        self._grid = grid_of(size, bound)

    def __repr__(self) -> str:
        return "<GroupedSum>"

    def add(self, group: Tensor) -> None:
        """Add the sum of one group, (P,)."""
        steps = group.to(torch.float64, copy=True)
        self.total += steps.div_(self._grid).round_().mul_(self._grid)


def grid_of(size: int, bound: float) -> float:
    """The grid of sums of P coordinates: a power of two, at most ``bound`` 2^-17 / sqrt(P).

    Example:
        >>> grid_of(1, 1.0) == 2.0**-17, grid_of(4, 3.0) == 2.0**-17
        (True, True)
    """
    return 2.0 ** math.floor(math.log2(bound * _GRID_SHARE / math.sqrt(size)))


def groups_of(expected: float, at_once: int) -> int:
    """How many groups a batch is dealt to, public."""
    return max(1, math.ceil(expected / max(_FEWEST, _FILLED * min(at_once, MOST_AT_ONCE))))


def call_size(expected: float, at_once: int) -> int:
    """Records of every call in which groups are computed, public: with fewer it is filled up, with more there are two.

    A group has more than it expects and two standard deviations in one of forty cases; more room would cost more than
    second calls do.

    Example:
        >>> call_size(256, 4096), call_size(256, 64), call_size(40_000, 4096)
        (288, 64, 3757)
    """
    own = expected / groups_of(expected, at_once)
    return max(1, min(at_once, MOST_AT_ONCE, math.ceil(own + 2 * math.sqrt(own))))


def deal(seeds: NDArray[np.int64], expected: float, at_once: int) -> list[NDArray[np.int64]]:
    """Deal the records of a batch to groups, each by its own seed; the number of groups is public.

    Formal guarantees:
        * Own draw: a record's group depends on its seed and on public numbers.
        * Each once: every record is in one group.

    Args:
        seeds: (b,) independent uniform int64 from 0 to 2^63 - 1, one a record.
        expected: how many records a batch is expected to have, public.
        at_once: how many are computed at once; a group has fewer on average, or 256 if that is more, and expects no
            more than 4,096.

    Returns:
        positions in ``seeds``, group by group, ascending in each.

    Example:
        >>> [group.tolist() for group in deal(np.array([5, 8, 7]), 600, 256)]
        [[], [2], [0, 1]]
    """
    groups = groups_of(expected, at_once)
    own = seeds % groups
    order = np.argsort(own, kind="stable")
    return np.split(order, np.searchsorted(own[order], np.arange(1, groups)))
