"""What a release or a model is and what it guarantees, in words and numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privmix import training
from privmix.certificate.about import about_of
from privmix.certificate.as_gdp import as_gdp
from privmix.certificate.assessment import COLUMNS, as_rows
from privmix.certificate.certificate import MODEL, Certificate
from privmix.certificate.guarantee import Guarantee
from privmix.certificate.registry_entry import as_yaml, missing, registry_entry
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
from privmix.shown import Picture, Shown


@dataclass(frozen=True, repr=False)
class Inspection(Shown):
    """What a folder states of itself; privmix verify checks it.

    Attributes:
        title: what it is.
        facts: by the name of each.
        lines: statements and answers that follow them.
        content: the certificate; of a model fitted on a release its description.
        certificate: None of a model fitted on a release, which has none.
    """

    title: str
    facts: Mapping[str, object]
    lines: Sequence[str]
    content: Mapping[str, Any] = field(repr=False)
    certificate: Certificate | None = None

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """All facts."""
        return self.title, self.facts

    @property
    def details(self) -> tuple[str, ...]:
        """Statements, and the questions of a reviewer."""
        return tuple(self.lines)

    def picture(self) -> Picture | None:
        """What is guaranteed."""
        return None if self.certificate is None else self.certificate.picture()

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return dict(self.content)


@dataclass(frozen=True, repr=False)
class RegistryEntry(Shown):
    """A draft of an entry for the registry of DP deployments.

    Attributes:
        content: the entry.
        warnings: what is left to its curator.
    """

    content: Mapping[str, Any]
    warnings: tuple[str, ...]

    @property
    def document(self) -> str:
        """The entry as YAML."""
        return as_yaml(self.content)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """What is left to do."""
        return "Draft of a registry entry", {"YAML": f"{len(self.document):,} characters, see `document`"}

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return dict(self.content)


def inspection_of(folder: Path) -> Inspection:
    """What the certificate of a folder says, or what a model of a release is."""
    kind = kind_of(folder)
    if kind == FITTED:
        return _of_fitted(load_model(folder))
    return _of_model(training.load_trained(folder)) if kind == MODEL else _of_release(folder, read_certificate(folder))


def entry_of(folder: Path) -> RegistryEntry:
    """An entry for the registry of deployments.

    Raises:
        InvalidInput: the folder has no certificate, or one that promises nothing.
    """
    kind = kind_of(folder)
    if kind == FITTED:
        raise InvalidInput("registry", "a model made of a release", "the folder of the release, or of a trained model")
    entry = registry_entry(training.load_trained(folder).certificate if kind == MODEL else read_certificate(folder))
    return RegistryEntry(entry, tuple(f"to be stated by the curator: {place}" for place in missing(entry)))


def _of_release(folder: Path, certificate: Certificate) -> Inspection:
    plan, extractor = plan_from_dict(certificate["plan"]), certificate["extractor"]
    state = sealed_key_of(folder, certificate)
    known = "private estimate" if plan.records_noise_multiplier else "public"
    facts = {
        **{name.replace("_", " "): text for name, text in about_of(certificate).items()},
        **({"key of the noise": state} if state else {}),
        "design": plan.design,
        "features": f"{title_of(extractor)}, {plan.dim} a record, clipped to {plan.clip_norm:g}",
        "centring": f"released mean, rest clipped to {plan.residual_clip_norm:g}" if plan.centred else "none",
        "classes": _class_names(plan.classes),
        "weight of all persons" if plan.weighed else f"{unit_of(plan).one} count": f"{plan.records:,} ({known})",
        **_weights(plan),
        **design_facts(plan),
        **_wanted(extractor),
        "epsilon at delta": ", ".join(f"{one:.4g} at {other:.3g}" for one, other in certificate["epsilon_delta_curve"]),
    }
    return _certified("Release", certificate, facts, (certificate.get("choice") or {}).get("reasons", []))


def _of_model(model: training.TrainedModel) -> Inspection:
    certificate = model.certificate
    plan = training.plan_of(certificate)
    facts, settings = model.facts_, certificate["settings"]
    network = model.network
    weights = sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)
    known = "declared" if plan.records_declared else "public"
    if plan.records_noise_multiplier is not None:
        known = "private estimate"
    private = {
        "batches": f"Poisson, {plan.batch_size} expected, {plan.steps} steps, {plan.epochs:.4g} epochs",
        "clipping": f"{settings.get('clipping', '?')}, C = {plan.clip_norm:g}, sensitivity {plan.sensitivity:g}",
        "noise": f"multiplier {plan.noise_multiplier:.5g}, standard deviation {plan.noise_std:.5g} a sum",
    }
    ledger = certificate["in_ledger"]
    rows = {
        "model": f"{network.name}, {weights} weights trained",
        "features": f"{title_of(facts.extractor)}, {facts.dim} a record",
        "classes": _class_names(facts.classes),
        f"{certificate.unit.one} count": f"{plan.records:,} ({known})",
        **(private if plan.steps else {"batches": "none: no private record was read"}),
        "public data": _public_data(certificate),
        "ledger": ledger if ledger == "none" else f"charged, {ledger}",
        **_wanted(facts.extractor),
    }
    return _certified("Trained model", certificate, rows, [])


def _certified(name: str, certificate: Certificate, facts: Mapping[str, object], reasons: Sequence[str]) -> Inspection:
    guarantee = certificate["guarantee"]
    epsilon = "infinite" if guarantee["epsilon"] is None else f"{rounded_up(guarantee['epsilon'], 6)}"
    stated = (
        f"epsilon {epsilon}, delta {exact(guarantee['delta'])}, adjacency {certificate.relation}, accountant "
        f"{guarantee['accountant']}, upper bound: {'yes' if guarantee['is_upper_bound'] else 'NO'}"
    )
    warnings = {"warnings": "; ".join(certificate["warnings"])} if certificate["warnings"] else {}
    lines = [*certificate["statements"], *reasons]
    for question, holds, does_not, unknown in as_rows(certificate["assessment"]):
        gone = " ".join([does_not, f"Unknown: {unknown}" if unknown else ""]).strip()
        parts = [f"{part}: {text}" for part, text in zip(COLUMNS[1:], (holds, gone), strict=False) if text]
        lines.append(f"NIST SP 800-226, {question}. {' '.join(parts)}")
    title = f"{name} {certificate.id}, as its certificate states it; privmix verify recomputes it"
    shown = {"guarantee": stated, **_power(certificate), **warnings, **facts}
    return Inspection(title, shown, lines, certificate.to_dict(), certificate)


def _of_fitted(model: ReleaseLearner) -> Inspection:
    """A model of a release has no certificate of its own: the release's is the one that holds."""
    description, facts = describe_model(model), model.facts_
    drafted = drafted_statements(facts.extractor)
    params = ", ".join(f"{name} {value}" for name, value in description["params"].items() if value is not None)
    rows = {
        "guarantee": "a model made from a release alone costs no further privacy: the guarantee is the release's own, "
        "which privmix verify shows for the release's folder",
        **({"warnings": "; ".join(drafted)} if drafted else {}),
        "model": f"{model.name}" + (f" ({params})" if params else ""),
        "features": f"{title_of(facts.extractor)}, {facts.dim} a record",
        "records": " x ".join(map(str, facts.input_shape)),
        "classes": _class_names(facts.classes),
        **_wanted(facts.extractor),
    }
    title = f"Model fitted on release {facts.release_id}, as it states itself; nothing in its folder proves it"
    return Inspection(title, rows, [], description)


