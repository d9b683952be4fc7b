"""ROC, AUC and true positives at low false positive rates, with intervals over records of the one attacked model."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
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
