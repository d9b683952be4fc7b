"""What all scores of an attack prove together, by their means: two bounds, each under an assumption of its own.

Thresholds turn scores into yes and no, and give most of what they say away. Means keep it:

* **Gaussian scores.** The log-likelihood ratio of a mechanism that is mu-GDP is Gaussian in both worlds, with the same
  variance, and means mu standard deviations apart (Dong, Roth, Su 2021); so is every linear score. Then the difference
  of the means over the pooled deviation follows Student's law with noncentrality mu sqrt(n / 4), and mu has an exact
  lower bound; about 1.645 sqrt(4 / n) below the truth at confidence 0.95. The assumption is tested: where scores of
  either world are not Gaussian, or not equally wide, nothing is said. No test of n scores sees tails beyond 1 / n.
* **Own noise.** What ran is this plan, its noise times one unknown factor. Whatever the scores s are, the outputs of
  two worlds with densities p and q have, by Cauchy and Schwarz and as a geometric mean is below the arithmetic one,

      integral sqrt(p q) <= sqrt(E_q[e^(s/2)] E_p[e^(-s/2)]) <= (E_q[e^(s/2)] + E_p[e^(-s/2)]) / 2,

  with equality where s is the log-likelihood ratio. A mean that is too low for the plan's own overlap
  (:mod:`privmix.accounting.overlap`) refutes the plan; the factor with which it is just not refuted gives an epsilon.
  Nothing is assumed of the scores' law: the mean is bounded by betting (Waudby-Smith, Ramdas 2024), whose capital is a
  nonnegative supermartingale, so that by Ville's inequality the bound holds at every moment at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import brentq, minimize
from scipy.special import ndtri

from privmix.accounting import Adjacency, Event, UnsupportedEvent, epsilon, gdp_epsilon
from privmix.accounting.overlap import dominates, log_overlap, with_noise_times

Scores = NDArray[np.float64]

DOUBT: Final = 1e-3
"""Chance, at most about, that Gaussian scores are doubted."""

_FEWEST: Final = 40
# Below so many degrees of freedom the exact law is used, above it Johnson and Welch's approximation.
_MANY: Final = 400
_MOST_BET: Final = 0.45
_KEPT: Final = 0.9
# Pairs of so many that say how scores are weighed, and standard errors by which that must help.
_WEIGHING: Final = 10
_CLEAR: Final = 4.0
# Of half a score, where its spread is measured.
_WIDEST: Final = 5.0
# Factors of the noise that are looked at.
_LEAST_NOISE, _MOST_NOISE = 1 / 64, 64.0


@dataclass(frozen=True)
class Assumed:
    """Lower bounds that hold under an assumption; each alone holds with the confidence asked for.

    Attributes:
        gaussian_mu: of scores that are Gaussian, equally wide in both worlds; None where the test withdraws it.
        gaussian_epsilon: that of mu-GDP at the audit's delta; None with it, and at delta 0.
        doubt: why it was withdrawn; empty where it stands.
        own_noise_epsilon: of this plan with the least noise that was refuted; None where its overlap is not known.
        own_noise: that noise, as a factor of the planned one; None where no noise was refuted.
    """

    gaussian_mu: float | None
    gaussian_epsilon: float | None
    doubt: str
    own_noise_epsilon: float | None
    own_noise: float | None

    def to_dict(self) -> dict[str, float | str | None]:
        """JSON values."""
        return dict(vars(self))

    @classmethod
    def of(
        cls, without: Scores, present: Scores, event: Event, adjacency: Adjacency, delta: float, alpha: float
    ) -> Assumed:
        """Both bounds, each wrong with chance at most ``alpha`` where its assumption holds.

        Args:
            without: (runs,) independent scores without the record.
            present: (runs,) with it.
            event: what is priced.
            adjacency: of the price.
            delta: at which epsilon is meant.
            alpha: of each bound.

        Example:
            >>> from privmix.accounting import Gaussian
            >>> rng = np.random.default_rng(0)
            >>> scores = [rng.normal(mean, 1.0, 5000) for mean in (-0.5, 0.5)]  # ratios of 1-GDP, whose epsilon is 4.38
            >>> found = Assumed.of(*scores, Gaussian(1.0), Adjacency.ADD_REMOVE, 1e-5, 0.05)
            >>> 4.1 < found.gaussian_epsilon < 4.38, 4.0 < found.own_noise_epsilon < 4.38, found.doubt
            (True, True, '')
        """
        doubt = gaussian_doubt(without, present)
        mu = None if doubt else gaussian_mu(without, present, alpha)
        factor, own = own_noise(without, present, event, adjacency, delta, alpha)
        return cls(mu, None if mu is None or delta == 0 else gdp_epsilon(mu, delta), doubt, own, factor)


def gaussian_mu(without: Scores, present: Scores, alpha: float) -> float:
    """A lower bound on mu, from scores that are Gaussian with one variance in both worlds; at least 0.

    Formal guarantees:
        * Exact: of such scores, independent, it exceeds mu with chance ``alpha`` (by Student's noncentral law; from
          400 scores on by its normal approximation, Johnson and Welch 1940).
        * Blind to scale and place: scores need not be log-likelihood ratios.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> 0.9 < gaussian_mu(rng.normal(0, 3, 5000), rng.normal(3, 3, 5000), 0.05) < 1.0
        True
    """
    one, other = len(without), len(present)
    freedom = one + other - 2
    squares = without.var() * one + present.var() * other
    apart = float(present.mean() - without.mean())
    if apart <= 0 or squares <= 0:
        return 0.0
    root = math.sqrt(1 / (1 / one + 1 / other))
    t = apart / math.sqrt(squares / freedom) * root
    if freedom > _MANY:
        found = t * (1 - 1 / (4 * freedom)) + float(ndtri(alpha)) * math.sqrt(1 + t**2 / (2 * freedom))
        return max(0.0, found / root)
    if stats.t.sf(t, freedom) >= alpha:
        return 0.0
    return float(brentq(lambda centre: stats.nct.sf(t, freedom, centre) - alpha, 0.0, t + 10)) / root


def gaussian_doubt(without: Scores, present: Scores) -> str:
    """Why scores are not taken as Gaussian with one variance; empty where nothing speaks against it.

    Tests of skewness and of kurtosis (D'Agostino, Pearson 1973; Anscombe, Glynn 1983) and Anderson and Darling's test
    of each world, and Fisher's of equal variances, share a chance of :data:`DOUBT`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> gaussian_doubt(rng.normal(size=4000), rng.normal(size=4000))
        ''
        >>> gaussian_doubt(rng.exponential(size=4000), rng.normal(size=4000))
        'scores without the record are skewed'
    """
    if min(len(without), len(present)) < _FEWEST:
        return f"fewer than {_FEWEST} scores of a kind"
    if min(np.ptp(without), np.ptp(present)) == 0:
        return "scores are all the same"
    level = DOUBT / 7
    for scores, world in ((without, "without the record"), (present, "with the record")):
        if stats.skewtest(scores).pvalue < level:
            return f"scores {world} are skewed"
        if stats.kurtosistest(scores).pvalue < level:
            return f"scores {world} have other tails than Gaussian ones"
        if _anderson_darling(scores) < level:
            return f"scores {world} do not follow a Gaussian law"
    ratio = float(without.var(ddof=1) / present.var(ddof=1))
    freedom = len(without) - 1, len(present) - 1
    if 2 * min(stats.f.cdf(ratio, *freedom), stats.f.sf(ratio, *freedom)) < level:
        return "scores are not equally wide with and without the record"
    return ""


def _anderson_darling(scores: Scores) -> float:
    """p-value against Gaussian scores of any mean and width (D'Agostino, Stephens 1986, Table 4.9)."""
    size = len(scores)
    ordered = np.sort((scores - scores.mean()) / scores.std(ddof=1))
    below, above = stats.norm.logcdf(ordered), stats.norm.logsf(ordered)[::-1]
    weights = (2 * np.arange(1, size + 1) - 1) / size
    found = (-size - float(weights @ (below + above))) * (1 + 0.75 / size + 2.25 / size**2)
    # Below 0.6 nothing is in doubt.
    return 1.0 if found < 0.6 else min(1.0, math.exp(1.2937 - 5.709 * found + 0.0186 * min(found, 13.0) ** 2))


def log_overlap_high(without: Scores, present: Scores, alpha: float) -> float:
    """An upper bound on the log overlap of what was attacked, wrong with chance at most ``alpha``; at most 0.

    Formal guarantees:
        * No law: it holds for every mechanism and every score, whose order is independent of them. Scores and bets of
          one moment are cut by what came before; cut scores are scores too.

    Args:
        without: (runs,) independent scores without the record.
        present: (runs,) with it.
        alpha: in (0, 1).

    Example:
        >>> rng = np.random.default_rng(0)
        >>> found = log_overlap_high(rng.normal(-0.5, 1, 5000), rng.normal(0.5, 1, 5000), 0.05)  # really -1/8
        >>> -0.125 < found < -0.11
        True
    """
    pairs = min(len(without), len(present))
    if pairs < 2:
        return 0.0
    half = _weighed(without[:pairs], present[:pairs])
    seen = np.exp(np.clip(half, -_WIDEST, _WIDEST)).mean(axis=0)
    bets = np.minimum(_MOST_BET, np.sqrt(2 * math.log(1 / alpha) / (pairs * _spread_before(seen))))
    most = np.log(_KEPT / bets)
    values = np.exp(np.clip(half, -most, most)).mean(axis=0)
    enough = math.log(1 / alpha)

    def capital(overlap: float) -> float:
        return float(np.cumsum(np.log1p(bets * (overlap - values))).max()) - enough

    if capital(1.0) <= 0:
        return 0.0
    low = 1e-12
    return 0.0 if capital(low) > 0 else math.log(brentq(capital, low, 1.0, xtol=1e-12, rtol=1e-12))


def _weighed(without: Scores, present: Scores) -> NDArray[np.float64]:
    """(2, pairs) half the scores, without the record and, negated, with it; weighed anew where they are no ratios.

    What a weaker noise than planned makes of ratios is too small and off centre. The first tenth of the pairs says by
    which weight and place the rest overlaps least, if that is clear; any weight is a valid score.
    """
    first = len(without) // _WEIGHING
    zero, one = without / 2, present / 2
    if first < _FEWEST:
        return np.stack([zero, -one])

    def overlaps(said: NDArray[np.float64]) -> NDArray[np.float64]:
        weight, place = said
        here = np.clip(np.stack([weight * zero[:first] + place, -weight * one[:first] - place]), -_WIDEST, _WIDEST)
        return np.asarray(np.exp(here).mean(axis=0))

    best = minimize(lambda said: overlaps(said).mean(), [1.0, 0.0], method="Nelder-Mead").x
    gained = overlaps(np.array([1.0, 0.0])) - overlaps(best)
    if gained.mean() * math.sqrt(first) > _CLEAR * gained.std():
        zero[first:], one[first:] = best[0] * zero[first:] + best[1], best[0] * one[first:] + best[1]
    return np.stack([zero, -one])


def _spread_before(values: Scores) -> Scores:
    """(pairs,) variance of all values before each, with one that stands for nothing seen yet."""
    count = np.arange(len(values))
    sums = np.concatenate([[0.0], np.cumsum(values)[:-1]])
    squares = np.concatenate([[0.0], np.cumsum(np.square(values))[:-1]])
    mean = (sums + 1) / (count + 1)
    return np.asarray(np.maximum((squares + 1.25) / (count + 1) - mean**2, 1e-12))


def own_noise(
    without: Scores, present: Scores, event: Event, adjacency: Adjacency, delta: float, alpha: float
) -> tuple[float | None, float | None]:
    """The least noise of this plan that is refuted, as a factor of the planned one, and its epsilon at ``delta``.

    (None, 0) where no noise is refuted; (None, None) where the overlap of the plan's worst pair is not known, or no
    epsilon at ``delta``. Of a pair that is not the worst nothing is said: the scores may be of another one.

    Formal guarantees:
        * Lower bound: if what ran is the plan with its noise times some factor, the epsilon is above that one's by no
          more than the accountant's own rounding, but for a chance of ``alpha``.
        * Own claim: above the plan's own epsilon only where the plan's own overlap is refuted.
    """
    try:
        log_overlap(event, adjacency)
    except UnsupportedEvent:
        return None, None
    if not dominates(event, adjacency):
        return None, None
    high = log_overlap_high(without, present, alpha)

    def refuted(log_factor: float) -> bool:
        return high < _overlap_at(event, adjacency, math.exp(log_factor))

    low, top = math.log(_LEAST_NOISE), math.log(_MOST_NOISE)
    if not refuted(top):
        return None, 0.0
    while top - low > 1e-4:
        middle = (low + top) / 2
        low, top = (low, middle) if refuted(middle) else (middle, top)
    factor = math.exp(top)
    cost = epsilon(with_noise_times(event, factor), delta, adjacency=adjacency)
    return (factor, cost.epsilon) if math.isfinite(cost.epsilon) else (None, None)


@lru_cache(maxsize=256)
def _overlap_at(event: Event, adjacency: Adjacency, factor: float) -> float:
    return log_overlap(with_noise_times(event, factor), adjacency)


def overlap_refutes(without: Scores, present: Scores, event: Event, adjacency: Adjacency, alpha: float) -> bool:
    """Whether scores refute that the plan's worst pair is what ``event`` says; of a true one with chance ``alpha``.

    False where the overlap of the worst pair of all is not known.
    """
    try:
        own = log_overlap(event, adjacency) if dominates(event, adjacency) else -math.inf
    except UnsupportedEvent:
        return False
    return log_overlap_high(without, present, alpha) < own
