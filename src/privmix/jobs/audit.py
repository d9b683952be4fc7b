"""Audits: attacks on a plan by its own engine, compared with what its certificate claims."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from privmix.accounting.api import calibrate
from privmix.accounting.base import UnsupportedEvent
from privmix.attacks.canaries import CanaryAudit
from privmix.attacks.noise_scale import NoiseAudit, audit_noise
from privmix.audits.audit import Stopping, audit_plan
from privmix.audits.bounds import AuditVerdict
from privmix.errors import REFUTED, InvalidInput
from privmix.jobs.kinds import certified_plan, read_certified, verify_certified
from privmix.jobs.recording import Measured, Measurement
from privmix.planning.config import ReleaseConfig
from privmix.plans.plan import Plan
from privmix.progress import Progress
from privmix.shown import Bars
from privmix.training.plan import TrainingPlan

A = TypeVar("A", AuditVerdict, NoiseAudit, CanaryAudit)


@dataclass(frozen=True, repr=False)
class AuditResult(Measured, Generic[A]):
    """The figures of an audit, and warnings for the owner before anyone else sees them."""

    audit: A
    warnings: tuple[str, ...] = field(default=(), kw_only=True)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        return self.audit.shown()

    def picture(self) -> Bars:
        return self.audit.picture()

    @property
    def details(self) -> tuple[str, ...]:
        return tuple(text for text in self.measurement.statements if text not in self.warnings)

    @property
    def violated(self) -> bool:
        return bool(self.audit.proof.violated if isinstance(self.audit, CanaryAudit) else self.audit.violated)

    @property
    def exit_code(self) -> int:
        return REFUTED if self.violated else 0


@dataclass(frozen=True)
class Claim:
    """A plan, and the epsilon and delta claimed for it; `as_published` noise follows the papers' formula, no bound."""

    plan: Plan | TrainingPlan
    epsilon: float
    delta: float
    subject: dict[str, Any]
    as_published: bool = False

    @classmethod
    def of_folder(cls, folder: str | Path) -> "Claim":
        """Return the claim of a release or trained model whose certificate holds."""
        held, plan = verify_certified(folder), certified_plan(read_certified(folder))
        assert isinstance(plan, Plan | TrainingPlan)
        return cls(plan, held.epsilon, held.delta, {"kind": held.kind, "id": held.id})

    @classmethod
    def of_plan(cls, plan: Plan | TrainingPlan) -> "Claim":
        """Return the budget of the plan itself; ``plan.priced(delta)`` gives one to a plan that has none."""
        if plan.epsilon is None or plan.delta is None:
            raise InvalidInput("target", "a plan without a target", "a plan with a target: plan.priced(delta)")
        return cls(plan, plan.epsilon, plan.delta, {"kind": "design", "id": None})

    @classmethod
    def of_design(cls, config: ReleaseConfig, epsilon: float, delta: float, *, as_published: bool = False) -> "Claim":
        """Return a design under a claim, with the noise that the claim needs or that the papers give it."""
        if not as_published:
            return cls.of_plan(config.calibrate(epsilon, delta))
        plan = published_plan(config, epsilon, delta)
        return cls(plan, epsilon, delta, {"kind": "design", "id": None}, as_published=True)


def published_plan(config: ReleaseConfig, epsilon: float, delta: float) -> Plan:
    """Return the plan with the noise of the papers' formula, which may be less than private."""
    # A degree by theory depends on the target: fix it before the search, which varies the noise alone.
    config = config.resolved(epsilon, delta)
    adjacency = config.draft().adjacency
    try:
        found = calibrate(
            lambda noise: config.with_noise(noise).event, epsilon, delta, accountant="as_published", adjacency=adjacency
        )
    except UnsupportedEvent:
        raise InvalidInput("as_published", config.design.name, "a design with a published formula") from None
    return config.with_noise(found.noise_multiplier)


def audit_worst_case(
    claim: Claim, runs: int, stopping: Stopping, confidence: float, seed: int | None, progress: Progress
) -> AuditResult[AuditVerdict]:
    """Run the plan on the worst pair of neighbouring datasets. Reads no private record."""
    plan = claim.plan
    how: dict[str, Any] = {"runs": runs, "confidence": confidence, "seed": seed, "stopping": stopping}
    if isinstance(plan, TrainingPlan):
        # Audits of releases need no torch.
        from privmix.training.worst_case import audit_training

        found = audit_training(plan, claim.epsilon, progress=progress, **how)
    else:
        # A published claim is not the price of what runs, whose trade-off curve is then no part of the claim.
        own_price = not claim.as_published
        found = audit_plan(plan, claim.epsilon, claim.delta, own_price=own_price, progress=progress, **how)
    of_design = {"as_published": claim.as_published} if claim.subject["kind"] == "design" else {}
    settings = {"plan": plan.to_dict(), **of_design, "seed": seed}
    title, statements = f"Worst-case audit of design {found.design}", list(found.statements)
    if claim.as_published:
        statements.insert(0, "The noise follows the papers' formula, which is not a bound.")
    content = found.to_dict()
    measurement = Measurement("audit", claim.subject, content, False, settings, title, statements)
    return AuditResult(measurement, found)


def audit_its_noise(claim: Claim, confidence: float, seed: int | None, progress: Progress) -> AuditResult[NoiseAudit]:
    """Draw every noise of the plan on empty records. Reads no private record."""
    found = audit_noise(claim.plan, confidence=confidence, seed=seed, progress=progress)
    settings = {"plan": claim.plan.to_dict(), "seed": seed}
    title, content = f"Audit of the noise of design {found.design}", found.to_dict()
    measurement = Measurement("noise-audit", claim.subject, content, False, settings, title, found.statements)
    return AuditResult(measurement, found)
