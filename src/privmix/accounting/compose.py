"""Compose a privacy loss with itself many times, with an explicit bound on the rounding error of the FFT."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft, signal

from privmix.accounting.pairs import LossPmf

Array = NDArray[np.float64]

# Mass outside the composed window; it is counted as infinite loss.
TAIL_MASS = 1e-17
_TILTS = np.logspace(-2, 2.5, 37)
_COARSE_CELLS = 2048


def window(pmf: LossPmf, count: int) -> tuple[int, int]:
    """Grid indices between which ``count`` compositions keep all but ``TAIL_MASS`` of their mass (Chernoff bounds)."""
    if not pmf.probs.any():
        return 0, 0
    losses, log_masses = _coarse(pmf)
    spread = max(math.sqrt(count * pmf.moments()[1]), pmf.step)
    tilts = _TILTS / spread
    budget = -math.log(TAIL_MASS / 2)
    high = min((count * _log_mgf(losses, log_masses, tilt) + budget) / tilt for tilt in tilts)
    low = -min((count * _log_mgf(-losses, log_masses, tilt) + budget) / tilt for tilt in tilts)
    most, least = (pmf.lower + pmf.probs.size - 1) * count, pmf.lower * count
    high_index = min(most, math.ceil(high / pmf.step)) if math.isfinite(high) else most
    low_index = max(least, math.floor(low / pmf.step)) if math.isfinite(low) else least
    return min(low_index, high_index), high_index


def self_compose(pmf: LossPmf, count: int) -> LossPmf:
    """Return the loss of ``count`` independent runs, rounded to the safe side.

    The FFT's rounding error is measured on the result: entries that should be >= 0 come out negative by about that
    error. The largest such error, times the number of grid points, is added to the infinite loss.
    """
    if count == 1 or not pmf.probs.any():
        return pmf
    low, high = window(pmf, count)
    size = int(fft.next_fast_len(max(high - low + 1, pmf.probs.size), real=True))
    peak = int(np.argmax(pmf.probs))
    composed = fft.irfft(_power(_spectrum_minus_one(pmf, peak, size), count), size)
    # The transform is periodic: entry k stands for index (lower + peak) * count + k modulo size.
    composed = np.roll(composed, -((low - (pmf.lower + peak) * count) % size))[: high - low + 1]
    noise = _rounding(composed)
    np.maximum(composed, 0, out=composed)
    lost = -math.expm1(count * math.log1p(-pmf.infinity)) if pmf.infinity < 1 else 1.0
    infinity = min(1.0, lost + TAIL_MASS + noise * composed.size)
    return LossPmf(low, composed, infinity, pmf.step)


def _rounding(convolved: Array) -> float:
    """Rounding error an entry of an FFT convolution may have: what negative entries show, and no less than its floor.

    The floor is the forward error of an FFT of this length, spread evenly over its entries.
    """
    floor = 32 * np.finfo(np.float64).eps * math.log2(convolved.size + 1) * float(convolved.max())
    return max(float(floor) / math.sqrt(convolved.size), -float(convolved.min()))


def _spectrum_minus_one(pmf: LossPmf, peak: int, size: int) -> NDArray[np.complex128]:
    """Characteristic function around the largest entry, minus 1.

    The peak is often 1 - 1e-7. Its transform carries rounding error near 1e-16, which the power would multiply by the
    number of runs; what is left after subtracting the peak is small, and so is its error.
    """
    rest = pmf.probs.copy()
    rest[peak] = 0.0
    buffer = np.zeros(size)
    buffer[: rest.size] = rest
    buffer = np.roll(buffer, -peak)
    buffer[0] = -(float(rest.sum()) + pmf.infinity)
    return np.asarray(fft.rfft(buffer, size))


def _power(minus_one: NDArray[np.complex128], count: int) -> NDArray[np.complex128]:
    """(1 + z)^count from z, accurate for small z."""
    real, imag = minus_one.real, minus_one.imag
    with np.errstate(divide="ignore"):
        log_size = 0.5 * np.log1p(np.maximum(2 * real + real**2 + imag**2, -1.0))
    angle = np.arctan2(imag, 1 + real)
    return np.asarray(np.exp(count * log_size) * np.exp(1j * (count * angle)))


def _coarse(pmf: LossPmf) -> tuple[Array, Array]:
    """Move the mass to fewer losses, keeping its mean: by convexity the moment generating function only grows."""
    size = pmf.probs.size
    masses: Array = pmf.probs
    index: NDArray[Any] = np.arange(size)
    if size > _COARSE_CELLS:
        stride = -(-size // _COARSE_CELLS)
        node, offset = np.divmod(index, stride)
        share = offset / stride
        nodes = int(node[-1]) + 2
        split = np.bincount(node, pmf.probs * (1 - share), nodes) + np.bincount(node + 1, pmf.probs * share, nodes)
        masses = np.asarray(split, dtype=np.float64)
        index = np.arange(nodes) * stride
    keep = masses > 0
    return np.asarray((pmf.lower + index[keep]) * pmf.step), np.asarray(np.log(masses[keep]))


def _log_mgf(losses: Array, log_masses: Array, tilt: float) -> float:
    exponents = tilt * losses + log_masses
    top = float(exponents.max())
    return top + math.log(float(np.exp(exponents - top).sum()))


def compose(first: LossPmf, second: LossPmf) -> LossPmf:
    """Return the loss of two independent queries on one grid, with the same error bound as :func:`self_compose`."""
    assert first.step == second.step
    probs = signal.fftconvolve(first.probs, second.probs)
    noise = _rounding(probs)
    np.maximum(probs, 0, out=probs)
    infinity = first.infinity + second.infinity - first.infinity * second.infinity + noise * probs.size
    return LossPmf(first.lower + second.lower, probs, min(1.0, infinity), first.step)


def mix_with_nothing(pmf: LossPmf, weight: float) -> LossPmf:
    """Return the loss of a query that runs with public probability ``weight`` and otherwise shows nothing (loss 0)."""
    lower = min(pmf.lower, 0)
    upper = max(pmf.lower + pmf.probs.size, 1)
    probs = np.zeros(upper - lower)
    probs[pmf.lower - lower : pmf.lower - lower + pmf.probs.size] = weight * pmf.probs
    probs[-lower] += 1 - weight
    return LossPmf(lower, probs, weight * pmf.infinity, pmf.step)
