"""Compose tilted privacy losses by FFT, with a proven bound on the rounding error.

The tilted masses w = p e^(t l - k) of each query are composed on a circle of 2^j grid points. Every error goes up:

* masses are rounded up before the transform; mass that leaves the circle at one end enters at the other, where it only
  adds; mass above the circle's top is bounded by Chernoff's inequality and counted as infinite loss;
* the transform's error follows Higham 2002 (Accuracy and Stability of Numerical Algorithms, Theorem 24.2 and its
  proof); Parseval brings it back to the grid, Cauchy-Schwarz into the divergence.

The lemmas and constants are in docs/accounting-numerics.md, sections 3 and 4.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from privmix.accounting.pairs import UNIT, LossPmf
from privmix.accounting.tilting import weight_peak

Array = NDArray[np.float64]

# Error of one level of the transform, in rounding units. Higham's analysis gives below 8 for twiddle factors
# rounded to double precision; the library's are.
_LEVEL_ERROR = 16 * UNIT
# This number of runs makes e^-180 of a |1 + z|^2 that is well above rounding: 1e-5.
_FEW = 16
# Values up to which sums in Python take less than the half second that SciPy's module of filters takes to import.
_SHORT = 4096


@dataclass(frozen=True)
class TiltedSum:
    """A composed loss under an exponential tilt, read off as upper bounds on delta; entry i: loss (lower + i) step."""

    # above[i]: sum of masses from i on, each times e^(tilt (l_i - loss)). excess[i]: the same with the factor 1 -
    # e^(l_i - loss), the divergence at l_i up to e^(log_scale - tilt l_i). error: bound on the Euclidean norm of the
    # masses' error. infinity: probability of infinite loss. Divergences are read off from least_loss on.

    lower: int
    step: float
    tilt: float
    log_scale: float
    above: Array
    excess: Array
    error: float
    infinity: float
    least_loss: float

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Upper bound on the divergence at ``epsilon``, and how much of it is allowance for errors."""
        index = math.ceil(epsilon / self.step) - self.lower
        if index < 0 or epsilon < self.least_loss:
            return 1.0, 1.0
        scaled = 0.0
        if index < self.above.size:
            loss = (self.lower + index) * self.step
            above, excess = float(self.above[index]), float(self.excess[index])
            # Between grid points the divergence is linear in e^epsilon.
            shortfall = -math.expm1(min(0.0, epsilon - loss))
            scaled = (excess + shortfall * max(0.0, above - excess)) * exp_of(self._exponent(loss))
        allowance = self.infinity + self._noise() * exp_of(self._exponent(epsilon))
        return min(1.0, scaled + allowance), min(1.0, allowance)

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 in the window with an upper bound of at most ``delta``; infinity if there is none."""
        if self.infinity > delta:
            return math.inf
        first = max(0, math.ceil(max(0.0, self.least_loss) / self.step) - self.lower)
        shift = self.tilt * self.step * (self.lower + np.arange(first, self.above.size))
        exponent = self.log_scale - shift + 8 * UNIT * (abs(self.log_scale) + np.abs(shift))
        with np.errstate(divide="ignore", over="ignore"):
            allowed = np.exp(math.log(delta - self.infinity) - exponent) if delta > self.infinity else 0 * exponent
        too_much = np.flatnonzero(self.excess[first:] + self._noise() > allowed)
        after = first + (int(too_much[-1]) + 1 if too_much.size else 0)
        if after >= self.above.size:
            return math.inf
        low = max(0.0, self.least_loss, (self.lower + after - 1) * self.step)
        high = (self.lower + after) * self.step
        if self.delta(low)[0] <= delta:
            return low
        for _ in range(60):
            middle = (low + high) / 2
            if self.delta(middle)[0] <= delta:
                high = middle
            else:
                low = middle
            if high - low <= 1e-13 * high:
                break
        return high

    def reaches(self, epsilon: float) -> bool:
        """Whether the window goes on below ``epsilon``: at its bottom a smaller one may hide beneath."""
        return self.least_loss <= 0 or epsilon > self.least_loss + self.step

    def _noise(self) -> float:
        """Most that the masses' error adds to a sum of masses times f."""
        t = self.tilt
        square = 1 / (2 * self.step * t * (2 * t + 1) * (t + 1)) + weight_peak(t) ** 2
        return self.error * math.sqrt(square)

    def _exponent(self, loss: float) -> float:
        exponent = self.log_scale - self.tilt * loss
        return exponent + 8 * UNIT * (abs(self.log_scale) + abs(self.tilt * loss))


