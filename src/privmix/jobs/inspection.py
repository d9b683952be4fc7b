"""Facts and guarantees of a release or a model, in words and numbers, recomputed from the certificate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from privmix.certificate.about import about_of
from privmix.certificate.assessment import COLUMNS, as_rows
from privmix.certificate.certificate import MODEL, RELEASE, Certificate
from privmix.certificate.guarantee import Guarantee, as_gdp
from privmix.certificate.sealed_key import commitment_of, sealed_words
from privmix.features.spec import drafted_statements, title_of, wanted_model
from privmix.jobs.kinds import FITTED, kind_of
from privmix.jobs.planner import design_facts
from privmix.learning.base import ReleaseLearner
from privmix.learning.model_io import describe_model, load_model
from privmix.mechanisms.plan import RECORD, unit_of
from privmix.planning.choice import check_choice_record, forecast_of
from privmix.plans.plan import Plan
from privmix.plans.registry import made_by, plan_from_dict
from privmix.publication.second_moments import shares_in_words
from privmix.releases.certificate import read_certificate
from privmix.releases.folder import read_beside
from privmix.releases.verify import check_certificate
from privmix.reports.records import RunRecord
from privmix.rounding import exact, rounded_up
from privmix.shown import Bars, Shown

if TYPE_CHECKING:
    from privmix.training.trained import TrainedModel

# Facts that are shown without `full`; with the title and the last line they fill 15 lines at most.
_FIRST: Final = frozenset({
    "guarantee", "in words", "warnings", "title", "owner", "key of the noise", "forecast, not checked", "design",
    "model", "features", "classes", "class shares", "records", "weight of all persons", "batches", "public data",
    "ledger", "to use it",
})  # fmt: skip
_TITLES: Final = {RELEASE: "Release", MODEL: "Trained model"}


@dataclass(frozen=True, repr=False)
class Inspection(Shown):
    """The statements of a folder about itself; privmix verify checks it."""

    # `lines` follow `facts`; `content`: the certificate, or a fitted model's description, which has no certificate.
    title: str
    facts: Mapping[str, object]
    lines: Sequence[str]
    content: Mapping[str, Any] = field(repr=False)
    certificate: Certificate | None = None
    full: bool = False
    # Facts hold the owner's words.
    verbatim: ClassVar[bool] = True

    def shown(self) -> tuple[str, Mapping[str, object]]:
        return self.title, {name: fact for name, fact in self.facts.items() if self.full or _is_first(name)}

    @property
    def details(self) -> tuple[str, ...]:
        """Statements, and the questions of a reviewer; or how many there are."""
        later = sum(not _is_first(name) for name in self.facts)
        brief = [f"{later} more facts and {len(self.lines)} statements: `full`"] if later or self.lines else []
        return tuple(self.lines if self.full else brief)

    def picture(self) -> Bars | None:
        return None if self.certificate is None else self.certificate.picture()

    def to_dict(self) -> dict[str, Any]:
        return dict(self.content)


def inspection_of(folder: Path, *, full: bool = False) -> Inspection:
    """Return the facts of a folder's certificate, or of a model fitted on a release."""
    kind = kind_of(folder)
    if kind == FITTED:
        found = _of_fitted(load_model(folder))
    elif kind == MODEL:
        from privmix.training.trained import load_trained

        found = _of_model(load_trained(folder))
    else:
        found = _of_release(folder, read_certificate(folder))
    return replace(found, full=full)


def _of_release(folder: Path, certificate: Certificate) -> Inspection:
    plan, extractor = plan_from_dict(certificate["plan"]), certificate["extractor"]
    state = sealed_words(commitment_of(certificate))
    known = "private estimate" if plan.records_noise_multiplier else "public"
    if (choice := certificate["choice"]) is not None:
        # Its texts and numbers are shown below, and come from a file that anyone may have written.
        check_choice_record(choice)
    shares = shares_in_words(plan, read_beside(folder, plan, certificate))
    facts = {
        **{name.replace("_", " "): text for name, text in about_of(certificate).items()},
        **({"key of the noise": state} if state else {}),
        **({"forecast, not checked": forecast_of(choice, choice["chosen"])} if choice else {}),
        "design": plan.design,
        "features": f"{title_of(extractor)}, {plan.dim} per record, clipped to {plan.clip_norm:g}",
        "centring": f"released mean, rest clipped to {plan.residual_clip_norm:g}" if plan.centred else "none",
        **({"classes": _class_names(plan.classes)} if plan.num_classes > 1 else {}),
        **({"class shares": "; ".join(shares)} if shares else {}),
        "weight of all persons" if plan.weighed else f"{unit_of(plan).one} count": f"{plan.records:,} ({known})",
        **_weights(plan),
        **design_facts(plan),
        **_wanted(extractor),
        "epsilon at delta": ", ".join(f"{one:.4g} at {other:.3g}" for one, other in certificate["epsilon_delta_curve"]),
    }
    return _certified(certificate, facts, choice["reasons"] if choice else [])


