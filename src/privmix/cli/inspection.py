"""What ``privmix inspect`` shows of a release or a model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from privmix import training
from privmix.certificate.about import about_of
from privmix.certificate.as_gdp import as_gdp
from privmix.certificate.assessment import COLUMNS, as_rows
from privmix.certificate.certificate import MODEL, Certificate
from privmix.certificate.guarantee import Guarantee
from privmix.certificate.registry_entry import as_yaml, missing, registry_entry
from privmix.cli.console import err, out, plain, print_json
from privmix.cli.flags import with_flags
from privmix.errors import InvalidInput
from privmix.features import wanted_model
from privmix.features.spec import drafted_statements, title_of
from privmix.jobs.checking import sealed_key_of
from privmix.jobs.kinds import FITTED, kind_of
from privmix.jobs.planning import design_facts
from privmix.learning import ReleaseLearner, describe_model, load_model
from privmix.mechanisms.plan import unit_of
from privmix.plans import Plan, plan_from_dict
from privmix.releases.certificate import read_certificate
from privmix.rounding import exact, percent_up, rounded_up


def show(folder: Path, json_output: bool) -> None:
    """Print what the certificate of a folder says, or what a model of a release is.

    Args:
        folder: that release, train or fit wrote.
        json_output: the certificate itself.
    """
    kind = kind_of(folder)
    if kind == FITTED:
        _show_fitted(load_model(folder), json_output)
    elif kind == MODEL:
        model = training.load_trained(folder)
        _as_json(model.certificate) if json_output else _show_model(model)
    else:
        certificate = read_certificate(folder)
        _as_json(certificate) if json_output else _show_release(folder, certificate)


def show_entry(folder: Path, json_output: bool) -> None:
    """Print an entry for the registry of deployments, and what is left to its curator.

    Args:
        folder: that release or train wrote.
        json_output: JSON in place of YAML.

    Raises:
        InvalidInput: the folder has no certificate, or one that promises nothing.
    """
    kind = kind_of(folder)
    if kind == FITTED:
        raise InvalidInput("registry", "a model made of a release", "the folder of the release, or of a trained model")
    certificate = training.load_trained(folder).certificate if kind == MODEL else read_certificate(folder)
    entry = registry_entry(certificate)
    if json_output:
        print_json(entry)
    else:
        out.file.write(as_yaml(entry))
    for place in missing(entry):
        err.print(f"to be stated by the curator: {place}")


def _as_json(certificate: Certificate) -> None:
    print_json(certificate.to_dict())


def _show_release(folder: Path, certificate: Certificate) -> None:
    plan = plan_from_dict(certificate["plan"])
    _show_guarantee(f"release {plain(certificate.id)}", certificate)
    _show_power(certificate)
    for name, text in about_of(certificate).items():
        out.print(f"{name.replace('_', ' ')}: {plain(text)}", soft_wrap=True)
    for text in certificate["warnings"]:
        out.print(f"[yellow]warning:[/] {plain(text)}", soft_wrap=True)
    if state := sealed_key_of(folder, certificate):
        out.print(f"[yellow]key of the noise:[/] {plain(state)}", soft_wrap=True)
    _constants(plan, certificate["extractor"])
    curve = Table(title="epsilon-delta curve", title_justify="left")
    curve.add_column("epsilon", justify="right")
    curve.add_column("delta", justify="right")
    for one, other in certificate["epsilon_delta_curve"]:
        curve.add_row(f"{one:.4g}", f"{other:.3g}")
    out.print(curve)
    for text in [*certificate["statements"], *(certificate.get("choice") or {}).get("reasons", [])]:
        out.print(f"- {plain(text)}", soft_wrap=True)
    _show_assessment(certificate["assessment"])


def _show_model(model: training.TrainedModel) -> None:
    certificate = model.certificate
    plan = training.plan_of(certificate)
    _show_guarantee(f"trained model {plain(certificate.id)}", certificate)
    _show_power(certificate)
    for text in certificate["warnings"]:
        out.print(f"[yellow]warning:[/] {plain(text)}", soft_wrap=True)
    facts, settings = model.facts_, certificate["settings"]
    network = model.network
    weights = sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)
    known = "declared" if plan.records_declared else "public"
    if plan.records_noise_multiplier is not None:
        known = "private estimate"
    rows = {
        "model": f"{network.name}, {weights} weights trained",
        "features": f"{title_of(facts.extractor)}, {facts.dim} a record",
        "classes": _class_names(facts.classes),
        f"{certificate.unit.one} count": f"{plan.records:,} ({known})",
    }
    private = {
        "batches": f"Poisson, {plan.batch_size} expected, {plan.steps} steps, {plan.epochs:.4g} epochs",
        "clipping": f"{settings.get('clipping', '?')}, C = {plan.clip_norm:g}, sensitivity {plan.sensitivity:g}",
        "noise": f"multiplier {plan.noise_multiplier:.5g}, standard deviation {plan.noise_std:.5g} a sum",
    }
    rows |= private if plan.steps else {"batches": "none: no private record was read"}
    rows |= {
        "public data": _public_data(certificate),
        "ledger": _ledger(certificate["in_ledger"]),
    } | _wanted(facts.extractor)
    _table(rows)
    for text in certificate["statements"]:
        out.print(f"- {plain(text)}", soft_wrap=True)
    _show_assessment(certificate["assessment"])


def _show_fitted(model: ReleaseLearner, json_output: bool) -> None:
    """A model of a release has no certificate of its own: the release's is the one that holds."""
    description = describe_model(model)
    if json_output:
        print_json(description)
        return
    facts = model.facts_
    out.print("as the model states it; nothing in its folder proves it")
    out.print(f"[bold]model fitted on release {plain(facts.release_id)}[/]")
    out.print(
        "a model made from a release alone costs no further privacy: the guarantee is the release's own, which "
        "privmix verify shows for the release's folder",
        soft_wrap=True,
    )
    for text in drafted_statements(facts.extractor):
        out.print(f"[yellow]warning:[/] {plain(text)}", soft_wrap=True)
    params = ", ".join(f"{name} {value}" for name, value in description["params"].items() if value is not None)
    _table(
        {
            "model": f"{model.name}" + (f" ({params})" if params else ""),
            "features": f"{title_of(facts.extractor)}, {facts.dim} a record",
            "records": " x ".join(map(str, facts.input_shape)),
            "classes": _class_names(facts.classes),
        }
        | _wanted(facts.extractor)
    )


