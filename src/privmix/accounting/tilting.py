"""Exponentially tilted losses: the place of the mass that decides a delta, and the normal law's estimate of it.

With Lambda(t) = log E[e^(t L)] of the composed loss L and the tilted law dP_t = e^(t L - Lambda(t)) dP,

    delta(epsilon) = e^(Lambda(t) - t epsilon) E_t[f(L - epsilon)],   f(u) = e^(-t u) (1 - e^-u) for u > 0, else 0.

At the saddle point the tilted loss is centred near epsilon, so that the expectation is not small. A value with an error
of 1e-10 of 1 becomes a delta with an error of 1e-10 of itself. Sources: Grübel and Hermesmeier 1999, Keich 2005 (tilted
FFT); Alghamdi, Asoodeh, Calmon, Gomez, Kosut, Sankar 2023 (saddle points of the divergence).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import erfcx

from privmix.accounting.pairs import UNIT, Atoms

Array = NDArray[np.float64]

# Shevtsova 2010: the Berry-Esseen constant for independent terms.
_BERRY_ESSEEN = 0.56
# The power 1.5 of less than this is no normal float.
_LEAST_VARIANCE = 1e-200
# A tilt that resolves epsilon to this share of itself is enough.
_MOST_TILT = 1e5
# The best tilt of a loss with (almost) no information is infinite; the exponent must stay a float.
_LARGEST_TILT = 1e304


@dataclass(frozen=True)
class Tilted:
    """The tilted composed loss: log moment generating function, mean, variance, sum of third absolute moments."""

    tilt: float
    log_mgf: float
    error: float
    mean: float
    variance: float
    third: float


def weight_peak(tilt: float) -> float:
    """Largest value of f(u) = e^(-tilt u) (1 - e^-u)."""
    return math.exp(-tilt * math.log1p(1 / tilt)) / (1 + tilt)


class Cumulants:
    """Moment generating function of independent losses: ``(atoms, count)`` for each kind of query."""

    def __init__(self, parts: Sequence[tuple[Atoms, float]]) -> None:
        self.parts = parts
        self.infinity: Final = math.fsum(count * atoms.infinity for atoms, count in parts)
        self._cached = lru_cache(maxsize=256)(self._at)
        self._cached_log_mgf = lru_cache(maxsize=256)(self._log_mgf_at)

    def at(self, tilt: float) -> Tilted:
        """Return the loss tilted by ``tilt``, or by the largest that there is."""
        return self._cached(_bounded(tilt))

    def _at(self, tilt: float) -> Tilted:
        sums = np.zeros(5)
        for atoms, count in self.parts:
            log_mgf, error, tilted = _tilt(atoms, tilt)
            mean = float(tilted @ atoms.losses)
            centred = np.abs(atoms.losses - mean)
            square = tilted * centred**2
            sums += count * np.array([log_mgf, error, mean, float(square.sum()), float(square @ centred)])
        log_mgf, error, mean, variance, third = sums.tolist()
        return Tilted(tilt, log_mgf, error + 8 * UNIT * abs(log_mgf), mean, variance, third)

    def log_mgf(self, tilt: float) -> float:
        """Log of E[e^(tilt L); L finite], any real ``tilt``: to the bit what :meth:`at` has, in a third of the time."""
        return self._cached_log_mgf(_bounded(tilt))

    def _log_mgf_at(self, tilt: float) -> float:
        total = 0.0
        for atoms, count in self.parts:
            total += count * _log_mgf(atoms, tilt)
        return total

    def tilt_for(self, epsilon: float) -> float:
        return self._solve(lambda tilted: tilted.mean - epsilon - 1 / tilted.tilt - 1 / (1 + tilted.tilt))

    def tilt_reaching(self, delta: float) -> float:
        """Return the tilt whose saddle point has a divergence of about ``delta``."""
        goal = math.log(delta)
        return self._solve(lambda tilted: goal - _log_divergence(tilted, _saddle_epsilon(tilted)))

    def estimate(self, delta: float) -> tuple[float, float]:
        """Tilt and saddle-point approximation of epsilon >= 0 at ``delta``; a guess, no bound."""
        tilt = self.tilt_reaching(delta)
        epsilon = _saddle_epsilon(self.at(tilt))
        if epsilon <= 0:
            return self.tilt_for(0.0), 0.0
        return tilt, epsilon

    def estimate_log_delta(self, epsilon: float) -> float:
        """Saddle-point approximation of log delta at ``epsilon``; a guess, no bound."""
        return min(0.0, _log_divergence(self.at(self.tilt_for(epsilon)), epsilon))

    def spread(self) -> float:
        return max(math.sqrt(self.at(0.0).variance), 1e-300)

    def _solve(self, rising: Callable[[Tilted], float]) -> float:
        """Positive tilt at which ``rising`` changes its sign, or the largest worth having."""
        low = high = 1 / self.spread()
        while rising(self.at(low)) > 0:
            high, low = low, low / 4
            if low < 1e-200:
                return high
        while rising(self.at(high)) <= 0:
            tilted = self.at(high)
            low, high = high, high * 4
            if tilted.tilt * (abs(tilted.mean) + self.spread()) > _MOST_TILT or high > _LARGEST_TILT:
                return low
        # exp(log(low)) may be another float than low, with another sign.
        ends = {math.log(low): low, math.log(high): high}
        root = scipy.optimize.brentq(lambda t: rising(self.at(ends.get(t, math.exp(t)))), *ends, xtol=1e-3)
        return math.exp(float(root))

    def upper_quantile(self, tilt: float, log_mass: float) -> tuple[float, float]:
        """Return a loss above which the law tilted by ``tilt`` has exp(``log_mass``) or less, and its Chernoff tilt."""
        base = self.log_mgf(tilt)
        return self._chernoff(lambda extra: self.log_mgf(tilt + extra) - base, log_mass)

    def lower_quantile(self, tilt: float, log_mass: float) -> float:
        """Return a loss below which the law tilted by ``tilt`` has mass at most exp(``log_mass``)."""
        base = self.log_mgf(tilt)
        return -self._chernoff(lambda extra: self.log_mgf(tilt - extra) - base, log_mass)[0]

    def _chernoff(self, log_mgf: Callable[[float], float], log_mass: float) -> tuple[float, float]:
        """Least (log_mgf(k) - log_mass) / k that a search over k > 0 finds, and its k; each k gives a bound."""
        bound: Callable[[float], float] = lru_cache(maxsize=None)(lambda k: (log_mgf(k) - log_mass) / k)
        # Half of the largest tilt keeps the sum with the present tilt finite.
        best, factor = min(8 / self.spread(), _LARGEST_TILT / 2), 8.0
        for _ in range(60):
            found = min((best, best / factor, min(best * factor, _LARGEST_TILT / 2)), key=bound)
            if found == best:
                factor = math.sqrt(factor)
                if factor < 1.2:
                    break
            best = found
        return bound(best), best

    def variance_added(self, tilted: Tilted, step: float) -> float:
        """About what a grid of this step adds to the variance of the tilted loss."""
        # "Connect the dots" at distance u from the grid point below adds u (step - u) to a loss's variance. This is at
        # most step^2 / 4 (a sixth on average), and at most step |loss| for the many losses next to 0.
        return self._adding(tilted)(step)

    def _adding(self, tilted: Tilted) -> Callable[[float], float]:
        """:meth:`variance_added` of a step, for several of them."""
        parts = [(count, np.abs(atoms.losses), _tilt(atoms, tilted.tilt)[2]) for atoms, count in self.parts]

        def added(step: float) -> float:
            return sum(count * float(masses @ np.minimum(sizes * step, step**2 / 5)) for count, sizes, masses in parts)

        return added

    def step_adding(self, tilted: Tilted, most: float, width: float) -> float:
        """Largest grid step, up to ``width`` / 32, that adds about ``most`` to epsilon."""
        # To first order epsilon grows by (1 + tilt) / 2 of the variance added under the tilted law.
        variance, added = 2 * most / (1 + tilted.tilt), self._adding(tilted)
        high = width / 32
        if added(high) <= variance:
            return high
        low = high
        while added(low) > variance and low > 1e-300:
            high, low = low, low / 4
        for _ in range(5):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if added(middle) <= variance else (low, middle)
        return low

    def log_bound(self, tilted: Tilted, epsilon: float) -> float:
        """Log of a proven bound on delta at ``epsilon``, without infinite loss: normal law or Chernoff, the lesser."""
        exponent = tilted.log_mgf - tilted.tilt * epsilon + math.log(weight_peak(tilted.tilt))
        chernoff = exponent + tilted.error + 1e-9 + 8 * UNIT * abs(tilted.tilt * epsilon)
        return min(chernoff, self.normal_log_bound(tilted, epsilon))

    def normal_log_bound(self, tilted: Tilted, epsilon: float, sign: int = 1) -> float:
        """Log of a proven bound on delta at ``epsilon``: upper (``sign`` 1) or lower (-1), without infinite loss."""
        # Under the tilted law the composed loss is within the Berry-Esseen distance of a normal law; the expectation of
        # f moves by at most that times its total variation. The lower bound is one for these atoms; it bounds the event
        # only where they are a post-processing of it.
        deviation = math.sqrt(tilted.variance)
        # Cubes of smaller deviations are lost to underflow, and the distance with them.
        if tilted.variance < _LEAST_VARIANCE:
            return math.inf if sign > 0 else -math.inf
        z = (epsilon - tilted.mean) / deviation
        near, far = (float(erfcx((z + order * deviation) / math.sqrt(2))) for order in (tilted.tilt, 1 + tilted.tilt))
        if not math.isfinite(near):
            return math.inf if sign > 0 else -math.inf
        expected = 0.5 * math.exp(-z * z / 2) * (near - far + sign * 64 * UNIT * near)
        distance = _BERRY_ESSEEN * tilted.third / tilted.variance**1.5 * (1 + 1e-9)
        value = expected + sign * 2 * weight_peak(tilted.tilt) * min(1.0, distance)
        if value <= 0:
            return -math.inf
        exponent = tilted.log_mgf - tilted.tilt * epsilon
        return exponent + math.log(value) + sign * (tilted.error + 1e-9 + 8 * UNIT * abs(tilted.tilt * epsilon))


def _bounded(tilt: float) -> float:
    return max(-_LARGEST_TILT, min(tilt, _LARGEST_TILT))


def _change(atoms: Atoms, exponents: Array) -> tuple[float, Array] | None:
    """E[e^exponent] - 1 and what each atom adds to it; None where that overflows or cancels."""
    if float(exponents.max()) < 500:
        grown = np.expm1(exponents)
        change = float(atoms.probs @ grown) - atoms.missing
        if change > -0.9:
            return change, grown
    return None


def _log_mgf(atoms: Atoms, tilt: float) -> float:
    found = _change(atoms, tilt * atoms.losses)
    return _tilt(atoms, tilt)[0] if found is None else math.log1p(found[0])


def _tilt(atoms: Atoms, tilt: float) -> tuple[float, float, Array]:
    """Log moment generating function of one query, its rounding error, and the tilted masses (sum 1)."""
    exponents = tilt * atoms.losses
    if (found := _change(atoms, exponents)) is not None:
        change, grown = found
        rounding = 64 * UNIT * (float(atoms.probs @ np.abs(grown)) + abs(atoms.missing))
        log_mgf = math.log1p(change)
        return log_mgf, rounding / (1 + change), atoms.probs * np.exp(exponents - log_mgf)
    with np.errstate(divide="ignore"):
        logs = exponents + np.log(atoms.probs)
    top = float(logs.max())
    if top == -math.inf:
        return -math.inf, 0.0, np.zeros(logs.size)
    scaled = np.exp(logs - top)
    total = float(scaled.sum())
    return top + math.log(total), 64 * UNIT * (1 + abs(top) + float(np.abs(exponents).max())), scaled / total


def _saddle_epsilon(tilted: Tilted) -> float:
    return tilted.mean - 1 / tilted.tilt - 1 / (1 + tilted.tilt)


def _log_divergence(tilted: Tilted, epsilon: float) -> float:
    """Saddle-point approximation of log delta: the normal law under the tilted measure."""
    deviation = math.sqrt(tilted.variance)
    if deviation == 0:
        return -math.inf
    z = (epsilon - tilted.mean) / deviation
    near, far = (float(erfcx((z + order * deviation) / math.sqrt(2))) for order in (tilted.tilt, 1 + tilted.tilt))
    gap = near - far
    if not math.isfinite(gap) or gap <= 0:
        return tilted.log_mgf - tilted.tilt * epsilon - math.log(tilted.tilt) - math.log1p(tilted.tilt)
    return tilted.log_mgf - tilted.tilt * epsilon - z * z / 2 + math.log(gap / 2)