def _public_data(certificate: Mapping[str, Any]) -> str:
    settings = certificate["settings"]
    scenario, extended = settings.get("scenario", "?"), settings.get("extended")
    by = f" by {extended.get('method')}" if scenario == "extended" and isinstance(extended, dict) else ""
    used = ", ".join(f"{name} {str(digest)[:12]}" for name, digest in sorted(certificate["public_data"].items()))
    return f"{scenario}{by}" + (f"; {used}" if used else "")


def _power(certificate: Certificate) -> dict[str, object]:
    """What the best test can tell, at one false-alarm rate."""
    unit, facts = certificate.unit, dict[str, object]()
    promised = Guarantee.of(certificate)
    if (gdp := as_gdp(promised)) is not None:
        told = "mu says it all" if gdp.faithful else "the curve says more than mu"
        facts["as Gaussian DP"] = (
            f"mu {rounded_up(gdp.mu, 4)} at every delta of at least {exact(gdp.least_delta)}, "
            f"regret {rounded_up(gdp.regret, 2)}: {told}"
        )
    if math.isfinite(promised.epsilon):
        caught = rounded_up(100 * promised.caught(0.05))
        facts["in words"] = (
            f"on an even bet the best attack is right at most {percent_up(promised.right)} of the time; an attack that "
            f"accuses 5% of the {unit.many} that are absent finds at most {caught}% of those present"
        )
        curve = promised.neighbours
        one, ten = (rounded_up(100 * curve.success(0.01, changed)) for changed in (1, 10))
        facts["poisoning"] = (
            f"whatever happens 1% of the time happens at most {one}% of the time after somebody changed one "
            f"{unit.one}, {ten}% after ten"
        )
    return facts


def _wanted(extractor: Mapping[str, Any]) -> dict[str, str]:
    """What the folder does not hold and does not open by itself."""
    wanted = wanted_model(extractor)
    return {} if wanted is None else {"to use it": f"you need {wanted}"}


def _weights(plan: Plan) -> dict[str, str]:
    """Up to how many records a person weighs by them, where that is more than one or was estimated."""
    if plan.per_person is None or (plan.per_person == 1 and plan.person_quantile is None):
        return {}
    found = f"up to {plan.per_person:,}"
    if plan.person_quantile is not None:
        found += f" (private estimate of what {plan.person_quantile:g} of persons do not pass)"
    return {"records of a person that count": found}


def _class_names(classes: Sequence[str]) -> str:
    return ", ".join(classes) if len(classes) <= 20 else f"{len(classes)} classes"
