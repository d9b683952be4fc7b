"""Random allocation: each record is in one row of every block, drawn uniformly, and in no other.

A block has b rows, each a sum plus noise N(0, s^2) in every coordinate; a record a, |a| <= 1, is added to row J,
uniform in 1 .. b. Rows differ along a alone, and a shorter record is a post-processing of a longer one, so the worst
pair is

    P = mean over j of N(e_j, s^2 I)   against   Q = N(0, s^2 I),   in b dimensions.

Its likelihood ratio is V / b, V the sum of the e^(l_j); under Q the l_j are independent N(-1/(2 s^2), 1/s^2). Both
divergences are expectations of convex functions of V. Anything larger than V in the convex order therefore has
divergences at least as large. Each e^(l_j) and each partial sum is put on a grid: its mass moves to the two grid points
around it, mean kept. This step and sums of independent variables keep the order (Shaked, Shanthikumar 2007, Theorem
3.A.12). Mean above the grid becomes infinite loss. Proofs and rounding: docs/accounting-numerics.md, section 6 (Chua et
al. 2025, Feldman, Shenfeld 2025, 2026).
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from privmix.accounting.pairs import UNIT, Array, Atoms, GaussianNoise, LossPmf, Points, SampledPair
from privmix.accounting.queries import PairQuery, Query, trimmed

# Laws are cut where a mass of e^-40, e^-60, ... is left: one law serves many questions.
_LEAST_TAIL, _TAIL_STEP = 40, 20
# _POINTS: points in a deviation of a sum, up to _NEAR deviations from its mean. _RATIO: logarithm of the ratio of
# distances further out. _MOST_FAR: about how many of these there are at most.
_POINTS, _NEAR, _RATIO, _MOST_FAR = 28.0, 6.0, 0.05, 500
# The same for guesses.
_FEW_POINTS, _COARSE_RATIO = 14.0, 0.2
# Most that one step may misplace a value, in rounding units.
_PLACED = 256.0
# With less noise than this the values of one row are no floats, with more they are all 1.
_LEAST_NOISE, _MOST_NOISE = 0.1, 1e6


def allocation_query(noise_multiplier: float, rows: int, count: int, *, rough: bool = False) -> Query:
    """``count`` blocks of ``rows`` rows, each with a record in one of them; ``rough`` for guesses."""
    # Very small or large noise is priced as if the record's row were known: a mixture is no worse than its worst pair.
    if not _LEAST_NOISE <= noise_multiplier <= _MOST_NOISE:
        return PairQuery(SampledPair(GaussianNoise(noise_multiplier), 1.0), count)
    return AllocationQuery(noise_multiplier, rows, count, rough)


@dataclass(frozen=True)
class AllocationQuery:
    """All rows of a block together are one query, which ran ``count`` times."""

    noise_multiplier: float
    rows: int
    count: int
    rough: bool = False
    symmetric: bool = False
    atom: float = 0.0

    @property
    def label_error(self) -> float:
        """How far rounding may have moved log(V / b)."""
        return 2 * self._law(-1.0).moved

    def atoms(self, log_tail: float, add: bool) -> Atoms:
        """Return the loss on the values of the sum, all masses rounded up.

        Formal guarantees:
            * the atoms dominate the exact pair, rounding included, up to :attr:`label_error` in the loss.
        """
        law = self._law(log_tail)
        values, masses, up = law.values[1:], law.masses[1:], 1 + 2 * law.raised
        losses = np.log(values / self.rows)
        if add:
            losses, probs, infinity = -losses[::-1], masses[::-1] * up, float(law.masses[0]) * up
        else:
            probs, infinity = masses * values / self.rows * up, law.lost / self.rows * up
        return Atoms(losses, probs, infinity, 1 - math.fsum(probs.tolist()))

    def grid_points(self, log_tail: float, step: float, add: bool) -> int:
        losses = self.atoms(log_tail, add).losses
        return math.ceil(float(losses[-1] - losses[0]) / step) + 3

    def pmf(self, log_tail: float, step: float, add: bool) -> LossPmf:
        """Each loss on the two multiples of ``step`` around it, both masses kept; rounded up."""
        atoms = self.atoms(log_tail, add)
        place = np.floor(atoms.losses / step).astype(np.int64)
        share = np.expm1(place * step - atoms.losses) / math.expm1(-step) * (1 + 32 * UNIT) + 4 * UNIT / step
        up = atoms.probs * np.clip(share, 0.0, 1.0)
        first, size = int(place[0]), int(place[-1] - place[0]) + 2
        below, above = np.bincount(place - first, atoms.probs - up, size), np.bincount(place - first + 1, up, size)
        probs = np.asarray(below + above, np.float64) * (1 + (atoms.probs.size + 8) * UNIT)
        grid = np.asarray(np.arange(first, first + size) * step)
        return trimmed(Atoms(grid, probs, atoms.infinity, 1 - math.fsum(probs.tolist())), step)

    def parts(self, log_tail: float, step: float, add: bool, most: float) -> list[tuple[LossPmf, int]]:
        """One loss: a record is in every block, so that none of them is tiny."""
        return [(self.pmf(log_tail, step, add), self.count)]

    def _law(self, log_tail: float) -> "_Sum":
        tail = max(_LEAST_TAIL, _TAIL_STEP * math.ceil((2 - log_tail) / _TAIL_STEP))
        points, ratio = (_FEW_POINTS, _COARSE_RATIO) if self.rough else (_POINTS, _RATIO)
        return _sum_of(self.rows, _Row(self.noise_multiplier, tail, points, ratio))


@dataclass(frozen=True)
class _Row:
    """One row's noise, the tail e^-``tail`` at which laws are cut, and how fine the grids of sums are."""

    noise: float
    tail: int
    points: float
    most_ratio: float

    @property
    def spread(self) -> float:
        """Standard deviation of l."""
        return 1 / self.noise

    @property
    def ratio(self) -> float:
        """Logarithm of that of neighbours on a grid in proportion."""
        return min(self.spread / self.points, max(self.most_ratio, (self.spread**2 / 2 + self.far) / _MOST_FAR))

    @property
    def far(self) -> float:
        """How far from its mean l is kept."""
        return float(GaussianNoise(self.noise).reach(-self.tail)[0]) * self.spread**2

    def losses(self) -> Array:
        """Points for l: even ones, and above log 2 those at which e^l - 1 is on the far grid of all sums."""
        low, high, ratio = -(self.spread**2) / 2 - self.far, self.spread**2 / 2 + self.far, self.ratio
        turn = min(high, math.log(2))
        below = np.arange(turn, low - ratio, -ratio)[::-1]
        if high <= turn:
            return below
        return np.concatenate((below, np.log1p(np.exp(ratio * np.arange(1, math.ceil(high / ratio) + 1)))))

    def grid(self, rows: int, low: float, top: float) -> Array:
        """0, and points for a sum of ``rows`` from ``low`` to ``top``."""
        # Even near the mean; further out in proportion: to the distance from the mean above, where one term rules the
        # sum, and to the value below.
        ratio, unit = self.ratio, math.sqrt(math.expm1(self.spread**2)) / self.points
        deviation = math.sqrt(math.log1p(math.expm1(self.spread**2) / rows))
        # Times a power of two: sums of two multiples are multiples, and nothing is moved where the step stays.
        step = unit * 2.0 ** math.floor(math.log2(rows * deviation / self.points / unit))
        # A sum of positive terms X is below its mean by sqrt(2 x sum of E[X^2]) with probability e^-x at most.
        low = max(low, rows - math.sqrt(2 * (self.tail + math.log(rows)) * rows) * math.exp(self.spread**2 / 2))
        even = max(low, min(float(rows), rows * deviation / self.spread))
        below = even * np.exp(-ratio * np.arange(max(0, math.ceil(math.log(even / low) / ratio)), 0, -1))
        near = min(top, rows + max(_NEAR * rows * deviation, step / ratio))
        middle = np.arange(math.ceil(even / step), math.ceil(near / step) + 2) * step
        last = float(middle[-1])
        if top <= last:
            return np.concatenate(([0.0], below, middle))
        # The same distances for all sums: one large term among many stays where it is.
        first, end = (math.log(distance) / ratio for distance in (last - rows + step, top - rows))
        far = rows + np.exp(ratio * np.arange(math.ceil(first), math.ceil(end) + 1))
        return np.concatenate(([0.0], below, middle, far))


