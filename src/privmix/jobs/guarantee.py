"""The guarantee of a release or trained model as a run record: recomputed from its certificate, never copied."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.accounting import (
    Adjacency,
    Event,
    UnsupportedEvent,
    epsilon,
    epsilon_delta_curve,
    tradeoff_curve,
)
from privmix.designs import Plan
from privmix.errors import InvalidInput
from privmix.release.certificate import read_certificate
from privmix.release.verify import check_certificate
from privmix.reports.records import RunRecord
from privmix.training import load_trained
from privmix.training.verify import plan_of, verify_trained

# At these false-alarm rates the trade-off curve is drawn; membership panels need the small ones. 5% is quoted.
_ALPHAS: Final = np.unique(np.concatenate(([0.0, 0.05, 1.0], np.geomspace(1e-5, 0.05, 30), np.linspace(0.05, 1.0, 60))))
_QUOTED: Final = 0.05
_CURVE_POINTS: Final = 81


@dataclass(frozen=True)
class _Claim:
    """A certificate's promise, checked: what it says and the event that decides it.

    ``exact`` says whether the event's whole curve is promised, and not one point of it alone.
    """

    epsilon: float
    delta: float
    event: Event
    adjacency: Adjacency
    exact: bool


def release_guarantee(folder: Path) -> RunRecord:
    """The record of a release folder's guarantee; the certificate must keep what it says.

    Raises:
        StorageError: there is no certificate, or it can't be read.
        InvalidInput: it was edited, or states less than its plan costs.
    """
    certificate = read_certificate(folder)
    plan, cost = check_certificate(certificate)
    stated = certificate["guarantee"]
    claim = _Claim(
        math.inf if stated["epsilon"] is None else float(stated["epsilon"]),
        stated["delta"],
        plan.event,
        plan.adjacency,
        stated["accountant"] == "pld" and plan.records_noise_multiplier is None,
    )
    settings = {
        **certificate["plan"],
        "noise_std": certificate["noise_std"],
        "extractor": certificate["extractor"],
        "input_shape": certificate["input_shape"],
        "in_ledger": certificate["in_ledger"],
        "files": len(certificate["files"]),
    }
    content = {"what": "release", "summary": _release_summary(plan, certificate["extractor"].get("name", "?"))}
    subject = {"kind": "release", "id": certificate["release_id"]}
    return _record(subject, certificate, claim, cost.epsilon, content, settings, "Release")


def model_guarantee(folder: Path) -> RunRecord:
    """The record of a trained model's guarantee; certificate and weights must keep what they say.

    Raises:
        StorageError: a file is missing or can't be read.
        InvalidInput: something was edited, or the certificate states less than its plan costs.
    """
    verified = verify_trained(folder)
    model = load_trained(folder)
    certificate, plan = dict(model.certificate), plan_of(model.certificate)
    claim = _Claim(verified.epsilon, verified.delta, plan.event, plan.adjacency, True)
    summary = (
        f"A classifier ({model.network.architecture}) trained on {plan.records:,} records in {plan.steps:,} noisy "
        f"steps (DP-SGD), batches of about {plan.batch_size:,}"
    )
    settings = {**certificate["plan"], **certificate["settings"], "public_data": certificate["public_data"]}
    content = {"what": "model", "summary": summary}
    subject = {"kind": "model", "id": certificate["model_id"]}
    return _record(subject, certificate, claim, verified.recomputed_epsilon, content, settings, "Trained model")


def _record(
    subject: Mapping[str, Any],
    certificate: Mapping[str, Any],
    claim: _Claim,
    recomputed: float,
    content: Mapping[str, Any],
    settings: Mapping[str, Any],
    title: str,
) -> RunRecord:
    stated, digest = certificate["guarantee"], str(certificate["content_sha256"])
    return RunRecord(
        "guarantee",
        dict(subject),
        False,
        {
            **content,
            "epsilon": _finite(claim.epsilon),
            "delta": claim.delta,
            "adjacency": stated["adjacency"],
            "accountant": stated["accountant"],
            "is_upper_bound": stated["is_upper_bound"],
            "epsilon_asked": stated["epsilon_asked"],
            "recomputed_epsilon": _finite(recomputed),
            **_curves(claim),
            "published": _published(claim),
            "insecure_seed": certificate["insecure_seed"],
            "in_ledger": certificate["in_ledger"],
            "warnings": list(certificate["warnings"]),
            "assessment": list(certificate["assessment"]),
            "certificate_sha256": digest,
        },
        dict(settings),
        title=f"{title} {subject['id'][:8]}",
        command=f"privmix verify {'RELEASE' if subject['kind'] == 'release' else 'MODEL'}",
        statements=list(certificate["statements"]),
        versions={name: str(found) for name, found in certificate["versions"].items() if found is not None},
        # The same certificate gives the same record.
        record_id=digest[:32],
    )


def _curves(claim: _Claim) -> dict[str, Any]:
    """The epsilon-delta curve, the trade-off curve, and what an attacker gains by the latter."""
    if not math.isfinite(claim.epsilon):
        return {"epsilon_delta": None, "tradeoff": None, "power": None}
    epsilons = np.unique(np.append(np.linspace(0, 2 * claim.epsilon, _CURVE_POINTS), claim.epsilon))
    if claim.exact:
        deltas = epsilon_delta_curve(claim.event, epsilons.tolist(), adjacency=claim.adjacency)
        # The stated pair is what is promised: rounding in its last digits must not show beside the curve.
        betas = tradeoff_curve(claim.event, _ALPHAS, adjacency=claim.adjacency)
    else:
        deltas = np.where(epsilons >= claim.epsilon, claim.delta, 1.0)
        betas = _tradeoff_of_point(claim.epsilon, claim.delta, _ALPHAS)
    quoted = float(betas[np.flatnonzero(_ALPHAS == _QUOTED)[0]])
    return {
        "epsilon_delta": {"epsilon": epsilons.tolist(), "delta": deltas.tolist()} if claim.exact else None,
        "tradeoff": {"alpha": _ALPHAS.tolist(), "beta": betas.tolist()},
        "power": {"alpha": _QUOTED, "caught": 1 - quoted, "right": _advantage(claim)},
    }


def _tradeoff_of_point(epsilon: float, delta: float, alpha: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least miss rate that (epsilon, delta)-DP alone leaves (Wasserman and Zhou 2010; Kairouz, Oh, Viswanath 2015)."""
    growth = math.exp(min(epsilon, 700.0))
    return np.maximum(0.0, np.maximum(1 - delta - growth * alpha, (1 - delta - alpha) / growth))


def _advantage(claim: _Claim) -> float:
    """How often the best attack wins an even bet: half of 1 + delta(0), the total variation distance."""
    if claim.exact:
        distance = float(epsilon_delta_curve(claim.event, [0.0], adjacency=claim.adjacency)[0])
        return min(1.0, (1 + distance) / 2)
    growth = math.exp(-min(claim.epsilon, 700.0))
    return (1 + claim.delta * growth) / (1 + growth)


def _published(claim: _Claim) -> dict[str, Any] | None:
    """The papers' figure for the same event, where they have one: a comparison and no bound."""
    try:
        cost = epsilon(claim.event, claim.delta, accountant="as_published", adjacency=claim.adjacency)
    except (UnsupportedEvent, InvalidInput):
        # No formula of the papers', or none at delta 0.
        return None
    return {"epsilon": _finite(cost.epsilon), "note": cost.note}


def _release_summary(plan: Plan, extractor: str) -> str:
    about = f"{plan.records:,} records ({extractor} features, {plan.num_classes} classes)"
    return plan.kind.summary(plan, about)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
