"""Noise audits: whether noise has the size, shape and independence that the certificate states."""
# Attacks on whole releases miss a third too little noise where little leaks. Draws on empty records show a hundredth.

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from scipy import stats

from privmix.audits.bounds import Scores
from privmix.audits.empty_runs import GAUSSIAN, LAPLACE, PureNoise, release_noises
from privmix.errors import InvalidInput, check_integer, check_number
from privmix.mechanisms.membership import ROW_TILE
from privmix.plans.plan import Plan
from privmix.progress import Progress
from privmix.shown import Bar, Bars, Shown
from privmix.training.plan import TrainingPlan

DEFAULT_SAMPLES: Final = 2**19
"""Draws of each noise: its standard deviation is then known to 0.5% at confidence 1 - 3e-7, and to 0.2% at 0.95.

Laplace noise to 0.5% at 1 - 3e-4; of a record count there are a quarter as many: 0.5% at 0.99."""

FALSE_ALARM: Final = 1e-6
"""Chance that an audit finds fault with right noise."""

# Tests of one noise, and kinds of noise of one audit, that share the false alarm: more than there are.
_TESTS: Final = 8
_KINDS: Final = 8
_LEAST_SAMPLES: Final = 2000
# With noise of fewer grid steps, rounding changes its law by more than these tests allow for. Laplace's loses its peak,
# and mean magnitudes are too small by a share of 1 / (8 steps^2).
_COARSEST: Final = {GAUSSIAN: 4.0, LAPLACE: 64.0}
_MOST_RANKED: Final = 2**17

AS_CERTIFIED: Final = "as certified"
TOO_LITTLE: Final = "too little noise"
TOO_MUCH: Final = "too much noise"
OTHER_SHAPE: Final = "another shape"
DEPENDENT: Final = "not independent"


@dataclass(frozen=True)
class MeasuredNoise:
    """Measurement of one noise: certified and drawn standard deviation, interval, tests and verdict."""

    # source: the certificate's figure, such as ``noise_std.x``. shape_p: Kolmogorov and Smirnov's test against the law.
    # dependence: largest standard score of correlations between rows, columns, tiles and other noise.

    name: str
    law: str
    source: str
    certified: float
    measured: float
    low: float
    high: float
    samples: int
    shape_p: float
    dependence: float
    verdict: str


@dataclass(frozen=True, repr=False)
class NoiseAudit(Shown):
    """Result of a noise audit.

    Formal guarantees:
        * Rarely wrong: noise that is as certified gets another verdict, in any of an audit's tests, with chance at most
          :data:`FALSE_ALARM`.
        * Each interval holds with chance ``confidence``, for any true scale.
        * No private record is read.
    """

    design: str
    confidence: float
    noises: tuple[MeasuredNoise, ...]

    def shown(self) -> tuple[str, Mapping[str, object]]:
        level = f"{100 * self.confidence:g}%"
        measured = {
            one.name: f"{one.verdict}: {one.measured / one.certified:.4f} of {one.certified:.4g} ({one.source}), "
            f"{level} interval {one.low / one.certified:.4f} to {one.high / one.certified:.4f}, {one.samples} draws"
            for one in self.noises
        }
        return f"Audit of noise: {'not as certified' if self.violated else AS_CERTIFIED}", measured

    def picture(self) -> Bars:
        """Bars of each noise as a share of its certified size, the line."""
        shares = [(one, one.measured / one.certified) for one in self.noises]
        bars = [Bar(one.name, share, f"{share:.4f}", one.verdict == AS_CERTIFIED) for one, share in shares]
        return Bars(
            "Measured noise, of the certified", bars, full=max([1.1, *(share for _, share in shares)]), mark=1.0
        )

    @property
    def violated(self) -> bool:
        return any(noise.verdict != AS_CERTIFIED for noise in self.noises)

    def to_dict(self) -> dict[str, Any]:
        return {
            "design": self.design,
            "method": "noise of empty records",
            "confidence": self.confidence,
            "false_alarm": FALSE_ALARM,
            "violated": self.violated,
            "noises": [asdict(noise) for noise in self.noises],
        }

    @property
    def statements(self) -> list[str]:
        """Sentences that must accompany the figures."""
        return [
            f"The real code drew the noise of design {self.design}, on empty records: no private record was read.",
            f"Each interval holds with chance {self.confidence:g}. Right noise is called wrong with chance at most "
            f"{FALSE_ALARM:g}.",
            "The test shows that the noise is as large as planned, not that the planned noise is enough: the "
            "accountant's bound proves that.",
        ]