@dataclass(frozen=True)
class _Sum:
    """Likelihood ratios of ``rows`` rows, added, on increasing ``values`` from 0 on, under Q."""

    # `lost`: mean that left the grid above. Values are off by a share of `moved` at most, masses by one of `raised`.

    rows: int
    values: Array
    masses: Array
    lost: float
    moved: float
    raised: float


@lru_cache(maxsize=64)
def _sum_of(rows: int, row: _Row) -> _Sum:
    if rows == 1:
        return _of_one(row)
    half = _sum_of(rows // 2, row)
    both = _added(half, half, row)
    return _added(both, _sum_of(1, row), row) if rows % 2 else both


def _of_one(row: _Row) -> _Sum:
    """e^l of one row: each interval's mass goes to its ends so that its mean stays."""
    law = GaussianNoise(row.noise)
    x = row.losses() * row.noise**2 + 0.5
    losses = law.log_ratio(x)
    ends = np.exp(losses)
    points, pair = Points(x, losses, ends, losses, np.zeros(x.size)), SampledPair(law, 1.0)
    (absent, error), (present, its_error) = pair.masses(points, 0.0), pair.masses(points, 1.0)
    inner = absent[1:-1]
    up = np.clip((present[1:-1] - ends[:-1] * inner) / np.diff(ends), 0.0, inner)
    first = min(float(present[0] / ends[0]), float(absent[0]))
    masses = np.concatenate(([absent[0] - first], inner - up, [absent[-1]]))
    masses[1:] += np.concatenate(([first], up))
    lost = max(0.0, float(present[-1] - ends[-1] * absent[-1]))
    off = max(_off(absent, error), _off(present, its_error))
    return _Sum(1, np.concatenate(([0.0], ends)), masses, lost, 2 * off + _PLACED * UNIT, off + 16 * UNIT)


def _off(masses: Array, error: Array) -> float:
    """By what share the masses between points may be off, ``error`` being that of the tails at the points."""
    doubt = np.concatenate((error[:1], error[:-1] + error[1:], error[-1:])) + UNIT * masses
    return float(np.divide(doubt, masses, out=np.ones(doubt.size), where=masses > 0).max())


def _added(one: _Sum, other: _Sum, row: _Row) -> _Sum:
    rows = one.rows + other.rows
    grid = row.grid(rows, float(one.values[1] + other.values[1]), float(one.values[-1] + other.values[-1]))
    totals = one.values[:, None] + other.values
    weights = one.masses[:, None] * other.masses
    # Totals are in order along a row: the search is quick.
    place = np.clip(np.searchsorted(grid, totals.ravel(), side="right") - 1, 0, grid.size - 2).reshape(totals.shape)
    share = np.clip((totals - grid[place]) / (grid[place + 1] - grid[place]), 0.0, 1.0)
    up = weights * share
    lower = np.bincount(place.ravel(), (weights - up).ravel(), grid.size)
    masses = np.asarray(lower + np.bincount(place.ravel() + 1, up.ravel(), grid.size), np.float64)
    moved = max(one.moved, other.moved) + _PLACED * UNIT
    # A sum of n positive terms is off by n rounding units at most.
    raised = one.raised + other.raised + (totals.size + 8) * UNIT
    found = _Sum(rows, grid, masses, one.lost + other.lost, moved, raised)
    return _cut(found, math.exp(-row.tail) / rows)


def _cut(law: _Sum, tail: float) -> _Sum:
    """Without points that hold next to nothing: below, under Q; above, of the mean."""
    values, masses = law.values, law.masses
    first = max(1, int(np.searchsorted(np.cumsum(masses[1:]), tail)))
    above = np.cumsum((values * masses)[::-1])[::-1] / law.rows
    last = max(first + 1, int(np.count_nonzero(above > tail)) - 1)
    kept = masses[first : last + 1].copy()
    up = float(values[1:first] @ masses[1:first]) / float(values[first])
    kept[0] += up
    kept[-1] += float(masses[last + 1 :].sum())
    beyond = float((values[last + 1 :] - values[last]) @ masses[last + 1 :])
    zero = max(0.0, float(masses[:first].sum()) - up)
    return _Sum(
        law.rows,
        np.concatenate(([0.0], values[first : last + 1])),
        np.concatenate(([zero], kept)),
        law.lost + max(0.0, beyond),
        law.moved + _PLACED * UNIT,
        law.raised + (masses.size + 8) * UNIT,
    )
