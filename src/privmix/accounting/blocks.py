"""Split a loss of two scales, so that one coarse grid serves both: many tiny losses, and rare large ones.

With few records drawn and little noise, the typical loss is far below the step of any grid that holds the rare large
losses. Rounding it there a billion times adds variance as large as its own. So the loss L, whose atoms are tiny (B,
probability b) or large (J), is replaced by two independent ones that dominate it,

    B' ~ B given tiny,   J' = 0 with probability b, otherwise J + log E[e^-B'],

and B' is composed by itself in blocks of 4^k, on a grid that doubles its step with every fourfold block. All terms are
positive and summed directly: their error is relative, and every mass is rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from privmix.accounting.pairs import UNIT, Array, Atoms, LossPmf

# A loss below this number of steps of the coarse grid is tiny.
_TINY = 10
_MOST_STAGES = 9
# The lift moves the place of the first jump, and the place moves the lift: this is the most attempts.
_MOST_LIFTS = 4
# More runs than this, and the masses' relative error is more than a per cent of delta.
_MOST_RUNS = 10**10


def stages(step: float, count: int, most: float) -> int:
    """Stages at which rounding tiny losses adds a variance of about ``most``; 0 if they are not worth it."""
    if count > _MOST_RUNS:
        return 0
    largest = _most_stages(count)
    for stage in range(1, largest + 1):
        # A quarter of a step's square by each block, an eighth or less at every stage before.
        if count * (step / 2**stage) ** 2 * (0.5 + stage / 8) <= most:
            return stage
    return largest


def _most_stages(count: int) -> int:
    """Stages that leave at least sixteen blocks."""
    return 0 if count > _MOST_RUNS else max(0, min(_MOST_STAGES, int(math.log2(count) / 2) - 2))


def least_variance(step: float, count: int) -> float:
    """Variance that the grid still adds with the most stages."""
    most = _most_stages(count)
    return float(count * (step / 2**most) ** 2 * (0.5 + most / 8))


def split(
    atoms_on: Callable[[Array], Atoms], least: float, most: float, step: float, count: int, stage: int, log_tail: float
) -> list[tuple[LossPmf, int]]:
    """Return losses on multiples of ``step``, with counts, whose composition dominates ``count`` runs; blocks: 4^stage.

    Formal guarantees:
        * the composition of what is returned has divergences no smaller than that of ``count`` runs; nothing is
          returned where the loss does not lend itself to it.
    """
    # Losses below `least` or above `most` need no distinction; a run may move mass e^log_tail to infinite loss.
    fine, tiny = step / 2**stage, _TINY * 2**stage
    first = max(-tiny, min(0, math.floor(least / fine) - 1))
    small = np.arange(first, tiny + 1) * fine
    # Multiples of the step that jumps go to, down and up.
    falls = np.arange(math.floor(least / step) - 2, -_TINY - 1) if first == -tiny else np.arange(0)
    large = np.arange(_TINY + 2, max(math.ceil(most / step) + 2, _TINY + 3) + 1)

    bulk = slice(falls.size, -large.size)

    def rounded(lift: float) -> tuple[Array, float, float]:
        """Masses with jumps at multiples of the step less ``lift``, infinite loss, and the lift that B asks for."""
        atoms = atoms_on(np.concatenate((falls * step - lift, small, large * step - lift)))
        # All rounded up; what the sum lacks is the peak's. A sum above 1 only adds.
        probs = atoms.probs * (1 + 64 * UNIT)
        lacking = max(0.0, 1 - atoms.missing - math.fsum(atoms.probs.tolist()))
        probs[falls.size + int(atoms.probs[bulk].argmax())] += lacking + 64 * UNIT
        masses, change = probs[bulk], np.expm1(-small)
        doubt = 2**10 * UNIT * float(masses @ np.abs(change)) / float(masses.sum())
        return probs, atoms.infinity, max(0.0, float(masses @ change) / float(masses.sum()) + doubt)

    needed, lift = 0.0, -1.0
    for _ in range(_MOST_LIFTS):
        if needed <= lift:
            break
        lift = needed * (1 + 1e-3)
        probs, infinity, needed = rounded(lift)
    masses = probs[bulk]
    share = math.fsum(masses.tolist())
    if needed > lift or lift > step or share < 0.5:
        return []
    block = LossPmf(first, masses / share * (1 + 512 * UNIT), 0.0, fine)
    lowest = int(falls[0]) if falls.size else 0
    jumps = np.zeros(int(large[-1]) - lowest + 1)
    jumps[-lowest] = share * (1 + 8 * UNIT)
    jumps[large - lowest], jumps[falls - lowest] = probs[-large.size :], probs[: falls.size]
    parts = [(_counted(LossPmf(lowest, jumps, infinity, step)), count)]
    single = block
    for _ in range(stage):
        single = _coarser(single)
        block = _coarser(_squared(_squared(block, log_tail), log_tail + math.log(2)))
        log_tail += math.log(4)
    blocks, rest = divmod(count, 4**stage)
    return [*parts, *((_counted(pmf), runs) for pmf, runs in ((block, blocks), (single, rest)) if runs)]


def _squared(block: LossPmf, log_tail: float) -> LossPmf:
    """Two runs; a tail of at most exp(``log_tail``) is moved to infinite loss, the other up to the first point."""
    probs = np.convolve(block.probs, block.probs) * (1 + (block.probs.size + 8) * UNIT)
    tail = math.exp(max(log_tail, -690.0))
    above = np.cumsum(probs[::-1])[::-1]
    last = max(1, int(np.count_nonzero(above > tail)))
    below = np.cumsum(probs)
    first = min(int(np.searchsorted(below, tail)), last - 1)
    lost = float(above[last]) if last < probs.size else 0.0
    kept = probs[first:last].copy()
    if first:
        kept[0] += float(below[first - 1]) * (1 + 2 * first * UNIT)
    infinity = 2 * block.infinity + lost * (1 + 2 * probs.size * UNIT)
    return LossPmf(2 * block.lower + first, kept, infinity * (1 + 4 * UNIT), block.step)


def _coarser(block: LossPmf) -> LossPmf:
    """Return the loss on twice the step: what lies between two points moves to both and keeps its mean of e^-loss."""
    lower = math.floor(block.lower / 2)
    odd = block.lower - 2 * lower
    padded = np.zeros(2 * ((odd + block.probs.size) // 2 + 1))
    padded[odd : odd + block.probs.size] = block.probs
    even, between = padded[::2], padded[1::2]
    up = 1 / (1 + math.exp(-block.step)) * (1 + 8 * UNIT)
    probs = np.zeros(even.size + 1)
    probs[:-1] = even + between * (1 - up) * (1 + 32 * UNIT)
    probs[1:] += between * up
    return LossPmf(lower, probs * (1 + 4 * UNIT), block.infinity, 2 * block.step)


def _counted(pmf: LossPmf) -> LossPmf:
    """Return the same with 1 less its mass known exactly."""
    missing = -math.fsum([-1.0, *pmf.probs.tolist()])
    return LossPmf(pmf.lower, pmf.probs, pmf.infinity, pmf.step, missing - 4 * UNIT)
