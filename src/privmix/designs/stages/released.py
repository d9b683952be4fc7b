"""Numbers of a release in two or three stages, and the map of each stage, which follows from those before it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.designs.stages.three_plan import ThreeStagePlan
from privmix.designs.stages.two_plan import NORM_EDGES, TwoStagePlan
from privmix.errors import InvalidInput
from privmix.mechanisms.clipping import l2_norms
from privmix.mechanisms.noise import exact_bits
from privmix.publication.second_moments import (
    Arrays,
    SecondMoments,
    Spectrum,
    eigh_lower,
    kronecker_cleaned,
    spectrum_of,
)

Reals = NDArray[np.float64]

# A direction's variance is raised by this before it divides: a share of the mean variance, and at the least one of the
# noise's.
_FLOOR = 0.3
_LEAST = 1e-3
# The least variance of a class's residuals, as a share of the largest: float32 resolves no smaller one.
LEAST = float(np.finfo(np.float32).eps)
# Shares of the variance between classes that are weighed against each other.
_SHARES = np.geomspace(1e-6, 1.0, 56)


@dataclass(frozen=True, eq=False)
class TwoStageMoments(SecondMoments):
    """Public second moments of records (:class:`SecondMoments`), and the scatter of residuals within classes."""

    # Let z be a transformed record divided by its clipping bound, rounded to the lattice. The residual of a record of
    # class k is ``directions`` (r, d) z - ``means`` (K, r)[k]. norms (bins,): noisy counts of records by the norm of
    # their residual, the last one of all longer ones, with noise of deviation noise_std_norms. within (r, r): sum of u
    # u' plus noise, u residuals clipped to ``bound`` and divided by it; noise_std_within on its diagonal, 1/sqrt(2) of
    # it elsewhere.

    directions: NDArray[np.float32]
    means: NDArray[np.float32]
    norms: NDArray[np.float32]
    within: NDArray[np.float32]
    bound: float
    noise_std_norms: float
    noise_std_within: float

    @classmethod
    def derived(cls, plan: Any, arrays: Arrays) -> Mapping[str, Any]:
        if not (arrays["directions"] != 0).any():
            raise InvalidInput("released directions", "nothing but 0", "directions that differ from 0")
        return {"bound": residual_bound(plan, arrays["norms"])}

    def mapped(self, plan: TwoStagePlan) -> "ResidualMap":
        return ResidualMap(self.directions, self.means, plan.lattice_bits)


@dataclass(frozen=True, eq=False)
class ResidualMap:
    """The public map of the second stage: ``directions`` (r, d) float32 on a grid, ``means`` (K, r) float32.

    Formal guarantees:
        * Per record: a residual depends, to the last bit, on the record and the map alone. Entries of ``directions``
          and of records on the lattice are integers times a power of 2, small enough that every sum of their products
          is exact in float64: blocks, neighbours, threads and the processor's order of adding change no bit.
    """

    directions: NDArray[np.float32]
    means: NDArray[np.float32]
    lattice_bits: int

    def __post_init__(self) -> None:
        bits = exact_bits(self.directions, self.lattice_bits)
        steps = self.directions.astype(np.float64) * 2.0**bits
        assert np.array_equal(steps, np.rint(steps)), "directions off their grid"
        object.__setattr__(self, "_steps", np.ascontiguousarray(steps.T))
        object.__setattr__(self, "_unit", 2.0 ** -(bits + self.lattice_bits))

    def residuals(self, steps: Reals, labels: NDArray[np.int64]) -> Reals:
        """(b, d) records, in lattice steps of their clipping bound, and their (b,) classes -> (b, r)."""
        found: Reals = steps @ self._steps  # type: ignore[attr-defined]
        found *= self._unit  # type: ignore[attr-defined]
        found -= self.means[labels]
        return found


@dataclass(frozen=True, eq=False)
class Axes:
    """Eigenvectors of X'X (``basis``, ascending in the noisy eigenvalues) and the variance along each."""

    # matrix: (d, d) X'X, or the channels' common part of it. variance: (d,) per record and in clipping bounds, the
    # noise taken out. `floor`: added to a variance before it divides.

    matrix: NDArray[np.float32]
    basis: NDArray[np.float32]
    variance: Reals
    floor: float

    @classmethod
    def of(cls, plan: TwoStagePlan, moments: SecondMoments) -> "Axes":
        matrix = moments.second
        if plan.channels == 1:
            spectrum = moments.spectrum()
        else:
            # The noise is taken out by the channels' common part first, then by direction.
            deviation = moments.noise_std_second / math.sqrt(2)
            matrix = kronecker_cleaned(matrix, plan.channels, deviation)
            values, basis = eigh_lower(np.array(matrix, order="F"))
            radius = 2 * deviation * math.sqrt(moments.dim)
            spectrum = Spectrum(np.maximum(values.astype(np.float64), 0.0), basis, radius)
        variance = spectrum.values / moments.records / plan.final_clip_norm**2
        least = _LEAST * spectrum.ridge / moments.records / plan.final_clip_norm**2
        return cls(matrix, spectrum.basis, variance, max(_FLOOR * float(variance.mean()), least))

    def kept(self, directions: int) -> NDArray[np.intp]:
        """Numbers of those with the largest variances."""
        return np.argsort(-self.variance, kind="stable")[:directions]


