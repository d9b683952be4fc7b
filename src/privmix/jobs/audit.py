"""Audits: attacks on a plan by its own engine, beside what its certificate claims. None reads a private record."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import singledispatch
from os import PathLike
from pathlib import Path
from typing import Any, Final, Unpack

from privmix.attacks.canaries import CanaryAudit
from privmix.attacks.noise_scale import NoiseAudit, audit_noise
from privmix.audits.audit import audit_plan
from privmix.audits.bounds import check_audit
from privmix.audits.defaults import CONFIDENCE, RUNS
from privmix.audits.looks import MOST_RUNS, Stopping
from privmix.audits.verdict import Audit
from privmix.bars import Asked, callback, shows_bars
from privmix.errors import InvalidInput, check_choice
from privmix.jobs.arguments import CanaryArguments
from privmix.jobs.audited import Audited, Claim
from privmix.jobs.canaries import CanaryJob
from privmix.jobs.options import CanaryOptions, TargetColumns
from privmix.jobs.persons import Persons
from privmix.jobs.recording import Measurement
from privmix.plans import BasePlan, Plan
from privmix.progress import Progress
from privmix.signatures import spelt_out
from privmix.training import TrainingPlan
from privmix.training.worst_case import audit_training

KINDS: Final = ("worst-case", "noise", "canaries")


@shows_bars
@spelt_out(TargetColumns, CanaryOptions, Persons, types=CanaryArguments)
def audit(
    target: str | PathLike[str] | Plan | TrainingPlan | Claim,
    kind: str = "worst-case",
    *,
    runs: int | None = None,
    seconds: float | None = None,
    enough: float | None = None,
    confidence: float = CONFIDENCE,
    seed: int | None = None,
    progress: Asked = None,
    **options: Unpack[CanaryArguments],
) -> Audited[Audit] | Audited[NoiseAudit] | Audited[CanaryAudit]:
    """Attack the plan of a release, a trained model or a design with the real engine, and say what that proves.

    ``"worst-case"`` runs the plan on the worst pair of neighbouring datasets and gives a proven lower bound beside the
    claim. ``"noise"`` draws every noise that the plan adds by the real code on empty records, and compares its scale,
    shape and independence with the certificate: a hundredth too little shows. Neither reads private data.

    ``"canaries"`` puts canaries among the owner's records by coins, runs the plan once more, and counts the guesses at
    the coins. What that shows is for the owner, and costs what the plan costs. Where the plan's unit is a person, each
    canary is a person with several records.

    Args:
        target: a release, or the folder of one or of a trained model; or a plan, or a claim about one.
        kind: ``"worst-case"``, ``"noise"`` or ``"canaries"``.
        runs: of the worst case: independent runs, half of them with the record. None: 10,000, or with ``seconds`` or
            ``enough`` as many as it takes.
        seconds: of the worst case: stop after about so long.
        enough: of the worst case: stop as soon as this share of the claimed epsilon is proven, or the claim is
            refuted. Whatever is said holds however the moment to stop was chosen.
        confidence: of what is said to be proven.
        seed: for tests: the same runs again.
        progress: called with (stage, done, total); True: bars; None: bars where somebody looks on.
        options: the options below, of ``"canaries"`` alone, which needs ``data`` and ``canaries``. ``person``: of a
            target whose unit is a person, whose the records are, the name of a column or an array.

    Raises:
        InvalidInput: the certificate does not hold, a value is out of range, or an option belongs to another kind.
        StorageError: a file is missing or can't be read.
        BudgetExceeded: of canaries: the ledger does not hold so much; nothing was read.

    Example:
        >>> from privmix.planning import ReleaseConfig
        >>> config = ReleaseConfig(records=1000, dim=1, classes=("no", "yes"), rows=50, centre="none")
        >>> found = audit(config.calibrate(2.0, 1e-5), runs=400, seed=0)
        >>> found.violated, found.audit.proven_epsilon < 2.0
        (False, True)
    """
    check_choice("kind", kind, KINDS)
    for name, value in (("runs", runs), ("seconds", seconds), ("enough", enough)):
        if kind != "worst-case" and value is not None:
            raise InvalidInput(name, value, "given for the worst case alone")
    if kind == "canaries":
        if not isinstance(target, str | PathLike):
            raise InvalidInput("target", type(target).__name__, "the folder of a release or trained model")
        given: dict[str, Any] = dict(options)
        for name in ("data", "canaries"):
            if given.get(name) is None:
                raise InvalidInput(name, None, "what `canaries` needs: the records, and how many canaries")
        persons, person = Persons.taken_from(given, given["data"])
        columns = TargetColumns.taken_from(given, person)
        said = {"columns": columns, "persons": persons, **given}
        job = CanaryJob(target=Path(target), confidence=confidence, seed=seed, **said)
        done = job.carry_out(job.plan(), callback(progress))
        for text in done.warnings:
            warnings.warn(text, stacklevel=4)
        return done.result
    if options:
        raise InvalidInput(", ".join(options), "given", "options of canaries alone")
    if isinstance(target, str | PathLike):
        claim = Claim.of_folder(Path(target))
    else:
        claim = target if isinstance(target, Claim) else Claim.of_plan(target)
    if kind == "noise":
        return _noise(claim, confidence, seed, callback(progress))
    stopping = Stopping(seconds, enough)
    most = (RUNS if stopping.looks_once else MOST_RUNS) if runs is None else runs
    return _worst_case(claim, most, stopping, confidence, seed, callback(progress))


def _worst_case(
    claim: Claim, runs: int, stopping: Stopping, confidence: float, seed: int | None, progress: Progress | None
) -> Audited[Audit]:
    plan = claim.plan
    check_audit(claim.epsilon, claim.delta, runs, confidence)
    how: dict[str, Any] = {"runs": runs, "confidence": confidence, "seed": seed, "progress": progress}
    how["stopping"] = stopping
    found = _attack(plan, claim, how)
    settings: dict[str, Any] = {"plan": plan.to_dict(), "seed": seed}
    statements = list(found.statements)
    if claim.subject["kind"] == "design":
        settings = {"plan": plan.to_dict(), "as_published": claim.as_published, "seed": seed}
    if claim.as_published:
        statements.insert(0, "The noise follows the papers' formula, which is no bound.")
    measurement = Measurement(
        "audit",
        claim.subject,
        found.to_dict(),
        private=False,
        settings=settings,
        title=f"Worst-case audit of design {found.design}",
        statements=statements,
    )
    return Audited(measurement, found)


@singledispatch
def _attack(plan: object, claim: Claim, how: Mapping[str, Any]) -> Audit:
    raise TypeError(type(plan).__name__)


@_attack.register
def _of_release(plan: BasePlan, claim: Claim, how: Mapping[str, Any]) -> Audit:
    return audit_plan(plan, claim.epsilon, claim.delta, own_price=not claim.as_published, **how)


@_attack.register
def _of_training(plan: TrainingPlan, claim: Claim, how: Mapping[str, Any]) -> Audit:
    return audit_training(plan, claim.epsilon, **how)


def _noise(claim: Claim, confidence: float, seed: int | None, progress: Progress | None) -> Audited[NoiseAudit]:
    found = audit_noise(claim.plan, confidence=confidence, seed=seed, progress=progress)
    measurement = Measurement(
        "noise-audit",
        claim.subject,
        found.to_dict(),
        private=False,
        settings={"plan": claim.plan.to_dict(), "seed": seed},
        title=f"Audit of the noise of design {found.design}",
        statements=found.statements,
    )
    return Audited(measurement, found)
