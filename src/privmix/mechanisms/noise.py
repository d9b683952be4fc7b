"""Noise on a public lattice, so that rounding shows nothing of a sum, and its factorisation for cumulative sums.

A float plus float noise can betray the sum (Mironov 2012). Here sums are exact integers (multiples of a public grid
step) and noise is rounded first. Then ``round(sum + noise) == sum + round(noise)`` is the ideal continuous mechanism
followed by rounding, which is post-processing. Assumptions and limits (neither in the certificate nor proven here):

* Noise before rounding follows its continuous law. Outputs of the float64 samplers are at most 2**-50 deviations apart
  in the centre, about 2**-32 at 8. Noise of up to 2**20 lattice steps thus has every lattice point within reach there.
* Second moments live on the square of that grid, noise up to 2**45 steps: beyond some 7 standard deviations points are
  skipped. They are released as float32, coarser than that but for sums that cancel the draw (chance 1e-12 a number).
* Tails end: no normal draw exceeds about 12.2 standard deviations (ideally with probability 2**-111), no Laplace draw
  about 44 scales (2**-64). Pure epsilon strictly holds with such a delta on top, once for every number released.
* The time a draw takes depends on its value: an adversary who measures time or reads memory is not covered. Secrecy of
  the bits is the streams' part (:mod:`privmix.mechanisms.streams`).

Released are y_t = x_1 + ... + x_t + (B z)_t for t = 1..T, z_1..z_T independent Gaussian noise. With C = B^-1 A that is
B (C x + z), a function of the Gaussian query C x + z. One record, being in one x_s, affects one column of C (Denisov et
al. 2022). B and C are both the square root of A, a Toeplitz matrix with the coefficients binom(2k, k) / 4^k (Henzinger,
Upadhyay and Upadhyay 2023; Fichtenberger, Henzinger and Upadhyay 2023).

Noise is rounded after the sum B z: sums x are whole, so round(A x + B z) = A x + round(B z), the rounded ideal
mechanism. With each z_t rounded instead, A x + B z would lie in a set of points that depends on x. With T = 2, B = (1,
0; 1/2, 1) and whole z, the parity of 2 y_2 is that of z_1 = y_1 - x_1. It reveals the parity of x_1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.errors import WITHHELD, InvalidInput, check_number
from privmix.fields import Checked, Whole
from privmix.mechanisms.streams import SecretStreams

_EXACT_FLOAT64 = 2**53
# Integers of this many bits are float32 numbers, and sums of products below 2^53 are exact in float64.
_FLOAT32_BITS, _EXACT_BITS = 23, 52
# The largest draw is below 2**6 scales, so noise and any exact sum of this size still fit in float64's integers.
_LARGEST_SCALE = 2.0**46


@dataclass(frozen=True)
class Lattice(Checked):
    """The grid of multiples of ``2 ** -bits``, bits from 0 to 40, a public constant of the release.

    Formal guarantees:
        * Integers: quantised entries are integers, held exactly in float64.
        * Norms never grow: every entry moves toward zero, so L1 and L2 norms (times ``step``) do not increase.
        * Per entry: a quantised entry depends on that entry only.
    """

    bits: Annotated[int, Whole(0, 40)]

    @property
    def step(self) -> float:
        return 2.0**-self.bits

    def quantise(self, x: NDArray[Any], out: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Return ``x / step`` as float64 integers, each entry rounded toward zero; ``out`` may be ``x``."""
        with np.errstate(over="ignore"):
            scaled: NDArray[np.float64] = np.multiply(x, 2.0**self.bits, out=out, dtype=np.float64)
        # The comparison is false for NaN too.
        if not (scaled.max(initial=0.0) < _EXACT_FLOAT64 and scaled.min(initial=0.0) > -_EXACT_FLOAT64):
            raise InvalidInput("features", WITHHELD, f"finite numbers below 2**53 steps of the grid 2**-{self.bits}")
        return np.trunc(scaled, out=scaled)


def exact_bits(rows: NDArray[Any], lattice_bits: int) -> int:
    """Bits of the finest grid on which entries of rows fit float32, and products with records add up exactly."""
    largest = math.frexp(float(np.abs(rows).max(initial=0.0)))[1]
    norm = math.sqrt(float(np.square(rows, dtype=np.float64).sum(axis=1).max()))
    # A sum of products is at most the product of the norms, and records in lattice steps are of norm 2^bits at most.
    return min(_FLOAT32_BITS - largest, _EXACT_BITS - lattice_bits - math.frexp(norm)[1] - 1)


def gaussian_on_lattice(
    generator: np.random.Generator, shape: int | tuple[int, ...], std_in_grid_units: float
) -> NDArray[np.float64]:
    """Draw Gaussian noise rounded to integers.

    Formal guarantees:
        * Right law: entries are independent, ``round(N(0, std_in_grid_units ** 2))``; see the module for precision.
        * Integers: the noise is on the lattice.
    """
    # The deviation is in (0, 2^46] steps. Rounding adds a variance of 1/12: noisier, never less private.
    std = check_number("noise in lattice steps", std_in_grid_units, low=0, low_open=True, high=_LARGEST_SCALE)
    noise = np.empty(shape)
    generator.standard_normal(out=noise)
    noise *= std
    return np.rint(noise, out=noise)