def _of_model(model: TrainedModel) -> Inspection:
    from privmix.training.verify import plan_of

    certificate, network, facts = model.certificate, model.network, model.facts_
    plan, settings = plan_of(certificate), certificate["settings"]
    weights = sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)
    known = "declared" if plan.records_declared else "public"
    if plan.records_noise_multiplier is not None:
        known = "private estimate"
    private = {
        "batches": f"Poisson, {plan.batch_size} expected, {plan.steps} steps, {plan.epochs:.4g} epochs",
        "clipping": f"{settings.get('clipping', '?')}, C = {plan.clip_norm:g}, sensitivity {plan.sensitivity:g}",
        "noise": f"multiplier {plan.noise_multiplier:.5g}, standard deviation {plan.noise_std:.5g} a sum",
    }
    ledger, scenario, extended = certificate["in_ledger"], settings.get("scenario", "?"), settings.get("extended")
    by = f" by {extended.get('method')}" if scenario == "extended" and isinstance(extended, dict) else ""
    used = ", ".join(f"{name} {str(digest)[:12]}" for name, digest in sorted(certificate["public_data"].items()))
    rows = {
        "model": f"{network.name}, {weights} weights trained",
        "features": f"{title_of(facts.extractor)}, {facts.dim} per record",
        "classes": _class_names(facts.classes),
        f"{certificate.unit.one} count": f"{plan.records:,} ({known})",
        **(private if plan.steps else {"batches": "none: no private record was read"}),
        "public data": f"{scenario}{by}" + (f"; {used}" if used else ""),
        "ledger": ledger if ledger == "none" else f"charged, {ledger}",
        **_wanted(facts.extractor),
    }
    return _certified(certificate, rows, [])


def _certified(certificate: Certificate, facts: Mapping[str, object], reasons: Sequence[str]) -> Inspection:
    guarantee = certificate["guarantee"]
    epsilon = "infinite" if guarantee["epsilon"] is None else f"{rounded_up(guarantee['epsilon'], 6)}"
    stated = (
        f"epsilon {epsilon}, delta {exact(guarantee['delta'])}, adjacency {certificate.relation}, accountant "
        f"{guarantee['accountant']}, upper bound: {'yes' if guarantee['is_upper_bound'] else 'NO'}"
    )
    warnings = {"warnings": "; ".join(certificate.warnings)} if certificate.warnings else {}
    lines = [*certificate["statements"], *reasons]
    for question, holds, does_not, unknown in as_rows(certificate["assessment"]):
        gone = " ".join([does_not, f"Unknown: {unknown}" if unknown else ""]).strip()
        parts = [f"{part}: {text}" for part, text in zip(COLUMNS[1:], (holds, gone), strict=False) if text]
        lines.append(f"NIST SP 800-226, {question}. {' '.join(parts)}")
    name = f"{_TITLES[certificate.kind]} {certificate.id}"
    title = f"{name}, as its certificate states it; privmix verify recomputes it"
    shown = {"guarantee": stated, **_power(certificate), **warnings, **facts}
    return Inspection(title, shown, lines, certificate.to_dict(), certificate)


def _of_fitted(model: ReleaseLearner) -> Inspection:
    description, facts = describe_model(model), model.facts_
    drafted = drafted_statements(facts.extractor)
    params = ", ".join(f"{name} {value}" for name, value in description["params"].items() if value is not None)
    rows = {
        "guarantee": "a model fitted on a release only costs no further privacy: it has the release's guarantee, "
        "which privmix verify shows for the release's folder",
        **({"warnings": "; ".join(drafted)} if drafted else {}),
        "model": f"{model.name}" + (f" ({params})" if params else ""),
        "features": f"{title_of(facts.extractor)}, {facts.dim} per record",
        "records": " x ".join(map(str, facts.input_shape)),
        "classes": _class_names(facts.classes),
        **_wanted(facts.extractor),
    }
    title = f"Model fitted on release {facts.release_id}, as the model states; its folder holds no proof"
    return Inspection(title, rows, [], description)


