"""``privmix audit``: attack a release, a model or a design, and say which epsilon that proves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from privmix.accounting import UnsupportedEvent, calibrate
from privmix.attacks.audit import DEFAULT_CONFIDENCE, DEFAULT_RUNS, Audit, audit_plan, check_audit
from privmix.attacks.training_worst_case import audit_training
from privmix.cli import canary_audit
from privmix.cli.app import app, err, out, print_json
from privmix.cli.design_options import design_help, design_list, design_options
from privmix.cli.noise_audit import audit_the_noise
from privmix.cli.progress import progress_bars
from privmix.cli.recording import Record, keep_record
from privmix.designs import Plan
from privmix.errors import InvalidInput
from privmix.jobs.columns import Columns
from privmix.release import ReleaseConfig, plan_from_dict, verify_release
from privmix.release.certificate import read_certificate
from privmix.release.engine import Progress
from privmix.rounding import exact, rounded_down, rounded_up
from privmix.training import TrainingPlan, is_trained_model, load_trained
from privmix.training.verify import plan_of, verify_trained


@dataclass(frozen=True)
class _How:
    """How an audit runs: what all kinds of it share."""

    runs: int
    confidence: float
    seed: int | None
    progress: Progress


@dataclass(frozen=True)
class _Found:
    """An audit, what it is of, and what else decided it."""

    audit: Audit
    subject: dict[str, Any]
    settings: dict[str, Any]


@app.command()
def audit(
    context: typer.Context,
    target: Annotated[
        Path | None, typer.Argument(help="Folder of a release or of a trained model; or give --design.")
    ] = None,
    design: Annotated[str | None, typer.Option(help=f"{design_list()}.")] = None,
    records: Annotated[int | None, typer.Option(help="Record count n of the design.")] = None,
    rows: Annotated[int | None, typer.Option(help="Rows released, T. Default: n.")] = None,
    mixup_degree: Annotated[int, typer.Option(help=design_help("mixup_degree"))] = 64,
    epsilon_target: Annotated[float | None, typer.Option("--epsilon", help="Claim of the design.")] = None,
    delta: Annotated[float, typer.Option(help="Probability with which epsilon may be exceeded.")] = 1e-5,
    classes: Annotated[int, typer.Option(help="Number of classes.")] = 10,
    expected_classes: Annotated[float, typer.Option(help=design_help("expected_classes"))] = 3.0,
    full_batch: Annotated[bool, typer.Option(help=design_help("full_batch"))] = False,
    max_weight: Annotated[float, typer.Option(help=design_help("max_weight"))] = 1.0,
    noise_law: Annotated[str, typer.Option(help=design_help("noise"))] = "gaussian",
    centre: Annotated[str, typer.Option(help="none, or private: release the mean first.")] = "none",
    as_published: Annotated[
        bool, typer.Option(help="Take the noise from the papers' formula: audits the published claim.")
    ] = False,
    noise: Annotated[
        bool, typer.Option("--noise", help="Measure the noise itself, on empty records, in place of an attack.")
    ] = False,
    runs: Annotated[
        int | None, typer.Option(help=f"Independent runs, half of them with the record. Default: {DEFAULT_RUNS}.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of what is said to be proven.")] = DEFAULT_CONFIDENCE,
    seed: Annotated[int | None, typer.Option(help="For tests: the same runs again.")] = None,
    record: Record = None,
    json_output: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    data: canary_audit.Data = None,
    canaries: canary_audit.Canaries = None,
    canary_kind: canary_audit.Kind = "planted",
    evidence: canary_audit.Evidence = "rows",
    guesses: canary_audit.Guesses = None,
    split: canary_audit.Split = "train",
    label_column: canary_audit.LabelColumn = "label",
    image_column: canary_audit.ImageColumn = "image",
    feature_column: canary_audit.FeatureColumn = None,
    text_column: canary_audit.TextColumn = None,
    image_size: canary_audit.ImageSize = None,
    colour: canary_audit.Colour = None,
    number_columns: canary_audit.NumberColumns = None,
    feature_length: canary_audit.FeatureLength = None,
    features_model: canary_audit.FeaturesModel = None,
    trust_features_model: canary_audit.TrustFeaturesModel = False,
    store: canary_audit.Store = None,
    ledger: canary_audit.LedgerUrl = None,
    dataset: canary_audit.LedgerName = None,
    public_data: canary_audit.PublicData = False,
) -> None:
    """Attack the worst pair of neighbouring datasets with the real engine: a proven lower bound beside the claim.

    Reads no private data: what decides is the plan, from the folder's certificate or from the options.

    With --canaries, the owner's records are read: canaries are put among them by coins, the plan is run once more, and
    the guesses at the coins are counted. What that shows is for the owner.

    With --noise, every noise that the plan adds is drawn by the real code on empty records, and its scale, shape and
    independence are compared with the certificate: a hundredth too little shows. Reads no private data.

    Examples:
    privmix audit REL --record RUN
    privmix audit REL --noise
    privmix audit --design hierarchical --classes 100 --expected-classes 3 --records 50000 --epsilon 1 --as-published
    privmix audit REL --data mnist --canaries 1000
    """
    columns = Columns(
        label_column, image_column, feature_column, text_column, image_size, colour, number_columns, feature_length
    )
    order = canary_audit.CanaryOrder(
        target=target,
        data=data,
        canaries=canaries,
        confidence=confidence,
        kind=canary_kind,
        evidence=evidence,
        guesses=guesses,
        split=split,
        columns=columns,
        features_model=features_model,
        trust_features_model=trust_features_model,
        store=store,
        ledger=ledger,
        dataset=dataset,
        public_data=public_data,
        seed=seed,
    )
    if noise and (order.wanted or as_published or runs is not None):
        raise InvalidInput("--noise", "given with --data, --canaries, --as-published or --runs", "without these")
    if order.wanted:
        canary_audit.audit_with_canaries(order, record, json_output)
        return
    if (target is None) == (design is None):
        raise InvalidInput("TARGET, --design", "both or neither", "one of the two: a folder or a design")
    if target is not None and (records is not None or epsilon_target is not None or as_published):
        raise InvalidInput("--records, --epsilon, --as-published", "given", "options of --design only")
    config = None
    if design is not None:
        if records is None or epsilon_target is None:
            raise InvalidInput("--records, --epsilon", "not given", "the design's record count and its claim")
        config = ReleaseConfig(
            records=records,
            dim=1,
            classes=tuple(str(number) for number in range(classes)),
            design=design,
            rows=rows,
            centre=centre,
            **design_options(context, noise="noise_law"),
        )
    if noise:
        subject: dict[str, Any] = {"kind": "design", "id": None}
        certified: Plan | TrainingPlan
        if config is not None:
            assert epsilon_target is not None
            certified = config.calibrate(epsilon_target, delta)
        else:
            assert target is not None
            certified, subject = _certified_plan(target)
        audit_the_noise(certified, subject, confidence=confidence, seed=seed, record=record, json_output=json_output)
        return
    with progress_bars(quiet=json_output) as progress:
        how = _How(DEFAULT_RUNS if runs is None else runs, confidence, seed, progress)
        if config is not None:
            assert epsilon_target is not None
            found = _audit_design(config, epsilon_target, delta, as_published, how)
        else:
            assert target is not None
            found = _audit_model(target, how) if is_trained_model(target) else _audit_release(target, how)
    _report(found, record, json_output)


def _certified_plan(folder: Path) -> tuple[Plan | TrainingPlan, dict[str, Any]]:
    """The plan of a release or model whose certificate holds, and the subject of its record."""
    if is_trained_model(folder):
        model_id = verify_trained(folder).model_id
        return plan_of(load_trained(folder).certificate), {"kind": "model", "id": model_id}
    release_id = verify_release(folder).release_id
    return plan_from_dict(read_certificate(folder)["plan"]), {"kind": "release", "id": release_id}


def _audit_release(folder: Path, how: _How) -> _Found:
    """Audit the plan of a release whose certificate holds."""
    checked = verify_release(folder)
    plan = plan_from_dict(read_certificate(folder)["plan"])
    found = audit_plan(
        plan,
        checked.epsilon,
        checked.delta,
        runs=how.runs,
        confidence=how.confidence,
        seed=how.seed,
        progress=how.progress,
    )
    return _Found(found, {"kind": "release", "id": checked.release_id}, {"plan": plan.to_dict(), "seed": how.seed})


def _audit_model(folder: Path, how: _How) -> _Found:
    """Audit the plan of a trained model whose certificate holds."""
    checked = verify_trained(folder)
    plan = plan_of(load_trained(folder).certificate)
    found = audit_training(
        plan, checked.epsilon, runs=how.runs, confidence=how.confidence, seed=how.seed, progress=how.progress
    )
    return _Found(found, {"kind": "model", "id": checked.model_id}, {"plan": plan.to_dict(), "seed": how.seed})


def _audit_design(config: ReleaseConfig, epsilon: float, delta: float, as_published: bool, how: _How) -> _Found:
    """Audit a design under a claim, with the noise that the claim needs or, as published, that the papers give it."""
    check_audit(epsilon, delta, how.runs, how.confidence)
    plan = published_plan(config, epsilon, delta) if as_published else config.calibrate(epsilon, delta)
    found = audit_plan(
        plan,
        epsilon,
        delta,
        own_price=not as_published,
        runs=how.runs,
        confidence=how.confidence,
        seed=how.seed,
        progress=how.progress,
    )
    settings = {"plan": plan.to_dict(), "as_published": as_published, "seed": how.seed}
    return _Found(found, {"kind": "design", "id": None}, settings)


def published_plan(config: ReleaseConfig, epsilon: float, delta: float) -> Plan:
    """The plan with the noise of the papers' formula, which may be less than private.

    Raises:
        UnsupportedEvent: the papers have no formula for this design.
    """
    adjacency = config.with_noise(1.0).adjacency
    try:
        found = calibrate(
            lambda noise: config.with_noise(noise).event, epsilon, delta, accountant="as_published", adjacency=adjacency
        )
    except UnsupportedEvent:
        raise InvalidInput(
            "--as-published", config.design.name, "a design that the papers have a formula for"
        ) from None
    return config.with_noise(found.noise_multiplier)


def _report(of: _Found, record: Path | None, json_output: bool) -> None:
    found, content = of.audit, of.audit.to_dict()
    statements = found.statements
    if of.settings.get("as_published"):
        statements = ["The noise follows the papers' formula, which is no bound.", *statements]
    keep_record(
        record,
        "audit",
        of.subject,
        content,
        private=False,
        settings=of.settings,
        title=f"Worst-case audit of design {found.design}",
        statements=statements,
    )
    if json_output:
        print_json(content)
        return
    claimed = "nothing" if math.isinf(found.claimed_epsilon) else f"epsilon {rounded_up(found.claimed_epsilon, 4)}"
    verdict = "[bold red]refuted[/]" if found.violated else "[green]not refuted[/]"
    out.print(f"claim: {claimed} at delta {exact(found.delta)}: {verdict} at confidence {found.confidence:g}")
    out.print(
        f"proven: epsilon is at least {rounded_down(found.proven_epsilon, 4)} (Clopper-Pearson, {found.runs} runs)"
    )
    if found.gdp_epsilon is not None:
        mu, epsilon = rounded_down(found.proven_mu, 4), rounded_down(found.gdp_epsilon, 4)
        out.print(f"as Gaussian DP: mu at least {mu}, epsilon {epsilon}")
    out.print(f"price of what ran: epsilon {rounded_up(found.priced_epsilon, 4)}, an upper bound")
    if found.published_epsilon is not None:
        out.print(f"the papers' formula for it: epsilon {rounded_up(found.published_epsilon, 4)}, no bound")
    for text in statements:
        err.print(text, soft_wrap=True)
