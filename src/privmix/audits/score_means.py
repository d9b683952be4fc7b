"""Bounds from the means of all scores of an attack, each under an assumption of its own.

* **Gaussian scores.** The log-likelihood ratio of a mu-GDP mechanism is Gaussian in both worlds, equally wide, with
  means mu deviations apart (Dong, Roth, Su 2021). So is every linear score. The difference of means over the pooled
  deviation follows Student's law with noncentrality mu sqrt(n / 4). The lower bound on mu is exact, about 1.645 sqrt(4
  / n) below the truth at confidence 0.95. The assumption is tested; no test of n scores sees tails beyond 1/n.
* **Own noise.** What ran is this plan with its noise times one unknown factor. For any scores s and densities p and q,
  by Cauchy and Schwarz, and as a geometric mean is below the arithmetic one,

      integral sqrt(p q) <= sqrt(E_q[e^(s/2)] E_p[e^(-s/2)]) <= (E_q[e^(s/2)] + E_p[e^(-s/2)]) / 2,

  with equality for the log-likelihood ratio. A mean too low for the plan's overlap (:mod:`privmix.accounting.overlap`)
  refutes the plan; the factor just not refuted gives an epsilon. The mean is bounded by betting (Waudby-Smith, Ramdas
  2024), a nonnegative supermartingale: by Ville's inequality, at every moment at once, for any law of scores.
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

from privmix.accounting.api import epsilon
from privmix.accounting.base import UnsupportedEvent
from privmix.accounting.events import Adjacency, Event
from privmix.accounting.gdp import gdp_epsilon
from privmix.accounting.overlap import dominates, log_overlap, with_noise_times
from privmix.rounding import rounded_down

Scores = NDArray[np.float64]

DOUBT: Final = 1e-3
"""Chance, at most about, that Gaussian scores are doubted."""

_FEWEST: Final = 40
# Below this number of degrees of freedom the exact law is used, above it Johnson and Welch's approximation.
_MANY: Final = 400
_MOST_BET: Final = 0.45
_KEPT: Final = 0.9
# One pair in this many decides how scores are weighed; and standard errors by which that must help.
_WEIGHING: Final = 10
_CLEAR: Final = 4.0
# Largest half of a score, where its spread is measured.
_WIDEST: Final = 5.0
# Factors of the noise that are looked at.
_LEAST_NOISE, _MOST_NOISE = 1 / 64, 64.0


@dataclass(frozen=True)
class AssumedBounds:
    """Lower bounds under assumptions; each alone holds with the audit's confidence."""

    # gaussian_mu (None where the test withdraws it, with ``doubt`` the reason); gaussian_epsilon (None also at delta
    # 0). own_noise: least refuted factor of the planned noise, None without; own_noise_epsilon (None for an unknown
    # overlap).

    gaussian_mu: float | None
    gaussian_epsilon: float | None
    doubt: str
    own_noise_epsilon: float | None
    own_noise: float | None

    def to_dict(self) -> dict[str, float | str | None]:
        return dict(vars(self))

    @property
    def in_words(self) -> list[str]:
        lines = []
        if self.gaussian_epsilon is not None and self.gaussian_mu is not None:
            mu, epsilon = rounded_down(self.gaussian_mu, 4), rounded_down(self.gaussian_epsilon, 4)
            lines.append(f"by Gaussian scores, as they test: mu at least {mu}, epsilon {epsilon}")
        elif self.doubt:
            lines.append(f"by Gaussian scores: nothing, since {self.doubt}")
        if self.own_noise_epsilon is not None:
            epsilon = rounded_down(self.own_noise_epsilon, 4)
            lines.append(f"by this plan with a noise of its own: epsilon at least {epsilon}")
        return lines

    @classmethod
    def of(
        cls, without: Scores, present: Scores, event: Event, adjacency: Adjacency, delta: float, alpha: float
    ) -> AssumedBounds:
        """Return both bounds, each wrong with chance at most ``alpha`` where its assumption holds."""
        doubt = gaussian_doubt(without, present)
        mu = None if doubt else gaussian_mu(without, present, alpha)
        factor, own = own_noise(without, present, event, adjacency, delta, alpha)
        return cls(mu, None if mu is None or delta == 0 else gdp_epsilon(mu, delta), doubt, own, factor)


def gaussian_mu(without: Scores, present: Scores, alpha: float) -> float:
    """Return a lower bound on mu, from scores that are Gaussian with one variance in both worlds; at least 0.

    Formal guarantees:
        * Exact: of such scores, independent, it exceeds mu with chance ``alpha`` (by Student's noncentral law; from
          400 scores on by its normal approximation, Johnson and Welch 1940).
        * Blind to scale and place: scores need not be log-likelihood ratios.
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
    """Return why scores are not taken as Gaussian with one variance, or ""."""
    # Skewness and kurtosis (D'Agostino, Pearson 1973; Anscombe, Glynn 1983), Anderson and Darling's test of each world
    # and Fisher's of equal variances share a chance of DOUBT.
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
    """Return an upper bound on the attacked pair's log overlap, wrong with chance at most ``alpha``; at most 0.

    Formal guarantees:
        * No law: it holds for every mechanism and every score, whose order is independent of them. Scores and bets of
          one moment are cut by what came before; cut scores are scores too.
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
    """Return (2, pairs) half scores, without and, negated, with the record; reweighted where they are no ratios."""
    # Noise weaker than planned makes ratios too small and off centre. The first tenth of the pairs gives the weight and
    # place of least overlap for the rest, if that is clear; any weight is a valid score.
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
    """Return the least refuted noise of this plan, as a factor of the planned one, and its epsilon at ``delta``.

    (None, 0) where no noise is refuted; (None, None) where the worst pair's overlap, or an epsilon at ``delta``, is
    unknown: scores may be of another pair than one that is not the worst.

    Formal guarantees:
        * Lower bound: suppose that the plan ran with its noise times some factor. The epsilon exceeds that run's by no
          more than the accountant's own rounding, except with chance ``alpha``.
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
    """Whether scores refute ``event`` as the worst pair, with false-alarm chance ``alpha``; False if unknown."""
    try:
        own = log_overlap(event, adjacency) if dominates(event, adjacency) else -math.inf
    except UnsupportedEvent:
        return False
    return log_overlap_high(without, present, alpha) < own
