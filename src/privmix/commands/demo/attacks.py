"""The attacks of ``privmix demo``: an audit of the release's plan, and membership inference on its model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from privmix.attacks.membership.attack import MembershipConfig, MembershipResult, infer_membership
from privmix.attacks.membership.trainers import ReleaseTrainer
from privmix.audits.audit import audit_plan
from privmix.audits.verdict import AuditVerdict
from privmix.commands.demo.steps import DELTA, EPSILON, PUBLIC, DemoDigits, Learned, keep
from privmix.engine.rows import PrivateRecords
from privmix.jobs.membership import STATEMENTS
from privmix.learning.model_io import load_model
from privmix.progress import Progress
from privmix.releases.certificate import read_certificate

# Enough to prove a good part of the budget in a few seconds.
_RUNS: Final = 4_000
_MEMBERSHIP: Final = MembershipConfig(attacks=("loss", "lira", "rmia"), references=16)


def attack_demo(
    digits: DemoDigits, result: Learned, folder: Path, progress: Progress
) -> tuple[AuditVerdict, MembershipResult]:
    """Attack what :func:`privmix.commands.demo.steps.run_demo` left in ``folder``; records go there as well."""
    subject = {"kind": "release", "id": result.verified.id}
    audit = audit_plan(result.plan, EPSILON, DELTA, runs=_RUNS, progress=progress)
    keep(
        folder,
        "audit",
        subject,
        audit.to_dict(),
        settings={"plan": result.plan.to_dict()},
        title=f"Worst-case audit of design {audit.design}",
        statements=audit.statements,
    )
    membership = _membership(digits, folder, progress)
    keep(
        folder,
        "membership",
        subject,
        membership.to_dict(owner=False),
        settings=_settings(),
        title="Membership inference",
        statements=[*STATEMENTS, PUBLIC],
    )
    return audit, membership


def _membership(digits: DemoDigits, folder: Path, progress: Progress) -> MembershipResult:
    train, test = digits.train, digits.test
    records = PrivateRecords(
        np.concatenate([train.features, test.features]), np.concatenate([train.labels, test.labels])
    )
    certificate = read_certificate(folder / "release")
    model = load_model(folder / "model")
    return infer_membership(
        model,
        records,
        np.arange(len(records.labels)) < len(train.labels),
        classes=len(digits.classes),
        config=_MEMBERSHIP,
        trainer=ReleaseTrainer.of(model, certificate),
        certificate=certificate,
        progress=progress,
    )


def _settings() -> dict[str, Any]:
    return {**vars(_MEMBERSHIP), "members": "train", "nonmembers": "test", "with_release": True}
