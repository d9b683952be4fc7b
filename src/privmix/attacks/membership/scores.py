"""LiRA and RMIA: a record's log-odds in the target and in other models; ROC, AUC and true positives with intervals."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.optimize import minimize_scalar
from scipy.special import expit, logsumexp
from sklearn.metrics import roc_curve

from privmix.accounting.api import tradeoff_curve
from privmix.accounting.base import UnsupportedEvent
from privmix.accounting.events import Adjacency, event_from_dict
from privmix.audits.bounds import clopper_pearson
from privmix.errors import WITHHELD, InvalidInput, check_integer, check_number

# Beyond this a curve is drawn no finer.
_POINTS: Final = 200


@dataclass(frozen=True)
class TprAt:
    """True positive rate at a false positive rate."""

    # low, high: Clopper-Pearson at a threshold that members have no part in; fpr_high: upper Clopper-Pearson bound on
    # the threshold's real false positive rate, wide where non-members are few.

    fpr: float
    tpr: float
    low: float
    high: float
    fpr_high: float


@dataclass(frozen=True)
class Roc:
    """ROC curve at log-spaced false positive rates, ascending to 1, with pointwise Clopper-Pearson intervals."""

    fpr: NDArray[np.float64]
    tpr: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def to_dict(self) -> dict[str, list[float]]:
        """JSON values, to six digits."""
        return {name: [float(f"{value:.6g}") for value in values] for name, values in vars(self).items()}


def auc_interval(
    members: NDArray[Any], nonmembers: NDArray[Any], confidence: float = 0.95
) -> tuple[float, float, float]:
    """Return the AUC (ties count half) and its interval, from members' (higher) and non-members' scores."""
    # Variance: DeLong, DeLong and Clarke-Pearson (1988), normal on the log-odds. The variance is 0 if the groups do not
    # overlap or all scores tie. The interval is then the exact one of as many pairs as the smaller group has: an AUC
    # below (tail)^(1/pairs) would agree in all pairs too rarely.
    inside, outside = _checked(members, nonmembers)
    tail = _tail(confidence)
    together = stats.rankdata(np.concatenate([inside, outside]))
    # For each member the share of non-members below it, and for each non-member the share of members above it.
    below = (together[: len(inside)] - stats.rankdata(inside)) / len(outside)
    above = 1 - (together[len(inside) :] - stats.rankdata(outside)) / len(inside)
    auc = float(below.mean())
    error = float(np.sqrt(below.var(ddof=1) / len(inside) + above.var(ddof=1) / len(outside)))
    if error == 0 or auc in (0.0, 1.0):
        rest = 1 - tail ** (1 / min(len(inside), len(outside)))
        return auc, max(0.0, auc - rest), min(1.0, auc + rest)
    spread = stats.norm.isf(tail) * error / (auc * (1 - auc))
    odds = np.log(auc / (1 - auc))
    low, high = 1 / (1 + np.exp(-(odds + np.array([-spread, spread]))))
    return auc, float(low), float(high)


def tpr_at(members: NDArray[Any], nonmembers: NDArray[Any], fpr: float, confidence: float = 0.95) -> TprAt:
    """Return the share of members found when at most a share ``fpr`` of non-members is accused; none below 1 / n."""
    check_number("fpr", fpr, low=0, high=1, low_open=True)
    curve = _curve(*_checked(members, nonmembers), np.array([fpr]), confidence)
    accused = np.floor(fpr * len(nonmembers) + 1e-9)
    _, worst = clopper_pearson(accused, len(nonmembers), _tail(confidence))
    return TprAt(fpr, float(curve.tpr[0]), float(curve.low[0]), float(curve.high[0]), float(worst))


def roc_with_band(
    members: NDArray[Any], nonmembers: NDArray[Any], confidence: float = 0.95, points: int = _POINTS
) -> Roc:
    """Return the ROC curve at log-spaced rates from 1/n to 1; intervals hold pointwise, at non-members' thresholds."""
    inside, outside = _checked(members, nonmembers)
    check_integer("points", points, low=2, high=_POINTS)
    return _curve(inside, outside, np.geomspace(1 / len(outside), 1, points), confidence)


