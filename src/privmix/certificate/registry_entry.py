"""Entries for the registry of deployments of differential privacy (registry.opendp.org), at its third tier."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from privmix.certificate.about import about_of, yaml_number
from privmix.certificate.certificate import MODEL, Certificate
from privmix.certificate.guarantee import Guarantee, as_gdp
from privmix.errors import InvalidInput
from privmix.rounding import exact, rounded_up

TO_STATE: Final = "To be stated by the curator."
"""Stands where the certificate knows nothing."""

_QUESTIONS: Final = {
    "unit": "Unit of privacy",
    "mechanism": "Mechanism and noise",
    "composition": "Composition and budget",
    "channels": "Side channels",
    "trust": "Trust model",
    "collection": "Data collection and access",
    "tuning": "Settings and tuning",
    "post": "Post-processing",
    "bias": "Bias and utility",
}


def registry_entry(certificate: Certificate, *, date: str | None = None) -> dict[str, Any]:
    """Return the entry as JSON values, in the registry's own fields; ``date``: YYYY-MM-DD of publication.

    Formal guarantees:
        * Public: a function of the certificate, which is public, and of the date.
        * Safe side: figures are bounds, rounded up; a release whose noise came from a seed has no epsilon in it.
        * Nothing made up: what the certificate does not know is :data:`TO_STATE`.
    """
    if certificate.epsilon == float("inf"):
        raise InvalidInput("registry", "a certificate without an epsilon", "one that promises something")
    told = {one["question"]: one for one in certificate["assessment"]}
    answers = {name: told[question] for name, question in _QUESTIONS.items()}
    found = {
        "basic": _basic(certificate, date),
        "dp_variant": _variant(certificate, answers),
        "privacy_loss": _loss(certificate, answers),
        "deployment_model": _model(answers),
        "accounting": {
            "post_processing": _joined(answers["post"]),
            "composition": f"{_joined(answers['composition'])} Accountant: {certificate['guarantee']['accountant']}.",
        },
        "implementation": _implementation(certificate, answers),
        "administrative": {
            "registry_authors": [about_of(certificate).get("owner", TO_STATE)],
            "notes": "Written by privmix from the certificate, "
            f"whose id is {certificate.id}; `privmix verify` checks the certificate against the files.",
        },
    }
    return {"url_slug": _slug(certificate), "status": "Draft", "tier": 3, "deployment": found}


def as_yaml(entry: Mapping[str, Any]) -> str:
    """Write the entry as YAML, every text in JSON's quotes, which are YAML's too."""
    return "\n".join(_lines(entry, "")) + "\n"


def missing(entry: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """Places of an entry that its curator has to state."""
    for name, value in entry.items():
        here = f"{place}.{name}" if place else name
        if isinstance(value, Mapping):
            yield from missing(value, here)
        elif TO_STATE in (value if isinstance(value, list) else str(value)):
            yield here


def _lines(entry: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, value in entry.items():
        key = f"{indent}{json.dumps(name)}:"
        if isinstance(value, Mapping):
            yield key
            yield from _lines(value, indent + "  ")
        else:
            # ASCII: line separators of Unicode would end a line of YAML.
            yield f"{key} {yaml_number(json.dumps(value)) if isinstance(value, float) else json.dumps(value)}"


def _slug(certificate: Certificate) -> str:
    title = about_of(certificate).get("title", f"privmix {certificate.kind} {certificate.id}")
    return re.sub(r"[^a-z0-9]+", "_", title.lower()).strip("_")[:60] or "privmix"


def _joined(answer: Mapping[str, str], *names: str) -> str:
    said = [answer[name] for name in names or ("holds", "does_not", "unknown")]
    marks = {"unknown": "Unknown to the program: "}
    keys = names or ("holds", "does_not", "unknown")
    return " ".join(marks.get(key, "") + text for key, text in zip(keys, said, strict=True) if text)


def _basic(certificate: Certificate, date: str | None) -> dict[str, Any]:
    about, model = about_of(certificate), certificate.kind == MODEL
    made = "A model trained by DP-SGD" if model else "A dataset of noisy features and labels, for training by anyone"
    return {
        "name": about.get("title", f"privmix {certificate.kind} {certificate.id}"),
        "data_curators": [about.get("owner", TO_STATE)],
        "description": f"{made}. {certificate.statements[0]}",
        "intended_use": about.get("purpose", TO_STATE),
        "data_product_type": "Machine learning model" if model else "Synthetic data",
        "data_product_region": TO_STATE,
        "publication_date": date or about.get("date") or datetime.now(UTC).date().isoformat(),
    }


def _variant(certificate: Certificate, answers: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    unit, plan = certificate.unit, certificate["plan"]
    # Trainings count persons, for any number of their records in a step.
    weighed = certificate.kind != MODEL and (unit.per_person or 1) > 1
    shown = [answers["unit"]["does_not"], answers["collection"]["does_not"]]
    shown.append("Settings, classes, shapes, rates and noise are public, and in the certificate.")
    return {
        "variant_name": "Pure DP" if certificate.delta == 0 else "Approximate DP",
        "data_domain": f"Datasets of {unit.many}, each with features of bounded norm and one of the declared classes; "
        f"about {plan['records']} {unit.many}{' by weight' if weighed else ''}.",
        "unprotected_quantities": " ".join(text for text in shown if text),
    }


def _loss(certificate: Certificate, answers: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    promise = Guarantee.of(certificate)
    gdp = as_gdp(promise)
    pair = f"Epsilon {rounded_up(promise.epsilon)} at delta {exact(promise.delta)}"
    details = f"{pair}, an upper bound, {certificate.relation}."
    if gdp is not None:
        alone = "so mu says it all" if gdp.faithful else "so the certificate's curve says more"
        details += (
            f" As Gaussian DP: mu {rounded_up(gdp.mu, 4)} at every delta of at least {exact(gdp.least_delta)}, "
            f"with a regret of {rounded_up(gdp.regret, 2)}, {alone}."
        )
    parameters: dict[str, float] = {}
    if certificate.insecure_seed:
        details = "The noise came from a seed, so that nothing is protected. Meant was: " + details
    else:
        parameters["epsilon"] = float(rounded_up(promise.epsilon, 6))
        if promise.delta > 0:
            parameters["delta"] = promise.delta
    return {
        "privacy_unit": certificate.unit.one,
        "privacy_unit_details": f"Neighbours differ by {certificate.relation}. {_joined(answers['unit'])}",
        "privacy_parameters": parameters,
        "privacy_parameters_details": details,
    }


def _model(answers: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    return {
        "model_name": "Central",
        "model_name_details": answers["trust"]["holds"],
        "actors": _joined(answers["trust"], "holds", "does_not", "unknown"),
        "release_type": "One release",
        "release_type_details": answers["composition"]["does_not"] or answers["composition"]["unknown"],
        "data_source_type": "Static",
        "data_source_type_details": answers["collection"]["unknown"],
        "access_type": "Non-interactive",
        "access_type_details": "Whoever receives the files computes with them alone, without further queries.",
    }


def _implementation(certificate: Certificate, answers: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    by = f"By privmix {certificate['versions']['privmix']}, an open library."
    return {
        "preprocessing_and_hyperparameter_tuning": _joined(answers["tuning"]),
        "mechanisms": f"{answers['mechanism']['holds']} {by} {_joined(answers['channels'])}",
        "justification": "The epsilon is recomputed by whoever verifies the certificate; `privmix audit` attacks the "
        f"plan's worst case with the real engine. {_joined(answers['bias'])}",
    }
