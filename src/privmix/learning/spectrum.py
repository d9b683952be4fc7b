"""Estimate the spectrum behind a noisy matrix, and the reliability of each noisy eigenvector.

A released or sampled matrix S has other eigenvectors than the covariance A behind it. For an eigenvector u of S a
learner needs u'Au, the variance of records along it, and |Au|^2, which exceeds its square as u is no eigenvector of A.
In high dimension both follow from S's eigenvalue, the law of the noise and A's spectrum, which is the one of highest
likelihood. No constant is fitted to data.

Sources: for additive noise Bun, Allez, Bouchaud and Potters (2016); for samples Silverstein (1995), Ledoit and Peche
(2011). The second number is derived here in the same way.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Complexes = NDArray[np.complex128]

# A spectrum is weights on a grid of variances, which spans so much below the largest.
_SPAN: Final = 1e-5
_STEPS: Final = 8
_MANY_STEPS: Final = 200
# Steps that move a trace by a smaller share of the largest are rounding.
_STILL: Final = 1e-14


@dataclass(frozen=True)
class Fineness:
    """Fineness of the search: ``atoms`` of the grid, ``apart`` single eigenvalues, ``groups`` of others, ``rounds``."""

    atoms: int
    apart: int
    groups: int
    rounds: int


# Twice as many of anything change results by less than the noise does.
FINE: Final = Fineness(160, 100, 400, 100)
# A tenth of the time; off by no more than another draw of the noise is.
COARSE: Final = Fineness(64, 16, 32, 40)


@dataclass(frozen=True)
class NoiseLaw(ABC):
    """Law of S given A (d x d): t(z) = tr (S - z)^-1 / d. This is (1/k) tr (A - Z)^-1 / d for some Z, k of z and t."""

    dim: int

    @abstractmethod
    def scale(self, values: Reals) -> float:
        """Return the standard deviation of an entry of S off the diagonal; it limits the resolution of a spectrum."""

    @abstractmethod
    def shifted(self, z: Complexes, trace: Complexes) -> tuple[Complexes, Complexes]:
        """Z and k at ``z``, where ``trace`` is t(z)."""

    @abstractmethod
    def along(self, values: Reals, trace: Complexes, mean: float) -> tuple[Reals, Reals]:
        """u'Au, and |Au|^2 - (u'Au)^2, for eigenvalues ``values`` of S, t there, and ``mean``, that of A's spectrum."""


@dataclass(frozen=True)
class AdditiveNoise(NoiseLaw):
    """S = A + N, with N symmetric and Gaussian; ``deviation`` is that of an entry off the diagonal."""

    deviation: float

    def scale(self, values: Reals) -> float:
        return self.deviation

    def shifted(self, z: Complexes, trace: Complexes) -> tuple[Complexes, Complexes]:
        # Pastur's equation, with s^2 = d deviation^2: t(z) = tr (A - z - s^2 t)^-1 / d.
        return z + self.dim * self.deviation**2 * trace, np.ones_like(z)

    def along(self, values: Reals, trace: Complexes, mean: float) -> tuple[Reals, Reals]:
        power = self.dim * self.deviation**2
        # Bun et al. 2016, eq. 6.2; likewise Im tr A^2 (S - z)^-1 / Im tr (S - z)^-1 is its square and what follows.
        return values + 2 * power * trace.real, power * (1 - power * np.abs(trace) ** 2)


@dataclass(frozen=True)
class SamplingNoise(NoiseLaw):
    """S = X'X / T for T independent rows of covariance A."""

    rows: int

    def scale(self, values: Reals) -> float:
        return float(values.sum()) / self.dim / math.sqrt(self.rows)

    def shifted(self, z: Complexes, trace: Complexes) -> tuple[Complexes, Complexes]:
        # Silverstein 1995: t(z) = tr (k A - z)^-1 / d, with k = 1 - q - q z t and q = d / T.
        k = self._k(z, trace)
        return z / k, k

    def along(self, values: Reals, trace: Complexes, mean: float) -> tuple[Reals, Reals]:
        k = self._k(values, trace)
        # Ledoit and Peche 2011: u'Au = l / |k|^2; likewise |Au|^2 = (u'Au)^2 (1 - |1 - k|^2) + q (u'Au) tr A / d.
        variance = values / np.maximum(np.abs(k) ** 2, np.finfo(float).tiny)
        return variance, self.dim / self.rows * mean * variance - np.abs(1 - k) ** 2 * variance**2

    def _k(self, z: Complexes | Reals, trace: Complexes) -> Complexes:
        ratio = self.dim / self.rows
        return np.asarray(1 - ratio - ratio * z * trace)


@dataclass(frozen=True, eq=False)
class KnownVariance:
    """Along S's eigenvectors (k,): ``variance`` u'Au less the lower bound, ``spread`` |Au|^2 - (u'Au)^2."""

    variance: Reals
    spread: Reals