def newcombe(
    first: int, of_first: int, second: int, of_second: int, confidence: float = 0.95
) -> tuple[float, float, float]:
    """Return the difference of two independent shares and Newcombe's interval (1998, method 10).

    Example:
        >>> [round(value, 4) for value in newcombe(56, 70, 48, 80)]  # Newcombe's example (a)
        [0.2, 0.0524, 0.3339]
    """
    p, q = first / of_first, second / of_second
    one = stats.binomtest(first, of_first).proportion_ci(confidence, method="wilson")
    two = stats.binomtest(second, of_second).proportion_ci(confidence, method="wilson")
    low = p - q - float(np.hypot(p - one.low, two.high - q))
    high = p - q + float(np.hypot(one.high - p, q - two.low))
    return p - q, low, high


def _curve(
    inside: NDArray[np.float64], outside: NDArray[np.float64], rates: NDArray[np.float64], confidence: float
) -> Roc:
    truth = np.repeat([1, 0], [len(inside), len(outside)])
    fpr, tpr, _ = roc_curve(truth, np.concatenate([inside, outside]), drop_intermediate=False)
    # The last point whose rate is not exceeded; rates like 3/n must not fall short by rounding.
    found = tpr[np.searchsorted(fpr, rates + 1e-12, side="right") - 1]
    low, high = clopper_pearson(np.rint(found * len(inside)), len(inside), _tail(confidence))
    return Roc(rates, np.asarray(found), low, high)


def _tail(confidence: float) -> float:
    """Chance of error at each end of a two-sided interval."""
    return (1 - check_number("confidence", confidence, low=0, high=1, low_open=True, high_open=True)) / 2


