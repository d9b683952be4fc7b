"""What a guarantee leaves to any membership attack: the most true positives at a false positive rate."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix.accounting import Adjacency, UnsupportedEvent, event_from_dict, tradeoff_curve
from privmix.errors import check_number


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