def residual_map(plan: TwoStagePlan, moments: SecondMoments, axes: Axes | None = None) -> ResidualMap:
    """Return the map that the first stage's released numbers lead to: post-processing."""
    # Directions: eigenvectors of X'X with the largest variances e, the noise shrunk out (with channels by
    # kronecker_cleaned). Weights: (e + 0.3 mean e)^(-p/2), times a number that makes the mean squared norm of records
    # about 1. From noisy class means z_k along a direction, noise of variance v_k, b e / (b e + v_k) is kept. Means are
    # draws from N(0, b e), b its posterior mean (see privmix.learning.discriminant.DiscriminantClassifier).
    axes = axes or Axes.of(plan, moments)
    kept = axes.kept(plan.directions)
    directions, means = weighted(plan, moments, axes.variance[kept], axes.floor, axes.basis[:, kept].astype(np.float64))
    return _on_grid(directions, means, plan.lattice_bits)


def _on_grid(directions: Reals, means: Reals, lattice_bits: int) -> ResidualMap:
    # The grid is that of slightly larger directions: rounding makes none longer, so the result is on its own grid, too.
    grid = 2.0 ** exact_bits(directions * (1 + 2.0**-12), lattice_bits)
    on_grid = (np.rint(directions * grid) / grid).astype(np.float32)
    return ResidualMap(on_grid, means.astype(np.float32), lattice_bits)


def weighted(
    plan: TwoStagePlan, moments: SecondMoments, variance: Reals, floor: float, basis: Reals
) -> tuple[Reals, Reals]:
    """(r, d) weighted directions and (K, r) means, of (d, r) directions and the (r,) variances along them."""
    weights = (variance + floor) ** (-plan.whitening / 2)
    weights /= math.sqrt(float((np.square(weights) * (variance + floor)).sum()))
    counts = moments.class_shares(plan.label_offset) * moments.records
    means = (moments.cross / counts).T.astype(np.float64) @ basis / plan.final_clip_norm
    noise = np.square(moments.noise_std_cross / counts / plan.final_clip_norm)[:, None] + variance / counts[:, None]
    share = between_share(means, variance, noise)
    # b e / (b e + v)
    means *= share * variance / np.maximum(share * variance + noise, np.finfo(float).tiny)
    return (basis * weights).T, means * weights


def between_share(means: Reals, variance: Reals, noise: Reals) -> float:
    """b: how much of the variance is likeliest to lie between classes, given noisy (K, k) means."""
    likelihood = np.empty(len(_SHARES))
    for index, share in enumerate(_SHARES):
        expected = np.maximum(share * variance + noise, np.finfo(float).tiny)
        likelihood[index] = -0.5 * (np.log(expected) + np.square(means) / expected).sum()
    # On a grid of even logarithms db is in proportion to b.
    weights = _SHARES * np.exp(likelihood - likelihood.max())
    return float(weights @ _SHARES / weights.sum())


def norm_bins(residuals: Reals) -> NDArray[np.int64]:
    """(b,) which count of :attr:`TwoStageMoments.norms` each of (b, r) residuals belongs to."""
    norms = l2_norms(np.ascontiguousarray(residuals))
    return np.asarray(np.minimum(np.searchsorted(NORM_EDGES, norms), len(NORM_EDGES) - 1))


def residual_bound(plan: TwoStagePlan, norms: NDArray[np.float32]) -> float:
    """Return c: the least edge with the plan's share of its records below, by noisy counts; else the largest edge."""
    below = np.cumsum(norms, dtype=np.float64) >= plan.clip_quantile * plan.records
    return float(NORM_EDGES[int(np.argmax(below)) if below.any() else -1])


@dataclass(frozen=True, eq=False)
class ThreeStageMoments(TwoStageMoments):
    """Public numbers of two stages (:class:`TwoStageMoments`), and the scatter of each class's residuals."""

    # class_directions (q, d), class_means (K, q): residuals are directions z - mean. class_within (K, q, q): sums of v
    # v', v residuals clipped to norm 1, plus noise of deviation noise_std_class_within on the diagonal, 1/sqrt(2) of it
    # elsewhere.

    class_directions: NDArray[np.float32]
    class_means: NDArray[np.float32]
    class_within: NDArray[np.float32]
    noise_std_class_within: float

    def class_mapped(self, plan: ThreeStagePlan) -> ResidualMap:
        return ResidualMap(self.class_directions, self.class_means, plan.lattice_bits)


def class_map(plan: ThreeStagePlan, moments: TwoStageMoments) -> ResidualMap:
    """Return the map that the second stage's released numbers lead to: post-processing."""
    # The block T of the first q directions of the scatter without noise is divided out (SecondMoments.spectrum;
    # variances are at least the noise of one entry). Residuals are multiplied by T^-1/2, scaled so that clipped ones
    # have mean squared norm 1.
    axes = plan.class_directions
    values, basis = eigh_lower(np.asarray(class_scatter(plan, moments), np.float32, order="F"))
    least = float(values[-1]) * LEAST
    root = (basis / np.sqrt(axes * np.maximum(values, least))).T.astype(np.float64)
    return _on_grid(root @ moments.directions[:axes], moments.means[:, :axes] @ root.T, plan.lattice_bits)


def class_scatter(plan: ThreeStagePlan, moments: TwoStageMoments) -> Reals:
    """(q, q) T: the scatter within classes along the first q directions, per record, the noise taken out."""
    axes, std = plan.class_directions, plan.within_noise_multiplier
    spectrum = spectrum_of(moments.within, std)
    # (q, r): of T = A A' the block is that of its first rows.
    half = spectrum.basis[:axes].astype(np.float64) * np.sqrt(np.maximum(spectrum.values, std))
    return np.asarray(half @ half.T * (moments.bound**2 / plan.records))


def class_deviation(moments: ThreeStageMoments, counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (K,) standard deviations, off the diagonal, of a class's scatter per record, of ``counts`` (K,)."""
    # The noise, and the sampling error of a round class: a clipped residual's products have standard deviation 1 / q.
    axes = moments.class_within.shape[1]
    return np.asarray(np.hypot(moments.noise_std_class_within / math.sqrt(2) / counts, 1 / (axes * np.sqrt(counts))))
