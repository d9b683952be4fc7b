"""Check a trained model without trusting whoever made it: recompute its price, its texts and its hashes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from privmix.accounting import event_from_dict
from privmix.certificate.assessment import as_rows
from privmix.errors import InvalidInput, check_number
from privmix.rounding import rounded_up
from privmix.training.certificate import SCHEMA_VERSION, training_certificate
from privmix.training.plan import TrainingPlan
from privmix.training.trained import load_trained

_FIELDS: Final[dict[str, type]] = {
    "model_id": str,
    "guarantee": dict,
    "plan": dict,
    "event": dict,
    "settings": dict,
    "public_data": dict,
    "insecure_seed": bool,
    "in_ledger": str,
    "warnings": list,
    "statements": list,
    "assessment": list,
    "weights_sha256": str,
}
_GUARANTEE: Final = frozenset(("epsilon", "delta", "adjacency", "accountant", "is_upper_bound", "epsilon_asked"))
# Settings that the plan holds too: model cards are made from either.
_PLANNED: Final = (
    "records",
    "records_declared",
    "batch_size",
    "clip_norm",
    "delta",
    "adjacency",
    "microbatch_size",
)


@dataclass(frozen=True)
class TrainedVerification:
    """What held. Every check that fails raises instead.

    Attributes:
        model_id: names the model.
        epsilon: stated.
        delta: stated.
        adjacency: stated.
        recomputed_epsilon: of the event, computed here.
        warnings: the certificate's.
    """

    model_id: str
    epsilon: float
    delta: float
    adjacency: str
    recomputed_epsilon: float
    warnings: tuple[str, ...]


def verify_trained(folder: str | Path) -> TrainedVerification:
    """Recompute what a trained model's certificate claims.

    Formal guarantees:
        * Whole: the certificate hashes to what it says, the weights to what it says of them, and classes and extractor
          are those it names.
        * One plan: the event is the one that follows from the plan, and the settings say what the plan says.
        * Price: epsilon of the event at the plan's delta, recomputed here, is at most the stated one.
        * Words: statements and warnings are those that follow from the plan.

    The hash shows edits and is no signature: who may write the folder may write another certificate, but none that
    promises more than its own plan keeps. Not checked: that the weights came from running the plan, that its key was
    kept secret, that a ledger was charged, and files that belong to no model.

    Raises:
        InvalidInput: a check failed; the message names it.
        StorageError: a file is missing or unreadable.

    Example:
        >>> import tempfile
        >>> from privmix.training import ModelFacts, TrainingConfig, TrainingJob, TrainingRecords
        >>> config = TrainingConfig.for_model("linear", records=300, epsilon=4.0, delta=1e-4, epochs=1)
        >>> job = TrainingJob(config, ModelFacts(("no", "yes"), {"name": "identity"}, (2,), dim=2), records=300)
        >>> folder = Path(tempfile.mkdtemp())
        >>> job.run(TrainingRecords.of([[0.0, 1.0], [1.0, 0.0]] * 150, [0, 1] * 150, classes=2)).write(folder)
        >>> verify_trained(folder).recomputed_epsilon <= 4.0
        True
    """
    certificate = load_trained(folder).certificate
    plan = plan_of(certificate)
    if event_from_dict(certificate["event"]) != plan.event():
        raise InvalidInput("certificate event", certificate["event"], "the event that follows from its plan")
    for name, planned in plan.to_dict().items():
        if name in _PLANNED and certificate["settings"].get(name) != planned:
            found = certificate["settings"].get(name)
            raise InvalidInput(f"certificate settings {name}", found, f"{planned!r}, as in the plan")
    expected = _expected(certificate, plan)
    recomputed = _check_guarantee(certificate["guarantee"], expected["guarantee"])
    for name in ("warnings", "statements", "assessment"):
        if certificate[name] != expected[name]:
            raise InvalidInput(f"certificate {name}", "other text", "the text that follows from the plan")
    stated = certificate["guarantee"]
    return TrainedVerification(
        certificate["model_id"],
        stated["epsilon"],
        stated["delta"],
        stated["adjacency"],
        recomputed,
        tuple(certificate["warnings"]),
    )


def plan_of(certificate: Mapping[str, Any]) -> TrainingPlan:
    """The plan in a certificate whose fields are all there, so that it can be shown; nothing is recomputed.

    Raises:
        InvalidInput: a field is missing or of another kind, or this is another version.
    """
    if certificate.get("schema_version") != SCHEMA_VERSION:
        allowed = f"{SCHEMA_VERSION}; certificates of another are read by the privmix that their versions name"
        raise InvalidInput("certificate schema_version", certificate.get("schema_version"), allowed)
    for name, kind in _FIELDS.items():
        if not isinstance(certificate.get(name), kind):
            raise InvalidInput(f"certificate {name}", certificate.get(name), f"a JSON {kind.__name__}")
    as_rows(certificate["assessment"])
    stated = certificate["guarantee"]
    if set(stated) != _GUARANTEE:
        raise InvalidInput("certificate guarantee", sorted(stated), f"{sorted(_GUARANTEE)}")
    for name in ("epsilon", "delta", "epsilon_asked"):
        check_number(f"certificate {name}", stated[name], low=0)
    return TrainingPlan.from_dict(certificate["plan"])


def _expected(certificate: Mapping[str, Any], plan: TrainingPlan) -> dict[str, Any]:
    """The certificate that training would write for this plan, priced anew."""
    try:
        return training_certificate(
            plan,
            target=certificate["guarantee"]["epsilon_asked"],
            model_id=certificate["model_id"],
            settings=certificate["settings"],
            weights_sha256=certificate["weights_sha256"],
            insecure_seed=certificate["insecure_seed"],
            in_ledger=certificate["in_ledger"],
            public_data=certificate["public_data"],
        )
    except ArithmeticError:
        raise InvalidInput("certificate event", certificate["event"], "an event that can be priced") from None


def _check_guarantee(stated: Mapping[str, Any], expected: Mapping[str, Any]) -> float:
    """Compare all figures of the guarantee; returns the recomputed epsilon."""
    recomputed, claimed = float(expected["epsilon"]), float(stated["epsilon"])
    # The same figures may differ in the last digits between versions of the numerical libraries.
    if not recomputed <= claimed * (1 + 1e-6):
        raise InvalidInput("certificate epsilon", claimed, f"at least {recomputed:.6g}, the recomputed epsilon")
    for name in sorted(set(expected) - {"epsilon"}):
        if stated[name] != expected[name] or type(stated[name]) is not type(expected[name]):
            raise InvalidInput(f"certificate {name}", stated[name], f"{expected[name]!r}, as follows from the plan")
    if not claimed * (1 - 1e-6) <= stated["epsilon_asked"]:
        raise InvalidInput("certificate epsilon_asked", stated["epsilon_asked"], f"at least {rounded_up(claimed, 6)}")
    return recomputed
