"""Error of a linear model learned from a release, and the mixup degree that is best for it; from public numbers alone.

With a small degree noise dominates; a large one averages the signal away. DPFMix (Li et al. 2022, Theorem 3.1) bounds
the error and derives the order n / sqrt(T) of the best degree (Corollary 3.2); NeuroMixGDP has the same in Theorem 3.2.
Both use their limit formula for the noise, here a comparison; the noise is the release's own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy

from privmix.accounting.api import calibrate
from privmix.accounting.gdp import published_noise_multiplier
from privmix.designs.rows.poisson import Poisson
from privmix.errors import InvalidInput, check_integer, check_number
from privmix.fields import Amount, Positive, check_fields
from privmix.plans.setting import Setting

# Neighbouring degrees of the last search step differ by less than this factor: the curve is flat at its minimum.
_CLOSE = 1.1


@dataclass(frozen=True)
class LinearTask:
    """A linear regression y = X b + noise (DPFMix, section 3.1) and the clipping bounds that it is released under."""

    # spectrum (d,): eigenvalues of X'X / n, all > 0. coefficient_norm: ||b||_2, b in a uniformly random direction.
    # residual_std: of y around X b, DPFMix's sigma. clip_x, clip_y: C_x and C_y, so large that few records are clipped.
    # label_noise_ratio: lambda = s_y / s_x (Li et al. 2022, Lemma C.3).

    spectrum: tuple[Positive, ...]
    coefficient_norm: Amount
    residual_std: Amount
    clip_x: Positive = 1.0
    clip_y: Positive = 1.0
    label_noise_ratio: Positive = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        check_integer("task dimension", len(self.spectrum), low=1)

    @classmethod
    def isotropic(cls, dim: int) -> "LinearTask":
        """Features of norm about 1, no favoured direction; targets well inside their bound, mostly linear."""
        dim = check_integer("dim", dim, low=1)
        return cls((1 / dim,) * dim, 0.3 * math.sqrt(dim), 0.1)

    @property
    def dim(self) -> int:
        return len(self.spectrum)

    def noise_multipliers(self, joint: float) -> tuple[float, float]:
        """(s_x, s_y) with 1/s^2 = 1/s_x^2 + 1/s_y^2 and s_y = lambda s_x (Li et al. 2022, Lemma C.3)."""
        s_x = joint * math.sqrt(1 + self.label_noise_ratio**-2)
        return s_x, self.label_noise_ratio * s_x


@dataclass(frozen=True)
class LinearError:
    """Error of the least-squares estimate b~ from a release."""

    # l2: ||b~ - b||_2; of a prediction, the root of its expected square. excess_risk: (b~ - b)' (X'X / n) (b~ - b).
    # shrinkage: the part of ``l2`` that remains with any number of rows; None for a measured error.

    l2: float
    excess_risk: float
    shrinkage: float | None = None


def expected_error(
    task: LinearTask, records: int, rows: int, mixup_degree: float, noise_multiplier: float
) -> LinearError:
    """Predict the size of the error, with constants, where DPFMix's Theorem 3.1 bounds it; infinite where T <= d + 1.

    Mixed rows have covariance k (X'X / n + r I) with k = (1 - m / n) / m and r = C_x^2 s_x^2 / (m (1 - m / n)). The
    noise is a ridge of strength r. With Gaussian rows, nearly so for m of 10 or more, the mean square of the
    least-squares error has three terms. Along the eigenvector of eigenvalue l they are (shrinkage, sampling of the n
    records, sampling of the T rows),

        (r b / (l + r))^2  +  sigma^2 l / (n (l + r)^2)  +  v / ((T - d - 1) (l + r)),
        v = sum of l r b^2 / (l + r) + sigma^2 + C_y^2 s_y^2 / (m (1 - m / n)).

    Features and targets are centred before mixing (Li et al. 2024, section 3.2), n is well above d, few are clipped.
    """
    check_sizes(records, rows, mixup_degree, noise_multiplier)
    if rows <= task.dim + 1:
        return LinearError(math.inf, math.inf, math.inf)
    s_x, s_y = task.noise_multipliers(noise_multiplier)
    spread = mixup_degree * (1 - mixup_degree / records)
    ridge, ridge_y = (task.clip_x * s_x) ** 2 / spread, (task.clip_y * s_y) ** 2 / spread
    spectrum = np.asarray(task.spectrum)
    signal = task.coefficient_norm**2 / task.dim
    shrunk = spectrum + ridge
    shrinkage = signal * (ridge / shrunk) ** 2
    from_records = task.residual_std**2 / records * spectrum / shrunk**2
    left = float((signal * spectrum * ridge / shrunk).sum()) + task.residual_std**2 + ridge_y
    squares = shrinkage + from_records + left / ((rows - task.dim - 1) * shrunk)
    return LinearError(math.sqrt(squares.sum()), float((spectrum * squares).sum()), math.sqrt(float(shrinkage.sum())))


def optimal_degree_order(records: int, rows: int) -> float:
    """Li et al. 2022, Corollary 3.2: m* is of the order n / sqrt(T), with a constant that the corollary leaves open."""
    return check_integer("records", records, low=1) / math.sqrt(check_integer("rows", rows, low=1))


def published_optimal_degree(records: int, rows: int, epsilon: float, delta: float) -> float:
    """Return the degree in [1, n] that minimises DPFMix's Equation 3 under the papers' own noise: a comparison only."""
    # The papers' limit formula is too small at finite T (see published_noise_multiplier), most of all at small degrees.
    # For m well below n the minimum is at 0.505 mu n / sqrt(T). The maximum of sqrt(u) ln(1 + 1 / u), u = m^2 T / (mu
    # n)^2, is at u = 0.255.

    def ridge(log_degree: float) -> float:
        degree = math.exp(log_degree)
        noise = published_noise_multiplier(degree / records, rows, epsilon, delta)
        return 2 * math.log(noise) - log_degree - math.log1p(-degree / records)

    check_integer("records", records, low=2)
    check_integer("rows", rows, low=1)
    found = scipy.optimize.minimize_scalar(
        ridge, bounds=(0.0, math.log(records) - 1e-9), method="bounded", options={"xatol": 1e-6}
    )
    return math.exp(float(found.x))


@cache
def honest_noise_multiplier(records: int, rows: int, mixup_degree: int, epsilon: float, delta: float) -> float:
    """Return the joint noise multiplier of an uncentred Poisson release of these sizes, by its plan's calibration."""
    setting = Setting(records=records, dim=1, classes=("0", "1"), rows=rows, centre="none")
    design = Poisson(mixup_degree)
    design.check(setting)
    adjacency = design.plan(setting, 1.0, None).adjacency
    return calibrate(
        lambda noise: design.plan(setting, noise, None).event, epsilon, delta, adjacency=adjacency
    ).noise_multiplier


@dataclass(frozen=True)
class DegreeCandidate:
    """One degree that was tried: its calibrated noise and its predicted error."""

    mixup_degree: int
    noise_multiplier: float
    error: LinearError


@dataclass(frozen=True)
class MixupDegreeChoice(DegreeCandidate):
    """The degree with the least predicted error, next to that of the paper's rate."""

    # published_degree: minimum of DPFMix's Equation 3 under the papers' noise. published: the candidate at that degree
    # (rounded), at its real noise. Both are comparisons.

    candidates: tuple[DegreeCandidate, ...]
    published_degree: float
    published: DegreeCandidate


def best_mixup_degree(
    records: int,
    rows: int,
    dim: int,
    epsilon: float,
    delta: float,
    *,
    task: LinearTask | None = None,
    noise: Callable[[int, int, int, float, float], float] = honest_noise_multiplier,
) -> MixupDegreeChoice:
    """Search the mixup degree with the least predicted error for least squares, at the release's own noise."""
    # Powers of two downhill from the minimum under the papers' noise, then finer steps until neighbours are within 10%:
    # about a dozen calibrations. A guide: a classifier, or a learner that corrects for the noise, may do better at
    # another degree, but the curve is flat near its minimum. task: its spectrum must come from public data; None is
    # LinearTask.isotropic(dim).
    check_integer("records", records, low=2)
    task = LinearTask.isotropic(dim) if task is None else task
    if task.dim != check_integer("dim", dim, low=1):
        raise InvalidInput("task dimension", task.dim, f"dim, {dim}")
    check_integer("rows", rows, low=dim + 2)
    tried: dict[int, DegreeCandidate] = {}

    def evaluate(degree: int) -> DegreeCandidate:
        if degree not in tried:
            multiplier = noise(records, rows, degree, epsilon, delta)
            error = expected_error(task, records, rows, degree, multiplier)
            tried[degree] = DegreeCandidate(degree, multiplier, error)
        return tried[degree]

    published_degree = published_optimal_degree(records, rows, epsilon, delta)
    best, step = evaluate(min(2 ** round(math.log2(published_degree)), 2 ** ((records - 1).bit_length() - 1))), 2.0
    while step > math.sqrt(_CLOSE):
        degrees = (round(best.mixup_degree * factor) for factor in (1, 1 / step, step))
        found = min((evaluate(min(max(degree, 1), records - 1)) for degree in degrees), key=lambda one: one.error.l2)
        # Powers of two as far as they lead downhill, then finer steps around the best of them.
        if found is best or step < 2:
            step = math.sqrt(step)
        best = found
    candidates = tuple(tried[degree] for degree in sorted(tried))
    published = evaluate(min(max(round(published_degree), 1), records - 1))
    return MixupDegreeChoice(
        **vars(best), candidates=candidates, published_degree=published_degree, published=published
    )


def check_sizes(records: int, rows: int, mixup_degree: float, noise_multiplier: float) -> None:
    """Raise :class:`InvalidInput` unless these are sizes of a release that mixes fewer than all records."""
    check_integer("records", records, low=2)
    check_integer("rows", rows, low=1)
    check_number("mixup_degree", mixup_degree, low=1, high=records, high_open=True)
    check_number("noise_multiplier", noise_multiplier, low=0, low_open=True)