def known_variance(values: Reals, law: NoiseLaw, floor: float = 0.0, fineness: Fineness = FINE) -> KnownVariance:
    """Estimate A along the eigenvectors of S from S's k eigenvalues, ascending; k < d where others are 0."""
    # `floor`: A is at least this in every direction, as where rows carry noise of their own.
    scale = law.scale(values)
    top = max(float(values[-1]) - floor, scale, np.finfo(float).tiny)
    if scale <= top * np.finfo(np.float32).eps:
        return KnownVariance(np.maximum(values - floor, top * _SPAN), np.zeros_like(values))
    points, counts = _grouped(values, law.dim, fineness)
    atoms = floor + np.geomspace(_SPAN, 1.02, fineness.atoms) * top
    weights = _likeliest(points, counts, atoms, law, 2 * scale, fineness.rounds)
    trace = _trace((points + 0.1j * scale).astype(np.complex128), atoms, weights, law, _MANY_STEPS)
    variance, spread = law.along(points, trace, float(weights @ atoms))
    # Along eigenvectors the variance rises with the eigenvalue, under both laws. A spectrum that is slightly wrong may
    # give a lone eigenvalue a variance near 0, by which a learner would divide: neighbours replace it.
    fitted = scipy.optimize.isotonic_regression(variance, weights=counts).x
    sound = variance >= fitted - 1e-9 * np.abs(fitted)
    rising = np.maximum.accumulate(variance[sound])
    return KnownVariance(
        np.maximum(np.interp(values, points[sound], rising) - floor, atoms[0] - floor),
        np.maximum(np.interp(values, points[sound], spread[sound]), 0.0),
    )


def with_trace(known: KnownVariance, seen: float, deviation: float, least: float = 0.0) -> KnownVariance:
    """Return the same, raised alike along all directions to the trace that a noisy one leads to, above ``least``."""
    # If noise hides the trace, the likeliest spectrum is often next to nothing, by which a learner would divide. Traces
    # above `least` are taken as equally likely: their mean is that of the normal law beyond it.
    apart = min(max((least - seen) / (deviation or 1e-300), -30.0), 30.0)
    beyond = math.exp(-(apart**2) / 2 - float(scipy.special.log_ndtr(-apart))) / math.sqrt(2 * math.pi)
    lacking = max(least, seen + deviation * beyond) - float(known.variance.sum())
    return KnownVariance(known.variance + max(0.0, lacking) / len(known.variance), known.spread)


def _grouped(values: Reals, dim: int, fineness: Fineness) -> tuple[Reals, Reals]:
    """Points that stand for the eigenvalues, ascending, and the share of all d that each stands for."""
    apart = min(fineness.apart, len(values))
    lower = values[: len(values) - apart]
    groups = np.array_split(lower, min(fineness.groups, len(lower))) if len(lower) else []
    points = np.concatenate([[group.mean() for group in groups], values[len(lower) :]])
    counts = np.concatenate([[len(group) for group in groups], np.ones(apart)])
    if len(values) < dim:
        points, counts = np.concatenate([[0.0], points]), np.concatenate([[dim - len(values)], counts])
    return points, counts / dim


def _likeliest(points: Reals, counts: Reals, atoms: Reals, law: NoiseLaw, blur: float, rounds: int) -> Reals:
    """Weights of a spectrum on ``atoms``, by expectation maximisation."""
    # The start is a power law with the trace of S, which noise hardly moves: it remains where noise hides all else.
    weights = _power_law(atoms, float(counts @ points))
    z = (points + 1j * blur).astype(np.complex128)
    trace, room = _trace(z, atoms, weights, law, _MANY_STEPS), np.empty((2, len(z), len(atoms)))
    for _ in range(rounds):
        shift, k = law.shifted(z, trace)
        apart, inverse = _apart(atoms, shift, room)
        # The share of A's eigenvectors of a variance in an eigenvector of S (Ledoit and Peche 2011):
        # the imaginary part of 1 / (k (a - Z)).
        apart *= (1 / k).imag[:, None]
        apart += (shift.imag * (1 / k).real)[:, None]
        apart *= inverse
        overlap = np.maximum(np.multiply(apart, weights, out=apart), np.finfo(float).tiny, out=apart)
        weights = counts @ (overlap / overlap.sum(axis=1, keepdims=True))
        trace = _trace(z, atoms, weights, law, _STEPS, trace)
    return weights


def _power_law(atoms: Reals, mean: float) -> Reals:
    """Weights in proportion to a power of the atoms, with the given mean as far as a power from -4 to 4 has it."""
    heights = np.log(atoms / atoms[-1])

    def weights(power: float) -> Reals:
        found = np.exp(power * heights - max(power * heights[0], 0.0))
        return np.asarray(found / found.sum())

    low, high = -4.0, 4.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if weights(middle) @ atoms < mean else (low, middle)
    return weights(low)


def _trace(
    z: Complexes, atoms: Reals, weights: Reals, law: NoiseLaw, steps: int, start: Complexes | None = None
) -> Complexes:
    """Return tr (S - z)^-1 / d for a spectrum of A: the fixed point of :meth:`NoiseLaw.shifted`, by damped steps."""
    trace, room = -1 / z if start is None else start, np.empty((2, len(z), len(atoms)))
    for number in range(steps):
        last, (shift, k) = trace, law.shifted(z, trace)
        apart, inverse = _apart(atoms, shift, room)
        imaginary = shift.imag * (inverse @ weights)
        trace = (trace + (np.multiply(apart, inverse, out=apart) @ weights + 1j * imaginary) / k) / 2
        if number % _STEPS == _STEPS - 1 and np.abs(trace - last).max() <= _STILL * np.abs(trace).max():
            break
    return trace


def _apart(atoms: Reals, shift: Complexes, room: Reals) -> tuple[Reals, Reals]:
    """(k, atoms) d = a - x and 1 / (d^2 + y^2): 1 / (a - x - iy) is their product and i y times the second."""
    # NumPy divides complex numbers one by one. Both are written into `room`: large arrays are slow to allocate.
    apart, inverse = room
    np.subtract(atoms, shift.real[:, None], out=apart)
    np.square(apart, out=inverse)
    inverse += np.square(shift.imag)[:, None]
    return apart, np.reciprocal(inverse, out=inverse)
