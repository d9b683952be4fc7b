"""One-sided tests of released numbers for the certified noise; they hold for any data; and what they take of rows.

Every released number is V = a + G, rounded to a public grid: a signal a, arbitrary and unknown, and independent noise
G. Too much noise looks like signal, but a signal never hides too little noise:

    Anderson (1955): let G have a symmetric density with convex level sets, and C be a convex set symmetric about 0.
    Then P(a + G in C) <= P(G in C) for every fixed vector a, and so for every random a that is independent of G.

Independent Gaussian and Laplace entries are of that kind, and so are balls (Euclidean, also after the mean is taken
out, or L1) and intervals. So the energy of V is stochastically at least that of the noise, whose law is known. Half the
squared norm over the variance is Gamma(degrees / 2), the L1 norm over the scale Gamma(count). A release is refused
where noise alone has so low an energy with probability ``FALSE_ALARM`` over the family's tests (Bonferroni).

Rounding moves a vector by at most a known length (half a grid step an entry, and float32's), which is added to its
norm: no false alarms from rounding. Rates are those of ideal samplers; see :mod:`privmix.mechanisms.noise`.
"""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc, gammainc, gammaincinv

from privmix.errors import InvalidInput, Unquoted

FALSE_ALARM: Final = 5e-11
"""Chance of a false alarm of each family of tests; verification has fewer than twenty."""

ON_THE_GRID: Final = "values on the public grid"
"""The test of rows that counts them; none of them where rows are samples."""

_POWER: Final = 0.99
# float32 rounds to 2^-24 of a number, which a little more than covers.
_FLOAT32: Final = 2.0**-23
# Beyond this number, the incomplete gamma function loses digits; Chernoff's bound does not.
_EXACT_DEGREES: Final = 1e6
# Widths of the intervals that small values are counted in, as shares of the standard deviation.
_WIDTHS: Final = tuple(2.0**-power for power in range(13))


@dataclass(frozen=True)
class NoiseTest:
    """A family of passed tests."""

    # false_alarm: bound on the chance that an honest release is refused. lowest: least measured noise, signal included,
    # as a share of the certified deviation. caught: the share refused with probability 0.99 where data add nothing, or
    # None. about: the released numbers in words, empty where verification knows them.

    name: str
    tests: int
    false_alarm: float
    lowest: float | None = None
    caught: float | None = None
    about: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "about"}


def energy_test(name: str, energies: Any, degrees: float, rounding: Any = 0.0, *, law: str = "gaussian") -> NoiseTest:
    """Refuse vectors whose energy is too low for the certified noise.

    Formal guarantees:
        * False alarms: with noise of the certified size that is independent of the signal, the chance of a refusal is
          at most ``FALSE_ALARM``, for any signal.
    """
    # energies: of each vector: "gaussian" the sum of squares in certified variances, "laplace" of magnitudes in
    # certified scales, about 0 or (gaussian) a projection. degrees: entries of a vector less the dimensions projected
    # out. rounding: the most that rounding moved a vector before projections, float32's aside, in deviations or scales.
    found = np.atleast_1d(np.asarray(energies, np.float64))
    if degrees < 1 or found.size == 0:
        return NoiseTest(name, 0, 0.0)
    power = 1 if law == "laplace" else 2
    lengths = found ** (1 / power) * (1 + _FLOAT32) + rounding
    shape, least = degrees / power, float(lengths.min()) ** power / power
    # NaN compares false: what can't be compared is refused.
    if not _lower_tail(shape, least) > math.log(FALSE_ALARM / found.size):
        share = float(found.min() / degrees) ** (1 / power)
        raise InvalidInput(name, Unquoted(f"noise of {share:.3g} of the certified size"), "the certified noise")
    return NoiseTest(
        name,
        found.size,
        FALSE_ALARM,
        float(found.min() / degrees) ** (1 / power),
        _caught(shape, found.size) ** (1 / power),
    )


