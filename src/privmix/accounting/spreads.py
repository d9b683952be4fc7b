"""Sums of records with normal weights: what a record does to their spread, and the cost of all rows together.

Row t is the sum of w_i a_i plus noise N(0, s^2) in every coordinate. The weights w_i ~ N(0, 1) are drawn for each row
and record, |a| <= 1 (Gaussian sketches: Lev et al. 2025). The sum over all records but one is independent of that
record's weight and of the noise, so the row is a post-processing of (N, N + w a). These differ along a alone: N(0, s^2)
against N(0, s^2 + |a|^2). A shorter record is a post-processing of a longer one, so the worst pair is N(0, 1) against
N(0, 1 + r), r = 1 / s^2.

For T rows the loss depends on S, the sum of their squares over s^2. S is chi-squared with T degrees of freedom without
the record and 1 + r times as large with it. The loss is log(with / without) = S r / (2 (1 + r)) - (T / 2) log(1 + r).
So all rows are one query on the line, in pieces of 65,536 rows, where incomplete gamma functions are good enough.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc, gammaincc

from privmix.accounting.pairs import MAX_LOSS, UNIT, Array, Atoms, LossPmf, assembled
from privmix.accounting.queries import few_points, trimmed

# Beyond some 100,000 degrees of freedom SciPy's series for a tail breaks off before it converges.
_MOST_ROWS = 2**16
# Relative error of the incomplete gamma functions, in rounding units: tests find a tenth of it, against 40 digits.
_TAIL_UNITS = 2.0**16
# How far a point's square may be misplaced, in units of S at loss 0 and of itself.
_OFFSET_UNITS, _SQUARE_UNITS = 6.0, 12.0


def spread_queries(noise_multiplier: float, rows: int) -> "list[SpreadQuery]":
    """``rows`` rows of sums with normal weights and noise of ``noise_multiplier``, in as few queries as are exact."""
    whole, rest = divmod(rows, _MOST_ROWS)
    sizes = [(_MOST_ROWS, whole), (rest, 1)]
    return [SpreadQuery(noise_multiplier, size, count) for size, count in sizes if size and count]


@dataclass(frozen=True)
class SpreadQuery:
    """Sums with normal weights and noise of ``noise_multiplier``: ``rows`` rows a query, which ran ``count`` times."""

    noise_multiplier: float
    rows: int
    count: int
    symmetric: bool = False
    atom: float = 0.0
    label_error: float = 0.0

    @property
    def _ratio(self) -> float:
        return self.noise_multiplier**-2

    @property
    def _slope(self) -> float:
        return self._ratio / (2 * (1 + self._ratio))

    @property
    def _offset(self) -> float:
        """The loss at S = 0, its sign changed."""
        return self.rows / 2 * math.log1p(self._ratio)

    def span(self, log_tail: float, add: bool) -> tuple[float, float]:
        """Losses of S beyond which at most exp(``log_tail``) of the true law lies on either side."""
        # Laurent and Massart 2000, Lemma 1: chi-squared is above T + 2 sqrt(T x) + 2 x, and below T - 2 sqrt(T x), with
        # probability e^-x at most.
        x, scale = -min(log_tail, -1.0), 1.0 if add else 1 + self._ratio
        spread = 2 * math.sqrt(self.rows * x)
        low, high = max(0.0, self.rows - spread) * scale, (self.rows + spread + 2 * x) * scale
        ends = [self._slope * square - self._offset for square in (low, high)]
        most = min(max(ends[1], 1 - MAX_LOSS), MAX_LOSS)
        return min(max(ends[0], -MAX_LOSS), most * (1 - 1e-9) - 1e-290), most

    def atoms(self, log_tail: float, add: bool) -> Atoms:
        low, high = self.span(log_tail, add)
        return few_points(lambda points: self._on(np.linspace(low, high, points), add), self.count)

    def grid_points(self, log_tail: float, step: float, add: bool) -> int:
        low, high = self._grid(log_tail, step, add)
        return high - low + 1

    def pmf(self, log_tail: float, step: float, add: bool) -> LossPmf:
        low, high = self._grid(log_tail, step, add)
        return trimmed(self._on(np.asarray(np.arange(low, high + 1) * step), add), step)

    def parts(self, log_tail: float, step: float, add: bool, most: float) -> list[tuple[LossPmf, int]]:
        """One loss: with this many rows it is never tiny."""
        return [(self.pmf(log_tail, step, add), self.count)]

    def _grid(self, log_tail: float, step: float, add: bool) -> tuple[int, int]:
        low, high = self.span(log_tail, add)
        return math.floor(low / step) - 1, math.ceil(high / step) + 1

    def _on(self, losses: Array, add: bool) -> Atoms:
        """Return the loss in a direction where log(with / without) is ``losses``, increasing; rounded up.

        Formal guarantees:
            * the atoms dominate the exact pair: mass between points goes to both so that its mass under both laws is
              kept, what rounding may have hidden of it goes up, and tails are raised by their own error;
            * mass beyond the point of the largest loss is infinite loss.
        """
        without, its_error = self._masses(losses, 1.0)
        there, error = self._masses(losses, 1 + self._ratio)
        gaps = -np.expm1(-np.diff(losses))
        # b = (p - e^(l_0) q) / (1 - e^-d), docs/accounting-numerics.md, section 1
        if add:
            mass, other, doubts, far = without, there, (its_error, error), np.exp(-losses[1:])
            tail_error = its_error
        else:
            mass, other, doubts, far = there, without, (error, its_error), np.exp(losses[:-1])
            tail_error = error
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            up = (mass[1:-1] - far * other[1:-1]) / gaps
            own, others = (one[1:] + one[:-1] for one in doubts)
            doubt = (own + far * others + 16 * UNIT * (mass[1:-1] + far * other[1:-1])) / gaps
        return assembled(losses, mass, up, doubt, tail_error, add)

    def _masses(self, losses: Array, scale: float) -> tuple[Array, Array]:
        """Mass of S, ``scale`` times chi-squared, below, between and above points (k+1,); error of each tail (k,)."""
        half = self.rows / 2
        squares = np.maximum(0.0, (losses + self._offset) / self._slope) / scale
        below, above = gammainc(half, squares / 2), gammaincc(half, squares / 2)
        upper = squares > self.rows
        tails = np.where(upper, above, below)
        # A tail f of chi-squared changes by at most f / 2 a unit above its mean T, by f T / (2 S) below it.
        with np.errstate(divide="ignore"):
            change = np.where(upper, 1.0 if self.rows == 1 else 0.5, half / squares)
        moved = change * (_OFFSET_UNITS * self._offset / self._slope / scale + _SQUARE_UNITS * squares)
        error = tails * np.minimum(1.0, UNIT * (_TAIL_UNITS + np.where(tails > 0, moved, 0.0)))
        # Differences of tails, each on its own side, keep their relative accuracy.
        inner = np.where(upper[:-1], above[:-1] - above[1:], below[1:] - below[:-1])
        crossing = ~upper[:-1] & upper[1:]
        inner = np.where(crossing, (1 - above[1:]) - below[:-1], inner)
        return np.maximum(np.concatenate(([below[0]], inner, [above[-1]])), 0.0), error