def audit_noise(
    plan: Plan | TrainingPlan,
    *,
    samples: int = DEFAULT_SAMPLES,
    confidence: float = 0.95,
    seed: int | None = None,
    progress: Progress | None = None,
) -> NoiseAudit:
    """Measure every noise of a plan with at least ``samples`` draws each, made by the real code on empty records."""
    check_integer("samples", samples, low=_LEAST_SAMPLES)
    check_number("confidence", confidence, low=0.5, high=1 - 1e-12)
    if isinstance(plan, TrainingPlan):
        # Releases need no torch.
        from privmix.training.worst_case import training_noises

        name, noises = plan.mechanism, training_noises(plan, samples, seed, progress)
    else:
        name, noises = plan.design, release_noises(plan, samples, seed, tell=progress)
    return NoiseAudit(name, confidence, tuple(measure(noise, confidence) for noise in noises))


def measure(noise: PureNoise, confidence: float) -> MeasuredNoise:
    """Measure scale, shape and independence of draws, and give the verdict."""
    # Squares of Gaussian draws sum to a chi-squared law, magnitudes of Laplace draws to one of twice as many degrees:
    # tests and intervals are exact up to the grid's rounding.
    coarsest = _COARSEST[noise.law]
    if noise.step > 0 and noise.expected < coarsest * noise.step:
        raise InvalidInput(
            "noise", noise.expected / noise.step, f"at least {coarsest:g} steps of the grid to be judged"
        )
    # Rounding to a grid adds the variance of a uniform step (Sheppard's correction).
    expected = math.sqrt(noise.expected**2 + noise.step**2 / 12)
    scores = noise.values / expected
    alarm = FALSE_ALARM / (_TESTS * _KINDS)
    total, degrees = _sum_of(scores, noise.law)
    ratio, low, high = (
        _ratio(total, degrees, noise.law, level) for level in (0.5, (1 + confidence) / 2, (1 - confidence) / 2)
    )
    shape = _shape_p(scores, noise.law, noise.step / expected)
    dependence = max(abs(score) for score in _correlations(scores, noise.beside))
    scale_p = 2 * min(stats.chi2.cdf(total, degrees), stats.chi2.sf(total, degrees))
    if scale_p < alarm:
        verdict = TOO_LITTLE if ratio < 1 else TOO_MUCH
    elif dependence > stats.norm.isf(alarm / 2):
        verdict = DEPENDENT
    else:
        verdict = OTHER_SHAPE if shape < alarm else AS_CERTIFIED
    return MeasuredNoise(
        noise.name,
        noise.law,
        noise.source,
        noise.certified,
        ratio * expected,
        low * expected,
        high * expected,
        scores.size,
        shape,
        dependence,
        verdict,
    )


def _sum_of(scores: Scores, law: str) -> tuple[float, int]:
    """Return a sum and its degrees of freedom: it follows their chi-squared law if the standard deviation is 1."""
    if law == LAPLACE:
        return float(2 * math.sqrt(2) * np.abs(scores).sum()), 2 * scores.size
    return float(np.square(scores).sum()), scores.size


def _ratio(total: float, degrees: int, law: str, level: float) -> float:
    """Return the standard deviation under which ``total`` is at the quantile ``level``."""
    found = total / float(stats.chi2.ppf(level, degrees))
    return found if law == LAPLACE else math.sqrt(found)


def _shape_p(scores: Scores, law: str, step: float) -> float:
    """p-value of the certified law for some of the draws, spread over the grid cells that they were rounded to."""
    some = scores.ravel()[:_MOST_RANKED]
    some = some + step * (np.random.default_rng(0).random(some.size) - 0.5)
    cdf = stats.norm.cdf if law == GAUSSIAN else stats.laplace(scale=1 / math.sqrt(2)).cdf
    return float(stats.kstest(some, cdf, method="asymp").pvalue)


def _correlations(scores: Scores, beside: Scores | None) -> list[float]:
    """Return standard scores of sums of products of draws that must be independent."""
    pairs: list[tuple[Scores, Scores]] = []
    if scores.shape[1] > 1:
        pairs.append((scores[:, 1:], scores[:, :-1]))
    # Streams are keyed by row tile: one that is used twice shows at the last of these lags.
    pairs += [(scores[lag:], scores[:-lag]) for lag in (1, 2, ROW_TILE) if lag < len(scores)]
    if beside is not None:
        columns = min(scores.shape[1], beside.shape[1])
        other = beside[:, :columns]
        pairs.append((scores[:, :columns], other / math.sqrt(np.square(other).mean())))
    return [float((one * other).sum()) / math.sqrt(one.size) for one, other in pairs] or [0.0]