def _show_assessment(assessment: object) -> None:
    """The questions of a reviewer; a fourth column would leave no room for words."""
    table = Table(title="after NIST SP 800-226", title_justify="left", show_lines=True)
    for name in COLUMNS[:3]:
        table.add_column(name)
    for question, holds, does_not, unknown in as_rows(assessment):
        gone = " ".join([does_not, f"Unknown: {unknown}" if unknown else ""]).strip()
        table.add_row(plain(question), plain(holds or "–"), plain(gone or "–"))
    out.print(table)


def _public_data(certificate: Mapping[str, Any]) -> str:
    settings = certificate["settings"]
    scenario, extended = settings.get("scenario", "?"), settings.get("extended")
    by = f" by {extended.get('method')}" if scenario == "extended" and isinstance(extended, dict) else ""
    used = ", ".join(f"{name} {str(digest)[:12]}" for name, digest in sorted(certificate["public_data"].items()))
    return f"{scenario}{by}" + (f"; {used}" if used else "")


def _show_guarantee(title: str, certificate: Certificate) -> None:
    guarantee = certificate["guarantee"]
    epsilon = "infinite" if guarantee["epsilon"] is None else f"{rounded_up(guarantee['epsilon'], 6)}"
    out.print("as the certificate states it; privmix verify recomputes it")
    out.print(f"[bold]{title}[/]")
    out.print(
        f"epsilon {epsilon}, delta {exact(guarantee['delta'])}, adjacency {plain(certificate.relation)}, "
        f"accountant {plain(guarantee['accountant'])}, upper bound: {'yes' if guarantee['is_upper_bound'] else 'NO'}",
        soft_wrap=True,
    )


def _show_power(certificate: Certificate) -> None:
    """What the best test can tell, at one false-alarm rate."""
    unit = certificate.unit
    promised = Guarantee.of(certificate)
    if (gdp := as_gdp(promised)) is not None:
        told = "mu says it all" if gdp.faithful else "the curve says more than mu"
        out.print(
            f"as Gaussian DP: mu {rounded_up(gdp.mu, 4)} at every delta of at least {exact(gdp.least_delta)}, "
            f"regret {rounded_up(gdp.regret, 2)}: {told}",
            soft_wrap=True,
        )
    if math.isfinite(promised.epsilon):
        out.print(
            f"in words: on an even bet the best attack is right at most {percent_up(promised.right)} of the time; an "
            f"attack that accuses 5% of the {unit.many} that are absent finds at most "
            f"{rounded_up(100 * promised.caught(0.05))}% of those present",
            soft_wrap=True,
        )
        curve = promised.neighbours
        one, ten = (rounded_up(100 * curve.success(0.01, changed)) for changed in (1, 10))
        out.print(
            f"poisoning: whatever happens 1% of the time happens at most {one}% of the time after somebody changed one "
            f"{unit.one}, {ten}% after ten",
            soft_wrap=True,
        )


def _wanted(extractor: Mapping[str, Any]) -> dict[str, str]:
    """What the folder does not hold and does not open by itself."""
    wanted = wanted_model(extractor)
    return {} if wanted is None else {"to use it": f"you need {with_flags(wanted)}"}


def _weights(plan: Plan) -> dict[str, str]:
    """Up to how many records a person weighs by them, where that is more than one or was estimated."""
    if plan.per_person is None or (plan.per_person == 1 and plan.person_quantile is None):
        return {}
    found = f"up to {plan.per_person:,}"
    if plan.person_quantile is not None:
        found += f" (private estimate of what {plan.person_quantile:g} of persons do not pass)"
    return {"records of a person that count": found}


def _constants(plan: Plan, extractor: Mapping[str, Any]) -> None:
    known = "private estimate" if plan.records_noise_multiplier else "public"
    rows = {
        "design": plan.design,
        "features": f"{title_of(extractor)}, {plan.dim} a record, clipped to {plan.clip_norm:g}",
        "centring": f"released mean, rest clipped to {plan.residual_clip_norm:g}" if plan.centred else "none",
        "classes": _class_names(plan.classes),
        "weight of all persons" if plan.weighed else f"{unit_of(plan).one} count": f"{plan.records:,} ({known})",
        **_weights(plan),
        **design_facts(plan),
    } | _wanted(extractor)
    _table(rows)


def _class_names(classes: Sequence[str]) -> str:
    return ", ".join(classes) if len(classes) <= 20 else f"{len(classes)} classes"


def _table(rows: Mapping[str, object]) -> None:
    table = Table(title="public constants", title_justify="left", show_header=False)
    for name, value in rows.items():
        table.add_row(name, plain(value))
    out.print(table)


def _ledger(mode: str) -> str:
    return mode if mode == "none" else f"charged, {mode}"