@dataclass(frozen=True)
class _Part:
    """One query's tilted masses from the peak on, less 1 at the peak, then the ``before`` ones before it."""

    # peak: its index on the grid; log_scale: log of the factor taken out.

    count: int
    peak: int
    minus_one: Array
    before: int
    log_scale: float


def compose(
    parts: Sequence[tuple[LossPmf, int]], tilt: float, lower: int, size: int, top_tilt: float, least_loss: float
) -> TiltedSum:
    """Return the loss of independent queries, each run ``count`` times, on ``size`` (power of 2) points from ``lower``.

    Formal guarantees:
        * ``delta(epsilon)`` of the result is at least the divergence of the composed grid losses, at every epsilon in
          the window, under any rounding.
    """
    # top_tilt: of Chernoff's bound for the mass above the window; least_loss: least epsilon to read off.
    step = parts[0][0].step
    top = lower + size
    lost = math.fsum(count * pmf.infinity for pmf, count in parts) * (1 + 1e-12)
    if top <= sum((pmf.lower + pmf.probs.size - 1) * count for pmf, count in parts):
        exponent = top_tilt * top * step
        lost += exp_of(_log_mgf_bound(parts, top_tilt) - exponent + 8 * UNIT * abs(exponent))
    tilted = [_tilted(pmf, count, tilt) for pmf, count in parts]
    masses, error = _convolve(tilted, lower, size)
    scale = math.fsum(part.count * part.log_scale for part in tilted)
    # Rounding of the sums below: every term is positive, and none passes more than size + 8 operations.
    slack = 4 * UNIT * (size + 8) + 8 * UNIT * sum(part.count * abs(part.log_scale) for part in tilted)
    decay, faster = math.exp(-tilt * step), math.exp(-(1 + tilt) * step)
    above = _running(masses[::-1], decay)
    later = np.concatenate(([0.0], above[:-1])) * (decay * -math.expm1(-step))
    excess = _running(later, faster)
    return TiltedSum(
        lower,
        step,
        tilt,
        scale + slack,
        above[::-1],
        excess[::-1],
        error,
        min(1.0, lost),
        max(least_loss, lower * step),
    )


def _running(values: Array, decay: float) -> Array:
    """Each value and ``decay`` times the sum up to the one before it."""
    if values.size <= _SHORT:
        return np.fromiter(accumulate(values.tolist(), lambda total, value: value + decay * total), float, values.size)
    from scipy.signal import lfilter

    return np.asarray(lfilter([1.0], [1.0, -decay], values))


def _log_mgf_bound(parts: Sequence[tuple[LossPmf, int]], tilt: float) -> float:
    """Log of E[e^(tilt L); L finite], rounded up."""
    total = 0.0
    for pmf, count in parts:
        exponents = tilt * pmf.losses()
        with np.errstate(divide="ignore"):
            logs = exponents + np.log(pmf.probs)
        top = float(logs.max())
        if top < 0 and float(exponents.max()) < 600:
            grown = np.expm1(exponents)
            change = float(pmf.probs @ grown) - pmf.missing
            change += 128 * UNIT * (float(pmf.probs @ np.abs(grown)) + abs(pmf.missing))
            total += count * math.log1p(change)
        else:
            total += count * (top + math.log(float(np.exp(logs - top).sum())) + 1e-13 * (1 + abs(top)))
    return total + 8 * UNIT * abs(total)


