"""The guarantee of a release or trained model as a run record: recomputed from its certificate, never copied."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privmix.certificate.about import about_of
from privmix.certificate.certificate import MODEL, RELEASE, Certificate
from privmix.certificate.guarantee import Guarantee
from privmix.features.spec import title_of
from privmix.jobs.checking import sealed_key_of
from privmix.jobs.kinds import kind_of
from privmix.mechanisms.plan import RECORD, unit_of
from privmix.planning.choice import check_choice_record
from privmix.plans.plan import Plan
from privmix.plans.registry import made_by
from privmix.releases.certificate import read_certificate
from privmix.releases.verify import check_certificate
from privmix.reports.records import RunRecord


def folder_guarantee(folder: Path) -> RunRecord:
    """Return the record of a release's or trained model's guarantee; its certificate must hold."""
    return (_model if kind_of(folder) == MODEL else _release)(folder)


def _release(folder: Path) -> RunRecord:
    certificate = read_certificate(folder)
    plan, cost = check_certificate(certificate)
    settings = {
        **certificate["plan"],
        "noise_std": certificate["noise_std"],
        "extractor": certificate["extractor"],
        "input_shape": certificate["input_shape"],
        "in_ledger": certificate["in_ledger"],
        "files": len(certificate["files"]),
    }
    summary = _release_summary(plan, title_of(certificate["extractor"]))
    state = sealed_key_of(folder, certificate)
    classes = {"classes": plan.num_classes, **_forecast(certificate)}
    return _record(certificate, cost.epsilon, summary, settings, "Release", state, classes)


def _model(folder: Path) -> RunRecord:
    """Weights are verified, too: unlike a release's files they are few."""
    from privmix.training.trained import load_trained
    from privmix.training.verify import plan_of, verify_trained

    verified = verify_trained(folder)
    model = load_trained(folder)
    certificate, plan = model.certificate, plan_of(model.certificate)
    summary = f"A classifier ({model.network.name}) trained on public data alone: no private record was read, and "
    summary += "the public data were not compared with private records"
    if plan.steps > 0:
        from privmix.training.mechanisms.base import mechanism_of

        called = mechanism_of(plan).called
        summary = (
            f"A classifier ({model.network.name}) trained on {plan.records:,} {unit_of(plan).many} in "
            f"{plan.steps:,} noisy steps ({called}), batches of about {plan.batch_size:,}"
        )
    classes = {"classes": len(model.facts_.classes)}
    settings = {**certificate["plan"], **certificate["settings"], "public_data": certificate["public_data"]}
    return _record(certificate, verified.recomputed_epsilon, summary, settings, "Trained model", "", classes)


def _record(
    certificate: Certificate,
    recomputed: float,
    summary: str,
    settings: Mapping[str, Any],
    title: str,
    state: str,
    utility: Mapping[str, Any],
) -> RunRecord:
    stated, digest = certificate["guarantee"], str(certificate["content_sha256"])
    promise = Guarantee.of(certificate)
    return RunRecord(
        "guarantee",
        {"kind": certificate.kind, "id": certificate.id},
        False,
        {
            "what": certificate.kind,
            "summary": summary,
            "about": dict(about_of(certificate)),
            "epsilon": _finite(promise.epsilon),
            "delta": promise.delta,
            "adjacency": stated["adjacency"],
            **({} if certificate.unit == RECORD else {"unit": certificate.unit.one}),
            "accountant": stated["accountant"],
            "is_upper_bound": stated["is_upper_bound"],
            "epsilon_asked": certificate["plan"]["epsilon"],
            "recomputed_epsilon": _finite(recomputed),
            **promise.curves(),
            "published": promise.published(),
            "insecure_seed": certificate["insecure_seed"],
            "in_ledger": certificate["in_ledger"],
            "warnings": list(certificate["warnings"]),
            "assessment": list(certificate["assessment"]),
            **utility,
            "certificate_sha256": digest,
        },
        dict(settings),
        title=f"{title} {certificate.id[:8]}",
        command=f"privmix verify {'RELEASE' if certificate.kind == RELEASE else 'MODEL'}",
        statements=[*certificate["statements"], *([f"The key of the noise: {state}."] if state else [])],
        versions={name: str(found) for name, found in certificate["versions"].items() if found is not None},
        # The same certificate gives the same record.
        record_id=digest[:32],
    )


def _forecast(certificate: Certificate) -> dict[str, Any]:
    """Return the planner's forecast, from public facts alone; nothing where the design was named."""
    if (choice := certificate["choice"]) is None:
        return {}
    check_choice_record(choice)
    name, (_, without, _) = choice["chosen"], choice["attainable"]
    low, high = choice["ranges"][name]
    found = {"accuracy": choice["predicted"][name], "low": low, "high": high, "without_privacy": without}
    return {"forecast": found}


def _release_summary(plan: Plan, extractor: str) -> str:
    about = f"{plan.records:,} {plan.counted} ({extractor} features, {plan.num_classes} classes)"
    return made_by(plan).summary(plan, about)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