def _power(certificate: Certificate) -> dict[str, object]:
    """Power of the best test, at one false-alarm rate."""
    unit, facts = certificate.unit, dict[str, object]()
    promised = Guarantee.of(certificate)
    if (gdp := as_gdp(promised)) is not None:
        told = "mu describes the whole curve" if gdp.faithful else "the curve is tighter than mu"
        facts["as Gaussian DP"] = (
            f"mu {rounded_up(gdp.mu, 4)} at every delta of at least {exact(gdp.least_delta)}, "
            f"regret {rounded_up(gdp.regret, 2)}: {told}"
        )
    if math.isfinite(promised.epsilon):
        caught = rounded_up(100 * promised.caught(0.05))
        caught_words = f"an attack that accuses 5% of the {unit.many} that are absent finds at most {caught}% of those"
        facts["in words"] = f"{promised.odds}; {caught_words} present"
        curve = promised.neighbours
        one, ten = (rounded_up(100 * curve.success(0.01, changed)) for changed in (1, 10))
        facts["poisoning"] = (
            f"an outcome that happens 1% of the time happens at most {one}% of the time after a change of one "
            f"{unit.one}, {ten}% after ten"
        )
    return facts


def _wanted(extractor: Mapping[str, Any]) -> dict[str, str]:
    """Model that the folder needs, does not hold and does not open by itself."""
    wanted = wanted_model(extractor)
    return {} if wanted is None else {"to use it": f"you need {wanted}"}


def _weights(plan: Plan) -> dict[str, str]:
    """How many records of a person count, where that is more than one or was estimated."""
    if plan.per_person is None or (plan.per_person == 1 and plan.person_quantile is None):
        return {}
    found = f"up to {plan.per_person:,}"
    if plan.person_quantile is not None:
        found += f" (private estimate of the {plan.person_quantile:g} quantile over persons)"
    return {"records of a person that count": found}


def _is_first(name: str) -> bool:
    return name in _FIRST or name.endswith(" count")


def _class_names(classes: Sequence[str]) -> str:
    return ", ".join(classes) if len(classes) <= 20 else f"{len(classes)} classes"


def folder_guarantee(folder: Path) -> RunRecord:
    """Return the record of a release's or trained model's guarantee; its certificate must hold."""
    return (_model if kind_of(folder) == MODEL else _release)(folder)


def _release(folder: Path) -> RunRecord:
    certificate = read_certificate(folder)
    plan, cost = check_certificate(certificate)
    stated = {name: certificate[name] for name in ("noise_std", "extractor", "input_shape", "in_ledger")}
    settings = {**certificate["plan"], **stated, "files": len(certificate["files"])}
    extractor = title_of(certificate["extractor"])
    about = f"{plan.records:,} {plan.counted} ({extractor} features, {plan.num_classes} classes)"
    classes = {
        **({"classes": plan.num_classes} if plan.num_classes > 1 else {}),
        "shares": list(shares_in_words(plan, read_beside(folder, plan, certificate))),
        **_forecast(certificate),
    }
    return _record(certificate, cost.epsilon, made_by(plan).summary(plan, about), settings, classes)


def _model(folder: Path) -> RunRecord:
    # Weights are verified, too: unlike the files of a release they are few.
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
    return _record(certificate, verified.recomputed_epsilon, summary, settings, classes)


def _record(
    certificate: Certificate, recomputed: float, summary: str, settings: Mapping[str, Any], utility: Mapping[str, Any]
) -> RunRecord:
    stated, digest = certificate["guarantee"], str(certificate["content_sha256"])
    promise, sealed = Guarantee.of(certificate), sealed_words(commitment_of(certificate))
    return RunRecord(
        "guarantee",
        {"kind": certificate.kind, "id": certificate.id},
        False,
        {
            "what": certificate.kind,
            "summary": summary,
            "about": dict(about_of(certificate)),
            "epsilon": stated["epsilon"],
            "delta": promise.delta,
            "adjacency": stated["adjacency"],
            **({} if certificate.unit == RECORD else {"unit": certificate.unit.one}),
            "accountant": stated["accountant"],
            "is_upper_bound": stated["is_upper_bound"],
            "epsilon_asked": certificate["plan"]["epsilon"],
            "recomputed_epsilon": recomputed if math.isfinite(recomputed) else None,
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
        title=f"{_TITLES[certificate.kind]} {certificate.id[:8]}",
        command=f"privmix verify {'RELEASE' if certificate.kind == RELEASE else 'MODEL'}",
        statements=[*certificate["statements"], *([f"The key of the noise: {sealed}."] if sealed else [])],
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