def small_values_test(name: str, values: Any, rounding: float = 0.0) -> NoiseTest:
    """Refuse where more numbers are near 0 than the certified noise allows; ``values`` in certified deviations.

    Each row of ``values`` is tested by itself.
    """
    # With signals, the share within c deviations of 0 is at most the noise's (Anderson), so the count is at most
    # binomial. Finds missing noise that large signals elsewhere hide from a sum of squares.
    sizes = np.abs(np.atleast_2d(np.asarray(values, np.float64)))
    tests, (_, numbers) = len(_WIDTHS) * len(sizes), sizes.shape
    for width in _WIDTHS:
        count = int(np.count_nonzero(sizes <= width, axis=1).max())
        chance = math.erf((width * (1 + _FLOAT32) + rounding) / math.sqrt(2))
        if count and not bdtrc(count - 1, numbers, chance) > FALSE_ALARM / tests:
            share = Unquoted(f"{count} of {numbers} numbers within {width:g} standard deviations of 0")
            raise InvalidInput(name, share, f"about {chance:.3g} of them at most, as the certified noise leaves")
    return NoiseTest(name, tests, FALSE_ALARM)


def grid_indices(values: NDArray[np.float32], unit: float) -> NDArray[np.bool_]:
    """Whether each value is a float32 rounding of a multiple of ``unit``."""
    exact = values.astype(np.float64)
    steps = exact / unit
    np.rint(steps, out=steps)
    on_grid = np.asarray((steps * unit).astype(np.float32) == values)
    if not on_grid.all():
        # If float32 is coarser than the grid, the multiple that a value came from need not be the nearest one.
        odd = ~on_grid
        near = (((steps[odd] + step) * unit).astype(np.float32) == values[odd] for step in (-1.0, 1.0))
        on_grid[odd] = np.logical_or(*near)
    return on_grid


def equal_rows_test(name: str, digests: bytes, chance: float) -> NoiseTest:
    """Refuse equal rows by their 16-byte ``digests``; ``chance``: bound on noise making two given rows equal."""
    # A test of 0 pairs where rows are so narrow, and noise so small, that chance makes equal ones.
    halves = np.frombuffer(digests, np.uint64).reshape(-1, 2)
    rows = len(halves)
    pairs = rows * (rows - 1) // 2
    if pairs * chance > FALSE_ALARM:
        return NoiseTest(name, 0, 0.0)
    order = np.argsort(halves[:, 0], kind="stable")
    equal = (halves[order[1:]] == halves[order[:-1]]).all(axis=1)
    if equal.any():
        at = int(np.argmax(equal))
        pair = sorted(int(row) for row in order[at : at + 2])
        raise InvalidInput(name, Unquoted(f"row {pair[0]} again as row {pair[1]}"), "rows with noise of their own")
    return NoiseTest(name, pairs, FALSE_ALARM if pairs else 0.0)


def equal_chance(std_in_steps: float, entries: int, *, law: str = "gaussian") -> float:
    """Bound the chance that two rows of ``entries`` noisy numbers are equal; ``std_in_steps``: noise in grid steps."""
    # The difference of two signals plus rounded noises is 0 no more likely than the likeliest value of one noise.
    if law == "laplace":
        likeliest = -math.expm1(-0.5 * math.sqrt(2) / std_in_steps)
    else:
        likeliest = math.erf(0.5 / (std_in_steps * math.sqrt(2)))
    return float(likeliest**entries)


def _lower_tail(shape: float, value: float) -> float:
    """Logarithm of P(Gamma(shape) <= value), or of an upper bound on it that is at most 0."""
    if value <= 0:
        return -math.inf
    if shape < _EXACT_DEGREES:
        chance = float(gammainc(shape, value))
        return math.log(chance) if chance > 0 else -math.inf
    gap = value / shape - 1
    # Chernoff: exp(-shape (r - 1 - log r)) for r = value / shape below 1.
    return -shape * (gap - math.log1p(gap)) if gap < 0 else 0.0