def laplace_on_lattice(
    generator: np.random.Generator, shape: int | tuple[int, ...], scale_in_grid_units: float
) -> NDArray[np.float64]:
    """Draw Laplace noise rounded to integers.

    Formal guarantees:
        * Right law: entries are independent, ``round(Laplace(scale_in_grid_units))``; see the module for precision.
        * Integers: the noise is on the lattice.
    """
    scale = check_number("noise in lattice steps", scale_in_grid_units, low=0, low_open=True, high=_LARGEST_SCALE)
    # A difference of exponentials, not the inverse distribution function: in that one's far tail neighbouring
    # floats are many lattice steps apart, and the points between them could never occur.
    # Pairs lie side by side, so that a stream read in pieces gives the same noise as read at once.
    pairs = generator.standard_exponential((*np.atleast_1d(shape), 2))
    noise = pairs[..., 0] - pairs[..., 1]
    noise *= scale
    return np.rint(noise, out=noise)


MOST_STEPS: Final = 1000
# The most that rounding of B's coefficients, and of the norm itself, may add to a column norm of C: see `sensitivity`.
_ROUNDING: Final = 2.0**-30


def square_root(count: int) -> NDArray[np.float64]:
    """Return the first coefficients of the Toeplitz square root of the triangle of ones, binom(2k, k) / 4^k."""
    k = np.arange(1, count)
    return np.cumprod(np.concatenate([[1.0], (2 * k - 1) / (2 * k)]))


@lru_cache(maxsize=64)
def _coefficients(count: int) -> tuple[float, ...]:
    return tuple(square_root(count).tolist())


@dataclass(frozen=True)
class SquareRoot(Checked):
    """The square-root factorisation for T cumulative sums.

    Formal guarantees:
        * ``sensitivity`` is an upper bound on the norm of the sum of any K columns of C = B^-1 A. B is the matrix of
          float64 numbers that noise is really multiplied with.
        * A unit that is new in at most K of the T sums moves C x by at most that, times its bound in each of them.
    """

    # T, and K: a record is new in one sum, and a person may be in several.
    steps: Annotated[int, Whole(1, MOST_STEPS)]
    most: Annotated[int, Whole(1, MOST_STEPS)] = 1

    @property
    def sensitivity(self) -> float:
        """Largest norm of a sum of K columns of C, which is that of its first K, rounded up."""
        # Coefficients of C are positive and fall. The product of columns i < j is the sum of c_u c_(u+j-i) over u from
        # 0 to T - j. It falls in j and in j - i, so no K columns have larger products than the first K. Products are
        # positive: all that a unit adds to the K sums is longest where it points the same way.
        # B', float64's B, has coefficients off by at most 2 k of themselves times 2^-53 < 2^-42. With F = B' - B, C' =
        # B'^-1 A = (I + B^-1 F)^-1 C. Coefficients of B^-1 are those of sqrt(1 - x), whose sizes sum to 2 at most;
        # those of B to at most 1 + 2 sqrt(T) < 2^6.01. So B^-1 F has an operator norm below 2^-34, and columns of C'
        # are longer than those of C by less than a factor 1 / (1 - 2^-34). So are sums of columns. The factor here,
        # 1 + 2^-30, covers that and the rounding of this very sum.
        return math.sqrt(math.fsum(value * value for value in self.moved)) * (1 + _ROUNDING)

    @property
    def moved(self) -> list[float]:
        """(T,) the sum of the first K columns of C: by how much each row moves at most."""
        column = _coefficients(self.steps)
        return [math.fsum(column[max(0, row - self.most) : row]) for row in range(1, self.steps + 1)]

    def growth(self, step: int) -> float:
        """Return the standard deviation of the noise in sum t over that of one query at the price of all T sums."""
        # For z of variance 1, (B z)_t has the norm of row t of B as its deviation; t is 1 to T.
        return self.sensitivity * math.sqrt(math.fsum(value * value for value in self.weights(step)))

    def weights(self, step: int) -> tuple[float, ...]:
        """Row t of B, up to its diagonal: what z_1, ..., z_t are multiplied with."""
        return _coefficients(self.steps)[:step][::-1]


def correlated_noise(
    streams: SecretStreams,
    purpose: str,
    number: Sequence[int],
    shape: int | tuple[int, ...],
    std: float,
    factor: SquareRoot,
    step: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Noise of the sums t and t - 1, whole numbers: round((B z)_t), round((B z)_(t-1)); ``std`` of z in lattice steps.

    Formal guarantees:
        * Right law: z has independent entries N(0, std^2), to the precision of
          :func:`privmix.mechanisms.noise.gaussian_on_lattice`. The rounding of products and sums in float64 is of the
          order of the error of draws.
        * Remade: a function of key, purpose, numbers and t alone. The noise of t - 1 is to the last bit the noise that
          step t - 1 got; only the key has to be kept for earlier steps.
    """
    # The streams of `purpose` serve nothing else; `number` follows the step in their names. Noise before t = 1 is 0.
    now, before = np.zeros(shape), np.zeros(shape)
    own, earlier = factor.weights(step), factor.weights(step - 1)
    drawn: NDArray[np.float64] = np.empty(shape)
    for number_of_step in range(1, step + 1):
        with streams.lent(purpose, number_of_step, *number) as generator:
            generator.standard_normal(out=drawn)
        drawn *= std
        now += own[number_of_step - 1] * drawn
        if number_of_step < step:
            before += earlier[number_of_step - 1] * drawn
    return _whole(now), _whole(before)


def _whole(noise: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.rint(noise, out=noise)
