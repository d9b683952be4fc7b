"""What is written beside a trained model: its guarantee in numbers that anyone can recompute, and in words."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from privmix.accounting import Adjacency, event_to_dict
from privmix.accounting.filters import ledger_statement
from privmix.certificate.assessment import Facts, assess
from privmix.certificate.reservation import ReservationNote, mode_of
from privmix.mechanisms.plan import check_price
from privmix.rounding import exact, rounded_down
from privmix.training.plan import TrainingPlan

SCHEMA_VERSION: Final = 4
PACKAGES: Final = ("privmix", "dp-accounting", "numpy", "scipy", "randomgen", "torch")


def training_certificate(
    plan: TrainingPlan,
    *,
    model_id: str,
    settings: Mapping[str, Any],
    weights_sha256: str,
    insecure_seed: bool,
    reservation: ReservationNote | None,
    public_data: Mapping[str, Any],
) -> dict[str, Any]:
    """Assemble the certificate from public facts only.

    Args:
        plan: what ran, all of it, with the target that was asked for.
        model_id: names the model.
        settings: everything else that decided the result.
        weights_sha256: of the weights' file.
        insecure_seed: the randomness came from a seed that others may know.
        reservation: of the ledger that was charged.
        public_data: digests of what was used as public data.

    Raises:
        InvalidInput: the plan costs more than was asked.
    """
    check_price(plan)
    content = stated_content(
        plan,
        model_id=model_id,
        settings=settings,
        weights_sha256=weights_sha256,
        insecure_seed=insecure_seed,
        in_ledger=mode_of(reservation),
        public_data=public_data,
    )
    content["content_sha256"] = content_hash(content)
    return content


def stated_content(
    plan: TrainingPlan,
    *,
    model_id: str,
    settings: Mapping[str, Any],
    weights_sha256: str,
    insecure_seed: bool,
    in_ledger: str,
    public_data: Mapping[str, Any],
) -> dict[str, Any]:
    """All that a certificate says of ``plan`` and of what its owner states, but for its own hash.

    Whether a ledger was charged, and that the plan keeps its target, is not asked here: this is what certificates are
    compared with.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "model_id": model_id,
        "guarantee": {
            "epsilon": plan.cost().epsilon,
            "delta": plan.delta,
            "adjacency": plan.adjacency.value,
            "accountant": "pld",
            "is_upper_bound": True,
            "epsilon_asked": plan.epsilon,
        },
        "plan": plan.to_dict(),
        "event": event_to_dict(plan.event),
        "settings": dict(settings),
        "public_data": dict(public_data),
        "insecure_seed": insecure_seed,
        "in_ledger": in_ledger,
        "warnings": _warnings(plan, insecure_seed),
        "statements": _statements(plan, public_data, insecure_seed, in_ledger),
        "assessment": assess(_facts(plan, public_data, insecure_seed, in_ledger)),
        "weights_sha256": weights_sha256,
        "versions": {name: _version(name) for name in PACKAGES},
    }


def certificate_bytes(certificate: Mapping[str, Any]) -> bytes:
    """The one way in which a certificate is written to a file."""
    return (json.dumps(dict(certificate), indent=2) + "\n").encode()


def content_hash(certificate: Mapping[str, Any]) -> str:
    """SHA-256 of the content without its own hash. It shows edits; it is no signature."""
    body = {key: value for key, value in certificate.items() if key != "content_sha256"}
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _warnings(plan: TrainingPlan, insecure_seed: bool) -> list[str]:
    found = []
    if insecure_seed:
        found.append(
            "insecure_seed: the noise came from a seed, so whoever guesses it can subtract it. There is no privacy "
            "here."
        )
    if plan.delta >= 1 / plan.records:
        found.append(
            f"delta {exact(plan.delta)} is not below 1/records = {1 / plan.records:.3g}: choose a smaller delta."
        )
    return found


def _statements(plan: TrainingPlan, public_data: Mapping[str, Any], insecure_seed: bool, in_ledger: str) -> list[str]:
    match plan.adjacency:
        case Adjacency.ADD_REMOVE:
            relation = "one record present or absent"
        case Adjacency.REPLACE_ONE:
            relation = "the content of one record"
    hidden = "" if plan.adjacency is Adjacency.ADD_REMOVE else " This adjacency does not hide it."
    count = (
        f"The number of records is declared as {plan.records}; the real count was not used for sampling rates.{hidden}"
        if plan.records_declared
        else f"The number of records, {plan.records}, is taken as public: the guarantee does not hide it."
    )
    unit = (
        "each record's gradient, averaged over its views, is clipped once"
        if plan.microbatch_size == 1
        else f"gradients of groups of about {plan.microbatch_size} records are clipped: one record moves one by twice C"
    )
    verb = "Not guaranteed, as the noise came from a seed, but meant" if insecure_seed else "Guaranteed"
    found = [
        f"{verb}: all weights of all steps together tell little about {relation}. A person with several records in the "
        "data is protected less.",
        f"Poisson batches of expected size {plan.batch_size}, {plan.steps} steps; {unit}; noise multiplier "
        f"{plan.noise_multiplier:.6g}; sums are divided by a public number.",
        count,
        "Sums and noise are rounded to one public grid and added as integers: no floating-point digits of a sum show.",
        "Noise and batches come from a cryptographic generator: the guarantee is against bounded computing power.",
        ledger_statement(
            in_ledger, "uses", "No budget ledger was used: other uses of the same records are not counted here."
        ),
        "The class list, the feature extractor and the initial weights, pretrained ones too, are taken as made without "
        "the private records.",
        "Not covered: how long steps took, and whatever else is seen of the machine, its memory or its disk.",
        "Not covered: hyper-parameters tuned on the same private records, in other runs, cost privacy of their own.",
        "Not covered: what evaluation on private records shows.",
    ]
    if public_data:
        found.append(f"Taken as public, without any protection: {', '.join(sorted(public_data))}.")
    return found


def _facts(plan: TrainingPlan, public_data: Mapping[str, Any], insecure_seed: bool, in_ledger: str) -> Facts:
    """What the assessment is made from."""
    assert plan.epsilon is not None
    unit = "each record's gradient" if plan.microbatch_size == 1 else "each microbatch's gradient"
    return Facts(
        what="model",
        adjacency=plan.adjacency,
        epsilon=plan.epsilon,
        delta=plan.delta,
        records=plan.records,
        count="declared" if plan.records_declared else "public",
        mechanism=f"{plan.steps} steps of DP-SGD. Each record joins each batch independently with probability B/n, B = "
        f"{plan.batch_size}, n = {plan.records}; {unit} is clipped to {exact(plan.clip_norm)}; each sum has Gaussian "
        f"noise, {rounded_down(plan.noise_multiplier, 4)} times what adding one record can change, drawn once.",
        bias=["Long gradients are scaled down, which favours records that are like many others."],
        digits="Sums and noise are whole numbers on one public grid: the digits of a sum do not show.",
        digits_left="The noise is drawn in float64 and its tails end near 12 standard deviations; the price takes it "
        "for exact.",
        settings="privmix fixes the plan before it reads a private record.",
        in_ledger=in_ledger,
        insecure_seed=insecure_seed,
        public_data=sorted(public_data),
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