def _caught(shape: float, tests: int) -> float:
    """Share of the noise's energy that is refused with probability 0.99 where it is all there is."""
    alarm = FALSE_ALARM / tests
    if shape < _EXACT_DEGREES:
        return float(gammaincinv(shape, alarm) / gammaincinv(shape, _POWER))
    # The gap g with g - log(1 + g) = -log(alarm) / shape, by three Newton steps from its quadratic form.
    target = -math.log(alarm) / shape
    gap = -math.sqrt(2 * target)
    for _ in range(3):
        gap -= (gap - math.log1p(gap) - target) * (1 + gap) / gap
    return (1 + gap) / (1 + 2.3263478740408408 / math.sqrt(shape))


# The unit in the last place of float32's numbers about 1.
ULP: Final = 2.0**-23
# Sums of squares about a mean lose so much of the sum about 0 at most, in float64 and by blocks.
CANCELLED: Final = 1e-12
# Integers of a release's sums are below 2^53 steps, and no draw of noise exceeds 2^6 scales.
_LARGEST_SUM, _LARGEST_DRAW = 2.0**53, 64.0
_BLOCK: Final = 256
_ROWS_AT_ONCE: Final = 1024
_VALUES_AT_ONCE: Final = 2**20


class Part:
    """Sums over the rows of ``x`` or ``y``, in units of its noise."""

    def __init__(self, width: int, std: float, unit: float, laplace: bool = False) -> None:
        self.width: Final = width
        self.std: Final = std
        self.unit: Final = unit
        self.laplace: Final = laplace
        self.scale: Final = std / math.sqrt(2) if laplace else std
        self._sums, self._energies = np.zeros(width), np.zeros(width)
        self.largest: float = 0.0

    @property
    def norm(self) -> float:
        """Euclidean norm of all values (with Laplace noise the L1 norm), in units of the noise."""
        total = float(self._energies.sum())
        return total if self.laplace else math.sqrt(total)

    def check_grid(self, name: str, values: NDArray[np.float32]) -> None:
        """See :func:`check_grid`; the largest value is kept."""
        if self.unit:
            check_grid(f"rows: {name}", values, self.unit, self.std)
        self.largest = max(self.largest, float(np.abs(values).max()))

    def add(self, exact: NDArray[np.float64]) -> NDArray[np.float64]:
        """Count values (rows, width), which are overwritten; returns the energy of each row."""
        exact /= self.scale
        self._sums += exact.sum(axis=0)
        energies = np.abs(exact, out=exact) if self.laplace else np.square(exact, out=exact)
        self._energies += energies.sum(axis=0)
        return np.asarray(energies.sum(axis=1))

    def rounding(self, entries: int) -> float:
        """Norm of half a grid step in each of this number of entries, in units of the noise."""
        return self.unit / (2 * self.scale) * (entries if self.laplace else math.sqrt(entries))

    def tests(self, name: str, rows: int) -> list[NoiseTest]:
        if self.laplace:
            whole = self._energies.sum(), rows * self.width, self.rounding(rows * self.width)
            return [
                energy_test(
                    f"noise of each column of {name}", self._energies, rows, self.rounding(rows), law="laplace"
                ),
                energy_test(f"noise of {name}", *whole, law="laplace"),
            ]
        about_mean = self._energies - np.square(self._sums) / rows + CANCELLED * self._energies
        columns = self.rounding(rows) + ULP * np.sqrt(self._energies)
        whole = about_mean.sum(), (rows - 1) * self.width, self.rounding(rows * self.width) + ULP * self.norm
        return [
            energy_test(f"noise of each column of {name}", about_mean, rows - 1, columns),
            energy_test(f"noise of {name}", *whole),
        ]