def _checked(members: NDArray[Any], nonmembers: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    found = []
    for name, scores in (("members", members), ("nonmembers", nonmembers)):
        values = np.asarray(scores, dtype=np.float64)
        if values.ndim != 1 or len(values) < 2 or not np.isfinite(values).all():
            raise InvalidInput(f"scores of {name}", WITHHELD, "a vector of at least two finite numbers")
        found.append(values)
    return found[0], found[1]


def tpr_bound(certificate: Mapping[str, Any], fprs: ArrayLike) -> NDArray[np.float64]:
    """Return the largest true positive rates of any attack on one record at false positive rates ``fprs``.

    1 - f(fpr), with f the trade-off curve (Dong, Roth, Su 2021). The value is at most the (epsilon, delta) bound
    min(e^epsilon fpr + delta, 1 - e^-epsilon (1 - delta - fpr)). It is the chance of one record over the mechanism's
    randomness. A rate over many records of one model is a mean of such chances and may exceed the bound by chance.

    Formal guarantees:
        * never below the trade-off curve's own bound, nor below ``fprs``: guessing is always allowed;
        * never above the one from epsilon and delta alone, and just that where the record count is private.
    """
    alphas = np.atleast_1d(np.asarray(fprs, dtype=np.float64))
    for value in alphas:
        check_number("fpr", float(value), low=0, high=1)
    guarantee = certificate["guarantee"]
    most = np.ones_like(alphas)
    if guarantee["epsilon"] is not None:
        epsilon, delta = float(guarantee["epsilon"]), float(guarantee["delta"])
        with np.errstate(over="ignore"):
            most = np.minimum(np.exp(epsilon) * alphas + delta, 1 - np.exp(-epsilon) * (1 - delta - alphas))
    curve = np.zeros_like(alphas)
    # If the record count is private, the plan follows from a noisy count. All plans that it might have become keep
    # (epsilon, delta), but each has a curve of its own.
    if certificate.get("plan", {}).get("records_noise_multiplier") is None:
        with suppress(UnsupportedEvent, ArithmeticError):
            event = event_from_dict(certificate["event"])
            curve = tradeoff_curve(event, alphas, adjacency=Adjacency(guarantee["adjacency"]))
    return np.clip(np.minimum(most, 1 - curve), alphas, 1.0)


# The least probability that float32 holds; log-odds stay within +-88.
_TINY: Final = float(np.finfo(np.float32).tiny)
_LOG_TEMPERATURES: Final = (-7.0, 7.0)


def gives_probabilities(model: Any) -> bool:
    """Whether the model has ``predict_proba`` of its own; an attacker fits a temperature to other scores."""
    return hasattr(model, "predict_proba") and not hasattr(type(model), "temperature_")


def class_scores(model: Any, features: NDArray[Any], classes: int) -> NDArray[np.float64]:
    """Return (n, K) log-probabilities, or scores of a model without them; a class not in ``classes_`` has the least."""
    if gives_probabilities(model):
        probabilities = np.asarray(model.predict_proba(features), dtype=np.float64)
        found = np.log(np.clip(probabilities, _TINY, None))
        least = np.log(_TINY)
    elif hasattr(model, "decision_function"):
        found = np.asarray(model.decision_function(features), dtype=np.float64)
        if found.ndim == 1:
            # Two classes have one score, that of the second.
            found = np.stack([np.zeros_like(found), found], axis=1)
        least = float(found.min(initial=0.0))
    else:
        raise InvalidInput("model", type(model).__name__, "one with predict_proba or decision_function")
    known = np.asarray(getattr(model, "classes_", np.arange(classes)), dtype=np.int64)
    if found.shape != (len(features), len(known)) or not np.isfinite(found).all():
        raise InvalidInput("model output", found.shape, f"finite numbers of shape (n, {classes})")
    if np.array_equal(known, np.arange(classes)):
        return found
    scores = np.full((len(features), classes), least)
    scores[:, known] = found
    return scores


def fit_temperature(scores: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """Return the likeliest t of softmax(scores / t) for (n, K) scores and (n,) labels (Guo et al. 2017)."""
    # Regression scores lie near 0 and 1; an attacker with records of the same kind can scale them to log-probabilities.
    rows = np.arange(len(labels))

    def loss(log_temperature: float) -> float:
        scaled = scores / np.exp(log_temperature)
        return float((logsumexp(scaled, axis=1) - scaled[rows, labels]).mean())

    return float(np.exp(minimize_scalar(loss, bounds=_LOG_TEMPERATURES, method="bounded").x))


def true_class_logits(
    scores: NDArray[np.float64], labels: NDArray[np.int64], temperature: float = 1.0
) -> NDArray[np.float64]:
    """Return (n,) log(p / (1 - p)) of each record's own class (Carlini et al. 2022, section V.A)."""
    # The loss is log(1 + exp(-logit)): one number serves all attacks. From the other classes' scores: p rounds to 1.
    check_number("temperature", temperature, low=0, low_open=True)
    check_integer("classes", scores.shape[1], low=2)
    if len(labels) != len(scores) or labels.min(initial=0) < 0 or labels.max(initial=0) >= scores.shape[1]:
        raise InvalidInput("labels", "labels that don't fit", f"one a record, from 0 to {scores.shape[1] - 1}")
    rows = np.arange(len(labels))
    scaled = scores / temperature
    own = scaled[rows, labels]
    scaled[rows, labels] = -np.inf
    return np.asarray(own - logsumexp(scaled, axis=1))


LEAST_REFERENCES: Final = 2
"""Models with a record, and without it, that an attack needs."""
# From this number of models on each side, a record's own variance is better than that of all records.
_OWN_VARIANCE: Final = 32
# Models that agree to the last digit would lead to a division by 0.
_SMALLEST_STD: Final = 1e-9


@dataclass(frozen=True)
class ReferenceModels:
    """(R, n) log-odds of each record's own class in R models of known records, and (R, n) membership."""

    logits: NDArray[np.float64]
    included: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if self.logits.ndim != 2 or self.logits.shape != self.included.shape:
            raise InvalidInput("references", (self.logits.shape, self.included.shape), "logits and marks of (R, n)")

    def check(self, *, online: bool) -> None:
        """Raise :class:`InvalidInput` unless every record is left out, and for ``online`` taken in, twice or more."""
        count = len(self.logits)
        least_out = int((~self.included).sum(axis=0).min(initial=count))
        least_in = int(self.included.sum(axis=0).min(initial=count))
        if least_out < LEAST_REFERENCES or (online and least_in < LEAST_REFERENCES):
            allowed = f"more: each record has to be left out by {LEAST_REFERENCES} of them and in as many others"
            raise InvalidInput("references", count, allowed)


def lira_scores(
    target: NDArray[np.float64], references: ReferenceModels, *, online: bool = True
) -> NDArray[np.float64]:
    """Score records by the likelihood ratio attack of Carlini et al. 2022: members score higher.

    Log-odds over models with and without a record are each Gaussian. Online: log ratio of the two densities at the
    target. Offline, without models that hold the record: standard deviations above the models without it (monotone in
    the paper's one-sided tail). With fewer than 32 models on a side, records share that side's pooled deviation.
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
    """Score records by the attack of Zarifzadeh, Liu and Shokri 2024 (RMIA): members score higher.

    Score of x: the share of population records z with  [p(x | target) / p(x)] / [p(z | target) / p(z)] > gamma.
    p(x) is the mean over reference models: online (p_in + p_out) / 2, offline ((1 + a) p_out + 1 - a) / 2.
    gamma = 1 ranks finest; larger ones make ties.
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