def _tilted(pmf: LossPmf, count: int, tilt: float) -> _Part:
    """Masses p e^(tilt l - k), each rounded up, with 1 subtracted at the largest."""
    # The largest is often 1 - 1e-9: subtracting 1, by its complement's own sum, leaves small numbers with small errors,
    # which the power would multiply by the number of runs.
    exponents = tilt * pmf.losses()
    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log(pmf.probs), -1e4)
    whole = exponents + logs
    peak = int(whole.argmax())
    scale = math.nan
    if float(exponents.max()) < 600:
        change = float(pmf.probs @ np.expm1(exponents)) - pmf.missing
        scale = math.log1p(change) if change > -0.9 else math.nan
    if math.isnan(scale):
        scale = float(whole[peak]) + math.log(float(np.exp(whole - whole[peak]).sum()))
    direct = exponents - scale
    far = direct > 600  # e^x is no float there, e^(x + log p) is
    masses = pmf.probs * np.exp(np.minimum(direct, 600))
    masses[far] = np.exp(whole[far] - scale)
    masses *= 1 + UNIT * (16 + 4 * (np.abs(exponents) + abs(scale) + np.where(far, np.abs(logs), 0)))
    rest = math.fsum((float(pmf.probs[:peak].sum()), float(pmf.probs[peak + 1 :].sum())))
    complement = rest + pmf.missing
    own = math.log1p(-complement) if complement < 0.5 else float(logs[peak])
    at = float(exponents[peak])
    exponent = own + at - scale
    doubt = 64 * UNIT * (abs(own) + abs(at) + abs(scale) + rest + abs(pmf.missing))
    masses[peak] = math.expm1(exponent) + doubt * math.exp(min(exponent, 1.0)) + 8 * UNIT * abs(exponent)
    return _Part(count, pmf.lower + peak, np.concatenate((masses[peak:], masses[:peak])), peak, scale)


