"""How well scores tell members from non-members, and how sure that is: ROC, AUC, true positives at few false ones.

Every interval is over records, for the one model that was attacked: it says what more records of the same kind would
have shown of this model, not what another run of the mechanism would.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from sklearn.metrics import roc_curve

from privmix.accounting import Adjacency, UnsupportedEvent, event_from_dict, tradeoff_curve
from privmix.audits.bounds import clopper_pearson
from privmix.errors import WITHHELD, InvalidInput, check_integer, check_number

# Beyond this a curve is drawn no finer.
_POINTS: Final = 200


@dataclass(frozen=True)
class TprAt:
    """True positives at a false positive rate.

    Attributes:
        fpr: the rate that was asked for.
        tpr: share of members found by the lowest threshold that accuses at most this share of the non-members.
        low, high: Clopper-Pearson interval of ``tpr`` at that threshold, which the members have no part in.
        fpr_high: upper Clopper-Pearson bound on the threshold's real false positive rate: few non-members say little
            about small rates.
    """

    fpr: float
    tpr: float
    low: float
    high: float
    fpr_high: float


@dataclass(frozen=True)
class Roc:
    """An ROC curve at chosen false positive rates, spaced evenly on a log axis.

    Attributes:
        fpr: (points,) rates, ascending to 1.
        tpr: (points,) share of members found at each.
        low, high: (points,) Clopper-Pearson interval of each point alone.
    """

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
    """AUC, the chance that a member scores higher than a non-member (half of it for ties), with its interval.

    The variance is that of DeLong, DeLong and Clarke-Pearson (1988); the interval is normal on the log-odds of the AUC.
    Where members and non-members don't overlap that variance is 0, and the interval is the exact one of as many pairs
    as there are in the smaller group: if the AUC were below (tail)^(1/pairs), all of them would agree too rarely. The
    same holds of ties where all scores are equal.

    Args:
        members: (m,) scores, m >= 2; higher says member.
        nonmembers: (n,) scores, n >= 2.
        confidence: of the interval, in (0, 1).

    Raises:
        InvalidInput: too few scores, or one that is not finite.

    Example:
        >>> auc, low, high = auc_interval(np.array([2.0, 3.0, 4.0, 5.0]), np.array([1.0, 2.5, 3.5, 0.0]))
        >>> auc, 0 < low < auc < high < 1
        (0.8125, True)
    """
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
    """Share of members found when at most a share ``fpr`` of the non-members is accused.

    Args:
        members: (m,) scores; higher says member.
        nonmembers: (n,) scores. With fewer than 1/``fpr`` of them none may be accused.
        fpr: in (0, 1].
        confidence: of the intervals.

    Example:
        >>> point = tpr_at(np.arange(50) + 50.0, np.arange(100.0), 0.1)
        >>> point.tpr, round(point.low, 3), round(point.high, 3)
        (0.2, 0.1, 0.337)
    """
    check_number("fpr", fpr, low=0, high=1, low_open=True)
    curve = _curve(*_checked(members, nonmembers), np.array([fpr]), confidence)
    accused = np.floor(fpr * len(nonmembers) + 1e-9)
    _, worst = clopper_pearson(accused, len(nonmembers), _tail(confidence))
    return TprAt(fpr, float(curve.tpr[0]), float(curve.low[0]), float(curve.high[0]), float(worst))


def roc_with_band(
    members: NDArray[Any], nonmembers: NDArray[Any], confidence: float = 0.95, points: int = _POINTS
) -> Roc:
    """The ROC curve with the Clopper-Pearson interval of each point, at log-spaced rates from 1/n to 1.

    The intervals hold point by point, not for all at once, at thresholds that the non-members alone set.

    Example:
        >>> curve = roc_with_band(np.arange(50) + 50.0, np.arange(100.0), points=3)
        >>> curve.fpr.round(2).tolist(), curve.tpr.tolist()
        ([0.01, 0.1, 1.0], [0.02, 0.2, 1.0])
    """
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
    """The most true positives that any attack on one record can have at false positive rates ``fprs``.

    For a test of whether one record was there, all others being fixed: 1 - f(fpr), with f the trade-off curve of what
    ran (Dong, Roth, Su 2021), and never more than the (epsilon, delta) of the guarantee allows,
    min(e^epsilon fpr + delta, 1 - e^-epsilon (1 - delta - fpr)). It is the record's chance over the mechanism's
    randomness. A rate measured over many records of one model is an average of such chances, which varies from model to
    model, and may lie above the bound by chance.

    Formal guarantees:
        * never below the trade-off curve's own bound, nor below ``fprs``: guessing is always allowed;
        * never above the one from epsilon and delta alone, and just that where the record count is private.

    Args:
        certificate: of a release or of a trained model.
        fprs: rates in [0, 1].

    Example:
        >>> from privmix.accounting import Gaussian, event_to_dict
        >>> certificate = {"event": event_to_dict(Gaussian(1.0)),
        ...                "guarantee": {"epsilon": 4.4, "delta": 1e-5, "adjacency": "add_remove"}}
        >>> tpr_bound(certificate, [0.01, 0.5]).round(3).tolist()
        [0.092, 0.841]
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
    # Where the record count is private, the plan follows from a noisy count: all plans that it might have become keep
    # (epsilon, delta), but each has a curve of its own.
    if certificate.get("plan", {}).get("records_noise_multiplier") is None:
        with suppress(UnsupportedEvent, ArithmeticError):
            event = event_from_dict(certificate["event"])
            curve = tradeoff_curve(event, alphas, adjacency=Adjacency(guarantee["adjacency"]))
    return np.clip(np.minimum(most, 1 - curve), alphas, 1.0)
