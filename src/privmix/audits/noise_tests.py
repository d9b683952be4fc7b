"""Is the certified noise there? One-sided tests of released numbers that hold whatever the data are.

Every released number is a signal plus noise that is independent of it: V = a + G, rounded to a public grid. Nothing is
known of the signal a, which may be arbitrary and may differ from number to number, so no test can tell too much noise
from signal. Too little noise can be told, because a signal never hides it downwards:

    Anderson (1955): if G has a symmetric density with convex level sets and C is a convex set symmetric about 0, then
    P(a + G in C) <= P(G in C) for every fixed vector a, and so for every random a that is independent of G.

Independent Gaussian or Laplace entries have such a density. The sets C used here are balls: of the Euclidean norm, of
the Euclidean norm after the mean is taken out (a projection, so still convex and symmetric), of the L1 norm, and
intervals. The energy of V is thus stochastically at least that of the noise alone, whose law is known exactly: half the
squared norm over the variance is Gamma(degrees / 2), the L1 norm over the scale Gamma(count). A release is refused
where the energy lies so low that noise of the certified size alone falls there with probability ``FALSE_ALARM``
divided by the number of tests in the family (Bonferroni).

Rounding moves a vector by at most its own length (half a grid step an entry, and float32's own rounding), so the norm
of V plus that length is at least the norm of a + G: rounding makes no false alarm either.

The rates are those of ideal samplers; see :mod:`privmix.mechanisms.noise` for how close the real ones are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc, gammainc, gammaincinv

from privmix.errors import InvalidInput

FALSE_ALARM: Final = 5e-11
"""Of each family of tests; verification has fewer than twenty."""

ON_THE_GRID: Final = "values on the public grid"
"""The test of rows that counts them; none of them where rows are samples."""

_POWER: Final = 0.99
# float32 rounds to 2^-24 of a number, which a little more than covers.
_FLOAT32: Final = 2.0**-23
# Beyond so many, the incomplete gamma function loses digits; Chernoff's bound does not.
_EXACT_DEGREES: Final = 1e6
# Widths of the intervals that small values are counted in, as shares of the standard deviation.
_WIDTHS: Final = tuple(2.0**-power for power in range(13))


@dataclass(frozen=True)
class NoiseTest:
    """A family of tests that held.

    Attributes:
        name: what was tested.
        tests: how many tests.
        false_alarm: probability, at most, that an honest release is refused by one of them.
        lowest: the least noise that was measured, signal included, as a share of the certified standard deviation.
        caught: noise of this share of the certified standard deviation, or less, is refused with probability 0.99
            where the data add nothing; None where no such figure exists. What data add hides as much noise.
        about: of tests of noise: which released numbers these are, in words; empty where verification knows it.
    """

    name: str
    tests: int
    false_alarm: float
    lowest: float | None = None
    caught: float | None = None
    about: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {name: value for name, value in vars(self).items() if name != "about"}


def energy_test(name: str, energies: Any, degrees: float, rounding: Any = 0.0, *, law: str = "gaussian") -> NoiseTest:
    """Refuse vectors whose energy is too low for the certified noise.

    Args:
        name: what is tested.
        energies: for each vector, with ``law`` "gaussian" the sum of squares in units of the certified variance, about
            0 or about a projection; with "laplace" the sum of magnitudes in units of the certified scale, about 0.
        degrees: entries of a vector, less the dimensions that were projected out.
        rounding: norm of the most that rounding moved a vector before anything was projected out, float32's rounding
            of the vector itself aside; in standard deviations (or scales). A number, or one a vector.
        law: "gaussian" or "laplace".

    Formal guarantees:
        * False alarms: with noise of the certified size that is independent of the signal, the chance of a refusal is
          at most ``FALSE_ALARM``, whatever the signal.

    Raises:
        InvalidInput: an energy is too low.

    Example:
        >>> noise = np.random.default_rng(0).normal(size=(500, 40))
        >>> found = energy_test("rows", np.square(noise).sum(axis=1), 40)
        >>> found.tests, found.lowest < 1 and found.caught < found.lowest
        (500, True)
        >>> energy_test("rows", np.square(0.2 * noise).sum(axis=1), 40)
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: rows: got noise of 0.123 of the certified size; allowed: the certified noise
    """
    found = np.atleast_1d(np.asarray(energies, np.float64))
    if degrees < 1 or found.size == 0:
        return NoiseTest(name, 0, 0.0)
    power = 1 if law == "laplace" else 2
    lengths = found ** (1 / power) * (1 + _FLOAT32) + rounding
    shape, least = degrees / power, float(lengths.min()) ** power / power
    # NaN compares false: what can't be compared is refused.
    if not _lower_tail(shape, least) > math.log(FALSE_ALARM / found.size):
        share = float(found.min() / degrees) ** (1 / power)
        raise InvalidInput(name, _Words(f"noise of {share:.3g} of the certified size"), "the certified noise")
    return NoiseTest(
        name,
        found.size,
        FALSE_ALARM,
        float(found.min() / degrees) ** (1 / power),
        _caught(shape, found.size) ** (1 / power),
    )


def small_values_test(name: str, values: Any, rounding: float = 0.0) -> NoiseTest:
    """Refuse where too many of independent noisy numbers are closer to 0 than the certified noise lets them be.

    Of numbers with signals, the share within c standard deviations of 0 is at most that of the noise (Anderson, in one
    dimension), so their count is at most binomial. It sees missing noise that large signals elsewhere would hide from
    a sum of squares.

    Args:
        name: what is tested.
        values: numbers in units of their certified standard deviations, Gaussian.
        rounding: the most that rounding moved a number, in those units.

    Raises:
        InvalidInput: too many numbers are small.

    Example:
        >>> small_values_test("sums", np.random.default_rng(0).normal(size=1000)).tests
        13
    """
    sizes = np.sort(np.abs(np.ravel(np.asarray(values, np.float64))))
    for width in _WIDTHS:
        count = int(np.searchsorted(sizes, width, side="right"))
        chance = math.erf((width * (1 + _FLOAT32) + rounding) / math.sqrt(2))
        if count and not bdtrc(count - 1, sizes.size, chance) > FALSE_ALARM / len(_WIDTHS):
            share = _Words(f"{count} of {sizes.size} numbers within {width:g} standard deviations of 0")
            raise InvalidInput(name, share, f"about {chance:.3g} of them at most, as the certified noise leaves")
    return NoiseTest(name, len(_WIDTHS), FALSE_ALARM)


def grid_indices(values: NDArray[np.float32], unit: float) -> NDArray[np.bool_]:
    """Whether each value is a float32 rounding of a multiple of ``unit``.

    Example:
        >>> grid_indices(np.array([0.3, 0.35, np.nan], np.float32), 0.1).tolist()
        [True, False, False]
    """
    exact = values.astype(np.float64)
    steps = exact / unit
    np.rint(steps, out=steps)
    on_grid = np.asarray((steps * unit).astype(np.float32) == values)
    if not on_grid.all():
        # Where float32 is coarser than the grid, the multiple that a value came from need not be the nearest one.
        odd = ~on_grid
        near = (((steps[odd] + step) * unit).astype(np.float32) == values[odd] for step in (-1.0, 1.0))
        on_grid[odd] = np.logical_or(*near)
    return on_grid


def equal_rows_test(name: str, digests: bytes, chance: float) -> NoiseTest:
    """Refuse rows that are equal.

    Args:
        name: what is tested.
        digests: 16 bytes a row that tell rows apart.
        chance: probability, at most, that noise makes two given rows equal.

    Returns:
        the test; of 0 pairs where rows are so narrow, and noise so small, that chance makes equal ones.

    Raises:
        InvalidInput: two rows are equal, which chance does with probability ``FALSE_ALARM`` at most.

    Example:
        >>> equal_rows_test("rows", bytes(range(32)), 1e-20).tests
        1
    """
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
        raise InvalidInput(name, _Words(f"row {pair[0]} again as row {pair[1]}"), "rows with noise of their own")
    return NoiseTest(name, pairs, FALSE_ALARM if pairs else 0.0)


def equal_chance(std_in_steps: float, entries: int, *, law: str = "gaussian") -> float:
    """Probability, at most, that two rows of ``entries`` independent noisy numbers are equal.

    The difference of two signals plus rounded noises is 0 with no more probability than the likeliest value of one.

    Args:
        std_in_steps: standard deviation of the noise in steps of the grid that values lie on, float32's included.
        entries: numbers a row.
        law: "gaussian" or "laplace".

    Example:
        >>> equal_chance(100.0, 8) < 1e-18
        True
    """
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


class _Words(str):
    """Text that messages show without quotes."""

    def __repr__(self) -> str:
        return str(self)