def _convolve(parts: Sequence[_Part], lower: int, size: int) -> tuple[Array, float]:
    """Masses of the sum on the window from ``lower``, and a bound on the Euclidean norm of their error."""
    offset = sum(part.count * part.peak for part in parts)
    if len(parts) == 1 and parts[0].count == 1:
        masses = _on_circle(parts[0], size)
        masses[0] += 1
        return np.maximum(np.roll(masses, offset - lower), 0.0), 2 * UNIT
    relative = _LEVEL_ERROR * math.log2(size) * 1.01
    product, error = np.ones(size // 2 + 1, dtype=np.complex128), np.zeros(size // 2 + 1)
    for part in parts:
        powered, its_error = _power(_on_circle(part, size), part.count, relative)
        if its_error[0] == math.inf:
            return np.ones(size), math.inf
        error = error * (np.abs(powered) + its_error) + np.abs(product) * (its_error + 8 * UNIT * np.abs(powered))
        product = product * powered
    masses = fft.irfft(product, size)
    total = (_norm(error) * (1 + 1e-6) + relative * _norm(product)) / math.sqrt(size) * (1 + 1e-6)
    return np.maximum(np.roll(masses, (offset - lower) % size), 0.0), total


def _on_circle(part: _Part, size: int) -> Array:
    """Return the part's masses from its peak on, wrapped around a circle of ``size`` points; rounded up."""
    circle = np.zeros(size)
    points = part.minus_one.size
    if points <= size:
        circle[: points - part.before] = part.minus_one[: points - part.before]
        circle[size - part.before :] += part.minus_one[points - part.before :]
        return circle
    index = np.concatenate((np.arange(points - part.before), np.arange(-part.before, 0))) % size
    up = 4 * UNIT * math.ceil(points / size) * np.bincount(index, np.abs(part.minus_one), size)
    return np.asarray(np.bincount(index, part.minus_one, size) + up)


def _power(masses: Array, count: int, relative: float) -> tuple[NDArray[np.complex128], Array]:
    """(1 + z)^count for the transform z of ``masses``, and a bound on each entry's error."""
    # |(z + d)^n - z^n| <= n |d| (|z| + |d|)^(n - 1), and no |z| exceeds the sum of the masses. With many runs only the
    # few frequencies at which the power is at least e^-90 are kept. There masses next to the peak are summed by
    # moments, the error relative to their variance. Near 1 logs are of |1 + z|^2 - 1, whose rounding is relative to z.
    size = masses.size
    length = float(np.abs(masses).sum())
    surplus = float(masses.sum()) + 64 * UNIT * length
    growth = count * math.log1p(max(0.0, surplus) + 2 * relative * length)
    if growth > 100:
        return np.ones(size // 2 + 1, dtype=np.complex128), np.full(size // 2 + 1, math.inf)
    bound = math.exp(growth) * (1 + 1e-9)
    spectrum = fft.rfft(masses, size)
    # With few runs the power is no less than what rounding hides of a small |1 + z|: all are kept.
    least = -math.inf if count < _FEW else math.expm1(-180 / count)
    kept = np.flatnonzero(_size_change(spectrum) > least)
    small, error = spectrum[kept], np.full(kept.size, relative * length)
    near = size // (7 * max(1, int(kept[-1]))) if kept.size else 0
    if near > 0 and count > 1:
        small, error = _by_moments(masses, near, kept, max(0.0, surplus), relative)
    change = _size_change(small)
    far = change < -0.5
    modulus = np.maximum(np.hypot(1 + small.real, small.imag), 1e-300)
    log_size = np.where(far, np.log(modulus), 0.5 * np.log1p(np.maximum(change, -0.5)))
    angle = np.arctan2(small.imag, 1 + small.real)
    powered = np.zeros(size // 2 + 1, dtype=np.complex128)
    powered[kept] = np.exp(count * log_size + 1j * (count * angle))
    distance = np.abs(small)
    rounding = np.where(far, 1.0, 2 * (distance + distance**2))
    doubt = 8 * UNIT * (1 + count * (np.abs(log_size) + np.abs(angle) + rounding))
    less = np.exp((count - 1) * (log_size + np.log1p(error * np.exp(-log_size))))
    # The omitted part is no larger than e^-90, twice that with the transform's error.
    doubts = np.full(powered.size, 1e-39 * bound)
    doubts[kept] = (np.abs(powered[kept]) * doubt + count * error * less) * (1 + 1e-6)
    return powered, doubts


def _size_change(small: NDArray[np.complex128]) -> Array:
    return np.asarray(2 * small.real + small.real**2 + small.imag**2)


def _by_moments(
    masses: Array, near: int, kept: NDArray[np.intp], surplus: float, relative: float
) -> tuple[NDArray[np.complex128], Array]:
    """Transform at the frequencies ``kept``, and a bound on each entry's error."""
    # With the surplus over 1 rounded up (more mass at the peak only adds) it is surplus + sum of w_j (e^(-i w j) - 1).
    # If |j| <= near, the phase is below 1, and 18 moments give the sum to within 1e-17 of the second one.
    size = masses.size
    far = masses.copy()
    far[0] = far[1 : near + 1] = far[-near:] = 0.0
    jumps = float(far.sum())
    far[0] = -jumps
    close = np.concatenate((masses[1 : near + 1], masses[-near:]))
    place = np.concatenate((np.arange(1, near + 1), np.arange(-near, 0))) / near
    phase = kept * (2 * math.pi * near / size)
    terms = close * place
    first, length = math.fsum(terms.tolist()), float(np.abs(terms).sum())
    terms = terms * place
    second, moments = float(terms.sum()), []
    for order in range(2, 19):
        moments.append(float(terms.sum()) * (-1j) ** order / math.factorial(order))
        terms = terms * place
    total = np.zeros(kept.size, dtype=np.complex128)
    for moment in reversed(moments):
        total = total * phase + moment
    total = total * phase**2 - 1j * first * phase + fft.rfft(far, size)[kept] + surplus
    error = UNIT * (8 * phase * length + 128 * phase**2 * second) + 2.01 * (relative + 64 * UNIT) * jumps
    return total, error + 8 * UNIT * surplus


def _norm(half: NDArray[np.complex128] | Array) -> float:
    """Bound on the Euclidean norm of a spectrum of which one half is given."""
    return math.sqrt(2) * float(np.linalg.norm(half)) * (1 + 1e-9)


def exp_of(exponent: float) -> float:
    return math.exp(min(exponent, 700.0))