class WeakDirections:
    """Noise of features in directions of least variation, where it shows even next to strong signals."""

    # Directions (an eighth of the columns) come from the first half of the rows and noise is tested in the second half.
    # The second half is independent: for it, the directions are fixed.

    def __init__(self, rows: int, part: Part) -> None:
        self._rows, self._half, self._part = rows, rows // 2, part
        width = max(1, min(_BLOCK, rows // 8))
        self._blocks = [slice(first, min(first + width, part.width)) for first in range(0, part.width, width)]
        self._grams = [np.zeros((b.stop - b.start,) * 2) for b in self._blocks]
        self._sums = np.zeros(part.width)
        self._buffer = np.empty((min(_ROWS_AT_ONCE, self._half), part.width), np.float32)
        self._filled = 0
        self._bases: list[NDArray[np.float64]] = []
        self._totals = self._squares = np.zeros(0)
        self._norm = 0.0

    def add(self, start: int, values: NDArray[np.float32], exact: NDArray[np.float64]) -> None:
        early = min(max(self._half - start, 0), len(values))
        done = 0
        while done < early:
            more = min(early - done, len(self._buffer) - self._filled)
            self._buffer[self._filled : self._filled + more] = values[done : done + more]
            self._filled, done = self._filled + more, done + more
            if self._filled == len(self._buffer):
                self._fold()
        if early < len(values):
            if not self._bases:
                self._choose()
            self._project(exact[early:])

    def _fold(self) -> None:
        rows = self._buffer[: self._filled]
        self._sums += rows.sum(axis=0, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            for gram, block in zip(self._grams, self._blocks, strict=True):
                gram += rows[:, block].T @ rows[:, block]
        self._filled = 0

    def _choose(self) -> None:
        self._fold()
        for gram, block in zip(self._grams, self._blocks, strict=True):
            mean = self._sums[block] / self._half
            scatter = gram / self._half - np.outer(mean, mean)
            # Squares beyond float32 carry no information. Any directions will do that the second half has no part in.
            _, vectors = np.linalg.eigh(scatter if np.isfinite(scatter).all() else np.eye(len(gram)))
            self._bases.append(vectors[:, : max(1, len(gram) // 8)] / self._part.std)
        self._totals = np.zeros(sum(basis.shape[1] for basis in self._bases))
        self._squares = np.zeros_like(self._totals)
        self._grams = []

    def _project(self, exact: NDArray[np.float64]) -> None:
        along = np.hstack([exact[:, block] @ basis for block, basis in zip(self._blocks, self._bases, strict=True)])
        self._totals += along.sum(axis=0)
        self._squares += np.square(along).sum(axis=0)
        self._norm += float(np.einsum("ij,ij->", exact, exact)) / self._part.std**2

    def test(self) -> NoiseTest:
        rows = self._rows - self._half
        energy = (self._squares - np.square(self._totals) / rows + CANCELLED * self._squares).sum()
        rounding = self._part.rounding(rows * self._part.width) + ULP * math.sqrt(self._norm)
        name = "noise of x where it varies least"
        return energy_test(name, energy, (rows - 1) * len(self._totals), rounding)


def check_grid(name: str, values: NDArray[np.float32], unit: float, std: float) -> None:
    """Check that values are on the grid of ``unit`` and no larger than any sum with noise of ``std``."""
    largest = np.float32(min(_LARGEST_SUM * unit + _LARGEST_DRAW * std, float(np.finfo(np.float32).max)))
    flat: Any = values.reshape(-1)
    for first in range(0, len(flat), _VALUES_AT_ONCE):
        part = flat[first : first + _VALUES_AT_ONCE]
        if not (np.abs(part) <= largest).all():
            raise InvalidInput(name, "values that no sum with noise has", f"finite values of at most {largest:.3g}")
        if not grid_indices(part, unit).all():
            raise InvalidInput(name, "values off the public grid", f"float32 roundings of multiples of {unit:.6g}")
