"""Noise on a public lattice, so that floating-point rounding tells nothing about the sums it is added to.

Floats near different sums have different spacings, so a float plus float noise can betray the sum (Mironov 2012).
Here sums are exact integers (multiples of a public grid step) and noise is rounded to an integer before it is added.
Rounding commutes with adding an integer: ``round(sum + noise) == sum + round(noise)``. The result is therefore the
ideal continuous mechanism followed by rounding, which is post-processing, and the continuous mechanism's price holds.

What that argument assumes, and what is left:

* It takes the noise before rounding to follow its continuous law. The float64 samplers come close: in the centre
  their outputs are at most 2**-50 standard deviations apart, at 8 standard deviations about 2**-32. Noise of up to
  2**20 lattice steps thus has every lattice point within reach there, with probabilities off by a relative error far
  below the accountants' own. No proof of that error is included and the certificate's figures do not count it.
* Second moments live on the square of that grid, where noise is up to 2**45 steps: beyond some 7 standard deviations
  the samplers then skip lattice points. What is released of them is rounded to float32, whose own points lie further
  apart than that wherever such draws could end, but for sums that cancel them; that chance (1e-12 a number) is not in
  the certificate's figures either.
* Tails end: no normal draw exceeds about 12.2 standard deviations (the ideal law does with probability 2**-111), no
  Laplace draw about 44 scales (2**-64). Pure epsilon holds for the ideal law; for this sampler strictly, only
  with such a delta on top, once for every number released.
* The time a draw takes depends on its value. An adversary who can measure it is not covered, and neither is one
  who reads memory.
* Secrecy of the bits is the streams' part: see :mod:`privmix.mechanisms.streams`.
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
    """The grid of multiples of ``2 ** -bits``.

    Attributes:
        bits: from 0 to 40. A public constant of the release.

    Formal guarantees:
        * Integers: quantised entries are integers, held exactly in float64.
        * Norms never grow: every entry moves toward zero, so L1 and L2 norms (times ``step``) do not increase.
        * Per entry: a quantised entry depends on that entry only.

    Example:
        >>> Lattice(bits=2).quantise(np.array([0.3, -0.3, 1.0])).tolist()
        [1.0, -1.0, 4.0]
    """

    bits: Annotated[int, Whole(0, 40)]

    @property
    def step(self) -> float:
        """Distance between grid points, ``2 ** -bits``."""
        return 2.0**-self.bits

    def quantise(self, x: NDArray[Any], out: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Return ``x / step`` with each entry rounded toward zero.

        Args:
            x: real numbers, any shape.
            out: where the result goes: an array of that shape, which may be ``x``; None makes one.

        Returns:
            float64 integers of the same shape. Multiply by ``step`` to get grid points.

        Raises:
            InvalidInput: an entry is not finite or too large for this grid.
        """
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

    Args:
        generator: a secret stream's, used for this and nothing else.
        shape: shape of the result.
        std_in_grid_units: standard deviation divided by the lattice step, in (0, 2**46]. Rounding adds a variance of
            1/12 to its square, which makes the result noisier, never less private.

    Returns:
        float64 integers.

    Raises:
        InvalidInput: the standard deviation is out of range.

    Example:
        >>> noise = gaussian_on_lattice(np.random.default_rng(0), (2, 3), 100.0)
        >>> noise.shape, bool((noise == np.rint(noise)).all())
        ((2, 3), True)
    """
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

    Args:
        generator: a secret stream's, used for this and nothing else.
        shape: shape of the result.
        scale_in_grid_units: scale (standard deviation / sqrt(2)) divided by the lattice step, in (0, 2**46].

    Returns:
        float64 integers.

    Raises:
        InvalidInput: the scale is out of range.

    Example:
        >>> noise = laplace_on_lattice(np.random.default_rng(0), 4, 100.0)
        >>> noise.shape, bool((noise == np.rint(noise)).all())
        ((4,), True)
    """
    scale = check_number("noise in lattice steps", scale_in_grid_units, low=0, low_open=True, high=_LARGEST_SCALE)
    # A difference of exponentials, not the inverse distribution function: in that one's far tail neighbouring
    # floats are many lattice steps apart, and the points between them could never occur.
    # Pairs lie side by side, so that a stream read in pieces gives the same noise as read at once.
    pairs = generator.standard_exponential((*np.atleast_1d(shape), 2))
    noise = pairs[..., 0] - pairs[..., 1]
    noise *= scale
    return np.rint(noise, out=noise)
