"""Noise on a public lattice, so that floating-point rounding shows nothing of the sums it is added to.

A float plus float noise can betray the sum (Mironov 2012). Here sums are exact integers (multiples of a public grid
step) and noise is rounded first. Then ``round(sum + noise) == sum + round(noise)`` is the ideal continuous mechanism
followed by rounding, which is post-processing. Assumptions and limits (not in the certificate's figures, no proof
here):

* Noise before rounding follows its continuous law. Outputs of the float64 samplers are at most 2**-50 deviations apart
  in the centre, about 2**-32 at 8. Noise of up to 2**20 lattice steps thus has every lattice point within reach there.
* Second moments live on the square of that grid, noise up to 2**45 steps: beyond some 7 standard deviations points are
  skipped. They are released as float32, coarser than that but for sums that cancel the draw (chance 1e-12 a number).
* Tails end: no normal draw exceeds about 12.2 standard deviations (ideally with probability 2**-111), no Laplace draw
  about 44 scales (2**-64). Pure epsilon strictly holds with such a delta on top, once for every number released.
* The time a draw takes depends on its value: an adversary who measures time or reads memory is not covered. Secrecy of
  the bits is the streams' part (:mod:`privmix.mechanisms.streams`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from privmix.errors import WITHHELD, InvalidInput, check_number
from privmix.fields import Checked, Whole

_EXACT_FLOAT64 = 2**53
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
        """Distance between grid points, ``2 ** -bits``."""
        return 2.0**-self.bits

    def quantise(self, x: NDArray[Any], out: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Return ``x / step`` as float64 integers, each entry rounded toward zero; ``out`` may be ``x``."""
        with np.errstate(over="ignore"):
            scaled: NDArray[np.float64] = np.multiply(x, 2.0**self.bits, out=out, dtype=np.float64)
        # The comparison is false for NaN too.
        if not (scaled.max(initial=0.0) < _EXACT_FLOAT64 and scaled.min(initial=0.0) > -_EXACT_FLOAT64):
            raise InvalidInput("features", WITHHELD, f"finite numbers below 2**53 steps of the grid 2**-{self.bits}")
        return np.trunc(scaled, out=scaled)


def gaussian_on_lattice(
    generator: np.random.Generator, shape: int | tuple[int, ...], std_in_grid_units: float
) -> NDArray[np.float64]:
    """Draw Gaussian noise rounded to integers.

    Formal guarantees:
        * Right law: entries are independent, ``round(N(0, std_in_grid_units ** 2))``; see the module for precision.
        * Integers: the noise is on the lattice.
    """
    # The deviation is in (0, 2^46] steps. Rounding adds a variance of 1/12, which makes the result noisier, never less
    # private.
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
