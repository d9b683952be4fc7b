"""Elementary queries for accountants: a loss on a few points for guesses, on a grid for prices, and split by scale.

With few records drawn and little noise, the typical loss is far below the step of any grid that holds the rare large
losses. Rounding it there a billion times adds variance as large as its own. So the loss L, whose atoms are tiny (B,
probability b) or large (J), is replaced by two independent ones that dominate it,

    B' ~ B given tiny,   J' = 0 with probability b, otherwise J + log E[e^-B'],

and B' is composed by itself in blocks of 4^k, on a grid that doubles its step with every fourfold block. All terms are
positive and summed directly: their error is relative, and every mass is rounded up.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from privmix.accounting.pairs import (
    MAX_LOSS,
    UNIT,
    Array,
    Atoms,
    LaplaceNoise,
    LossPmf,
    SampledPair,
    fixed_size_atoms,
    pair_atoms,
)

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


# Points of a loss that guesses use; fewer if the rounding up at each would add up.
_COARSE_POINTS = (3001, 1001, 301, 151)
# Losses so small need a check of that; a shift of the sum's mean by this share of its deviation is none.
_SMALL_LOSS, _NO_DRIFT = 0.05, 3e-4


def few_points(on: Callable[[int], Atoms], count: int) -> Atoms:
    """Return a loss ``on`` so few points that ``count`` runs are neither widened nor moved by them."""
    # Each interval's rounding is lifted. With noise a million times a record and many rows, thousands of points would
    # move the sum's mean by more than few points widen it.
    best, least = None, math.inf
    for points in _COARSE_POINTS:
        found = on(points)
        cost = _drift(found, count) + 4e-6 * (_COARSE_POINTS[0] / points) ** 2
        if best is None or cost < least:
            best, least = found, cost
        if least < _NO_DRIFT:
            break
    assert best is not None
    return best


def _drift(atoms: Atoms, count: int) -> float:
    """How far rounding up moves the mean of ``count`` small losses, in deviations of their sum; 0 for large ones."""
    # E[e^-L] is 1 of an exact pair.
    if float(np.abs(atoms.losses).max()) > _SMALL_LOSS:
        return 0.0
    lacking = atoms.missing - float(atoms.probs @ np.expm1(-atoms.losses))
    deviation = math.sqrt(float(atoms.probs @ atoms.losses**2) / count)
    return max(0.0, lacking) / deviation if deviation > 0 else 0.0


class Query(Protocol):
    """One elementary query and how often it ran."""

    @property
    def count(self) -> int: ...

    @property
    def symmetric(self) -> bool:
        """Whether its loss has the same law in both directions."""
        ...

    def atoms(self, log_tail: float, add: bool) -> Atoms:
        """Its loss on a few points that follow its law; at most exp(``log_tail``) is cut off."""
        ...

    def grid_points(self, log_tail: float, step: float, add: bool) -> int:
        """Points that its loss takes on a grid."""
        ...

    def pmf(self, log_tail: float, step: float, add: bool) -> LossPmf: ...

    def parts(self, log_tail: float, step: float, add: bool, most: float) -> list[tuple[LossPmf, int]]:
        """Losses on a grid, with counts, that together dominate all runs; the grid should add ``most`` variance."""
        ...

    @property
    def atom(self) -> float:
        """A single loss that has mass, which the grid should meet; 0 if there is none."""
        ...

    @property
    def label_error(self) -> float:
        """How far rounding may have moved the loss of an atom."""
        ...


@dataclass(frozen=True)
class PairQuery:
    """A query with its dominating pair and how it is sampled."""

    pair: SampledPair
    count: int
    cluster_rate: float = 1.0
    two_sided: bool = False

    @property
    def symmetric(self) -> bool:
        """The noise is: without sampling both directions are alike. The fixed-size pair is by construction."""
        return self.two_sided or (self.pair.rate == 1 and self.cluster_rate == 1)

    def atoms(self, log_tail: float, add: bool) -> Atoms:
        def on(points: int) -> Atoms:
            return self._build(lambda add: pair_atoms(self.pair, self.pair.points(log_tail, points, add), add), add)

        return few_points(on, self.count)

    def grid_points(self, log_tail: float, step: float, add: bool) -> int:
        low, high = self.pair.grid(log_tail, step, add)
        return high - low + 1

    def pmf(self, log_tail: float, step: float, add: bool) -> LossPmf:
        def grid_atoms(add: bool) -> Atoms:
            low, high = self.pair.grid(log_tail, step, add)
            # Loss 0 belongs to every grid: sampling and clusters put mass there.
            return pair_atoms(self.pair, self.pair.grid_points(min(low, 0), max(high, 0), step), add)

        atoms = self._build(grid_atoms, add)
        return trimmed(atoms, step)

    def parts(self, log_tail: float, step: float, add: bool, most: float) -> list[tuple[LossPmf, int]]:
        """One loss, or two where the grid is too coarse for the tiny ones."""
        stage = 0 if most == math.inf else stages(step, self.count, most)
        if stage == 0:
            return [(self.pmf(log_tail, step, add), self.count)]
        least, most_loss = self._ends(log_tail, add)

        def atoms_on(losses: Array) -> Atoms:
            def one_sided(add: bool) -> Atoms:
                return pair_atoms(self.pair, self.pair.points_at(-losses[::-1] if add else losses), add)

            return self._build(one_sided, add)

        ends = max(least, -MAX_LOSS), min(most_loss, MAX_LOSS)
        found = split(atoms_on, *ends, step, self.count, stage, log_tail)
        return found or [(self.pmf(log_tail, step, add), self.count)]

    def _ends(self, log_tail: float, add: bool) -> tuple[float, float]:
        """Losses beyond which at most exp(``log_tail``) lies on either side."""
        low, high = self.pair.loss(np.array(self.pair.span(log_tail, add and not self.two_sided))).tolist()
        if self.two_sided:
            return -float(self.pair.loss(np.array(self.pair.span(log_tail, True)))[1]), high
        return (-high, -low) if add else (low, high)

    def _build(self, one_sided: "_OneSided", add: bool) -> Atoms:
        if self.two_sided:
            return fixed_size_atoms(one_sided(False), one_sided(True))
        atoms = one_sided(add)
        return atoms if self.cluster_rate == 1 else atoms.mixed_with_nothing(self.cluster_rate)

    @property
    def atom(self) -> float:
        """The largest loss of Laplace noise."""
        noise = self.pair.noise
        return float(self.pair.loss(np.array(2 * noise.shift))) if isinstance(noise, LaplaceNoise) else 0.0

    @property
    def label_error(self) -> float:
        """A few units of the largest loss of Laplace noise."""
        return 16 * UNIT * self.atom


class _OneSided(Protocol):
    def __call__(self, add: bool) -> Atoms: ...


@dataclass(frozen=True)
class BoundedQuery:
    """Randomised response: loss epsilon or -epsilon, or infinite with probability delta; alike in both directions."""

    bound: float
    delta: float
    count: int
    symmetric: bool = True

    def atoms(self, log_tail: float, add: bool) -> Atoms:
        true = (1 - self.delta) / (1 + math.exp(-self.bound))
        false = (1 - self.delta) / (1 + math.exp(self.bound))
        return Atoms(np.array([-self.bound, self.bound]), np.array([false, true]), self.delta, self.delta)

    def grid_points(self, log_tail: float, step: float, add: bool) -> int:
        return 2 * math.ceil(self.bound / step) + 3

    def pmf(self, log_tail: float, step: float, add: bool) -> LossPmf:
        """Each loss on the two points around it, both masses kept; rounded up."""
        least = math.floor(-self.bound / step) - 1
        probs = np.zeros(self.grid_points(log_tail, step, add) + 1)
        atoms = self.atoms(log_tail, add)
        for loss, mass in zip(atoms.losses.tolist(), atoms.probs.tolist(), strict=True):
            index = math.floor(loss / step)
            share = -math.expm1(index * step - loss) / -math.expm1(-step) * (1 + 16 * UNIT)
            share = min(1.0, max(0.0, share))
            probs[index - least] += mass * (1 - share)
            probs[index - least + 1] += mass * share
        return LossPmf(least, probs, self.delta, step)

    def parts(self, log_tail: float, step: float, add: bool, most: float) -> list[tuple[LossPmf, int]]:
        """Two losses need no finer grid."""
        return [(self.pmf(log_tail, step, add), self.count)]

    @property
    def atom(self) -> float:
        return self.bound

    @property
    def label_error(self) -> float:
        return 16 * UNIT * self.bound


def trimmed(atoms: Atoms, step: float) -> LossPmf:
    """Return the same without empty points at the ends."""
    filled = np.flatnonzero(atoms.probs)
    first, last = (int(filled[0]), int(filled[-1])) if filled.size else (0, 0)
    lower = round(float(atoms.losses[0]) / step) + first
    return LossPmf(lower, atoms.probs[first : last + 1], atoms.infinity, step, atoms.missing)
