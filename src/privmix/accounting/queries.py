"""Elementary queries for accountants: a loss on a few points for guesses, and on a grid for prices."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from privmix.accounting.blocks import split, stages
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
        """Return the loss on points equally spaced in the query's output."""

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

    def _build(self, one_sided: _OneSided, add: bool) -> Atoms:
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
        """Points between the two losses."""
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
        """The larger of the two losses."""
        return self.bound

    @property
    def label_error(self) -> float:
        """A few units of that loss."""
        return 16 * UNIT * self.bound


def trimmed(atoms: Atoms, step: float) -> LossPmf:
    """Return the same without empty points at the ends."""
    filled = np.flatnonzero(atoms.probs)
    first, last = (int(filled[0]), int(filled[-1])) if filled.size else (0, 0)
    lower = round(float(atoms.losses[0]) / step) + first
    return LossPmf(lower, atoms.probs[first : last + 1], atoms.infinity, step, atoms.missing)
