"""LiRA and RMIA: what a record's log-odds in the target say, next to its log-odds in models with and without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit

from privmix.errors import InvalidInput, check_number

LEAST_REFERENCES: Final = 2
"""Models with a record, and without it, that an attack needs."""
# From so many models on each side, a record's own variance is better than that of all records.
_OWN_VARIANCE: Final = 32
_SMALLEST_STD: Final = 1e-9


@dataclass(frozen=True)
class ReferenceModels:
    """What R models, made like the target from known records, say of n records.

    Attributes:
        logits: (R, n) log-odds of each record's own class.
        included: (R, n) whether the model was made with the record.
    """

    logits: NDArray[np.float64]
    included: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if self.logits.ndim != 2 or self.logits.shape != self.included.shape:
            raise InvalidInput("references", (self.logits.shape, self.included.shape), "logits and marks of (R, n)")

    @property
    def count(self) -> int:
        """R."""
        return len(self.logits)

    def check(self, *, online: bool) -> None:
        """Raise :class:`InvalidInput` unless every record is left out, and for ``online`` taken in, twice or more."""
        least_out = int((~self.included).sum(axis=0).min(initial=self.count))
        least_in = int(self.included.sum(axis=0).min(initial=self.count))
        if least_out < LEAST_REFERENCES or (online and least_in < LEAST_REFERENCES):
            allowed = f"so many that each record is left out by {LEAST_REFERENCES} of them and in as many others"
            raise InvalidInput("references", self.count, allowed)


def lira_scores(
    target: NDArray[np.float64], references: ReferenceModels, *, online: bool = True
) -> NDArray[np.float64]:
    """Likelihood ratio attack of Carlini et al. 2022: higher says member.

    Log-odds of a record over models with it, and over models without it, are each taken as Gaussian. Online the score
    is the log of the ratio of the two densities at the target's log-odds; offline, which needs no model with the
    record, it is how many standard deviations the target lies above models without it (a monotone function of the
    paper's one-sided tail). With fewer than 32 models on a side, all records share that side's standard deviation,
    pooled within records.

    Args:
        target: (n,) log-odds in the attacked model.
        references: of the same records.
        online: whether models with the record are used.

    Raises:
        InvalidInput: too few references.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> included = np.arange(8)[:, None] % 2 == np.array([0, 1])
        >>> references = ReferenceModels(rng.normal(3.0 * included, 0.1), included)
        >>> (lira_scores(np.array([3.0, 0.0]), references) > 0).tolist()
        [True, False]
    """
    references.check(online=online)
    outside, spread_out = _gaussian(references.logits, ~references.included)
    if not online:
        return np.asarray((target - outside) / spread_out)
    inside, spread_in = _gaussian(references.logits, references.included)
    return np.asarray(stats.norm.logpdf(target, inside, spread_in) - stats.norm.logpdf(target, outside, spread_out))


def rmia_scores(
    target: NDArray[np.float64],
    references: ReferenceModels,
    population: NDArray[np.bool_],
    *,
    online: bool = True,
    gamma: float = 1.0,
    offline_a: float = 0.3,
) -> NDArray[np.float64]:
    """Robust membership inference attack of Zarifzadeh, Liu and Shokri 2024: higher says member.

    The score of x is the share of population records z with  [p(x | target) / p(x)] / [p(z | target) / p(z)] > gamma.
    p(x) is the average over reference models: online (p_in + p_out) / 2, offline ((1 + a) p_out + 1 - a) / 2.
    The score is thus the population's distribution function at the ratio of x over gamma: gamma = 1 ranks finest, and
    larger ones make ties.

    Args:
        target: (n,) log-odds in the attacked model.
        references: of the same records.
        population: (n,) which of the records are the z: such as are known to be no members.
        online: whether models with the record are used.
        gamma: >= 1.
        offline_a: a, in [0, 1].

    Raises:
        InvalidInput: too few references, no population, or a constant out of range.

    Example:
        >>> included = np.arange(8)[:, None] % 2 == np.array([0, 1, 0])
        >>> references = ReferenceModels(np.where(included, 3.0, 0.0), included)
        >>> rmia_scores(np.array([3.0, 0.0, 0.0]), references, np.array([False, True, True])).tolist()
        [1.0, 0.0, 0.0]
    """
    check_number("gamma", gamma, low=1)
    check_number("offline_a", offline_a, low=0, high=1)
    references.check(online=online)
    if not population.any():
        raise InvalidInput("population", 0, "at least one record that is no member")
    probabilities = expit(references.logits)
    without = _mean(probabilities, ~references.included)
    if online:
        marginal = (_mean(probabilities, references.included) + without) / 2
    else:
        marginal = ((1 + offline_a) * without + 1 - offline_a) / 2
    # log p(x | target), which does not underflow.
    ratio = -np.logaddexp(0.0, -target) - np.log(np.maximum(marginal, np.finfo(np.float64).tiny))
    known = np.sort(ratio[population])
    return np.asarray(np.searchsorted(known, ratio - np.log(gamma), side="left") / len(known))


def _gaussian(
    logits: NDArray[np.float64], chosen: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(n,) mean and (n,) standard deviation of the chosen models' log-odds."""
    counts = chosen.sum(axis=0)
    means = _mean(logits, chosen)
    squares = np.where(chosen, (logits - means) ** 2, 0.0).sum(axis=0)
    if counts.min() >= _OWN_VARIANCE:
        variances = squares / (counts - 1)
    else:
        variances = np.full(len(counts), squares.sum() / (counts - 1).sum())
    return means, np.maximum(np.sqrt(variances), _SMALLEST_STD)


def _mean(values: NDArray[np.float64], chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
    return np.asarray(np.where(chosen, values, 0.0).sum(axis=0) / chosen.sum(axis=0))
